"""A metric in groups of units: one that holds all of them has the run's own figures."""

from typing import Any

import pytest

from memray_eval.analysis.marks import metric_undecided
from memray_eval.analysis.scores import OF_GROUPS, add_intervals, summarise_groups
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import MetricSummary
from tests.build import build_folder, build_metric, build_record, build_sample, build_score
from tests.conftest import REPOSITORY

_COUNTS = ("n", "n_scored", "n_no_answer", "n_abstained")


def figures(metric: MetricSummary) -> dict[str, Any]:
    ends = {name: getattr(metric.figure, name) for name in ("value", "low", "high")}
    return ends | {name: getattr(metric, name) for name in (*OF_GROUPS, *_COUNTS)}


@pytest.mark.parametrize("name", ["memory", "arms", "longbench", "jury"])  # ratios, clusters
def test_a_group_of_all_units_has_the_figures_of_the_run(name: str) -> None:
    folder = RunFolder(str(REPOSITORY / "tests" / "golden" / "runs" / name))
    records = folder.records()
    metrics = add_intervals(folder.read_summary(), records).metrics
    for metric in (scored := [metric for metric in metrics if metric.n_scored]):
        (group,) = summarise_groups(records, metric, "no such field").values()
        assert figures(group) == pytest.approx(figures(metric))
    assert scored


def test_groups_are_by_fields_and_metadata_and_may_have_no_score(tmp_path: Any) -> None:
    values = {"en": [1.0, 3.0], "de": [None, None], "": [5.0]}
    records = [
        build_record(
            build_sample(id=f"{key}{number}", metadata={"tongue": key} if key else {}),
            "r",
            build_score("empathy", value),
        )
        for key, of_key in values.items()
        for number, value in enumerate(of_key)
    ]
    folder = build_folder(tmp_path / "run", records)
    metric = build_metric("empathy", 5, scale=(1, 5), n_scored=3, n_failed=2, coverage=0.6)
    groups = summarise_groups(folder.records(), metric, "tongue")
    expected = {"en": (2, 2, 2.0, 3.0), "de": (2, 0, None, None), "": (1, 1, 5.0, 5.0)}
    assert {name: (of.n, of.n_scored, of.mean, of.max) for name, of in groups.items()} == expected
    assert groups["de"].figure.value is None
    assert groups["en"].figure.low is not None
    assert groups[""].figure.low is None
    assert list(summarise_groups(folder.records(), metric, "nothing")) == [""]


def test_a_group_counts_the_verdicts_that_its_own_answers_lack(tmp_path: Any) -> None:
    lost = {"d1": "abstained", "d2": "no_answer"}
    records = [
        build_record(
            build_sample(id=f"{day}{number}", task=day),
            "r",
            build_score("empathy", None, status=lost[day])
            if number == 0 and day in lost
            else build_score("empathy", 4.0),
        )
        for day in ("d1", "d2", "d3")
        for number in range(4)
    ]
    metric = build_metric("empathy", 12, scale=(1, 5), n_scored=10, n_no_answer=1, n_abstained=1)
    of = summarise_groups(build_folder(tmp_path / "run", records).records(), metric, "task")
    assert {day: (row.n_no_answer, row.n_abstained) for day, row in of.items()} == {
        "d1": (0, 1),
        "d2": (1, 0),
        "d3": (0, 0),
    }
    assert [day for day, row in of.items() if metric_undecided(row)] == ["d1", "d2"]

"""A metric in groups of units: one that holds all of them has the run's own figures."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pytest

from memray_eval.analysis.marks import metric_undecided
from memray_eval.analysis.scores import OF_GROUPS, add_intervals, summarise_groups
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import MetricSummary, Score
from tests.build import build_dataset, build_metric, build_record, build_sample, build_score
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


SCORE = partial(build_score, "empathy")


def grouped(folder: Path, groups: Mapping[str, Sequence[Score]]) -> pads.Dataset:
    """Scores of each group, which is the samples' task and their `tongue` in the metadata."""
    records = []
    for key, scores in groups.items():
        about = {"metadata": {"tongue": key}, "task": key} if key else {}
        records += [build_record(build_sample(id=f"{key}{n}", **about), "r", score)
                    for n, score in enumerate(scores)]  # fmt: skip
    return build_dataset(folder / "records", records)


def test_groups_are_by_fields_and_metadata_and_may_have_no_score(tmp_path: Path) -> None:
    scores = {"en": [SCORE(1.0), SCORE(3.0)], "de": [SCORE(None)] * 2, "": [SCORE(5.0)]}
    records = grouped(tmp_path, scores)
    metric = build_metric("empathy", 5, scale=(1, 5), n_scored=3, n_failed=2, coverage=0.6)
    groups = summarise_groups(records, metric, "tongue")
    expected = {"en": (2, 2, 2.0, 3.0), "de": (2, 0, None, None), "": (1, 1, 5.0, 5.0)}
    assert {name: (of.n, of.n_scored, of.mean, of.max) for name, of in groups.items()} == expected
    assert groups["de"].figure.value is None
    assert groups["en"].figure.low is not None
    assert groups[""].figure.low is None
    assert list(summarise_groups(records, metric, "nothing")) == [""]


def test_a_group_counts_the_verdicts_that_its_own_answers_lack(tmp_path: Path) -> None:
    lost = {"d1": [SCORE(None, status="abstained")], "d2": [SCORE(None, status="no_answer")]}
    scores = {day: [*lost.get(day, []), *[SCORE(4.0)] * 3] for day in ("d1", "d2", "d3")}
    metric = build_metric("empathy", 11, scale=(1, 5), n_scored=9, n_no_answer=1, n_abstained=1)
    of = summarise_groups(grouped(tmp_path, scores), metric, "task")
    counts = {day: (row.n_no_answer, row.n_abstained) for day, row in of.items()}
    assert counts == {"d1": (0, 1), "d2": (1, 0), "d3": (0, 0)}
    assert [day for day, row in of.items() if metric_undecided(row)] == ["d1", "d2"]

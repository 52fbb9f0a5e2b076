"""The sentence of a comparison, and where candidates differ."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from memray_eval.analysis.comparing import Compared, compare
from memray_eval.analysis.open_runs import compare_runs, pick_candidates
from memray_eval.analysis.statistics import CompareOptions
from memray_eval.errors import ConfigError
from memray_eval.report.comparison_console import verdict, verdict_of_all
from tests.build import build_folder
from tests.runs import PLACES, chat_records

QUICK = CompareOptions(resamples=400)
Effect = Mapping[tuple[str, str], float]  # of B against A, by metric and task
PLANTED: Effect = {("empathy", "billing"): 0.9}
EVERYWHERE = [(metric, task) for metric in ("empathy", "coherence") for task in PLACES]


def write_run(path: Path, name: str, effect: Effect) -> str:
    """Answers with two metrics of 1 to 5 and a plan; the same prompts have the same chance."""
    rows = []
    for number, record in enumerate(chat_records(name, effect, n=200)):
        about = {"plan": f"p{number % 3}", "row": str(number)}
        sample = record.sample.model_copy(update={"metadata": about})
        rows.append(record.model_copy(update={"sample": sample}))
    return build_folder(path, rows, {"started": "2026-11-24T00:00:00Z"}).path


def compared(tmp_path: Path, effect: Effect, by: str | None = None) -> Compared:
    runs = [write_run(tmp_path / "a", "old", {}), write_run(tmp_path / "b", "new", effect)]
    return compare_runs(pick_candidates(runs), by=by)[0]


def test_a_planted_effect_is_told_with_its_task(tmp_path: Path) -> None:
    comparison = compared(tmp_path, PLANTED, "task")
    sentence = verdict(comparison, comparison.common[0])
    assert sentence.startswith("new is better than old on ")
    assert "empathy +0.2" in sentence
    assert "worse on none" in sentence
    assert "most of it in task billing" in sentence or "empathy mostly in task billing" in sentence
    of_empathy = [group for group in comparison.groups if group.metric == "empathy"]
    assert [group.group for group in of_empathy if group.difference > 0.5] == ["billing"]


def test_what_does_not_differ_is_not_told_as_different(tmp_path: Path) -> None:
    comparison = compared(tmp_path, {})
    sentence = verdict(comparison, comparison.common[0])
    assert sentence.startswith("No difference is shown between old and new on any of 2 metrics")
    assert comparison.by == "task"


def test_an_effect_everywhere_is_in_no_place(tmp_path: Path) -> None:
    comparison = compared(tmp_path, dict.fromkeys(EVERYWHERE, -0.6))
    sentence = verdict(comparison, comparison.common[0])
    assert sentence.startswith("new is worse than old on 2 of 2 (")
    assert "better on none" in sentence
    assert "billing" not in sentence


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (0.9, "Best, or not clearly below it, on 2 metrics: new on 2."),
        (0.0, "No candidate is shown to differ from the best on any of 2 metrics."),
    ],
)
def test_three_sides_are_ranked_in_a_sentence(tmp_path: Path, effect: float, expected: str) -> None:
    runs = [
        write_run(tmp_path / "a", "old", {}),
        write_run(tmp_path / "b", "new", dict.fromkeys(EVERYWHERE, effect)),
        write_run(tmp_path / "c", "same", {}),
    ]
    sides = [run.side(None, "task") for run in pick_candidates(runs)]
    assert verdict_of_all(compare(sides, by="task", settings=QUICK)) == expected
    assert verdict_of_all(compare(sides[:2], by="task", settings=QUICK)) == ""


def test_units_are_split_by_any_key_of_the_metadata(tmp_path: Path) -> None:
    comparison = compared(tmp_path, PLANTED, "plan")
    assert {group.group for group in comparison.groups} == {"p0", "p1", "p2"}
    assert sum(group.n for group in comparison.groups if group.metric == "empathy") == 200


@pytest.mark.parametrize(
    ("by", "message"), [("row", "200 groups, more than the 50"), ("colour", "no answer names it")]
)
def test_a_split_that_is_none_is_told(tmp_path: Path, by: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compared(tmp_path, PLANTED, by)

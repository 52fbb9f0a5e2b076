"""The sentence of a comparison, and where candidates differ."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from memray_eval.analysis.comparing import Compared, compare
from memray_eval.analysis.open_runs import compare_runs, pick_candidates
from memray_eval.analysis.statistics import CompareOptions
from memray_eval.errors import ConfigError
from memray_eval.report.comparison_console import verdict, verdict_of_all
from tests.build import build_folder, build_record, build_sample, build_score

TASKS = ("billing", "refunds", "travel", "weather")
QUICK = CompareOptions(resamples=400)
Effect = Callable[[str, str], float]  # of B against A, by metric and task


def write_run(path: Path, name: str, effect: Effect, n: int = 200) -> str:
    """Answers with two metrics of 1 to 5 and a plan; the same prompts have the same chance."""
    chance, rows = random.Random(11), []
    for number in range(n):
        task = TASKS[number % len(TASKS)]
        about = {"plan": f"p{number % 3}", "row": str(number)}
        values = {
            metric: min(5.0, max(1.0, 3 + chance.gauss(0, 0.5) + effect(metric, task)))
            for metric in ("empathy", "coherence")
        }
        scores = [build_score(metric, value, judge="j") for metric, value in values.items()]
        sample = build_sample(id=f"S{number}", suite="chat", task=task, metadata=about)
        rows.append(build_record(sample, "So.", *scores, candidate=name))
    return build_folder(path, rows, {"started": "2026-11-24T00:00:00Z"}).path


def compared(tmp_path: Path, effect: Effect, by: str | None = None) -> Compared:
    runs = [
        write_run(tmp_path / "a", "old", lambda metric, task: 0.0),
        write_run(tmp_path / "b", "new", lambda metric, task: 0.02 + effect(metric, task)),
    ]
    return compare_runs(pick_candidates(runs), by=by)[0]


def planted(metric: str, task: str) -> float:
    return 0.9 if (metric, task) == ("empathy", "billing") else random.Random(metric).gauss(0, 1e-3)


def noise(metric: str, task: str) -> float:
    return -0.02


def test_a_planted_effect_is_told_with_its_task(tmp_path: Path) -> None:
    comparison = compared(tmp_path, planted, "task")
    sentence = verdict(comparison, comparison.common[0])
    assert sentence.startswith("new is better than old on ")
    assert "empathy +0.2" in sentence
    assert "worse on none" in sentence
    assert "most of it in task billing" in sentence or "empathy mostly in task billing" in sentence
    (largest,) = {
        group.group
        for group in comparison.groups
        if group.metric == "empathy" and group.difference > 0.5
    }
    assert largest == "billing"


def test_what_does_not_differ_is_not_told_as_different(tmp_path: Path) -> None:
    comparison = compared(tmp_path, noise)
    sentence = verdict(comparison, comparison.common[0])
    assert sentence == "No difference is shown between old and new on any of 2 metrics."
    assert comparison.by == "task"


def test_an_effect_everywhere_is_in_no_place(tmp_path: Path) -> None:
    comparison = compared(tmp_path, lambda metric, task: -0.6)
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
        write_run(tmp_path / "a", "old", lambda metric, task: 0.0),
        write_run(tmp_path / "b", "new", lambda metric, task: effect),
        write_run(tmp_path / "c", "same", lambda metric, task: 0.0),
    ]
    sides = [run.side(None, "task") for run in pick_candidates(runs)]
    assert verdict_of_all(compare(sides, by="task", settings=QUICK)) == expected
    assert verdict_of_all(compare(sides[:2], by="task", settings=QUICK)) == ""


def test_units_are_split_by_any_key_of_the_metadata(tmp_path: Path) -> None:
    comparison = compared(tmp_path, planted, "plan")
    assert {group.group for group in comparison.groups} == {"p0", "p1", "p2"}
    assert sum(group.n for group in comparison.groups if group.metric == "empathy") == 200


@pytest.mark.parametrize(
    ("by", "message"), [("row", "200 groups, more than the 50"), ("colour", "no answer names it")]
)
def test_a_split_that_is_none_is_told(tmp_path: Path, by: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compared(tmp_path, planted, by)

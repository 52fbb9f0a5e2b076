"""Equal candidates are told apart no more often than the level says, and planted effects are."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from memray_eval.analysis.comparing import Compared, Side, compare
from memray_eval.analysis.recommendation import median_ratio, pair_of, recommend
from memray_eval.analysis.scores import ESTIMATED, Scores
from memray_eval.analysis.statistics import CompareOptions, apart_p, mean_interval, t_interval
from memray_eval.analysis.where import LENGTH, Groups
from memray_eval.api.runs import Comparison
from memray_eval.report.comparison_console import matrix_section, render, verdict, verdict_of_all
from memray_eval.report.sections import Table
from memray_eval.types import Recommendation
from tests.build import build_performance

N, SEEDS = 120, 100
SCALES = {"empathy": (1.0, 5.0), "right": (0.0, 1.0)}
TASKS = ("billing", "refunds", "travel", "weather")
QUICK = CompareOptions(resamples=1000)
KEYS = [str(number) for number in range(N)]
GROUPS = Groups(
    pa.array(KEYS),
    {
        "task": (np.arange(N) % 4, TASKS),
        "language": (np.arange(N) // 100, ("en", "de")),
        LENGTH: (np.arange(N) // 30, ("up to 1k", "up to 2k", "up to 4k", "up to 8k")),
    },
)


def side(name: str, seed: int, gain: float = 0.0, task: str = "") -> Side:
    """Answers of chance to the same prompts; `gain` is added in `task`, or everywhere."""
    chance, hard = np.random.default_rng([seed, *name.encode()]), np.random.default_rng(seed)
    at = np.array([not task or TASKS[number % 4] == task for number in range(N)])
    empathy = hard.normal(3.2, 0.6, N) + chance.normal(0, 0.6, N) + gain * at
    right = chance.random(N) < np.clip(hard.uniform(0.4, 1, N) + gain * at, 0, 1)
    units = pa.table(
        {"key": KEYS, "sample_id": KEYS, "task": KEYS, "cluster": pa.nulls(N, pa.string())}
    )
    values = {"empathy": np.clip(empathy, 1, 5), "right": right.astype(np.float64)}
    return Side(name, name, {"status": "finished"}, Scores(units, values, ()), scales=SCALES)


def advice_on(sides: Sequence[Side], seed: int, times: float = 1.0) -> Recommendation:
    """The advice on two candidates of these scores whose speeds differ by chance, or `times`."""
    a, b = ((one.scores.values["empathy"] - 1) / 4 for one in sides)
    chance = np.random.default_rng(seed)
    speeds = [chance.lognormal(3, 0.4, N), times * chance.lognormal(3, 0.4, N)]
    rows = [
        build_performance(one.name, float(1 / np.mean(1 / speed)), 100 * float(values.mean()), 1.0,
                          n=N, n_scored=N)
        for one, values, speed in zip(sides, (a, b), speeds, strict=True)
    ]  # fmt: skip
    names = (sides[0].name, sides[1].name)
    ratio = median_ratio(*names, speeds[1] / speeds[0])
    corrected = pair_of(*names, a, b, settings=CompareOptions(level=1 - 0.05 / 2))
    return recommend(rows, [pair_of(*names, a, b)], [ratio], [corrected])


def compared(*sides: Side) -> Compared:
    return compare(sides, more=GROUPS, settings=QUICK)


def test_of_equal_candidates_none_is_better_used_or_placed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = {"better": 0, "group": 0, "python": 0, "use": 0}
    n_named = 0
    for seed in range(SEEDS):
        sides = [side("old", seed), side("new", seed)]
        comparison = compared(*sides)
        shown = repr(Comparison.model_validate(dict(comparison)))
        claims = {
            "better": not verdict(comparison, comparison.common[0]).startswith("No difference"),
            "group": any(group.is_shown for group in comparison.groups),
            "python": any(word in shown for word in ("is better", "is worse", "Use "))
            or not shown.startswith("No difference"),
            "use": advice_on(sides, seed).use is not None,
        }
        named = {what: count + claims[what] for what, count in named.items()}
        n_named += any(claims.values())
    with capsys.disabled():
        print(f"\n{n_named} of {SEEDS} seeds name a difference: {named}")
    assert n_named <= 5


def test_a_planted_effect_is_better_in_its_task_and_used() -> None:
    sides = [side("old", 1), side("new", 1, 1.5, "billing")]
    comparison = compared(*sides)
    sentence = verdict(comparison, comparison.common[0])
    assert sentence.startswith("new is better than old on 1 of 2 (empathy +0.2")
    assert "worse on none" in sentence
    assert "empathy mostly in task billing" in sentence or "most of it in task billing" in sentence
    shown = [group for group in comparison.groups if group.is_shown]
    assert (shown[0].metric, shown[0].by, shown[0].group) == ("empathy", "task", "billing")
    assert "empathy, task billing" in render(comparison)
    assert advice_on(sides, 1).use == "new"


def test_an_effect_everywhere_is_in_no_place() -> None:
    comparison = compared(side("old", 1), side("new", 1, -1.0))
    sentence = verdict(comparison, comparison.common[0])
    assert sentence.startswith("new is worse than old on 2 of 2 (")
    assert "better on none" in sentence
    assert not any(task in sentence for task in TASKS)


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (1.0, "Best, or not clearly below it, on 2 metrics: new on 2."),
        (0.0, "No candidate is shown to differ from the best on any of 2 metrics."),
    ],
)
def test_three_sides_are_ranked_in_a_sentence(gain: float, expected: str) -> None:
    sides = [side("old", 1), side("new", 1, gain), side("same", 1)]
    assert verdict_of_all(compared(*sides)) == expected
    assert verdict_of_all(compared(*sides[:2])) == ""


@pytest.mark.parametrize(("times", "use"), [(1.5, "new"), (0.6, "old"), (1.0, None)])
def test_the_fastest_is_used_if_the_ratio_of_speeds_is_told_from_1(
    times: float, use: str | None
) -> None:
    advice = advice_on([side("old", 5), side("new", 5)], 5, times)
    assert advice.use == use
    assert advice.speeds[0].ratio == pytest.approx(times, rel=0.25)
    is_open = use is None or "in quality" in advice.reason
    assert ("no difference shown" in advice.reason) == is_open


def test_the_matrix_marks_the_best_and_what_is_not_shown_to_be_below_it() -> None:
    sides = [side("low", 2, -1.0), side("even", 2), side("best", 2, 0.02), side("poor", 2, -0.9)]
    comparison = compared(*sides)
    rows = {(row.side, row.metric): row for row in comparison.matrix}
    assert len(rows) == 8
    marks = {name: rows[name, "empathy"].is_best for name in ("low", "even", "best", "poor")}
    assert marks == {"low": False, "even": True, "best": True, "poor": False}
    best = max((row for row in comparison.matrix if row.metric == "empathy"), key=lambda r: r.value)
    assert (best.best, best.p_holm) == ("", None)
    (line,) = [line for line in render(comparison).splitlines() if line.startswith("even  ")]
    assert f"{rows['even', 'empathy'].value:.3f}*" in line
    assert compared(*sides[:2]).matrix == ()


def test_the_matrix_marks_the_estimates_of_each_side() -> None:
    sides = [side(name, 2) for name in ("rules", "first", "second")]
    of_rules = replace(sides[0].scores, kinds={"empathy": np.full(N, ESTIMATED, np.int8)})
    sides[0] = replace(sides[0], scores=of_rules)
    for order in permutations(sides):
        section = matrix_section(compared(*order))
        (table,) = (part for part in section.parts if isinstance(part, Table))
        column = table.rows[0].index("empathy")
        assert [row[0] for row in table.rows if row[column].endswith(" est.")] == ["rules"]


def test_whom_a_sentence_shows_to_be_below_another_the_matrix_does_not_call_best() -> None:
    n_found, n_marginal = 0, 0
    for seed in range(30):
        sides = [side("first", seed, 0.2), side("same", seed, 0.2), side("less", seed)]
        comparison = compare(sides, settings=QUICK)
        matrix = {(row.metric, row.side): row for row in comparison.matrix}
        leader = {row.metric: row.side for row in comparison.matrix if not row.best}
        for row in comparison.metrics:
            below = row.other if (row.paired.difference or 0.0) < 0 else "first"
            is_found, of = row.is_found(QUICK.level), matrix[row.metric, row.other]
            n_found += is_found
            if is_found:
                assert not matrix[row.metric, below].is_best
            elif leader[row.metric] == "first":
                assert of.is_best
            n_marginal += leader[row.metric] == "first" and is_found != ((of.p_holm or 1) < 0.05)
    assert n_found > 5
    assert n_marginal  # the two tests differ somewhere


def test_of_twenty_equal_candidates_few_are_marked_as_below_the_best() -> None:
    n_below = 0
    for seed in range(10):
        sides = [side(f"c{number}", 100 + seed) for number in range(20)]
        matrix = compare(sides, settings=CompareOptions(resamples=100)).matrix
        n_below += any(not row.is_best for row in matrix)
    assert n_below <= 1


@pytest.mark.parametrize(
    ("of_group", "others", "is_apart"),
    [
        ([0.0] * 20, [0.0] * 162 + [1.0] * 18, False),  # a tenth: 20 zeros are no wonder
        ([1.0] * 2 + [0.0] * 18, [0.0] * 178 + [1.0] * 2, False),
        ([1.0] * 12 + [0.0] * 8, [0.0] * 178 + [1.0] * 2, True),
        ([1.0] * 20, [1.0] * 180, False),
    ],
)
def test_a_group_without_spread_or_of_rare_events_is_not_told_apart(
    of_group: list[float], others: list[float], is_apart: bool
) -> None:
    values = np.array(of_group + others)
    p = apart_p(np.arange(20), values[:20], values)
    assert (p < 0.01) == is_apart


def test_clusters_across_groups_count_once() -> None:
    values, rows = np.random.default_rng(4).normal(0, 1, 20).repeat(10), np.arange(100)
    alone = apart_p(rows, values[:100], values)
    together = apart_p(rows, values[:100], values, np.arange(20).repeat(10))
    assert alone < together


def test_an_interval_ends_where_the_scale_does() -> None:
    values = np.array([4.9, 5.0, 5.0, 4.2])
    assert mean_interval(values, scale=(1.0, 5.0)) == (mean_interval(values)[0], 5.0)
    assert t_interval(0.0, 9.0, 1, scale=(-4.0, 4.0)) == (-4.0, 4.0)

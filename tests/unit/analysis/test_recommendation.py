"""Speed against quality: the rule's cases worked out by hand, and the blocks that seed 004
prints."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.analysis.recommendation import (
    describe_rule,
    measure_speed,
    pair_of,
    paired_qualities,
    recommend,
    swap_sides,
    why_not_shown,
)
from memray_eval.analysis.statistics import CompareOptions, detectable_difference, units_to_show
from memray_eval.benchmarks import Suite
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.ports import FloatArray
from memray_eval.report.exports import export_benchmark
from memray_eval.types import (
    Performance,
    Prompt,
    QualityPair,
    Recommendation,
    Record,
    Response,
    Score,
    SpeedRatio,
)
from tests.build import (
    build_dataset,
    build_metric,
    build_record,
    build_sample,
    build_score,
    build_summary,
)
from tests.build import build_performance as row


def column(of_row: Performance, wave: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Qualities in 0-1 with this mean and standard error; those of a sine are independent of those
    of a cosine."""
    n = of_row.n_scored if of_row.quality_stderr is not None else 1
    spread = math.sqrt(2 * (n - 1)) * (of_row.quality_stderr or 0.0)
    return ((of_row.quality or 0.0) + wave(2 * np.pi * np.arange(n) / n) * spread) / 100


def pairs_of(rows: Sequence[Performance]) -> list[QualityPair]:
    """The pairs of independent answers with the rows' figures, on the prompts that both have."""
    rated = {row.candidate: row for row in rows if row.quality is not None}
    both = list(combinations(sorted(rated), 2))
    how, pairs = CompareOptions().for_all(len(both)), []
    for a, b in both:
        left, right = column(rated[a], np.sin), column(rated[b], np.cos)
        n = min(left.size, right.size)
        pairs.append(pair_of(a, b, left[:n], right[:n], settings=how))
    return pairs


def speeds_of(rows: Iterable[Performance], spread: float = 1.005) -> list[SpeedRatio]:
    """Ratios of speeds that are known to 0.5 %."""
    timed = [row for row in rows if row.task is None and row.tokens_per_s]
    return [
        SpeedRatio(
            a=a.candidate, b=b.candidate, n=40, level=0.95, ratio=ratio,
            low=ratio / spread, high=ratio * spread,
        )
        for a, b in combinations(timed, 2)
        if (ratio := (b.tokens_per_s or 0.0) / (a.tokens_per_s or 1.0))
    ]  # fmt: skip


def of(*rows: Performance) -> Recommendation:
    """The recommendation, the same in whatever order the rows come."""
    pairs, speeds = pairs_of(rows), speeds_of(rows)
    (advice,) = {recommend(order, pairs, speeds) for order in permutations(rows)}
    return advice


def test_the_seeds_example_is_its_recommendation() -> None:
    advice = of(row("llama3.1:8b", 10.2, 257 / 3), row("llama3.1:70b", 5.9, 296 / 3))
    expected = (("llama3.1:8b",), ("llama3.1:70b",), "llama3.1:70b")
    assert (advice.fastest, advice.best, advice.use) == expected
    assert advice.reason == "Better quality (13pts), reasonable speed tradeoff (1.7x)"
    assert advice.pareto == ("llama3.1:8b", "llama3.1:70b")
    assert (advice.as_good, advice.left_out) == ((), ())


@pytest.mark.parametrize(
    ("points", "slowdown"), [(2.0, 1.1), (5.0, 1.5), (10.0, 2.0), (15.0, 3.0), (20.0, 50.0)]
)
def test_points_are_worth_a_slowdown(points: float, slowdown: float) -> None:
    def use(gap: float, times: float) -> str | None:
        slow = row("slow", 100.0 / times, 70.1 + gap, stderr=0.1)
        return of(row("fast", 100.0, 70.1, stderr=0.1), slow).use

    assert use(points, slowdown) == "slow"
    assert use(points, slowdown + 0.01) == ("slow" if points == 20.0 else "fast")
    assert use(points - 0.1, slowdown) == "fast"


@pytest.mark.parametrize(
    ("quality", "reason"),
    [
        (81.5, "fastest; quality parity with slow (+1.5pts), which is 3.0x slower than fast"),
        (91.5, "fastest; slow is better (+11.5pts), but 3.0x slower than fast"),
        (70.0, "fastest; best quality"),
    ],
)
def test_why_the_better_one_is_not_taken_is_said(quality: float, reason: str) -> None:
    slow = row("slow", 10.0, quality, stderr=0.1)
    assert of(row("fast", 30.0, 80.0, stderr=0.1), slow).reason == reason


def test_a_difference_whose_interval_holds_zero_is_not_shown_and_says_how_many_prompts_would() -> (
    None
):
    # standard error 5, Student's t of 30 degrees of freedom 2.0423: half width 10.211
    apart, together = 10.22, 10.20
    slow = row("slow", 8.0, 80.0, stderr=3.0, n_scored=31)
    assert of(row("fast", 10.0, 80.0 - apart, stderr=4.0, n_scored=31), slow).use == "slow"
    advice = of(row("fast", 10.0, 80.0 - together, stderr=4.0, n_scored=31), slow)
    assert advice.use == "fast"
    # (t(0.975) + t(0.8)) x 5 x sqrt(31 / n) = 10.20 at n = 61
    assert advice.reason == (
        "fastest; no difference shown in quality to slow (+10.2pts on 31 common prompts, interval "
        "0.0 to 20.4; about 30 more would show one of this size)"
    )
    assert (advice.best, advice.as_good) == (("slow",), ("fast",))


def test_without_common_prompts_no_difference_is_shown() -> None:
    rows = [row("fast", 10.0, 10.0), row("slow", 9.0, 90.0)]
    advice = recommend(rows, speeds=speeds_of(rows))
    assert (advice.use, advice.as_good) == ("fast", ("fast",))
    assert advice.reason.endswith("no difference shown in quality to slow (no common prompts)")


def test_few_answers_right_and_wrong_are_not_told_apart_by_their_missing_spread() -> None:
    """Two of two right against none of two: no spread, but Tango's interval holds 0; four more
    prompts would tell."""
    few, enough = (
        of(
            row("fast", 10.0, 0.0, stderr=0.0, n_scored=n),
            row("slow", 9.0, 100.0, stderr=0.0, n_scored=n),
        )
        for n in (2, 9)
    )
    assert (few.use, enough.use) == ("fast", "slow")
    assert "; about 4 more would show one of this size)" in few.reason


def test_answers_that_all_differ_by_as_much_are_told_apart_by_their_number() -> None:
    """No interval without a spread; the sign-flip test gives 2 x 2^-n: 0.0625 for five prompts,
    0.031 for six."""
    fast, slow = np.full(6, 0.4), np.full(6, 0.6)
    six, five = pair_of("fast", "slow", fast, slow), pair_of("fast", "slow", fast[:5], slow[:5])
    assert (six.is_shown, six.low, six.more) == (True, None, None)
    assert (five.is_shown, five.low, five.more) == (False, None, 1)
    same = pair_of("fast", "slow", fast, fast)
    assert (same.is_shown, same.more) == (False, None)
    assert why_not_shown(same) == "equal on average over 6 common prompts"


def test_what_both_find_hard_is_no_noise() -> None:
    """Prompts differ by far more than candidates do: each interval alone spans 38 points, the
    paired one 2."""
    hard = np.linspace(0.1, 0.8, 20)
    better = hard + 0.05 + 0.02 * np.cos(np.arange(20))
    pair = pair_of("fast", "slow", hard, better)
    assert pair.is_shown
    assert pair.low > 3
    rows = [
        row("fast", 10.0, 45.0, stderr=4.9, n_scored=20),
        row("slow", 9.0, 50.0, stderr=4.9, n_scored=20),
    ]
    speeds = speeds_of(rows)
    advice, swapped = (recommend(rows, [side], speeds) for side in (pair, swap_sides(pair)))
    assert advice == swapped.model_copy(update={"pairs": (pair,)})
    assert advice.use == "slow"


def test_units_to_show_is_where_the_difference_becomes_detectable() -> None:
    needed = units_to_show(2.0, 3.0, 25)
    assert detectable_difference(3.0 * math.sqrt(25 / needed), needed - 1) <= 2.0
    assert detectable_difference(3.0 * math.sqrt(25 / (needed - 1)), needed - 2) > 2.0
    assert units_to_show(-2.0, 3.0, 25) == needed
    assert units_to_show(0.0, 3.0, 25) is None
    assert units_to_show(1e-8, 3.0, 25) is None  # more than anybody has
    assert units_to_show(2.0, 3.0, 1) is None


QUALITY = ComputedMetric(
    name="quality", title="-", value_label="-", scale=(1, 5),
    measure=lambda s, r: MetricValue(value=1),
)  # fmt: skip


def unit(
    number: int,
    value: float | None = None,
    task: str = "",
    candidate: str = "c",
    prompt_type: str = "",
    user: str = "",
    **response: Any,
) -> Record:
    metadata = {"user": user} if user else {}
    sample = build_sample(id=f"s{number}", task=task, prompt_type=prompt_type, metadata=metadata)
    scores = build_score("other", 0.25), build_score("quality", value)
    answer = Response(**{"text": "an answer"} | response)
    return build_record(sample, answer, *scores, candidate=candidate)


def test_pairs_are_read_from_the_records_on_common_prompts(tmp_path: Path) -> None:
    a = [unit(n, value, candidate="a") for n, value in enumerate((1.0, 2.0, 3.0, None))]
    b = [unit(n, value, candidate="b") for n, value in enumerate((2.0, 4.0, 3.0, 5.0))]
    c = [unit(0, 5.0, "another task of that id", "c")]
    records = build_dataset(
        tmp_path, [*a, b[3]], [*c, *b[:3]], a[:2]
    )  # two units were written twice
    ab, ac, bc = paired_qualities(records, QUALITY, ["a", "b", "c"])
    # 0.25, 0.5, 0 of the scale
    assert (ab.a, ab.b, ab.n, ab.difference) == ("a", "b", 3, pytest.approx(25.0))
    assert ab.level == pytest.approx(1 - 0.05 / 3)
    # Student's reaches 25 + 110.40, beyond the largest difference there can be
    assert (ab.low, ab.high) == (pytest.approx(25 - 110.40, abs=0.05), 100.0)
    assert [(pair.n, pair.difference, pair.more) for pair in (ac, bc)] == [(0, None, None)] * 2
    assert paired_qualities(records, QUALITY, ["a"]) == ()


def test_pairs_are_clustered_by_what_the_samples_name(tmp_path: Path) -> None:
    def side(name: str, values: Sequence[float]) -> list[Record]:
        return [unit(n, value, "", name, user=f"u{n // 5}") for n, value in enumerate(values)]

    records = build_dataset(tmp_path, side("a", [2.0] * 15), side("b", [3.0] * 5 + [2.1] * 10))
    (pair,) = paired_qualities(records, QUALITY, ["a", "b"])
    alone = pair_of("a", "b", np.full(15, 0.25), np.array([0.5] * 5 + [0.275] * 10))
    assert (pair.n, alone.is_shown, pair.is_shown) == (15, True, False)
    assert pair.more % 5 == 0  # users of five prompts each


def test_of_three_each_step_is_judged_against_the_one_in_hand() -> None:
    fast, middle = row("a", 100.0, 60.0), row("b", 50.0, 90.0, stderr=0.1)
    advice = of(fast, middle, row("c", 10.0, 91.5, stderr=0.1))
    assert advice.use == "b"
    assert advice.reason == (
        "Better quality (30pts), reasonable speed tradeoff (2.0x); quality parity with c "
        "(+1.5pts), which is 5.0x slower than b"
    )
    assert of(fast, row("b", 90.0, 63.0), row("c", 80.0, 85.0)).use == "c"


def test_small_steps_do_not_add_up_to_a_slowdown_that_the_whole_gain_is_not_worth() -> None:
    # each step gains 5 points at 1.5x; together 10 points at 2.25x, where 10 points are worth 2x
    steps = (("a", 90.0, 60.0), ("b", 60.0, 65.0), ("c", 40.0, 70.0))
    advice = of(*(row(*step, stderr=0.1) for step in steps))
    assert advice.use == "b"
    assert advice.reason.endswith("; c is better (+10pts), but 2.2x slower than a")


def test_who_is_dominated_or_lacks_a_figure_is_not_used_and_one_alone_has_no_advice() -> None:
    advice = of(row("a", 100.0, 60.0), row("dominated", 50.0, 60.0), row("c", 60.0, 80.0))
    assert (advice.pareto, advice.use) == (("a", "c"), "c")
    advice = of(row("a", 10.0, 80.0), row("b", 5.0, 70.0), row("c", None, 99.0))
    assert (advice.use, advice.left_out, advice.best) == ("a", ("c",), ("c",))
    assert recommend([row("a", 10.0, 80.0), row("a", 10.0, 80.0, task="simple")]) is None


def test_equal_candidates_are_all_named_and_none_is_used() -> None:
    advice = of(row("b", 10.0, 80.0), row("a", 10.0, 80.0), row("c", 10.0, 70.0))
    assert advice.fastest == ("a", "b", "c")
    assert advice.best == ("a", "b")
    assert advice.pareto == ("a", "b")
    assert advice.use is None
    assert advice.reason.startswith("no difference shown between a and b: in quality equal on")


def test_without_speed_or_quality_the_other_decides_if_it_can() -> None:
    advice = of(row("a", None, 80.0), row("b", None, 90.0))
    assert (advice.use, advice.reason) == ("b", "best quality; speed was not measured")
    assert (advice.fastest, advice.pareto) == ((), ())
    unsure = of(row("a", None, 80.0, stderr=5.0), row("b", None, 90.0))
    assert unsure.use is None
    assert unsure.reason == (
        "no difference shown in quality between b and a (+10pts on 3 common prompts, interval "
        "-11.6 to 31.6; about 6 more would show one of this size); speed was not measured"
    )
    assert of(row("a", None, 80.0, stderr=0.0), row("b", None, 80.0, stderr=0.0)).use is None
    assert of(row("a", 10.0, None, None), row("b", 20.0, None, None)).use == "b"
    assert of(row("a", 10.0, None, None), row("b", 10.0, None, None)).use is None
    assert of(row("a", None, None, None), row("b", 0.0, 1.0)).use is None


def test_the_rule_says_its_thresholds_and_the_level_of_each_pair() -> None:
    assert describe_rule() == (
        "from the fastest on, a slower candidate is taken where it is 2 points better at up to "
        "1.1x slower, 5 points better at up to 1.5x slower, 10 points better at up to 2x slower, "
        "15 points better at up to 3x slower, 20 points better at any speed, and the 95 % interval "
        "of the difference on common prompts lies above 0; else speed wins, if that of the median "
        "ratio of speeds lies above 1.1."
    )
    assert "on common prompts (98.33 % each, for 3 pairs) lies above 0" in describe_rule(3)


FIGURE = st.none() | st.floats(0.1, 100.0)


@given(
    st.lists(st.tuples(FIGURE, FIGURE, st.none() | st.floats(0.0, 10.0)), min_size=2, max_size=5)
)
def test_it_always_says_something_and_uses_only_what_is_on_the_front(
    figures: list[tuple[Any, Any, Any]],
) -> None:
    rows = [row(f"c{number}", *values) for number, values in enumerate(figures)]
    pairs, speeds = pairs_of(rows), speeds_of(rows)
    advice = recommend(rows, pairs, speeds)
    assert advice == recommend(rows[::-1], pairs[::-1], speeds)
    assert advice.reason
    if advice.pareto and "not measured" not in advice.reason:
        assert advice.use in (None, *advice.left_out, *advice.pareto)


def record(name: str, number: int, *scores: Score, **response: Any) -> Record:
    sample = build_sample(id=f"s{number}", task="navigation")
    return build_record(sample, Response(**response), *scores, candidate=name)


def test_the_benchmark_file_is_the_seeds_list(tmp_path: Path) -> None:
    metric = build_metric("quality", candidate="a", title="Q", scale=(1, 5))
    judgment = '{"issues": ["Step count: 4", "cut \\ud83d"], "reason": "x"}'
    score = build_score("quality", 4.0, parts={"json_validity": 100.0}, judgment=judgment)
    estimate = build_score("quality", judge="rules", judgment="{}")
    failed = Score(metric="quality", status="error", error="down")
    summary = build_summary(metrics=(metric,), headline="quality")
    records = (
        record("größe", 1, failed, error="down"),
        record("a", 1, score, text="x" * 101, output_tokens=65, duration_s=6.5, ttft_s=0.145),
        record("größe", 2, estimate, text="größe\n", output_tokens=0, duration_s=0.0),
    )
    export_benchmark(str(tmp_path / "benchmark.json"), iter(records), summary)
    first, second = json.loads((tmp_path / "benchmark.json").read_text("utf-8"))
    assert (first["model"], second["model"]) == ("a", "größe")
    assert first["tests"] == [
        {
            "prompt_name": "navigation",
            "prompt_id": "s1",
            "duration_seconds": 6.5,
            "tokens_generated": 65,
            "tokens_per_second": 10.0,
            "time_to_first_token": 0.145,
            "response_preview": "x" * 100 + "...",
            "quality_score": 75.0,
            "quality_details": {
                "subscores": {"json_validity": 100.0},
                "issues": ["Step count: 4", "cut \ud83d"],
                "passed_checks": [],
            },
        }
    ]
    failure, empty = second["tests"]
    missing = ("quality_score", "quality_details", "tokens_per_second")
    assert [failure[figure] for figure in missing] == [None] * 3
    assert (empty["response_preview"], empty["tokens_per_second"]) == ("größe\n", None)
    assert empty["quality_is_estimate"] is True


def measured(folder: Path, *parts: Sequence[Record]) -> tuple[Performance, ...]:
    return measure_speed(build_dataset(folder, *parts), QUALITY)


def test_the_figures_of_a_candidate_and_its_tasks(tmp_path: Path) -> None:
    units = [
        unit(1, 5.0, "a", output_tokens=10, duration_s=1.0, ttft_s=0.1),
        unit(2, 3.0, "a", output_tokens=50, duration_s=2.0, ttft_s=0.3),
        unit(3, 1.0, "b", output_tokens=40, duration_s=2.0, ttft_s=0.2),
    ]
    whole, a, b = measured(tmp_path, units[:2], units[2:])
    assert (whole.candidate, whole.task, whole.n, whole.n_scored) == ("c", None, 3, 3)
    assert (whole.duration_s_total, whole.duration_s_mean) == (5.0, pytest.approx(5 / 3))
    assert (whole.output_tokens, whole.tokens_per_s) == (100, 20.0)
    assert (whole.ttft_s_mean, whole.ttft_s_p95) == (pytest.approx(0.2), pytest.approx(0.29))
    # 5, 3 and 1 of 1-5 are 100, 50 and 0 of 100: sample std 50
    assert (whole.quality, whole.quality_stderr) == (50.0, pytest.approx(50 / math.sqrt(3)))
    assert (a.task, a.n, a.quality, a.tokens_per_s, a.duration_s_mean) == ("a", 2, 75.0, 20.0, 1.5)
    assert (b.task, b.n, b.quality, b.quality_stderr) == ("b", 1, 0.0, None)


def test_failed_and_unmeasured_answers_take_no_part_in_speed(tmp_path: Path) -> None:
    units = [
        unit(1, 4.0, output_tokens=30, duration_s=3.0),
        unit(
            2, None, output_tokens=0, duration_s=120.0, ttft_s=9.0, error="the server answered 500"
        ),
        unit(3, 2.0, output_tokens=7),
        unit(4, 3.0, duration_s=5.0),
    ]
    (whole,) = measured(tmp_path, units)
    assert (whole.n, whole.n_scored, whole.quality) == (4, 3, 50.0)
    assert (whole.duration_s_total, whole.output_tokens, whole.tokens_per_s) == (8.0, 37, 10.0)
    assert whole.ttft_s_mean is None


def test_nothing_measured_is_none_and_without_a_headline_there_is_speed_alone(
    tmp_path: Path,
) -> None:
    (whole,) = measured(tmp_path / "a", [unit(1)])
    figures = ("tokens_per_s", "duration_s_total", "ttft_s_p95", "quality", "quality_stderr")
    assert [getattr(whole, figure) for figure in figures] == [None] * 5
    assert (whole.output_tokens, whole.n_scored) == (0, 0)
    timed = unit(1, 4.0, output_tokens=30, duration_s=3.0)
    (whole,) = measure_speed(build_dataset(tmp_path / "b", [timed]), None)
    assert (whole.tokens_per_s, whole.quality) == (10.0, None)


def test_a_unit_written_twice_counts_once_and_the_prompt_type_is_a_task(tmp_path: Path) -> None:
    units = [
        unit(1, 5.0, prompt_type="simple", output_tokens=1, duration_s=1.0),
        unit(2, 1.0, candidate="d", output_tokens=1, duration_s=1.0),
    ]
    rows = measured(tmp_path, units, units[:1])
    assert [(row.candidate, row.task, row.n, row.output_tokens) for row in rows] == [
        ("c", None, 1, 1), ("c", "simple", 1, 1), ("d", None, 1, 1),
    ]  # fmt: skip


def test_a_suites_headline_is_its_first_metric_unless_named_or_left_out() -> None:
    def suite(**fields: Any) -> Suite:
        return Suite(
            description="-",
            metrics=("first", "second"),
            prompt=lambda s, c: Prompt(messages=()),
            **fields,
        )

    assert suite().quality_metric(("second", "first")) == "first"
    assert suite(headline="second").quality_metric(("first", "second")) == "second"
    assert suite(headline="second").quality_metric(("third", "first")) == "third"
    assert suite().quality_metric(()) == ""

"""Speed against quality: the rule's cases worked out by hand, and the blocks that seed 004 prints."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.errors import ConfigError
from memray_eval.report.comparison import performance_lines
from memray_eval.report.console import render
from memray_eval.report.exports import export_benchmark
from memray_eval.report.recommendation import RULE, Rule, Worth, recommend
from memray_eval.types import (
    Candidate,
    GenerationSummary,
    MetricSummary,
    Performance,
    Recommendation,
    Record,
    Response,
    Sample,
    Score,
    Summary,
)


def row(name: str, speed: float | None, quality: float | None, stderr: float | None = 0.5, **fields: Any) -> Performance:
    times = {"duration_s_total": 15.32, "duration_s_mean": 5.1, "ttft_s_mean": 0.145, "ttft_s_p95": 0.2}
    return Performance.model_validate(
        {
            "candidate": name, "task": None, "n": 3, "output_tokens": 156, "tokens_per_s": speed, "n_scored": 3,
            "quality": quality, "quality_stderr": stderr, **times, **fields,
        }
    )  # fmt: skip


def of(*rows: Performance, rule: Rule = RULE) -> Recommendation:
    """The recommendation, the same in whatever order the rows come."""
    found = {recommend(order, rule) for order in permutations(rows)}
    assert len(found) == 1
    (only,) = found
    assert only is not None
    return only


def test_the_seeds_example_is_its_recommendation() -> None:
    found = of(row("llama3.1:8b", 10.2, 257 / 3), row("llama3.1:70b", 5.9, 296 / 3))
    assert (found.fastest, found.best, found.use) == (("llama3.1:8b",), ("llama3.1:70b",), "llama3.1:70b")
    assert found.reason == "Better quality (13pts), reasonable speed tradeoff (1.7x)"
    assert found.pareto == ("llama3.1:8b", "llama3.1:70b")
    assert (found.as_good, found.left_out) == ((), ())


@pytest.mark.parametrize(
    ("gap", "slowdown", "taken"),
    [
        (1.9, 1.01, False),
        (2.0, 1.1, True),
        (2.0, 1.11, False),
        (4.9, 1.11, False),
        (5.0, 1.5, True),
        (5.0, 1.51, False),
        (9.9, 1.51, False),
        (10.0, 2.0, True),
        (10.0, 2.01, False),
        (15.0, 3.0, True),
        (15.0, 3.01, False),
        (19.9, 3.01, False),
        (20.0, 50.0, True),
    ],
)
def test_points_are_worth_a_slowdown(gap: float, slowdown: float, taken: bool) -> None:
    found = of(row("fast", 100.0, 70.1, stderr=0.1), row("slow", 100.0 / slowdown, 70.1 + gap, stderr=0.1))
    assert found.use == ("slow" if taken else "fast")


def test_why_the_better_one_is_not_taken_is_said() -> None:
    def reason(quality: float) -> str:
        return of(row("fast", 30.0, 80.0, stderr=0.1), row("slow", 10.0, quality, stderr=0.1)).reason

    assert reason(81.5) == "fastest; quality parity with slow (+1.5pts), which is 3.0x slower than fast"
    assert reason(91.5) == "fastest; slow is better (+11.5pts), but 3.0x slower than fast"
    assert reason(70.0) == "fastest; best quality"


def test_overlapping_intervals_show_no_difference() -> None:
    # Student's t of 30 degrees of freedom, 2.0423: half widths x 4 = 8.169 and x 3 = 6.127, together 14.296
    apart, together = 14.30, 14.29
    slow = row("slow", 8.0, 80.0, stderr=3.0, n_scored=31)
    assert of(row("fast", 10.0, 80.0 - apart, stderr=4.0, n_scored=31), slow).use == "slow"
    found = of(row("fast", 10.0, 80.0 - together, stderr=4.0, n_scored=31), slow)
    assert found.use == "fast"
    assert found.reason == "fastest; no difference shown in quality to slow (+14.3pts, the intervals overlap)"
    assert (found.best, found.as_good) == (("slow",), ("fast",))


def test_one_answer_shows_no_difference() -> None:
    found = of(row("fast", 10.0, 10.0, stderr=None), row("slow", 9.0, 90.0))
    assert found.use == "fast"
    assert (
        "no difference shown in quality to slow (+80pts, no interval: too few answers, or all score the same)" in found.reason
    )


def test_few_answers_right_and_wrong_are_not_told_apart_by_their_missing_spread() -> None:
    """Two of two right against none of two: no spread, but Wilson's intervals (34 to 100, 0 to 66) overlap."""
    assert of(row("fast", 10.0, 0.0, stderr=0.0, n_scored=2), row("slow", 9.0, 100.0, stderr=0.0, n_scored=2)).use == "fast"
    assert of(row("fast", 10.0, 0.0, stderr=0.0, n_scored=9), row("slow", 9.0, 100.0, stderr=0.0, n_scored=9)).use == "slow"


def test_of_three_each_step_is_judged_against_the_one_in_hand() -> None:
    fast, middle = row("a", 100.0, 60.0), row("b", 50.0, 90.0, stderr=0.1)
    found = of(fast, middle, row("c", 10.0, 91.5, stderr=0.1))
    assert found.use == "b"
    assert found.reason == (
        "Better quality (30pts), reasonable speed tradeoff (2.0x); quality parity with c (+1.5pts), which is 5.0x slower than b"
    )
    assert of(fast, row("b", 90.0, 63.0), row("c", 80.0, 85.0)).use == "c"


def test_small_steps_do_not_add_up_to_a_slowdown_that_the_whole_gain_is_not_worth() -> None:
    # each step gains 5 points at 1.5x; together 10 points at 2.25x, where 10 points are worth 2x
    found = of(row("a", 90.0, 60.0), row("b", 60.0, 65.0), row("c", 40.0, 70.0))
    assert found.use == "b"
    assert found.reason.endswith("; c is better (+10pts), but 2.2x slower than a")


def test_a_dominated_candidate_is_neither_on_the_front_nor_used() -> None:
    found = of(row("a", 100.0, 60.0), row("dominated", 50.0, 60.0), row("c", 60.0, 80.0))
    assert (found.pareto, found.use) == (("a", "c"), "c")


def test_equal_candidates_are_all_named_and_the_first_name_is_used() -> None:
    found = of(row("b", 10.0, 80.0), row("a", 10.0, 80.0), row("c", 10.0, 70.0))
    assert found.fastest == ("a", "b", "c")
    assert found.best == ("a", "b")
    assert found.pareto == ("a", "b")
    assert (found.use, found.reason) == ("a", "fastest; best quality")


def test_without_speed_quality_decides_if_it_can() -> None:
    found = of(row("a", None, 80.0), row("b", None, 90.0))
    assert (found.use, found.reason) == ("b", "best quality; speed was not measured")
    assert (found.fastest, found.pareto) == ((), ())
    unsure = of(row("a", None, 80.0, stderr=5.0), row("b", None, 90.0))
    assert unsure.use is None
    assert unsure.reason == "no difference shown in quality between b and a; speed was not measured"
    equal = of(row("a", None, 80.0, stderr=0.0), row("b", None, 80.0, stderr=0.0))
    assert equal.use is None


def test_without_quality_speed_decides_if_it_can() -> None:
    assert of(row("a", 10.0, None, None), row("b", 20.0, None, None)).use == "b"
    assert of(row("a", 10.0, None, None), row("b", 10.0, None, None)).use is None
    assert of(row("a", None, None, None), row("b", 0.0, 1.0)).use is None


def test_a_candidate_that_lacks_a_figure_is_left_out_and_said_to_be() -> None:
    found = of(row("a", 10.0, 80.0), row("b", 5.0, 70.0), row("c", None, 99.0))
    assert (found.use, found.left_out, found.best) == ("a", ("c",), ("c",))


def test_one_candidate_has_no_recommendation() -> None:
    assert recommend([row("a", 10.0, 80.0), row("a", 10.0, 80.0, task="simple")]) is None


def test_the_thresholds_are_data_and_the_rule_says_them() -> None:
    strict = Rule(worth=(Worth(points=50, slowdown=1.1),), level=0.8)
    found = of(row("fast", 10.2, 85.0), row("slow", 5.9, 99.0), rule=strict)
    assert found.use == "fast"
    assert found.rule == (
        "from the fastest on, a slower candidate is taken where it is 50 points better at up to 1.1x slower, and the 80 % "
        "intervals (answers taken as independent) do not overlap; else speed wins."
    )
    assert "20 points better at any speed" in RULE.in_words()


FIGURE = st.none() | st.floats(0.1, 100.0)


@given(st.lists(st.tuples(FIGURE, FIGURE, st.none() | st.floats(0.0, 10.0)), min_size=2, max_size=5))
def test_it_always_says_something_and_uses_only_what_is_on_the_front(figures: list[tuple[Any, Any, Any]]) -> None:
    rows = [row(f"c{number}", *each) for number, each in enumerate(figures)]
    found = recommend(rows)
    assert found is not None
    assert found == recommend(rows[::-1])
    assert found.reason
    if found.use is not None and len(found.pareto) and found.use not in found.left_out and "not measured" not in found.reason:
        assert found.use in found.pareto


SEED = (
    row("llama3.1:8b", 10.2, 257 / 3),
    row("llama3.1:8b", 12.3, 100.0, task="simple", duration_s_mean=2.45),
    row("llama3.1:8b", 9.8, 85.0, task="navigation", duration_s_mean=6.21),
    row("llama3.1:8b", None, None, None, task="reasoning", duration_s_mean=12.5),
)
SLOWER = row("llama3.1:70b", 5.9, 296 / 3)


def test_a_candidates_block_is_the_seeds() -> None:
    assert "\n".join(performance_lines(SEED, "instruction_quality")) + "\n" == EXPECTED_BLOCK


def test_a_block_without_any_measurement() -> None:
    none = dict.fromkeys(("duration_s_total", "duration_s_mean", "ttft_s_mean", "ttft_s_p95"))
    lines = list(performance_lines([row("a", None, None, None, **none, output_tokens=0)], ""))
    assert [line.split(":")[1].split()[0] for line in lines] == ["-", "0", "-", "-"]


def summary(*performance: Performance) -> Summary:
    names = dict.fromkeys(each.candidate for each in performance)
    return Summary(
        run_id="r", suite="instruction", n_samples=3, n_invalid=0, n_units=3, n_failed_units=0, generation_s=None,
        evaluation_s=None, total_s=1.0, metrics=(), headline="instruction_quality", performance=performance,
        recommendation=recommend(performance),
        candidates=tuple(
            GenerationSummary(
                candidate=name, model=name, n=3, n_failed=0, prompt_tokens=1, output_tokens=1, output_tokens_per_s=None,
                ttft_s_mean=None, ttft_s_p95=None, duration_s_mean=None, finish_reasons={},
            )
            for name in names
        ),
    )  # fmt: skip


def test_the_console_prints_blocks_and_the_recommendation() -> None:
    text = render(summary(*SEED, SLOWER))
    assert text.index("SPEED AND QUALITY - llama3.1:8b") < text.index("SPEED AND QUALITY - llama3.1:70b")
    start = text.index("RECOMMENDATIONS")
    assert text[start : text.index("\n\n=", start)] + "\n" == EXPECTED_RECOMMENDATIONS
    assert max(map(len, text.splitlines())) <= 80


def test_one_candidate_has_its_block_and_no_recommendations() -> None:
    text = render(summary(*SEED))
    assert "SPEED AND QUALITY - llama3.1:8b" in text
    assert "RECOMMENDATIONS" not in text


def test_the_comparison_prints_the_same_from_its_json() -> None:
    full = summary(*SEED, SLOWER)
    assert render(Summary.model_validate_json(full.model_dump_json())) == render(full)


def test_figures_that_were_not_measured_are_printed_as_nothing() -> None:
    text = render(summary(row("a", None, None, None), row("b", None, None, None)))
    assert "Fastest Model:       -\nBest Quality:        -\n" in text
    assert "Left Out:            a, b (speed or quality not measured)" in text


def record(name: str, number: int, *scores: Score, **response: Any) -> Record:
    return Record(
        unit_id=f"{name}{number}",
        sample=Sample(id=f"s{number}", query="q", task="navigation"),
        candidate=Candidate(name=name, model="m"),
        response=Response(**response),
        scores=scores,
    )


def test_the_benchmark_file_is_the_seeds_list(tmp_path: Path) -> None:
    metric = MetricSummary(
        metric="quality", candidate="a", title="Q", scale=(1, 5), n=1, n_scored=1, n_abstained=0, n_not_applicable=0,
        n_failed=0, coverage=1.0,
    )  # fmt: skip
    score = Score(
        metric="quality", status="scored", value=4.0, parts={"json_validity": 100.0},
        judgment='{"issues": ["Step count: 4"], "reason": "x"}',
    )  # fmt: skip
    failed = Score(metric="quality", status="error", error="down")
    told = summary(SEED[0]).model_copy(update={"metrics": (metric,), "headline": "quality"})
    records = (
        record("b", 1, failed, error="down"),
        record("a", 1, score, text="x" * 101, output_tokens=65, duration_s=6.5, ttft_s=0.145),
        record("b", 2, score, text="größe\n", output_tokens=0, duration_s=0.0),
    )
    export_benchmark(str(tmp_path / "benchmark.json"), iter(records), told)
    first, second = json.loads((tmp_path / "benchmark.json").read_text("utf-8"))
    assert (first["model"], second["model"]) == ("a", "b")
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
            "quality_details": {"subscores": {"json_validity": 100.0}, "issues": ["Step count: 4"], "passed_checks": []},
        }
    ]
    failure, empty = second["tests"]
    assert (failure["quality_score"], failure["quality_details"], failure["tokens_per_second"]) == (None, None, None)
    assert (empty["response_preview"], empty["tokens_per_second"]) == ("größe\n", None)


def test_an_estimate_is_marked_in_the_benchmark_file(tmp_path: Path) -> None:
    score = Score(metric="quality", status="scored", value=1.0, judge="rules", judgment="{}")
    told = summary(SEED[0]).model_copy(update={"headline": "quality"})
    export_benchmark(str(tmp_path / "benchmark.json"), [record("a", 1, score, text="x")], told)
    (found,) = json.loads((tmp_path / "benchmark.json").read_text("utf-8"))
    assert found["tests"][0]["quality_is_estimate"] is True


def test_a_lone_surrogate_in_a_judgment_is_written_as_its_escape(tmp_path: Path) -> None:
    score = Score(metric="quality", status="scored", value=1.0, judgment='{"issues": ["cut \\ud83d"], "passed_checks": []}')
    told = summary(SEED[0]).model_copy(update={"headline": "quality"})
    export_benchmark(str(tmp_path / "benchmark.json"), [record("größe", 1, score, text="x")], told)
    (found,) = json.loads((tmp_path / "benchmark.json").read_text("utf-8"))
    assert (found["model"], found["tests"][0]["quality_details"]["issues"]) == ("größe", ["cut \ud83d"])


def test_a_benchmark_file_in_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        export_benchmark(str(tmp_path / "none" / "benchmark.json"), (), summary(SEED[0]))
    with pytest.raises(ConfigError, match="is a folder"):
        export_benchmark(str(tmp_path), (), summary(SEED[0]))


def test_a_benchmark_file_of_nothing_is_an_empty_list(tmp_path: Path) -> None:
    export_benchmark(str(tmp_path / "benchmark.json"), (), summary(SEED[0]))
    assert json.loads((tmp_path / "benchmark.json").read_text()) == []


EXPECTED_BLOCK = """\
  Total Duration:      15.32s  (of all answers; they overlap in a run)
  Total Tokens:        156
  Avg Speed:           10.2 tokens/sec
  Avg Time to First:   0.145s  (95% within 0.200s)
  Avg Quality:         85.7/100 ± 2.2  (95 % interval; instruction_quality)

  Performance by Task:
    simple          2.45s  |  12.3 tok/s  |  Q: 100/100
    navigation      6.21s  |   9.8 tok/s  |  Q: 85/100
    reasoning      12.50s  |     - tok/s  |  Q: -
"""

EXPECTED_RECOMMENDATIONS = """\
RECOMMENDATIONS
----------------------------------------------------------------------
Fastest Model:       llama3.1:8b (10.2 tok/s)
Best Quality:        llama3.1:70b (98.7/100)

Speed vs Quality Tradeoff:
   llama3.1:8b          Speed: 10.2 tok/s  |  Quality: 85.7/100 ± 2.2
   llama3.1:70b         Speed:  5.9 tok/s  |  Quality: 98.7/100 ± 2.2

Pareto Front:        llama3.1:8b, llama3.1:70b
Recommendation:
   Use llama3.1:70b - Better quality (13pts), reasonable speed tradeoff (1.7x)
   Rule: from the fastest on, a slower candidate is taken where it is 2 points
     better at up to 1.1x slower, 5 points better at up to 1.5x slower, 10
     points better at up to 2x slower, 15 points better at up to 3x slower, 20
     points better at any speed, and the 95 % intervals (answers taken as
     independent) do not overlap; else speed wins.
"""

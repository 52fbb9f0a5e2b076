"""Outcomes and statistics: nothing scored is nothing, never zero."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.config.sections import MetricOptions
from memray_eval.metric import (
    ComputedMetric,
    Level,
    MetricColumns,
    MetricValue,
    distribution,
    score_by_code,
    statistics,
    summarise,
    unscorable,
)
from memray_eval.metrics import pick
from memray_eval.metrics.assistant import groundedness, memory_utilization
from memray_eval.types import MetricSummary, Response, Sample, Score
from tests.build import build_sample

LENGTH = ComputedMetric(
    name="length",
    title="LENGTH",
    value_label="Length",
    scale=(1, 5),
    integer_scale=True,
    measure=lambda s, r: MetricValue(value=len(r.text)),
)


@pytest.mark.parametrize(
    ("measured", "error"),
    [
        (lambda text: 1 / len(text), "ZeroDivisionError: division by zero"),
        (lambda text: "high", "valid number"),
    ],
)
def test_a_metric_that_breaks_is_an_error_of_that_response_only(measured: Any, error: str) -> None:
    broken = replace(LENGTH, measure=lambda s, r: MetricValue(value=measured(r.text)))
    score = score_by_code(broken, build_sample(), Response(text=""))
    assert (score.status, score.value) == ("error", None)
    assert error in (score.error or "")


@pytest.mark.parametrize(
    ("response", "requires", "said"),
    [
        (None, ["query"], ("error", "no response")),
        (Response(error="timed out"), ["query"], ("error", "timed out")),
        (Response(text="x"), ["history", "traits"], ("not_applicable", "no history, traits")),
        (Response(text=""), ["query"], None),
    ],
)
def test_what_cannot_be_scored_says_why(response: Any, requires: list[str], said: Any) -> None:
    score = unscorable(replace(LENGTH, requires=tuple(requires)), build_sample(), response)
    assert (score is None) == (said is None)
    if score is not None:
        assert score.status == said[0]
        assert said[1] in (score.error or "")


@pytest.mark.parametrize(
    ("level", "metadata", "applies"),
    [
        ("turn", {"session": "S", "turn": 1, "turns": 3}, True),
        ("last_turn", {"session": "S", "turn": 2, "turns": 3}, False),
        ("session", {"session": "S", "turn": 2, "turns": 3}, False),
        ("session", {"session": "S", "turn": 3, "turns": 3}, True),
        ("session", {"session": "S", "turn": 2, "turns": 9, "session_end": "done"}, True),
        ("session", {}, True),
        ("session", {"session": "S", "turn": "two", "turns": 3}, True),
    ],
)
@pytest.mark.parametrize("failed", [False, True])
def test_levels(level: Level, metadata: dict[str, Any], applies: bool, failed: bool) -> None:
    response = Response(error="timed out") if failed else Response(text="x")
    score = unscorable(replace(LENGTH, level=level), build_sample(metadata=metadata), response)
    expected = ("error" if failed else None) if applies else "not_applicable"
    assert (score and score.status) == expected
    assert applies or (score and "this is turn 2" in (score.error or ""))


def test_a_score_has_a_value_exactly_when_it_is_scored() -> None:
    with pytest.raises(ValueError, match="cannot have value"):
        Score(metric="m", status="error", value=0.0)
    with pytest.raises(ValueError, match="cannot have value None"):
        Score(metric="m", status="scored")


def summary_of(*values: float, metric: ComputedMetric = LENGTH, **counts: int) -> MetricSummary:
    columns = {"value": np.array(values)} if values else {}
    return summarise(metric, MetricColumns("c", {"scored": len(values), **counts}, {}, columns))


def test_a_summary_of_nothing_has_no_figures() -> None:
    summary = summary_of(error=3, not_applicable=1)
    assert (summary.n, summary.n_scored, summary.n_failed, summary.coverage) == (4, 0, 3, 0.0)
    assert (summary.mean, summary.median, summary.std, summary.stderr) == (None, None, None, None)


def test_coverage_leaves_out_what_does_not_apply() -> None:
    summary = summary_of(1.0, 3.0, abstained=1, not_applicable=5, error=1)
    assert (summary.n, summary.coverage, summary.n_abstained) == (9, 0.5, 1)
    assert summary_of(not_applicable=2).coverage is None


def test_statistics_follow_numpy_and_the_standard_error_the_sample() -> None:
    figures = statistics(np.array([1.0, 2.0, 3.0, 6.0]))
    assert figures["mean"] == 3.0
    assert figures["median"] == 2.5
    assert figures["std"] == pytest.approx(np.std([1, 2, 3, 6]))
    assert figures["stderr"] == pytest.approx(np.std([1, 2, 3, 6], ddof=1) / 2)
    assert statistics(np.array([2.0]))["stderr"] is None


def test_distributions_by_score_and_by_bin() -> None:
    expected = {"5": 3, "4": 0, "3": 0, "2": 0, "1": 1}
    assert distribution(np.array([1.0, 5.0, 4.6, 5.0]), (1, 5), True) == expected
    narrow = distribution(np.linspace(0, 0.5, 101), (0, 0.5), False)
    assert (len(narrow), sum(narrow.values())) == (10, 101)
    bins = distribution(np.array([0.0, 0.05, 1.0, 0.5]), (0, 1), False)
    assert (bins["0.0-0.1"], bins["0.5-0.6"], bins["0.9-1.0"]) == (2, 1, 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_distributions_lose_nothing(values: list[float]) -> None:
    assert sum(distribution(np.array(values), (0, 1), False).values()) == len(values)


SHARE = replace(LENGTH, scale=(-1, 1), measure=lambda s, r: MetricValue(value=0.5))


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, ("scored", -1.0, "rules (no answer)")),
        ({"on_no_answer": "exclude"}, ("no_answer", None, "")),
        ({"on_no_answer": "score"}, ("scored", 0.5, "computed")),
        ({"requires": ("traits",)}, ("not_applicable", None, "")),
    ],
)
def test_what_a_response_without_an_answer_scores(
    sample: Sample, fields: dict[str, Any], outcome: tuple[str, float | None, str]
) -> None:
    response = Response(no_answer="limit", finish_reason="length")
    score = score_by_code(replace(SHARE, **fields), sample, response)
    assert (score.status, score.value, score.judge) == outcome
    if score.status == "no_answer":
        assert score.error == "no answer: limit"


@pytest.mark.parametrize(
    ("response", "is_scored"),
    [
        (Response(no_answer="empty"), True),
        (Response(no_answer="null"), True),
        (Response(no_answer="empty", finish_reason="stop"), False),
        (Response(no_answer="thinking_only", thinking="Hm."), False),
    ],
)
def test_published_rules_score_plain_emptiness(response: Response, is_scored: bool) -> None:
    score = score_by_code(replace(SHARE, scores_empty=True), build_sample(), response)
    assert (score.judge == "computed") is is_scored
    (picked,) = pick(["exact_match"], MetricOptions(scores_empty=True))
    assert (picked.scores_empty, picked.variant) == (True, "")


@pytest.mark.parametrize(
    ("metric", "outcome"),
    [  # what an empty text misses counts in a ratio; of claims it says nothing
        (memory_utilization, ("scored", 0.0, {"tp": 0.0, "fp": 0.0, "fn": 1.0})),
        (groundedness, ("no_answer", None, {})),
    ],
)
def test_a_ratio_of_sums_counts_what_no_answer_misses(metric: Any, outcome: Any) -> None:
    question = build_sample(memory={"diet": "vegan"}, required_keys=["diet"])
    score = unscorable(metric.METRIC, question, Response(no_answer="refusal"))
    assert score is not None
    assert (score.status, score.value, dict(score.parts)) == outcome


def test_units_without_an_answer_lower_the_coverage_and_no_figure() -> None:
    summary = summary_of(1.0, 1.0, metric=SHARE, no_answer=2)
    assert (summary.n, summary.n_scored, summary.n_no_answer) == (4, 2, 2)
    assert (summary.mean, summary.coverage, summary.n_failed) == (1.0, 0.5, 0)

"""The companion family: one judgment for seven metrics, the weighted sum, free text, and what
stands in for a verdict."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.config.sections import MetricOptions, Weights
from memray_eval.errors import ConfigError, Refused, Unavailable
from memray_eval.metric import JudgedMetric, rubric_digest, score_without_judge
from memray_eval.metrics import pick
from memray_eval.metrics.companion import (
    METRIC_OF,
    OVERALL,
    WEIGHTS,
    CompanionJudgment,
    aggregate_overall,
    measure_dimension,
    measure_overall,
    stated_figures,
)
from memray_eval.types import Response, Sample, Score, Usage
from tests.build import build_record, judge_metrics, judged_metric, score_judgment
from tests.fake_judges import FakeJudge

FAMILY = (OVERALL, *METRIC_OF.values())
SAMPLE = Sample(id="s", query="I'm sad about work", memory={"name": "Ada"})
ANSWER = Response(text="That sounds hard. I can help, as an AI. What happened at work?")
SIX = dict(zip(WEIGHTS, (1.0, 0.9, 0.8, 0.7, 0.6, 0.5), strict=True))
# 0.15 x 1.0 + 0.20 x 0.9 + 0.20 x 0.8 + 0.25 x 0.7 + 0.10 x 0.6 + 0.10 x 0.5
SUM = 0.775
FULL = CompanionJudgment(**SIX, overall=0.9, evidence=[], reasoning="warm")
ALONE = CompanionJudgment.model_validate(
    {**dict.fromkeys(WEIGHTS), "overall": 0.4, "evidence": [], "reasoning": "flat"}
)


def metrics() -> list[JudgedMetric]:
    return [judged_metric(name) for name in FAMILY]


def test_all_seven_ask_one_question_of_one_judge() -> None:
    assert len({rubric_digest(metric) for metric in metrics()}) == 1
    assert len({metric.messages(SAMPLE, ANSWER) for metric in metrics()}) == 1
    assert len({(metric.judgment, metric.preferred_judge) for metric in metrics()}) == 1
    assert "Ada" in metrics()[0].messages(SAMPLE, ANSWER)[1].content


def test_a_judge_that_gave_no_figure_for_a_dimension_has_not_judged_it() -> None:
    overall, *six = metrics()
    alone = score_judgment(overall, ALONE, SAMPLE)
    expected = (0.4, 1.0, 0.0)
    assert (alone.value, alone.parts["overall_only"], alone.parts["judge_difference"]) == expected
    for metric in six:
        score = score_judgment(metric, ALONE, SAMPLE)
        assert score.value is None
        assert "Refused: the judge gave no score for" in (score.error or "")
    with pytest.raises(Refused, match="no score for trust_boundaries"):
        measure_dimension(ALONE, SAMPLE, ANSWER, dimension="trust_boundaries")
    partly = FULL.model_copy(update={"helpfulness": None, "trust_boundaries": None})
    assert set(stated_figures(partly)) == set(WEIGHTS) - {"helpfulness", "trust_boundaries"}
    with pytest.raises(Refused, match="no score for helpfulness, trust_boundaries"):
        measure_overall(partly, SAMPLE, ANSWER)


@pytest.mark.parametrize(
    ("weights", "task", "value"),
    [
        ({}, "small_talk", SUM),
        ({"helpfulness": 1.0}, "small_talk", 0.8),
        ({"small_talk": {"trust_boundaries": 1.0}}, "small_talk", 0.5),
        ({"small_talk": {"trust_boundaries": 1.0}}, "basic", SUM),
        ({"small_talk": {"trust_boundaries": 1.0}, "appropriateness": 1.0}, "basic", 1.0),
    ],
)
def test_the_six_weigh_as_the_job_says(weights: Weights, task: str, value: float) -> None:
    metric = judged_metric(OVERALL, MetricOptions(companion_weights=weights))
    sample = SAMPLE.model_copy(update={"task": task})
    assert score_judgment(metric, FULL, sample).value == pytest.approx(value)
    assert bool(metric.variant) == bool(weights)


def test_a_wrong_weight_of_a_scenario_is_refused() -> None:
    with pytest.raises(ConfigError, match="companion weights: no score 'warmth'"):
        pick([OVERALL], MetricOptions(companion_weights={"basic": {"warmth": 1.0}}))


def test_the_aggregate_averages_the_difference_where_there_is_one() -> None:
    columns = {"judge_difference": [0.1, -0.3, 0.0], "overall_only": [0.0, 0.0, 1.0]}
    extras, alone = (
        aggregate_overall(
            {name: np.array(column[start:]) for name, column in columns.items()}
        ).extras
        for start in (0, 2)
    )
    assert extras == {"judge_difference": pytest.approx(0.2), "overall_only": 1.0}
    assert alone["judge_difference"] is None
    assert metrics()[0].layout[-1].lines[0].field == "extras.judge_difference"


def test_the_seeds_default_stands_in_only_when_it_is_asked_for() -> None:
    failed = Score(metric="x", status="abstained", judge="a/b", cost_usd=0.5, error="Refused: no")
    for metric in metrics():
        score = score_without_judge(metric, SAMPLE, ANSWER, "default", failed)
        expected = (0.5, "default", 0.5, "Refused: no")
        assert (score.value, score.judge, score.cost_usd, score.error) == expected


@pytest.mark.parametrize(
    ("text", "score", "why"),
    [
        ("Score: 0.8 | Reasoning: warm, and honest", 0.8, "warm, and honest"),
        ("**Score:** 0.85/1.0\n**Reasoning:** two\nlines", 0.85, "two\nlines"),
        ("Here it is.\n\n> Overall score = .5 | reasoning: a | b", 0.5, "a | b"),
        ("score: 1", 1.0, ""),
        ("Score: 0 | Reasoning: cold.", 0.0, "cold."),
        ("Score: 0.8.", 0.8, ""),
        ("Score: 0.7 | Reasoning: x\nScore: 0.7", 0.7, "x\nScore: 0.7"),
        ("Score: 0.8 | Reasoning: from 0.3 to 0.5", 0.8, "from 0.3 to 0.5"),
        ("Score: 0,8 | Reasoning: warm, 1 fault", 0.8, "warm, 1 fault"),  # a decimal comma
        ("**Score:** 0,85/1,0", 0.85, ""),
        ("Score：0.8 | Reasoning：温暖", 0.8, "温暖"),
    ],
)
def test_the_seeds_form_is_read(text: str, score: float, why: str) -> None:
    judgment = CompanionJudgment.from_text(text)
    assert judgment is not None
    assert (judgment.overall, judgment.reasoning, stated_figures(judgment)) == (score, why, {})


@pytest.mark.parametrize(
    "text",
    (
        "|I like it.|I'd give 0.7|The underscore: 0.7|Score: high|Score: 8|Score: 1.2|Score: -0.5|"
        "Score: 80%|Score: 0.8%|Score: 0.8/10|Score: 0.8 out of 5|Score: 0.8\nScore: 0.3|"
        "Score: 0.8, score: 0.3|Score: 0.8 or 0.7|Score: 0.8.1|Score: 1,5|Score: 8,5|Score: nan|"
        "Score: 0,8-0,9|Score: 0,4, 0,9|Score: 0,8/1,5|Score: 0.8, Overall: 0,9|Score: ０．８|"
        "Score: ٠٫٨|Score: 0·8|Score: 0,8%"
    ).split("|"),
)
def test_what_is_no_single_score_within_the_scale_is_not_read(text: str) -> None:
    assert CompanionJudgment.from_text(text) is None


@given(st.text())
def test_any_reply_is_read_or_not(text: str) -> None:
    judgment = CompanionJudgment.from_text(text)
    assert judgment is None or 0.0 <= judgment.overall <= 1.0


def test_a_judge_is_told_that_every_figure_is_a_number() -> None:
    schema = CompanionJudgment.model_json_schema()
    assert set(schema["required"]) == {*WEIGHTS, "overall", "evidence", "reasoning"}
    assert {schema["properties"][name]["type"] for name in (*WEIGHTS, "overall")} == {"number"}


def costly(outcome: Any) -> FakeJudge:
    """Remembers no call, as with --no-cache."""
    return FakeJudge(outcome, usage=Usage(input_tokens=9), cost_usd=0.5)


def judged(*judges: FakeJudge) -> list[Score]:
    record = build_record(SAMPLE, ANSWER)
    return list(judge_metrics(record, metrics(), dict.fromkeys(FAMILY, judges)).scores)


def test_all_seven_share_one_call_whether_or_not_calls_are_remembered() -> None:
    judge = costly(FULL)
    scores = judged(judge)
    assert (len(judge.seen), len(scores)) == (1, 7)
    assert {score.metric: score.value for score in scores}[OVERALL] == SUM
    assert [score.calls for score in scores] == [1, *[0] * 6]
    assert [score.cached for score in scores] == [False, *[True] * 6]
    assert sum(score.cost_usd for score in scores) == 0.5
    assert sum(score.usage.input_tokens for score in scores) == 9


def test_repeats_are_calls_of_their_own() -> None:
    judges = costly(FULL), costly(FULL)
    assert {score.value is not None for score in judged(*judges)} == {True}
    assert [len(judge.seen) for judge in judges] == [1, 1]


def test_a_shared_call_that_failed_is_paid_once_and_fails_all_seven() -> None:
    error = Unavailable("down")
    error.cost_usd, error.calls, error.input_tokens = 0.5, 3, 9
    judge = costly(error)
    scores = judged(judge)
    assert (len(judge.seen), {score.status for score in scores}) == (1, {"error"})
    assert {score.error for score in scores} == {"Unavailable: down"}
    assert [(score.cost_usd, score.calls) for score in scores] == [(0.5, 3), *[(0.0, 0)] * 6]

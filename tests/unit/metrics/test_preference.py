"""Preference: what a judge of two answers is shown, what its verdict is worth, and when there is
none."""

import json
import re

import pytest
from pydantic import ValidationError

from memray_eval.config.sections import MetricOptions, OwnMetric, RubricMetric
from memray_eval.errors import ConfigError
from memray_eval.metric import EVIDENCE, UNVERIFIED, JudgedMetric, rubric_digest
from memray_eval.metrics._evidence import PreferenceJudgment
from memray_eval.metrics.own import judge_metric, metric_by_rubric
from memray_eval.types import PAIR, Candidate, Pair, Record, Score, Unanswered
from tests.build import build_record, build_sample, judge_metrics, judged_metric
from tests.fake_judges import FakeJudge

SECTION = re.compile(r"^<([A-Z_]+) [0-9a-f]{16}>\n(.*?)\n</\1 ", re.MULTILINE | re.DOTALL)
METRIC = judged_metric("preference")
LENIENT = RubricMetric(name="warmth", rubric="Which answer is warmer?", compares=True)


def saying(preferred: str) -> FakeJudge:
    """A judge that prefers what it is told to."""
    filled = {"evidence": ["go AWAY"], "reason": "-", "preferred": preferred}
    return FakeJudge(lambda text, judgment: judgment.model_validate(filled))


def pair_record(*unanswered: Unanswered, text: str = "Rest.", **sample: object) -> Record:
    names = {"first": "SECRET-1", "second": "SECRET-2"}
    pair = Pair(sample_id="s", **names, other="Go away.", unanswered=unanswered)
    fields = {"query": "I am tired", "metadata": {PAIR: pair.model_dump()}, **sample}
    candidate = Candidate(name="SECRET-1", model="m", backend="given")
    return build_record(build_sample(**fields), text, candidate=candidate)


def score(record: Record, judge: FakeJudge, metric: JudgedMetric = METRIC) -> Score:
    return judge_metrics(record, [metric], {metric.name: [judge]}).scores[0]


@pytest.mark.parametrize(("preferred", "value"), [("first", 1.0), ("tie", 0.5), ("second", 0.0)])
def test_the_value_is_that_of_the_answer_shown_first(preferred: str, value: float) -> None:
    scored = score(pair_record(), saying(preferred))
    assert (scored.status, scored.value) == ("scored", value)
    shares = {part: float(part == preferred) for part in ("first", "tie", "second")}
    assert scored.parts == {**shares, EVIDENCE: 1, UNVERIFIED: 0}


def test_the_judge_sees_both_answers_and_no_name() -> None:
    judge, bare = saying("first"), saying("first")
    score(pair_record(memory={"job": "nurse"}, answers=["sleep"]), judge)
    ((system, data),) = judge.seen
    shown = {"MEMORY": "job: nurse", "QUERY": "I am tired", "REFERENCE": "sleep"}
    assert dict(SECTION.findall(data.content)) == shown | {"FIRST": "Rest.", "SECOND": "Go away."}
    assert "SECRET" not in system.content + data.content
    score(pair_record(), bare)
    assert dict(SECTION.findall(bare.seen[0][1].content)).keys() == {"QUERY", "FIRST", "SECOND"}
    assert bare.seen[0][0] == system


@pytest.mark.parametrize("text", ["", "Rest."])
def test_a_pair_without_an_answer_is_not_judged_and_says_whose(text: str) -> None:
    judge = saying("second")
    missing = Unanswered(candidate="ada", kind="error", why="time-out")
    scored = score(pair_record(missing, text=text), judge)
    assert (scored.status, scored.value) == ("not_applicable", None)
    assert scored.error == "no answer to compare: ada: error time-out"
    assert judge.seen == []


@pytest.mark.parametrize(
    ("metadata", "status"), [({}, "not_applicable"), ({PAIR: {"first": 1}}, "error")]
)
def test_what_is_no_pair_is_not_judged(metadata: dict[str, object], status: str) -> None:
    record = pair_record()
    other = record.sample.model_copy(update={"metadata": metadata})
    scored = score(record.model_copy(update={"sample": other}), saying("first"))
    assert scored.status == status


@pytest.mark.parametrize("wrong", [{"preferred": "both"}, {"preferred": "FIRST"}, {"reason": 3}])
def test_another_word_is_no_verdict(wrong: dict[str, object]) -> None:
    fields = {"evidence": [], "reason": "-", "preferred": "tie", **wrong}
    with pytest.raises(ValidationError):
        PreferenceJudgment.model_validate(fields)


def test_a_rubric_of_one_s_own_compares_too() -> None:
    own = judged_metric("warmth", MetricOptions(own=(OwnMetric(name="warmth", rubric=LENIENT),)))
    judge = saying("second")
    assert score(pair_record(), judge, own).value == 0.0
    ((system, data),) = judge.seen
    assert "Which answer is warmer?" in system.content
    assert dict(SECTION.findall(data.content)).keys() == {"QUERY", "FIRST", "SECOND"}
    again = RubricMetric.model_validate(json.loads(LENIENT.model_dump_json()))
    assert rubric_digest(metric_by_rubric(again)) == rubric_digest(own)
    assert rubric_digest(own) != rubric_digest(METRIC)


def test_a_preference_has_no_scale_of_its_own() -> None:
    with pytest.raises(ValidationError, match="no scale and no choices"):
        RubricMetric(name="n", rubric="r", compares=True, scale=(0, 10))
    with pytest.raises(ConfigError):
        judge_metric("n", rubric="r", choices=["only"])

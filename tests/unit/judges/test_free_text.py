"""Judgments that are read from free text: one call for the metrics that share it, an abstention
where nothing can be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.errors import JudgeError, Malformed, Refused
from memray_eval.judges.call_cache import CachedCall
from memray_eval.judges.structured_judge import (
    REASKS,
    CallPolicy,
    JudgeSpec,
    Reply,
    StructuredJudge,
)
from memray_eval.metrics import pick
from memray_eval.metrics.companion._judgment import METRIC_OF, OVERALL, WEIGHTS, CompanionJudgment
from memray_eval.stages.judge import judge_record
from memray_eval.types import Candidate, Message, Record, Response, Sample, Score, Usage

FAMILY = (OVERALL, *METRIC_OF.values())
MESSAGES = (
    Message(role="system", content="The rubric."),
    Message(role="user", content="The data."),
)
FORM = "Score: 0.8 | Reasoning: warm {and} honest"
JSON = json.dumps({**dict.fromkeys(WEIGHTS, 0.5), "overall": 0.6, "reasoning": "fine"})


class Scripted:
    """A provider that gives these replies in turn, the last for all that follow, and keeps the
    talks."""

    assistant_role = "assistant"
    parameters: Mapping[str, Any] = {"temperature": 0}

    def __init__(self, *replies: str) -> None:
        self.replies, self.talks = list(replies), list[Sequence[Mapping[str, str]]]()

    def prepare(self, judgment: type[BaseModel], system: str) -> dict[str, Any]:
        return {}

    async def send(self, prepared: Mapping[str, Any], talk: Sequence[Mapping[str, str]]) -> str:
        self.talks.append(talk)
        await asyncio.sleep(0)  # the others get their turn while this call is under way
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def read(self, completion: str) -> Reply:
        return Reply(completion, Usage(input_tokens=10, output_tokens=2), "done")

    def translate(self, error: BaseException) -> JudgeError | None:
        return None


class Kept:
    """Calls that are remembered, in a dict."""

    def __init__(self) -> None:
        self.calls: dict[str, CachedCall] = {}

    async def get(self, key: str) -> CachedCall | None:
        return self.calls.get(key)

    async def put(self, call: CachedCall) -> None:
        self.calls[call.key] = call


class Rating(BaseModel):
    score: float


async def close() -> None:
    return None


def judge_of(wire: Scripted, calls: Kept | None = None) -> StructuredJudge:
    return StructuredJudge(JudgeSpec(name="a/b", model="b"), wire, CallPolicy(calls=calls), close)


def asked(wire: Scripted, judgment: type[BaseModel] = CompanionJudgment) -> Any:
    return asyncio.run(judge_of(wire).judge(MESSAGES, judgment)).judgment


def scores(wire: Scripted, calls: Kept | None) -> dict[str, Score]:
    sample, response = Sample(id="s", query="I'm sad"), Response(text="That sounds hard.")
    record = Record(
        unit_id="u", sample=sample, candidate=Candidate(name="c", model="m"), response=response
    )
    judge = judge_of(wire, calls)
    judged = asyncio.run(judge_record(record, pick(FAMILY), {name: [judge] for name in FAMILY}))
    return {score.metric: score for score in judged.scores}


def test_free_text_is_read_at_once() -> None:
    wire = Scripted(FORM)
    found = asked(wire)
    assert (found.overall, found.reasoning, found.helpfulness) == (0.8, "warm {and} honest", None)
    assert len(wire.talks) == 1


@pytest.mark.parametrize(
    "reply", [JSON, f"```json\n{JSON}\n```", f"Score: 0.1 | Reasoning: see\n{JSON}"]
)
def test_json_goes_before_free_text(reply: str) -> None:
    assert (asked(Scripted(reply)).overall, asked(Scripted(reply)).helpfulness) == (0.6, 0.5)


@pytest.mark.parametrize(
    "broken", [JSON.replace("0.6", "6"), "I like it.", "Score: 8 | Reasoning: x", '{"overall": 0.5']
)
def test_what_is_neither_is_asked_for_again(broken: str) -> None:
    wire = Scripted(broken, FORM)
    assert asked(wire).overall == 0.8
    assert len(wire.talks) == 2


def test_json_that_does_not_fit_is_not_read_as_text() -> None:
    with pytest.raises(Refused):
        asked(Scripted(f"Score: 0.8\n{JSON.replace('0.6', '6')}"))


def test_what_can_never_be_read_is_an_abstention_only_where_text_could_have_been() -> None:
    wire = Scripted("I like it.")
    with pytest.raises(Refused, match="could not be read in 3 attempts") as raised:
        asked(wire)
    assert len(wire.talks) == REASKS + 1
    assert raised.value.input_tokens == 30
    with pytest.raises(Malformed):
        asked(Scripted("Score: 0.8"), Rating)


def test_seven_metrics_are_one_call() -> None:
    wire, calls = Scripted(JSON), Kept()
    found = scores(wire, calls)
    assert {name: score.value for name, score in found.items()} == dict.fromkeys(FAMILY, 0.5)
    assert len(wire.talks) == len(calls.calls) == 1
    assert sorted(score.cached for score in found.values()) == [False] + [True] * 6
    assert sum(score.usage.input_tokens for score in found.values()) == 10


def test_free_text_is_one_call_too_and_gives_overall_quality_alone() -> None:
    wire = Scripted(FORM)
    found = scores(wire, Kept())
    assert len(wire.talks) == 1
    assert {name for name, score in found.items() if score.value is not None} == {OVERALL}
    assert found[OVERALL].value == 0.8


def test_an_unreadable_verdict_is_paid_once_and_abstains_for_all() -> None:
    wire, calls = Scripted("I like it."), Kept()
    for _ in range(2):
        found = scores(wire, calls)
        assert {score.status for score in found.values()} == {"abstained"}
        assert all("read" in (score.error or "") for score in found.values())
    assert len(wire.talks) == REASKS + 1

"""Judges against a real local server in all four wire formats: the typed outcome of every kind of
reply."""

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
from pydantic import BaseModel, Field

from memray_eval.config.environment import PROVIDERS
from memray_eval.config.sections import JudgingConfig
from memray_eval.errors import (
    ConfigError,
    Declined,
    JudgeError,
    Malformed,
    Throttled,
    Truncated,
    Unauthorised,
    Unavailable,
    UnknownModel,
)
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.judges.prices import Price
from memray_eval.judges.structured_judge import StructuredJudge
from memray_eval.provider_http import closing_clients
from memray_eval.provider_http.retry import RetryPolicy, parse_retry_after
from memray_eval.types import Message
from tests.fake_judges import MemoryStore, Slept, build_judge, judge_behind, unlimited
from tests.servers.provider import Answer, Fault, Provider, serving

SECRET = "sk-test-secret"
QUESTION = "What is said of {{gold}} and {% raw %}?"
MESSAGES = (Message(role="system", content="The rubric."), Message(role="user", content=QUESTION))
FORMATS = ("openai", "openai-compatible", "anthropic", "google")


class Rating(BaseModel):
    """How good it is."""

    score: int = Field(ge=1, le=5)
    explanation: str
    quotes: list[str] = Field(default_factory=list)


GOOD = json.dumps({"score": 4, "explanation": "fine words", "quotes": ["a"]})
BAD = json.dumps({"score": 9, "explanation": "too high"})


def build(
    wire: str, server: Provider, policy: RetryPolicy, calls: MemoryStore | None = None, **spec: Any
) -> StructuredJudge:
    access = unlimited(policy, calls=calls)
    if wire == "openai":  # OpenAI itself, but for the address: strict schema, max_completion_tokens
        theirs = JudgeSpec(name="openai/m", model="m", key=SECRET, **spec)
        judge = judge_behind(wire, theirs, access)
        client = judge.adapter._client
        client.edge = replace(client.edge, url=f"{server.base_url}/")
        return judge
    base_url = server.base_url if wire == "openai-compatible" else server.root
    own = JudgeSpec(name=f"{wire}/m", model="m", base_url=base_url, key=SECRET, **spec)
    return judge_behind(wire.removesuffix("-compatible"), own, access)


def scripted(*outcomes: str | Answer | Fault) -> Callable[[dict[str, Any]], str | Answer | Fault]:
    """One outcome a request, the last for all that follow."""
    left = list(outcomes)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


FENCED = f"Here is my verdict:\n```json\n{GOOD}\n```"
CASES: dict[str, tuple[tuple[str | Answer | Fault, ...], type[JudgeError] | None, int]] = {
    "good": ((GOOD,), None, 1),
    "malformed, then good": ((BAD, GOOD), None, 2),
    "malformed twice, then good": ((BAD, "no json at all", GOOD), None, 3),
    "malformed": ((BAD,), Malformed, 3),
    "fenced": ((FENCED,), None, 1),
    "refused": ((Answer("I cannot judge this.", "refused"),), Declined, 1),
    "filtered": ((Answer("", "filtered"),), Declined, 1),
    "truncated": ((Answer(GOOD[:20], "truncated"),), Truncated, 1),
    "429 with Retry-After": (
        (Fault(429, retry_after="7"), Fault(429, retry_after="0.5"), GOOD),
        None,
        3,
    ),
    "500, then good": ((Fault(500), GOOD), None, 2),
    "500": ((Fault(500),), Unavailable, 3),
    "timeout": ((Fault(hang_s=5.0),), Unavailable, 3),
    "connection reset": ((Fault(reset=True),), Unavailable, 3),
    "connection reset, then good": ((Fault(reset=True), GOOD), None, 2),
    "401": ((Fault(401),), Unauthorised, 1),
    "404 model": ((Fault(404),), UnknownModel, 1),
    "400": ((Fault(400),), JudgeError, 1),
}


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_every_reply_has_its_typed_outcome(wire: str, case: str) -> None:
    outcomes, expected, requests = CASES[case]
    slept = Slept()
    policy = RetryPolicy(tries=3, sleep=slept.sleep, clock=slept.clock)

    @closing_clients()
    async def ask(server: Provider) -> tuple[Any, JudgeError | None]:
        judge = build(
            wire,
            server,
            policy,
            timeout_s=1.0 if case == "timeout" else 10.0,
            price=Price(1.0, 2.0),
        )
        try:
            return await judge.judge(MESSAGES, Rating), None
        except JudgeError as error:
            return None, error

    with serving(scripted(*outcomes)) as server:
        verdict, error = asyncio.run(ask(server))
    assert type(error) is (expected or type(None)), error
    assert len(server.requests) == requests
    if verdict is not None:
        assert (verdict.judgment.score, verdict.judgment.quotes) == (4, ["a"])
        answered = [
            Answer(outcome) if isinstance(outcome, str) else outcome for outcome in outcomes
        ]
        words = sum(len(answer.text.split()) for answer in answered if isinstance(answer, Answer))
        n_answers = sum(isinstance(answer, Answer) for answer in answered)
        assert (verdict.usage.input_tokens, verdict.usage.output_tokens) == (10 * n_answers, words)
        assert verdict.calls == n_answers
        assert verdict.cost_usd == pytest.approx((10 * n_answers + 2 * words) / 1e6)
    if case == "429 with Retry-After":
        assert slept.delays == [7.0, 0.5]
    if error is not None:
        assert SECRET not in repr(error)
        assert "gold" not in repr(error)
        assert error.__cause__ is None
    if case == "malformed":
        assert error is not None
        assert (error.input_tokens, error.calls) == (30, 3)
        assert "score: Input should be less than or equal to 5" in str(error)


DRAFT = GOOD.replace("4", "2")
ALOUD = {
    "thinks": f"<think>Perhaps {DRAFT}? No.</think>\n{GOOD}",
    "thinks in brackets": f"[THINK]{DRAFT}[/THINK]```json\n{GOOD}\n```",
    "thought": f"<thought>{DRAFT}</thought> So: {GOOD} That is all.",
    "seed": f"<seed:think>{DRAFT}</seed:think>{GOOD}",
    "Kimi": f"◁think▷{DRAFT}◁/think▷{GOOD}",
    "reasoning": f"<reasoning>{DRAFT}</reasoning>{GOOD}",
    "Cohere": (
        f"<|START_THINKING|>{DRAFT}<|END_THINKING|><|START_RESPONSE|>{GOOD}<|END_RESPONSE|>"
    ),
    "Gemma": f"<|channel>thought\n{DRAFT}<channel|>{GOOD}<turn|>",
    "Harmony": f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final"
    f"<|message|>{GOOD}<|return|>",
    "bare Harmony": f"analysisPerhaps {DRAFT}.assistantfinal{GOOD}",
    "the template opened": f"Perhaps {DRAFT}.</think>{GOOD}",
    "without marks": f"First I thought {DRAFT}, of {{memory}}. Now:\n{GOOD}",
    "quotes a mark": GOOD.replace("fine words", "it wrote </think>. Fine words"),
    "reasoning_content": Answer(GOOD, thinking=DRAFT),
    "a field reasoning": Answer(GOOD, thinking=DRAFT, thinking_in="reasoning"),
}


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("case", ALOUD)
def test_a_judge_that_thinks_aloud_is_asked_once(wire: str, case: str) -> None:
    with serving(scripted(ALOUD[case])) as server:
        verdict = asyncio.run(_ask(wire, server))
    assert (verdict.judgment.score, verdict.judgment.quotes) == (4, ["a"])
    assert (len(server.requests), verdict.calls) == (1, 1)


@pytest.mark.parametrize("wire", FORMATS)
def test_a_judge_that_only_thinks_is_asked_again(wire: str) -> None:
    with serving(scripted(f"<think>Perhaps {DRAFT}", "[/THI", GOOD)) as server:
        verdict = asyncio.run(_ask(wire, server))
    assert (verdict.judgment.score, verdict.calls) == (4, 3)


@pytest.mark.parametrize("wire", FORMATS)
def test_a_verdict_names_the_model_that_answered(wire: str) -> None:
    with serving(scripted(Answer(GOOD, model="m-2026-11-20"))) as server:
        assert asyncio.run(_ask(wire, server)).served_model == "m-2026-11-20"


@pytest.mark.parametrize(
    ("remembers", "outcomes", "billed"),
    [
        (True, [GOOD], 1),
        (True, [BAD, GOOD], 2),  # the question that mends it is another one
        (True, [Fault(500), GOOD], 1),
        (False, [GOOD], 2),  # a run without a memory wants another answer
    ],
)
def test_a_call_that_is_sent_again_is_billed_once_by_its_idempotency_key(
    remembers: bool, outcomes: list[str | Fault], billed: int
) -> None:
    @closing_clients()
    async def ask(server: Provider) -> None:
        calls = MemoryStore() if remembers else None  # a new one: the run before was killed
        judge = build("openai", server, RetryPolicy(sleep=Slept().sleep), calls)
        await judge.judge(MESSAGES, Rating)

    with serving(scripted(*outcomes), takes_keys=True) as server:
        for _ in range(2):
            asyncio.run(ask(server))
        assert server.answered.total() == billed


@pytest.mark.parametrize("wire", FORMATS)
def test_what_is_judged_is_never_a_template_and_the_question_to_mend_names_the_field(
    wire: str,
) -> None:
    with serving(scripted(BAD, GOOD)) as server:
        asyncio.run(_ask(wire, server))
    first, second = (json.dumps(body, ensure_ascii=False) for body in server.requests)
    assert QUESTION in first
    assert "score: Input should be less than or equal to 5" in second


@closing_clients()
async def _ask(wire: str, server: Provider) -> Any:
    return await build(wire, server, RetryPolicy()).judge(MESSAGES, Rating)


def test_a_missing_key_is_named() -> None:
    for name in PROVIDERS:
        config = JudgingConfig(api_key_envs={name: "NOT_SET_ANYWHERE"})
        needed = f"judge {name}/m needs a key in the environment variable NOT_SET_ANYWHERE"
        with pytest.raises(ConfigError, match=needed):
            build_judge(f"{name}/m", config)


def test_throttles_are_no_tries_but_end_at_the_ceiling() -> None:
    slept = Slept()
    policy = RetryPolicy(tries=2, ceiling_s=100, sleep=slept.sleep, clock=slept.clock)

    async def always(calls: list[int]) -> None:
        calls.append(1)
        raise Throttled("429", retry_after_s=9.0)

    calls: list[int] = []
    with pytest.raises(Throttled):
        asyncio.run(policy.run(lambda _: always(calls), nullcontext))
    assert len(calls) == 12
    assert slept.clock() < 100


def test_a_call_that_never_ends_is_ended_at_the_ceiling() -> None:
    with pytest.raises(Unavailable, match=r"no verdict within 0\.2 s"):
        asyncio.run(
            replace(RetryPolicy(), ceiling_s=0.2).run(lambda _: asyncio.sleep(300), nullcontext)
        )


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    assert parse_retry_after("1.5") == 1.5
    assert parse_retry_after(formatdate(1000.0, usegmt=True), now_s=990.0) == 10.0
    assert parse_retry_after(formatdate(1000.0, usegmt=True), now_s=2000.0) == 0.0
    assert [parse_retry_after(value) for value in (None, "soon", "", "nan")] == [None] * 4
    assert (parse_retry_after("-5"), parse_retry_after("inf")) == (None, float("inf"))
    assert parse_retry_after(formatdate(0.0, usegmt=True), now_s=1e9) is None

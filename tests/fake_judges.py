"""Judges for tests: one without a provider, whose adapter gives scripted replies, and one as a run
builds it; a store in memory, and a clock that sleepers move."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from memray_eval.config.sections import JudgingConfig
from memray_eval.errors import JudgeError
from memray_eval.judges.adapter import JudgeSpec, ProviderAdapter, Reply
from memray_eval.judges.call_cache import CachedCall, Lease
from memray_eval.judges.judge_factory import Services, build_judges
from memray_eval.judges.limits.admission import AdmissionController, CallPermit
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.limits.rate_pacer import CallCost
from memray_eval.judges.prompt_cache import SharedStart
from memray_eval.judges.router import JudgeAssignment
from memray_eval.judges.structured_judge import CallPolicy, StructuredJudge
from memray_eval.ports import Judge, Verdict
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.types import Message, Usage

MESSAGES = (
    Message(role="system", content="The rubric."),
    Message(role="user", content="The data."),
)


class Rating(BaseModel):
    score: float


class ScriptedAdapter(ProviderAdapter):
    """Gives these replies in turn, the last one again and again; each takes `usage` and lasts
    `lasts_s`. It keeps the messages that were sent, with their starts."""

    schema_is_in_start = True
    parameters: Mapping[str, Any] = {"temperature": 0}
    negotiable: Mapping[str, Any] = {}

    def __init__(
        self,
        *replies: str | JudgeError,
        usage: Usage = Usage(input_tokens=10, output_tokens=2),
        lasts_s: float = 0.0,
    ) -> None:
        self.replies, self.usage, self.lasts_s = list(replies), usage, lasts_s
        self.sent = list[tuple[Sequence[Mapping[str, str]], SharedStart | None]]()
        self.in_flight = self.most_in_flight = 0

    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> dict[str, Any]:
        return {}

    async def send(
        self,
        prepared: Mapping[str, Any],
        messages: Sequence[Mapping[str, str]],
        start: SharedStart | None,
    ) -> str:
        self.sent.append((messages, start))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(self.lasts_s)  # the others get their turn while it is under way
        self.in_flight -= 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, JudgeError):
            raise reply
        return reply

    def read(self, completion: str) -> Reply:
        return Reply(completion, self.usage, "done")

    def translate(self, error: BaseException) -> JudgeError:
        return JudgeError(type(error).__name__)


class FakeJudge:
    """Answers with a judgment, or with what a function makes of the question's text and the schema;
    an error is raised. Keeps what it was asked; `verdict` are further fields of each verdict."""

    def __init__(self, outcome: Any, name: str = "a/b", **verdict: Any) -> None:
        self.outcome, self.name, self.verdict = outcome, name, verdict
        self.seen: list[Sequence[Message]] = []

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        self.seen.append(messages)
        outcome = self.outcome
        if not isinstance(outcome, BaseModel | BaseException):
            outcome = outcome(messages[-1].content, judgment)
        await asyncio.sleep(0)  # the others ask meanwhile
        if isinstance(outcome, BaseException):
            raise outcome
        return Verdict(judgment=outcome, judge=self.name, **self.verdict)


class MemoryStore:
    """Paid calls in a dict."""

    def __init__(self) -> None:
        self.calls: dict[str, CachedCall] = {}

    async def get(self, key: str) -> CachedCall | None:
        return self.calls.get(key)

    async def claim(self, key: str) -> CachedCall | Lease:
        return self.calls.get(key) or "new"

    async def release(self, key: str) -> None:
        return None

    async def put(self, call: CachedCall) -> bool:
        self.calls[call.key] = call
        return True


class NoAdmission(AdmissionController):
    """Lets every call through at once."""

    def __init__(self) -> None:
        return

    @asynccontextmanager
    async def permit(
        self, input_tokens: float, cached_tokens: float = 0.0, most_tokens: float = 0.0
    ) -> AsyncIterator[CallPermit]:
        yield CallPermit(input_tokens, CallCost(input_tokens, 0.0, cached_tokens))

    async def observe_headers(self, headers: Mapping[str, str]) -> None:
        return


def unlimited(policy: RetryPolicy | None = None, **fields: Any) -> CallPolicy:
    """A policy of calls that nothing holds back."""
    return CallPolicy(policy or RetryPolicy(), **{"admission": NoAdmission(), **fields})


def scripted_judge(adapter: ScriptedAdapter, access: Any = None, **spec: Any) -> StructuredJudge:
    """A judge that tries each call twice, without a pause; `access` are fields of its policy."""

    async def no_pause(delay_s: float) -> None:
        return None

    policy = unlimited(RetryPolicy(tries=2, sleep=no_pause), **(access or {}))
    return StructuredJudge(JudgeSpec(name="a/b", model="b", **spec), adapter, policy)


def judge_behind(provider: str, spec: JudgeSpec, access: CallPolicy) -> StructuredJudge:
    """A judge by a provider's protocol."""
    module = importlib.import_module(f"memray_eval.judges.providers.{provider}")
    adapter = module.open_adapter(spec, access.admission.observe_headers)
    return StructuredJudge(spec, adapter, access)


def build_judge(name: str, config: JudgingConfig = JudgingConfig(), **services: Any) -> Judge:
    """The judge of that name, as a run builds it; `closing_clients` around the call closes it."""
    shared = {"limiter": Limiter(), "member": "a", "say": lambda line: None} | services
    choice = JudgeAssignment(metric="m", judge=name, why="")
    ((judge,),) = build_judges({"m": choice}, config, Services(**shared)).values()
    return judge


class Slept:
    """A clock that only moves when somebody sleeps on it."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.delays.append(delay_s)

    def clock(self) -> float:
        return sum(self.delays)

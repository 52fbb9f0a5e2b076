"""How batches of judge calls may end, and what a run does then; tests/wire/test_batch_outcomes.py
checks each line. `python -m tests.bench.batch_outcomes` prints the table.

Six calls each, through the provider's own SDK, against tests/servers/batches.py. The clock is not
the wall's: a deadline of 26 hours takes no time."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from memray_eval.config.sections import Budget, JudgingConfig
from memray_eval.errors import JudgeError, Refused, Truncated
from memray_eval.execution.services import JudgeServices, start_services
from memray_eval.judges.batches.journal import BatchEntry, BatchJournal
from memray_eval.judges.batches.runner import BatchHooks, BatchRunner, RehearsedJudge
from memray_eval.judges.call_metrics import CallObserver
from memray_eval.judges.judge_factory import Services, build_batch_queues
from memray_eval.judges.router import JudgeAssignment
from memray_eval.judges.structured_judge import StructuredJudge
from memray_eval.ports import CURRENT_UNIT
from memray_eval.provider_http import closing_clients
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Message
from tests.servers.batches import BatchApis, Course
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Reply, serving

CALLS = 6
MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-opus-4-5"}
MODELS["google"] = "google/gemini-2.0-flash"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
METRIC = "helpfulness"


class Rating(BaseModel):
    """A verdict."""

    reason: str
    score: int = Field(ge=1, le=5)


class FakeClock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = time.time()

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way that batches go. `batched` and `live` are the calls that were answered in batches and
    one by one, `did` what the run did, in words. Of a call that `has_no_verdict` the error says
    so."""

    name: str
    did: str
    provider: Literal["openai", "anthropic", "google"] = "openai"
    courses: Sequence[Course] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    apis: Mapping[str, Any] = field(default_factory=dict)
    reply: Callable[[], Reply] = lambda: judgment_reply
    batched: int = CALLS
    live: int = 0
    batches: int = 1
    refused: int = 0
    no_verdict: int = 0
    hours: float = 1.0
    paid_again: int = 0


@dataclass(frozen=True)
class Played:
    """What came of a case: calls with a verdict, refusals, other ends; what the server counted; the
    journal; what was said; how long it took, in hours of the clock."""

    verdicts: int
    refused: int
    no_verdict: int
    stats: Mapping[str, Any]
    entries: Sequence[BatchEntry]
    lines: Sequence[str]
    hours: float


def half_odd(*odd: str) -> dict[int, str]:
    return dict(enumerate(odd))


def broken_at_first() -> Reply:
    """The first question gets half of its verdict when it is asked first."""
    seen = list[str]()

    def reply(body: dict[str, Any]) -> str:
        text = judgment_reply(body)
        seen.append(text)
        return text[: len(text) // 2] if len(seen) == 1 else text

    return reply


def first_ends(ending: Literal["refused", "truncated"]) -> Reply:
    """The first question always ends like that."""
    first = list[str]()

    def reply(body: dict[str, Any]) -> str | Answer:
        text = judgment_reply(body)
        first[:] = first or [text]
        return Answer(text[:9], ending) if text == first[0] else text

    return reply


LIVE: Mapping[str, Any] = {"on_expired": "live"}
CASES = (
    Case(name="completed, with an output file", did="took six verdicts"),
    Case(
        name="completed, with an error file: a call was wrong",
        did="took five, asked the sixth live",
        courses=[Course(odd={2: "error"})],
        batched=5,
        live=1,
    ),
    Case(
        name="completed, error: null and the error in the body",
        did="took five, asked the sixth live",
        courses=[Course(odd={2: "error_in_body"})],
        batched=5,
        live=1,
    ),
    Case(
        name="completed, a call failed with 500",
        did="took five, sent the sixth in another batch",
        courses=[Course(odd={2: "error_500"})],
        batches=2,
    ),
    Case(
        name="completed, with neither file",
        did="sent all six again",
        courses=[Course(end="partly", share=0.0, files="neither")],
        batches=2,
    ),
    Case(
        name="expired, half done: both files",
        did="took three, sent three again",
        courses=[Course(end="expired", share=0.5)],
        batches=2,
    ),
    Case(
        name="expired, half done, on_expired: live",
        did="took three, asked three live",
        courses=[Course(end="expired", share=0.5)],
        options=LIVE,
        batched=3,
        live=3,
    ),
    Case(
        name="expired every time",
        did="sent them three times, then asked live",
        courses=[Course(end="expired", share=0.0)] * 3,
        batched=0,
        live=6,
        batches=3,
    ),
    Case(
        name="failed: the file is not what it has to be",
        did="asked all six live",
        courses=[Course(failure="invalid_json_line")],
        batched=0,
        live=6,
    ),
    Case(
        name="failed: too many tokens are queued",
        did="sent smaller batches, one after the other",
        apis={"most_queued": 900},
        batches=3,
    ),
    Case(
        name="failed: the model takes no batches",
        did="asked all six live",
        courses=[Course(failure="model_not_supported")],
        batched=0,
        live=6,
    ),
    Case(
        name="refused with 400: the model takes no batches",
        did="asked all six live",
        courses=[Course(refuse=(400, "The model is not supported by the Batch API"))],
        batched=0,
        live=6,
        batches=0,
    ),
    Case(
        name="cancelled by somebody, half done",
        did="took three, sent three again",
        courses=[Course(end="cancelled", share=0.5)],
        batches=2,
    ),
    Case(
        name="in progress for ever",
        did="cancelled it after 26 h, took what was done, sent the rest again",
        courses=[Course(never=True, share=0.5)],
        batches=2,
        hours=31.0,
        options={"poll_s": 3600.0},
    ),
    Case(
        name="in progress for ever, and does not let itself be cancelled",
        did="gave it up, sent all again",
        courses=[Course(never=True, cancels=False)],
        batches=2,
        hours=31.0,
        options={"poll_s": 3600.0},
    ),
    Case(
        name="the submission's answer is lost",
        did="found the batch by its metadata, sent nothing again",
        courses=[Course(submit_lost=True)],
    ),
    Case(
        name="the upload's answer is lost",
        did="found the file by its name, sent nothing again",
        courses=[Course(upload_lost=True)],
    ),
    Case(name="429 at the submission, twice", did="waited, then sent it", courses=[Course(busy=2)]),
    Case(
        name="results gone (404) when it ended",
        did="sent all again",
        courses=[Course(results_gone=404)],
        batched=12,
        batches=2,
        paid_again=6,
    ),
    Case(
        name="lines that are no JSON, told twice, of others, with odd separators",
        did="took what was there once, sent the call without a line again",
        courses=[Course(odd=half_odd("junk", "twice", "stranger", "separators"))],
        batched=7,
        batches=2,
        paid_again=1,
    ),
    Case(
        name="a malformed verdict",
        did="took five, asked the sixth live",
        reply=broken_at_first,
        batched=6,
        live=1,
        paid_again=1,
    ),
    Case(
        name="a refusal",
        did="kept it as an abstention, asked nobody again",
        reply=lambda: first_ends("refused"),
        refused=1,
    ),
    Case(
        name="a verdict that is cut off",
        did="asked it live, which is cut off too: its error",
        reply=lambda: first_ends("truncated"),
        live=1,
        no_verdict=1,
        paid_again=1,
    ),
    Case(
        name="two batches at a time, of one call each",
        did="queued four, sent them as there was room",
        options={"limits": {"openai": {"calls": 1, "at_once": 2}}},
        batches=6,
    ),
    Case(name="ended: all succeeded", did="took six verdicts", provider="anthropic"),
    Case(
        name="ended: one errored, three expired",
        did="asked one live, sent three again",
        provider="anthropic",
        courses=[Course(end="expired", share=0.5, odd={0: "error"})],
        batched=5,
        live=1,
        batches=2,
    ),
    Case(
        name="the submission's answer is lost (nothing names a batch)",
        did="found it by its size, time and calls, sent nothing again",
        provider="anthropic",
        courses=[Course(submit_lost=True)],
    ),
    Case(
        name="refused with 400",
        did="asked all six live",
        provider="anthropic",
        courses=[Course(refuse=(400, "batches are not supported for this model"))],
        batched=0,
        live=6,
        batches=0,
    ),
    Case(
        name="in progress for ever",
        did="cancelled it after 26 h, took what was done, sent the rest again",
        provider="anthropic",
        courses=[Course(never=True, share=0.5)],
        batches=2,
        hours=31.0,
        options={"poll_s": 3600.0},
    ),
    Case(name="succeeded", did="took six verdicts", provider="google"),
    Case(
        name="partially succeeded",
        did="took three, sent three again",
        provider="google",
        courses=[Course(end="partly", share=0.5)],
        batches=2,
    ),
    Case(
        name="never leaves PENDING",
        did="cancelled it after 26 h, sent all again",
        provider="google",
        courses=[Course(never=True, pending=True, share=0.0)],
        batches=2,
        hours=31.0,
        options={"poll_s": 3600.0},
    ),
    Case(
        name="expired",
        did="took three, sent three again",
        provider="google",
        courses=[Course(end="expired", share=0.5)],
        batches=2,
    ),
    Case(
        name="failed as a whole",
        did="asked all six live",
        provider="google",
        courses=[Course(failure="internal")],
        batched=0,
        live=6,
    ),
    Case(
        name="the submission's answer is lost",
        did="found it by its display name, sent nothing again",
        provider="google",
        courses=[Course(submit_lost=True)],
    ),
    Case(
        name="the model is not found (404)",
        did="asked all six live",
        provider="google",
        courses=[Course(refuse=(404, "models/x is not supported for batchGenerateContent"))],
        batched=0,
        live=6,
        batches=0,
    ),
)


def question(number: int) -> list[Message]:
    return [
        Message(role="system", content="Rate the answer."),
        Message(role="user", content=f"Is answer {number} of any help? {'Look closely. ' * 20}"),
    ]


def judging_of(case: Case, root: str, folder: Path) -> JudgingConfig:
    urls = {"openai": f"{root}/v1", "anthropic": root, "google": root}
    options = {"poll_s": 30.0, "min_calls": 1, "tries": 4, **case.options}
    return JudgingConfig.model_validate(
        {
            "mode": "batch",
            "base_urls": urls,
            "cache": str(folder / "calls.sqlite"),
            "batch": options,
            "tries": 1,
        }
    )


async def run_batches(
    judging: JudgingConfig, judge: str, folder: Path, clock: FakeClock, lines: list[str]
) -> tuple[StructuredJudge, JudgeServices]:
    """Pays six calls in batches, and returns the judge that finds them."""
    (folder / "run").mkdir(exist_ok=True)
    services = start_services(
        Budget(), judging.cache, str(folder / "run"), _nothing(), 1, 8, lines.append
    )
    connected = services.connect(lines.append, lambda: False, lambda name: CallObserver())
    choices = {METRIC: JudgeAssignment(metric=METRIC, judge=judge, why="asked")}
    (queue,) = queues = build_batch_queues(choices, judging, connected)
    runner = BatchRunner(
        queues,
        BatchJournal(RunFolder(str(folder / "run"))),
        judging.batch,
        BatchHooks(say=lines.append, clock=lambda: clock.now, sleep=clock.sleep),
        judgment_of=lambda metric: Rating,
        keep=lambda calls: _keep(connected, calls),
    )
    rehearsed = RehearsedJudge(queue.judge, 0, runner.add_missing_call)

    async def fill() -> None:
        for number in range(CALLS):
            CURRENT_UNIT.set(f"unit{number} {METRIC}")
            with suppress(JudgeError):
                await rehearsed.judge(question(number), Rating)

    await runner.run(fill)
    return queue.judge, services


def _nothing() -> Any:
    from memray_eval.judges.limits.budget import NOTHING

    return NOTHING


async def _keep(services: Services, calls: Sequence[Any]) -> None:
    assert services.calls is not None
    await asyncio.gather(*map(services.calls.put, calls))


async def _play(case: Case, root: str, folder: Path, clock: FakeClock, lines: list[str]) -> Any:
    async with closing_clients():
        judging = judging_of(case, root, folder)
        judge, services = await run_batches(judging, MODELS[case.provider], folder, clock, lines)
        ends = {"verdict": 0, "refused": 0, "no verdict": 0}
        for number in range(CALLS):
            CURRENT_UNIT.set(f"unit{number} {METRIC}")
            try:
                await judge.judge(question(number), Rating)
                ends["verdict"] += 1
            except Refused:
                ends["refused"] += 1
            except Truncated:
                ends["no verdict"] += 1
        await services.end()
        return ends


def play(case: Case) -> Played:
    """Runs a case, and what is missing then live."""
    for key in KEYS:
        os.environ.setdefault(key, "key-of-nobody")
    made = list[BatchApis]()

    def apis(provider: Any) -> Any:
        made.append(BatchApis(provider))
        made[0].courses.extend(case.courses)
        for name, value in case.apis.items():
            setattr(made[0], name, value)
        return made[0].routes()

    clock, lines = FakeClock(), list[str]()
    began = clock.now
    with serving(case.reply(), more=apis) as provider, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ends = asyncio.run(_play(case, provider.root, folder, clock, lines))
        entries = BatchJournal(RunFolder(str(folder / "run"))).load()
    return Played(
        verdicts=ends["verdict"],
        refused=ends["refused"],
        no_verdict=ends["no verdict"],
        stats=made[0].stats(),
        entries=entries,
        lines=lines,
        hours=(clock.now - began) / 3600,
    )


def main() -> None:
    heads = f"{'batches':>7} {'batched':>7} {'live':>5} {'hours':>6}"
    print(f"{'provider':<10} {'outcome':<68} {heads}")
    for case in CASES:
        played = play(case)
        stats = played.stats
        figures = f"{stats['n_batches']:>7} {stats['n_calls']:>7} {stats['n_live']:>5}"
        print(f"{case.provider:<10} {case.name:<68} {figures} {played.hours:>6.1f}")
        print(f"{'':<10}   -> {case.did}")


if __name__ == "__main__":
    main()

"""How batches of judge calls may end, and what a run does then: six calls each, through the
provider's own SDK, against tests/servers/batches.py. The clock is not the wall's: a deadline of 26
hours takes no time."""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest
from pydantic import BaseModel, Field

from memray_eval.config.sections import Budget, JudgingConfig
from memray_eval.errors import JudgeError, Refused, Truncated
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.services import JudgeServices, start_services
from memray_eval.judges.batches.journal import BatchEntry, BatchJournal
from memray_eval.judges.batches.port import BatchClient
from memray_eval.judges.batches.runner import BatchRunner, RehearsedJudge
from memray_eval.judges.judge_factory import Services, build_batch_queues
from memray_eval.judges.limits.admission import RunHooks
from memray_eval.judges.limits.budget import NOTHING
from memray_eval.judges.router import JudgeAssignment
from memray_eval.judges.structured_judge import StructuredJudge
from memray_eval.ports import CURRENT_UNIT
from memray_eval.provider_http import closing_clients
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Message
from tests.servers.batches import BatchApis, Course
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Provider, Reply, serving

CALLS = 6
MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-opus-4-5"}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
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


@dataclass(frozen=True)
class Case:
    """A way that batches go. `batched` and `live` are the calls that were answered in batches and
    one by one; `live` is None for all that were not answered in batches."""

    name: str
    course: Course | None = None
    provider: Literal["openai", "anthropic"] = "openai"
    options: Mapping[str, Any] = field(default_factory=dict)
    apis: Mapping[str, Any] = field(default_factory=dict)
    reply: Callable[[], Reply] = lambda: judgment_reply
    batched: int = CALLS
    live: int | None = None
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


CASES = (
    Case("completed, with an output file"),
    Case("completed, with an error file: a call was wrong", Course(odd={2: "error"}), batched=5),
    Case(
        "completed, error: null and the error in the body",
        Course(odd={2: "error_in_body"}),
        batched=5,
    ),
    Case("completed, a call failed with 500", Course(odd={2: "error_500"}), batched=5),
    Case(
        "completed, with neither file", Course(end="partly", share=0.0, files="neither"), batched=0
    ),
    Case("expired, half done: both files", Course(end="expired", share=0.5), batched=3),
    Case(
        "failed: the file is not what it has to be", Course(failure="invalid_json_line"), batched=0
    ),
    Case(
        "failed: too much is queued, so that smaller batches go one after the other",
        apis={"most_queued": 900},
        batches=3,
    ),
    Case(
        "failed: not even a call fits into the queue",
        apis={"most_queued": 0},
        batched=0,
        batches=11,
    ),
    Case("failed: the model takes no batches", Course(failure="model_not_supported"), batched=0),
    Case(
        "refused with 400: the model takes no batches",
        Course(refuse=(400, "The model is not supported by the Batch API")),
        batched=0,
        batches=0,
    ),
    Case("cancelled by somebody, half done", Course(end="cancelled", share=0.5), batched=3),
    Case(
        "in progress for ever: cancelled after 26 h",
        Course(never=True, share=0.5),
        batched=3,
        hours=28.0,
        options={"poll_s": 3600.0},
    ),
    Case(
        "in progress for ever, and does not let itself be cancelled",
        Course(never=True, cancels=False),
        batched=0,
        hours=30.0,
        options={"poll_s": 3600.0},
    ),
    Case("the submission's answer is lost: found", Course(submit_lost=True)),
    Case("the upload's answer is lost: uploaded again", Course(upload_lost=True)),
    Case("429 at the submission, twice", Course(busy=2)),
    Case("results gone (404) when it ended", Course(results_gone=404), live=6, paid_again=6),
    Case(
        "lines that are no JSON, told twice, of others, with odd separators",
        Course(odd=dict(enumerate(("junk", "twice", "stranger", "separators")))),
        live=1,
        paid_again=1,
    ),
    Case("a malformed verdict", reply=broken_at_first, live=1, paid_again=1),
    Case("a refusal is an abstention, asked once", reply=lambda: first_ends("refused"), refused=1),
    Case(
        "a verdict that is cut off, live too",
        reply=lambda: first_ends("truncated"),
        live=1,
        no_verdict=1,
        paid_again=1,
    ),
    Case("two at a time, of one call each", options={"calls": 1, "at_once": 2}, batches=6),
    Case("ended: all succeeded", provider="anthropic"),
    Case(
        "ended: one errored, three expired",
        Course(end="expired", share=0.5, odd={0: "error"}),
        provider="anthropic",
        batched=2,
    ),
    Case(
        "the submission's answer is lost (nothing names a batch): found",
        Course(submit_lost=True),
        provider="anthropic",
    ),
    Case(
        "busy (429) while two are open",
        provider="anthropic",
        apis={"most_open": 2},
        options={"calls": 1},
        batches=6,
    ),
    Case(
        "refused with 400",
        Course(refuse=(400, "batches are not supported for this model")),
        provider="anthropic",
        batched=0,
        batches=0,
    ),
    Case(
        "in progress for ever: cancelled after 26 h",
        Course(never=True, share=0.5),
        provider="anthropic",
        batched=3,
        hours=28.0,
        options={"poll_s": 3600.0},
    ),
)


def question(number: int) -> list[Message]:
    return [
        Message(role="system", content="Rate the answer."),
        Message(role="user", content=f"Is answer {number} of any help? {'Look closely. ' * 20}"),
    ]


def judging_of(case: Case, root: str, folder: Path) -> JudgingConfig:
    urls = {"openai": f"{root}/v1", "anthropic": root}
    return JudgingConfig.model_validate(
        {
            "mode": "batch",
            "base_urls": urls,
            "cache": str(folder / "calls.sqlite"),
            "batch": dict(case.options),
            "tries": 1,
        }
    )


async def run_batches(
    judging: JudgingConfig, judge: str, folder: Path, clock: FakeClock, lines: list[str]
) -> tuple[StructuredJudge, JudgeServices]:
    """Pays six calls in batches, and returns the judge that finds them."""
    (folder / "run").mkdir(exist_ok=True)
    services = start_services(
        Budget(), judging.cache, str(folder / "run"), NOTHING, 1, 8, lines.append
    )
    counter = RunCounter()
    counter.add_line = lines.append  # type: ignore[method-assign]
    connected = services.connect(counter, lambda: False)
    choices = {METRIC: JudgeAssignment(metric=METRIC, judge=judge, why="asked")}
    (queue,) = queues = build_batch_queues(choices, judging, connected)
    runner = BatchRunner(
        queues,
        BatchJournal(RunFolder(str(folder / "run"))),
        judging.batch,
        RunHooks(say=lines.append, clock=lambda: clock.now, sleep=clock.sleep),
        judgment_of=lambda metric: Rating,
        keep=lambda calls: _keep(connected, calls),
    )
    rehearsed = RehearsedJudge(queue.name, queue.judge, 0, runner.add_missing_call)

    async def fill() -> None:
        for number in range(CALLS):
            CURRENT_UNIT.set(f"unit{number} {METRIC}")
            with suppress(JudgeError):
                await rehearsed.judge(question(number), Rating)

    await runner.run(fill)
    return queue.judge, services


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
        await services.finish()
        await services.end()
        return ends


def play(case: Case) -> Played:
    """Runs a case, and what is missing then live."""
    keys = {key: os.environ.get(key, "key-of-nobody") for key in KEYS}
    servers = list[BatchApis]()

    def apis(provider: Any) -> Any:
        servers.append(BatchApis(provider))
        servers[0].courses.extend([case.course] if case.course else ())
        for name, value in case.apis.items():
            setattr(servers[0], name, value)
        return servers[0].routes()

    clock, lines = FakeClock(), list[str]()
    began = clock.now
    with (
        patch.dict(os.environ, keys),
        serving(case.reply(), more=apis) as provider,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        ends = asyncio.run(_play(case, provider.root, folder, clock, lines))
        entries = BatchJournal(RunFolder(str(folder / "run"))).load()
    return Played(
        verdicts=ends["verdict"],
        refused=ends["refused"],
        no_verdict=ends["no verdict"],
        stats=servers[0].stats(),
        entries=entries,
        lines=lines,
        hours=(clock.now - began) / 3600,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.provider}: {case.name}")
def test_an_outcome(case: Case) -> None:
    played = play(case)
    output = "\n".join(played.lines)
    assert (played.refused, played.no_verdict) == (case.refused, case.no_verdict), output
    assert played.verdicts == CALLS - case.refused - case.no_verdict, output
    stats, live = played.stats, CALLS - case.batched if case.live is None else case.live
    counts = (stats["n_batches"], stats["n_calls"], stats["n_live"], stats["paid_again"])
    assert counts == (case.batches, case.batched, live, case.paid_again), output
    assert played.hours <= case.hours, output
    assert not any(entry.is_open for entry in played.entries), output
    is_refused = any(entry.state == "refused" for entry in played.entries)
    assert is_refused == ("its provider takes no batches of it" in output), output


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_call_of_a_batch_is_the_live_one(
    provider: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the letter."""
    for key in KEYS:
        monkeypatch.setenv(key, "key-of-nobody")

    async def ask(server: Provider) -> tuple[dict[str, Any], BatchClient]:
        async with closing_clients():
            judging = judging_of(Case("", provider=provider), server.root, tmp_path)
            services = start_services(
                Budget(), judging.cache, str(tmp_path / "run"), NOTHING, 1, 8, print
            )
            connected = services.connect(RunCounter(), lambda: False)
            judge = MODELS[provider]
            choices = {METRIC: JudgeAssignment(metric=METRIC, judge=judge, why="asked")}
            (queue,) = build_batch_queues(choices, judging, connected)
            call = queue.judge.call(question(1), Rating, is_batch=True)
            body = await call.request()
            await queue.judge.judge(question(1), Rating)
            assert (await call.recall()) is not None  # one key for both
            await services.finish()
            await services.end()
            queue.spool.discard()
            return body, queue.client

    with serving(judgment_reply) as server:
        body, client = asyncio.run(ask(server))
        (live,) = server.requests
    assert body == live
    assert b"\n" not in client.line("k", body)[:-1]

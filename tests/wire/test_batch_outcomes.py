"""How batches of judge calls may end, and what a run does then: six calls each, through the
provider's own SDK, against tests/servers/batches.py. The clock is not the wall's: a deadline of 26
hours takes no time."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from memray_eval.config.sections import Budget, JudgingConfig
from memray_eval.errors import JudgeError, Refused, Truncated
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.services import start_services
from memray_eval.judges.batches.journal import BatchJournal
from memray_eval.judges.batches.runner import BatchQueue, BatchRunner, RehearsedJudge
from memray_eval.judges.call_cache import CachedCall
from memray_eval.judges.judge_factory import Services, build_batch_queues
from memray_eval.judges.limits.admission import RunHooks
from memray_eval.judges.limits.budget import NOTHING
from memray_eval.judges.router import JudgeAssignment
from memray_eval.ports import CURRENT_UNIT
from memray_eval.provider_http import closing_clients
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Message
from tests.servers.batches import Course, serving_batches
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Reply, serving

CALLS = 6
MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-opus-4-5"}
METRIC = "helpfulness"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(key, "key-of-nobody")


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


NEVER = Course(never=True, share=0.5)
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
    Case("in progress for ever: cancelled after 26 h", NEVER, batched=3, hours=28.0),
    Case(
        "in progress for ever, and does not let itself be cancelled",
        Course(never=True, cancels=False),
        batched=0,
        hours=30.0,
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
        "anthropic",
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
    Case("in progress for ever: cancelled after 26 h", NEVER, "anthropic", batched=3, hours=28.0),
)


def question(number: int) -> list[Message]:
    return [
        Message(role="system", content="Rate the answer."),
        Message(role="user", content=f"Is answer {number} of any help? {'Look closely. ' * 20}"),
    ]


@dataclass(frozen=True)
class Scene:
    """A judge whose calls are made in batches, and the services of its run."""

    judging: JudgingConfig
    queues: Sequence[BatchQueue]
    services: Services
    journal: BatchJournal


@asynccontextmanager
async def scene(
    case: Case, root: str, folder: Path, say: Callable[[str], None]
) -> AsyncIterator[Scene]:
    (folder / "run").mkdir()
    judging = JudgingConfig.model_validate(
        {
            "mode": "batch",
            "base_urls": {"openai": f"{root}/v1", "anthropic": root},
            "cache": str(folder / "calls.sqlite"),
            # Who waits for a day looks once an hour
            "batch": {"poll_s": 3600.0 if case.hours > 1 else 30.0, **case.options},
            "tries": 1,
        }
    )
    services = start_services(Budget(), judging.cache, str(folder / "run"), NOTHING, 1, 8, say)
    counter = RunCounter()
    counter.add_line = say  # type: ignore[method-assign]
    connected = services.connect(counter, lambda: False)
    choice = JudgeAssignment(metric=METRIC, judge=MODELS[case.provider], why="asked")
    async with closing_clients():
        queues = build_batch_queues({METRIC: choice}, judging, connected)
        yield Scene(judging, queues, connected, BatchJournal(RunFolder(str(folder / "run"))))
        await services.finish()
        await services.end()


async def pay_in_batches(scene: Scene, clock: FakeClock, say: Callable[[str], None]) -> None:
    """Six calls."""
    hooks = RunHooks(say=say, clock=lambda: clock.now, sleep=clock.sleep)

    async def keep(calls: Sequence[CachedCall]) -> None:
        assert scene.services.calls is not None
        await asyncio.gather(*map(scene.services.calls.put, calls))

    (queue,) = queues = scene.queues
    options = {"judgment_of": lambda metric: Rating, "keep": keep}
    runner = BatchRunner(queues, scene.journal, scene.judging.batch, hooks, **options)
    rehearsed = RehearsedJudge(queue.name, queue.judge, 0, runner.add_missing_call)

    async def fill() -> None:
        for number in range(CALLS):
            CURRENT_UNIT.set(f"unit{number} {METRIC}")
            with suppress(JudgeError):
                await rehearsed.judge(question(number), Rating)

    await runner.run(fill)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.provider}: {case.name}")
async def test_an_outcome(case: Case, tmp_path: Path) -> None:
    """What is missing after the batches is asked for live."""
    clock, lines, ends = FakeClock(), list[str](), Counter[str]()
    began, courses = clock.now, deque([case.course] if case.course else ())
    with serving_batches(case.reply(), courses=courses, **case.apis) as apis:
        async with scene(case, apis.provider.root, tmp_path, lines.append) as run:
            await pay_in_batches(run, clock, lines.append)
            for number in range(CALLS):
                CURRENT_UNIT.set(f"unit{number} {METRIC}")
                try:
                    await run.queues[0].judge.judge(question(number), Rating)
                    ends["verdict"] += 1
                except Refused:
                    ends["refused"] += 1
                except Truncated:
                    ends["no verdict"] += 1
            entries = run.journal.load()
    output, stats = "\n".join(lines), apis.stats()
    assert (ends["refused"], ends["no verdict"]) == (case.refused, case.no_verdict), output
    assert ends["verdict"] == CALLS - case.refused - case.no_verdict, output
    live = CALLS - case.batched if case.live is None else case.live
    counts = (stats["n_batches"], stats["n_calls"], stats["n_live"], stats["paid_again"])
    assert counts == (case.batches, case.batched, live, case.paid_again), output
    assert clock.now - began <= 3600 * case.hours, output
    assert not any(entry.is_open for entry in entries), output
    is_refused = any(entry.state == "refused" for entry in entries)
    assert is_refused == ("its provider takes no batches of it" in output), output


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_call_of_a_batch_is_the_live_one(provider: Any, tmp_path: Path) -> None:
    """To the letter."""
    with serving(judgment_reply) as server:
        async with scene(Case("", provider=provider), server.root, tmp_path, print) as run:
            (queue,) = run.queues
            call = queue.judge.call(question(1), Rating, is_batch=True)
            body = await call.request()
            await queue.judge.judge(question(1), Rating)
            assert (await call.recall()) is not None  # one key for both
            queue.spool.discard()
        assert server.requests == [body]
    assert b"\n" not in queue.client.line("k", body)[:-1]

"""The services that judges share, here or as actors: the limiter, paid calls, the money."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from memray_eval.config.environment import calls_file
from memray_eval.config.sections import Budget
from memray_eval.errors import (
    BudgetSpent,
    EvalError,
    JudgeStalled,
    ServiceLost,
    Stopped,
    describe_error,
)
from memray_eval.execution.run_counter import CallReporter, RunCounter
from memray_eval.execution.waiting import SpendingBook, live_spending
from memray_eval.judges.call_cache import CachedCall, CallCache, Lease, check_file
from memray_eval.judges.call_metrics import CallObserver
from memray_eval.judges.judge_factory import Services
from memray_eval.judges.limits.budget import NOTHING, BudgetLedger, Claim, Spending
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.paid_calls import PaidCalls, SegmentLog
from memray_eval.results.run_folder import BATCHES, RunFolder
from memray_eval.storage.leases import ScratchFolder

if TYPE_CHECKING:  # it imports what no worker needs
    from memray_eval.execution.run_plan import RunPlan
    from memray_eval.execution.stages.context import StageContext

AUTO, OFF = "auto", "off"
CALLS = "the memory of paid calls"
LEAVE_S = 5.0
LISTEN_S = 1.0  # between two looks whether the run ends early
SPARE = "spare_calls"  # in the run's folder: those that could not be written where they belong
RESERVE_BYTES = 256 << 10  # room for them, kept free by a file there, where the disk is full
# Objects that come to be before a collection: of calls under way there are many, hardly one is
# garbage that needs it, and to look at them all takes a quarter of a judge's CPU
COLLECTS_AT = (50_000, 20, 100)
Item = TypeVar("Item")
Answer = TypeVar("Answer")
PUTS = 4  # batches of paid calls on their way from one set of judges

logger = logging.getLogger(__name__)


class JudgeServices(Services):
    """A Limiter, a StoredCalls and a RunLedger, or actors like them; judges connect before use."""

    limiter: Any
    calls: Any
    budget: Any

    def connect(
        self,
        counter: RunCounter,
        is_stopping: Callable[[], bool],
        watch: Callable[[str], CallObserver] = lambda judge: CallObserver(),
        stop: Callable[[str], None] | None = None,
    ) -> Services:
        """The services as one set of judges sees them; `stop` (None: the counter's) ends the run
        if calls can no longer be remembered. Call it on the loop that will use them."""
        stop = stop or counter.stop
        return replace(
            self,
            member=uuid.uuid4().hex,
            say=counter.add_line,
            is_stopping=is_stopping,
            watch=watch,
            parameters=counter,
            calls=None if self.calls is None else _BatchedCalls(self.calls, is_stopping, stop),
            budget=None if self.budget is None else _BatchedBudget(self.budget),
        )

    async def finish(self, within_s: float | None = None) -> None:
        """Merges the small segments of paid calls when no judge asks any more. What takes longer,
        or fails, is left to the next session."""
        try:
            if self.calls is not None:
                await asyncio.wait_for(self.calls.finish(), within_s)
        except (EvalError, RuntimeError, TimeoutError) as error:
            text = "segments of paid calls are not merged, the next session will: %s"
            logger.warning(text, describe_error(error))

    async def end(self) -> None:
        """Writes down what was spent and leaves the limiter, which frees this run's share for other
        runs. Neither failure is an error: the ledger has written ahead, and the limiter drops a
        member that falls silent."""
        try:
            if self.budget is not None:
                await asyncio.wait_for(self.budget.close(), LEAVE_S)
        except (EvalError, RuntimeError, TimeoutError) as error:
            text = "the run's spending is as its folder last had it: %s"
            logger.warning(text, describe_error(error))
        with suppress(EvalError, RuntimeError, TimeoutError):
            await asyncio.wait_for(self.limiter.leave(self.run), LEAVE_S)


class AskingStage:
    """A stage that asks judges: it notices the run's end while calls wait, and reports calls."""

    def __init__(self, services: JudgeServices | None, context: StageContext) -> None:
        self._services, self._context = services, context
        self._reporter = CallReporter(context.counter)
        self._is_stopping = False
        self._watch: asyncio.Task[None] | None = None

    def _connect(self) -> Services:
        """The services of its judges, on the loop that will use them."""
        assert self._services is not None
        gc.set_threshold(*COLLECTS_AT)
        self._watch = asyncio.create_task(self._watch_for_the_end())
        counter, watch = self._context.counter, self._reporter.watch
        return self._services.connect(counter, self._has_stopped, watch, self._stop)

    def _has_stopped(self) -> bool:
        """A counter of this process tells at once; another's is asked every LISTEN_S."""
        is_near = isinstance(self._context.counter, RunCounter)
        return self._is_stopping or (is_near and self._context.is_stopping())

    def _stop(self, reason: str) -> None:
        self._is_stopping = True
        self._context.counter.stop(reason)

    async def _unless_stopped(self, asking: Awaitable[Answer]) -> Answer | None:
        """What was asked for; None if the run stops before."""
        try:
            return await asking
        except (BudgetSpent, JudgeStalled) as error:
            self._stop(str(error))
        except Stopped:
            pass
        return None

    async def _check_for_the_end(self) -> bool:
        self._is_stopping = self._is_stopping or await self._context.counter.is_stopping()
        return self._is_stopping

    async def _watch_for_the_end(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(LISTEN_S)
            await self._reporter.report()
            await self._check_for_the_end()


def start_services(
    budget: Budget,
    cache: str,
    folder: str,
    spent: Spending,
    session: int,
    max_in_flight: int,
    say: Callable[[str], None],
    *,
    members: int = 1,
    limiter: Any = None,
    start: Callable[..., Any] = lambda service, *options: service(*options),
) -> JudgeServices:
    """The services of a run in `folder`, made by `start` of their classes; `say` hears what a
    person should know. Without a `limiter` it is this process's own."""
    return JudgeServices(
        limiter=Limiter() if limiter is None else limiter,
        calls=None
        if cache == OFF
        else start(StoredCalls, *calls_location(cache, folder), say, folder),
        budget=start(RunLedger, budget, spent, folder, session) if budget.is_set else None,
        max_in_flight=max_in_flight,
        members=members,
        run=uuid.uuid4().hex,
        run_id=folder.rstrip("/").rpartition("/")[2],
    )


def service_options(plan: RunPlan, folder: RunFolder) -> tuple[Budget, str, str, Spending, int]:
    """The first arguments of start_services for a session of a run. The paid calls of batches are
    kept in any case: without a memory the run has one of its own."""
    config = plan.spec.config
    is_spent = plan.n_before and config.budget.is_set
    spent = live_spending(folder, plan.n_before) if is_spent else NOTHING
    cache = config.judging.cache
    if cache == OFF and (config.judging.mode != "live" or folder.list_batch_files()):
        cache = f"{folder.path}/{BATCHES}/calls" + ("" if "://" in folder.path else ".sqlite")
    return config.budget, cache, folder.path, spent, plan.n_before + 1


class RunLedger(BudgetLedger):
    """The run's money, written down in its folder as it is spent."""

    def __init__(self, budget: Budget, spent: Spending, folder: str, session: int) -> None:
        self._book = SpendingBook(folder, session)
        super().__init__(budget, spent, save=self._write)

    async def _write(self, paid: Spending, is_open: bool = True) -> None:
        await asyncio.to_thread(self._book.write, paid, is_open)

    async def close(self) -> None:
        """Writes down what was spent; a call that is not settled may have been paid."""
        await self._write(self.committed(), is_open=False)


class StoredCalls(PaidCalls):
    """The memory of paid calls: a file on this machine, and a folder of segments where the file
    does not outlive the run (`file` is None). `say` hears what a person should know of it. What
    cannot be written there is kept in the run's folder, for its next session."""

    def __init__(
        self, file: str | None, segments: str | None, say: Callable[[str], None], folder: str
    ) -> None:
        log = SegmentLog(segments) if segments is not None else None
        self._scratch = None
        if file is not None:
            cache = CallCache(file)
        else:
            self._scratch = ScratchFolder("calls")
            cache = CallCache(str(self._scratch.path / calls_file().name), is_scratch=True)
        super().__init__(cache, log, folder if "://" in folder else os.path.abspath(folder))
        n_unreadable = self.load()
        self._spare = SegmentLog(f"{folder}/{SPARE}")
        self._reserve = None if "://" in folder else Path(folder, SPARE, "reserve")
        with suppress(OSError):
            if self._reserve is not None:
                self._reserve.parent.mkdir(parents=True, exist_ok=True)
                self._reserve.write_bytes(secrets.token_bytes(RESERVE_BYTES))
        for segment in self._spare.load():
            cache.put(segment.calls)
            if log is None:
                self._spare.merge([], [segment.path])
        if self.n_open:
            say(
                f"Judge calls that were under way when this run ended: {self.n_open}. They "
                "are asked again, and may be paid twice unless the provider takes an "
                "Idempotency-Key."
            )
        if log is not None and n_unreadable:
            say(
                f"Segments of paid calls in {log.folder} that cannot be read (cut off, or of "
                f"another version): {n_unreadable}. Their calls will be paid again, "
                "unless whole copies are put back before a run."
            )

    async def keep(self, calls: list[CachedCall]) -> str:
        """Keeps the calls. Returns why they are only in the run's folder, "" if they are not.
        Raises ResourceError or ConfigError if they are nowhere."""
        try:
            await self.put(calls)
        except EvalError as error:
            self._free_reserve()
            await asyncio.to_thread(self._spare.append, calls)
            return str(error)
        return ""

    def _free_reserve(self) -> None:
        with suppress(OSError):  # others are there
            if self._reserve is not None:
                self._reserve.unlink(missing_ok=True)
                self._reserve.parent.rmdir()

    async def finish(self) -> None:
        """After the last call of the run: merges what is in small segments."""
        await self.compact()
        self._free_reserve()
        if self._scratch is not None:
            self._scratch.close()


class _BatchedCalls:
    """A CallStore that looks up, claims and keeps calls in batches. `put` returns when the call
    outlives a kill. A run whose calls cannot be read or written stops before another is paid."""

    def __init__(
        self, calls: Any, is_stopping: Callable[[], bool], stop: Callable[[str], None]
    ) -> None:
        self._calls, self._is_stopping, self._stop = calls, is_stopping, stop
        self.get = Batcher[str, CachedCall | None](self._get_all)
        self._claims = Batcher[str, CachedCall | Lease](self._claim_all)
        self.release = Batcher[str, None](self._release_all)
        # A put takes as long as a write: those that come meanwhile need not wait for two
        self.put = Batcher[CachedCall, bool](self._put_all, at_once=PUTS)

    async def claim(self, key: str) -> CachedCall | Lease:
        if self._is_stopping():
            raise Stopped("the run is stopping")
        return await self._claims(key)

    async def _get_all(self, keys: list[str]) -> Sequence[CachedCall | None]:
        with self._stopping("read"):
            return list(await self._calls.get(keys))

    async def _claim_all(self, keys: list[str]) -> Sequence[CachedCall | Lease]:
        with self._stopping("written"):
            return list(await self._calls.claim(keys))

    async def _release_all(self, keys: list[str]) -> Sequence[None]:
        with suppress(Exception):  # they end with their owner
            await self._calls.release(keys)
        return [None] * len(keys)

    async def _put_all(self, calls: list[CachedCall]) -> Sequence[bool]:
        is_kept = False
        with suppress(Stopped), self._stopping("written"):
            if why := await self._calls.keep(calls):
                self._stop(f"{CALLS} cannot be written: {why}")
            is_kept = True
        return [is_kept] * len(calls)

    @contextmanager
    def _stopping(self, how: str) -> Iterator[None]:
        try:
            yield
        except ServiceLost:
            raise
        except Exception as error:
            reason = f"{CALLS} cannot be {how}: {error}"
            self._stop(reason)
            raise Stopped(reason) from None


class _BatchedBudget:
    """A BudgetPort that reserves and settles calls in batches. One that waits for money holds up
    those after it, as it would at the ledger, and no settlement."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self._reservations = Batcher[Spending, int](ledger.reserve_all)
        self._settlements = Batcher[tuple[int, Spending], None](ledger.settle_all)

    async def reserve(self, most: Spending, claim: Claim = "call") -> int:
        if claim == "call":
            return await self._reservations(most)
        return int(await self._ledger.reserve(most, claim))

    async def settle(self, ticket: int, spent: Spending) -> None:
        await self._settlements((ticket, spent))


def check_calls(cache: str, folder: str) -> None:
    """Raises ConfigError or ResourceError if calls could not be remembered."""
    file, _ = (None, None) if cache == OFF else calls_location(cache, folder)
    if file is not None:
        check_file(file)


def calls_location(cache: str, folder: str) -> tuple[str | None, str | None]:
    """The file or the folder of segments of a cache setting, for a run in `folder`."""
    path = (f"{folder}/calls" if "://" in folder else str(calls_file())) if cache == AUTO else cache
    return (None, path) if "://" in path else (path, None)


class Batcher(Generic[Item, Answer]):
    """`send` takes up to `most` items and returns answers in order, or for the first of them only:
    the others are sent again first. What it raises, all raise. `at_once` go. For one event loop."""

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        most: int = 256,
        at_once: int = 1,
    ) -> None:
        self._send, self._most, self._at_once = send, most, at_once
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._pumps = set[asyncio.Task[None]]()

    async def __call__(self, item: Item) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._pumps) < self._at_once:
            self._pumps.add(asyncio.create_task(self._send_all()))
        return await answer

    async def _send_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            # who was cancelled meanwhile wants no answer
            if batch := [(item, future) for item, future in batch if not future.done()]:
                await self._send_batch(batch)
        # not by a callback of the task: an item that comes before that would find no pump
        self._pumps.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _send_batch(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send([item for item, _ in batch])
        except Exception as error:  # it belongs to those who asked
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        self._waiting.extendleft(reversed(batch[len(answers) :]))
        for (_, future), answer in zip(batch, answers, strict=False):
            if not future.done():
                future.set_result(answer)

"""What all judge actors of a cluster share, as actors with names or handles: the limiter, the
memory of paid calls, the money.

The ports on this side translate: a service that cannot be reached is a JudgeError, for one call.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from memray_eval.config.sections import Budget, RateLimits
from memray_eval.errors import ServiceLost
from memray_eval.execution.run_counter import StageReports
from memray_eval.execution.services import (
    CALLS,
    OFF,
    BatchedCalls,
    StoredCalls,
    calls_error,
    calls_location,
    prompt_secret,
)
from memray_eval.execution.spending import SpendingBook
from memray_eval.judges.call_cache import CachedCall
from memray_eval.judges.call_metrics import CallObserver
from memray_eval.judges.judge_factory import Services
from memray_eval.judges.limits.budget import BudgetLedger, Claim, Spending
from memray_eval.judges.limits.rate_limiter import (
    HORIZON_S,
    Grant,
    Limiter,
    Reservation,
    StallStatus,
)
from memray_eval.models.batching import Batcher

logger = logging.getLogger(__name__)

NAMESPACE = "memray_eval"
# it outlives runs: another number when what it is asked, or answers, changes
LIMITER = "memray_eval_limiter_8"
HEAD = "node:__internal_head__"  # a resource of the head node, by Ray itself
LEAVE_S = 5.0
CALLS_ACTOR = f"{CALLS} (CallsActor)"
LEDGER = "the ledger of the run's budget (LedgerActor)"
FINISH_S = 60.0  # for merging segments at the end of a run
_MANY = 10_000  # calls that may wait in a service at once


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=_MANY)
class LimiterActor:
    """The cluster's limiter. After a restart it holds back for as long as slots of the one before
    may still be used; limits come back with the first reservations."""

    def __init__(self) -> None:
        is_again = ray.get_runtime_context().was_current_actor_reconstructed
        self._limiter = Limiter(hold_s=HORIZON_S if is_again else 0.0)

    async def reserve(self, wanted: Reservation) -> Grant:
        return await self._limiter.reserve(wanted)

    async def throttled(
        self, judge: str, sent_at: float, retry_after_s: float | None, done: int
    ) -> float:
        return await self._limiter.throttled(judge, sent_at, retry_after_s, done)

    async def learn(self, judge: str, limits: RateLimits) -> None:
        await self._limiter.learn(judge, limits)

    async def pause(self, judge: str, known: float, member: str) -> float:
        return await self._limiter.pause(judge, known, member)

    async def leave(self, run: str) -> None:
        await self._limiter.leave(run)

    async def standing(self, judge: str) -> StallStatus:
        return await self._limiter.standing(judge)

    async def known(self) -> dict[str, RateLimits]:
        return dict(self._limiter.limits_by_judge())


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=_MANY)
class CallsActor(StoredCalls):
    """The memory of paid calls, in the process that all judge actors ask."""

    def __init__(self, file: str | None, segments: str | None, counter: StageReports) -> None:
        super().__init__(file, segments, counter.add_line)


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=_MANY)
class LedgerActor:
    """The run's money. It is not restarted: a budget whose spending is forgotten is none."""

    def __init__(self, budget: Budget, spent: Spending, folder: str = "", session: int = 1) -> None:
        self._book = SpendingBook(folder, session) if folder else None
        save = self._book.write if self._book is not None else None
        self._budget = BudgetLedger(budget, spent, save=save)

    async def reserve(self, most: Spending, claim: Claim) -> int:
        return await self._budget.reserve(most, claim)

    async def reserve_all(self, calls: list[Spending]) -> list[int]:
        return await self._budget.reserve_all(calls)

    async def settle_all(self, ended: list[tuple[int, Spending]]) -> None:
        await self._budget.settle_all(ended)

    async def spent(self) -> Spending:
        return self._budget.spent()

    async def close(self) -> None:
        """Writes down what was spent, to the token; a call that is not settled may have been
        paid."""
        if self._book is not None:
            await self._book.write(self._budget.committed())


@dataclass(frozen=True)
class RayServices:
    """JudgeServices as the driver hands them to its judge actors: actors of the cluster; None: this
    run has none. `run` is what the limiter knows this session's members by, `run_id` names the
    run, `secret` is that of the cache folder; None: each set of judges has its own."""

    limiter: Any
    calls: Any | None
    ledger: Any | None
    members: int
    max_in_flight: int
    run: str = ""
    run_id: str = ""
    secret: bytes | None = field(default=None, repr=False)

    def connect(
        self,
        say: Callable[[str], None],
        is_stopping: Callable[[], bool],
        embedded_url: str | None,
        watch: Callable[[str], CallObserver],
    ) -> Services:
        """As JudgeServices has it."""
        services = Services(
            limiter=_RemoteLimiter(self.limiter),
            member=uuid.uuid4().hex,
            say=say,
            is_stopping=is_stopping,
            run=self.run,
            run_id=self.run_id,
            members=self.members,
            max_in_flight=self.max_in_flight,
            calls=BatchedCalls(self._get_calls, self._put_calls) if self.calls else None,
            budget=_RemoteBudget(self.ledger) if self.ledger is not None else None,
            embedded_url=embedded_url,
            watch=watch,
        )
        return services if self.secret is None else replace(services, secret=self.secret)

    async def _get_calls(self, keys: list[str]) -> list[CachedCall | None]:
        assert self.calls is not None
        try:
            with services_needed(CALLS_ACTOR):
                return list(await self.calls.get.remote(keys))
        except ray.exceptions.RayError as error:
            raise calls_error("read", _root_cause(error)) from None

    async def _put_calls(self, calls: list[CachedCall]) -> None:
        assert self.calls is not None
        try:
            with services_needed(CALLS_ACTOR):
                await self.calls.put.remote(calls)
        except ray.exceptions.RayError as error:
            raise calls_error("written", _root_cause(error)) from None


def start_services(
    budget: Budget,
    cache: str,
    folder: str,
    spent: Spending,
    members: int,
    max_in_flight: int,
    counter: StageReports,
    session: int = 1,
) -> RayServices:
    """Starts what judge actors share; `counter` hears what a person should know of it. The limiter
    is the cluster's: it outlives the run, for the next one and for others."""
    limiter = LimiterActor.options(  # type: ignore[attr-defined]
        name=LIMITER,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        resources=on_head_node(),
    ).remote()
    here = {"scheduling_strategy": on_driver_node()}
    ledger = calls = None
    if budget.is_set:
        made = LedgerActor.options(**here)  # type: ignore[attr-defined]
        ledger = made.remote(budget, spent, folder, session)
    if cache != OFF:
        file, segments = calls_location(cache, folder)
        calls = CallsActor.options(**here).remote(file, segments, counter)  # type: ignore[attr-defined]
    run, secret = uuid.uuid4().hex, prompt_secret(cache, folder)
    run_id = folder.rstrip("/").rpartition("/")[2]
    return RayServices(limiter, calls, ledger, members, max_in_flight, run, run_id, secret)


def end_services(services: RayServices | None) -> None:
    """Takes leave of the limiter, so that the run's limits hold no longer for those that go on, and
    has the ledger write down what was spent."""
    if services is None:
        return
    farewells = [services.limiter.leave.remote(services.run)]
    if services.ledger is not None:
        farewells.append(services.ledger.close.remote())
    for farewell in farewells:
        # The limiter is told by its members' silence as well; the ledger has written ahead
        with suppress(ray.exceptions.RayError):
            ray.get(farewell, timeout=LEAVE_S)


def on_head_node() -> dict[str, float]:
    """The resources that put an actor on the cluster's head, where it stays through restarts: on a
    worker, an actor that outlives its run would keep the node up for ever."""
    is_there = any(HEAD in node["Resources"] for node in ray.nodes() if node["Alive"])
    return {HEAD: 0.001} if is_there else {}


def finish_calls(services: RayServices | None) -> None:
    """Merges the small segments of paid calls when no judge asks any more. What takes longer than
    FINISH_S, or fails, is left to the next session."""
    if services is None or services.calls is None:
        return
    try:
        ray.get(services.calls.finish.remote(), timeout=FINISH_S)
    except ray.exceptions.RayError as error:
        logger.warning(
            "segments of paid calls are not merged, the next session will: %s", _root_cause(error)
        )


def on_driver_node() -> NodeAffinitySchedulingStrategy:
    """Where to put an actor that every worker asks: a run outlives the loss of any node but its
    driver's, and keeps no other node up by it. Not soft: Ray 2.60 then puts an actor that takes no
    CPU on any node."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


class _RemoteLimiter:
    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def reserve(self, wanted: Reservation) -> Grant:
        with services_needed("the rate limiter (LimiterActor)"):
            grant: Grant = await self._handle.reserve.remote(wanted)
        return grant

    async def throttled(
        self, judge: str, sent_at: float, retry_after_s: float | None, done: int
    ) -> float:
        return float(await self._handle.throttled.remote(judge, sent_at, retry_after_s, done))

    async def learn(self, judge: str, limits: RateLimits) -> None:
        await self._handle.learn.remote(judge, limits)

    async def pause(self, judge: str, known: float, member: str = "") -> float:
        return float(await self._handle.pause.remote(judge, known, member))

    async def standing(self, judge: str) -> StallStatus:
        standing: StallStatus = await self._handle.standing.remote(judge)
        return standing


class _RemoteBudget:
    """Calls reserve and settle together. One that waits for money holds up those after it, as it
    would at the ledger, and no settlement."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._reservations = Batcher[Spending, int](self._reserve_all)
        self._settlements = Batcher[tuple[int, Spending], None](self._settle_all)

    async def reserve(self, most: Spending, claim: Claim = "call") -> int:
        if claim == "call":
            return await self._reservations(most)
        with services_needed(LEDGER):
            return int(await self._handle.reserve.remote(most, claim))

    async def settle(self, ticket: int, spent: Spending) -> None:
        await self._settlements((ticket, spent))

    async def _reserve_all(self, calls: list[Spending]) -> list[int]:
        with services_needed(LEDGER):
            return list(await self._handle.reserve_all.remote(calls))

    async def _settle_all(self, ended: list[tuple[int, Spending]]) -> list[None]:
        with services_needed(LEDGER):
            await self._handle.settle_all.remote(ended)
        return [None] * len(ended)


@contextmanager
def services_needed(service: str) -> Iterator[None]:
    """Raises ServiceLost where a service that no run can do without is dead for good. One that Ray
    starts anew is waited for."""
    try:
        yield
    except ray.exceptions.ActorDiedError as error:
        raise ServiceLost(f"{service} has died: {failure_reason(error)}") from None


def failure_reason(error: BaseException) -> str:
    """Why an actor died, in one line: the error of ours or of Python that ended it, else Ray's own
    words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [
        line for line in lines if re.match(r"[\w.]*(?:Error|Exception|Lost|Stopped)\b.*: ", line)
    ]
    if raised:
        return raised[-1].removeprefix("memray_eval.errors.").rstrip(".")
    return lines[0].rstrip(".") if lines else type(error).__name__


def _root_cause(error: ray.exceptions.RayError) -> str:
    cause = getattr(error, "cause", None)
    return str(cause) if cause is not None else type(error).__name__

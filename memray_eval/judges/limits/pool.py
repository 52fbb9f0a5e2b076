"""A pool of accounts or regions that serve one model: which of them a call goes to, and what
becomes of the calls of one that rests."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from memray_eval.errors import JudgeError, QuotaExhausted, Stopped, Throttled, Unavailable
from memray_eval.judges.limits.admission import AdmissionController
from memray_eval.judges.limits.breaker import FATAL
from memray_eval.judges.limits.limiter_member import CallPermit, MemberRests, Rest, RunHooks

LOOK_S = 1.0  # how often a call looks whether a member is up again, where all rest
# A member keeps the calls with its prompts' starts while it has no more than BOUND times its share
# (consistent hashing with bounded loads: Mirrokni, Thorup and Zadimoghaddam, 2018), and KEPT_CALLS
# more: what is in its cache is worth a short queue.
BOUND, KEPT_CALLS = 1.25, 8


class MemberPool:
    """The members of one pool in one actor. A call goes to the one with most free capacity, or
    whose cache has its start. One that fails or refuses rests until its breaker or Retry-After lets
    a call try it, and its calls go to others. While all rest calls wait: for silent ones
    `outage_s`, for refusing ones `refused_s`. For one event loop."""

    def __init__(
        self,
        name: str,
        members: Mapping[str, AdmissionController],
        outage_s: float,
        refused_s: float,
        hooks: RunHooks,
    ) -> None:
        self._name, self._members, self._hooks = name, members, hooks
        self._outage_s, self._refused_s = outage_s, refused_s
        self._under_way, self._n_asked = Counter[str](), Counter[str]()
        self._rested_since: float | None = None

    @asynccontextmanager
    async def permit_at_member(
        self,
        enter: Callable[[str], AbstractAsyncContextManager[CallPermit]],
        start_key: str | None,
        failed_at: set[str],
    ) -> AsyncIterator[CallPermit]:
        """Leave for a call at one of the members, each of which `enter` lets it into. `start_key`
        names the start of its prompt that other calls have too, `failed_at` the members where this
        call has failed before, which others go before.

        An error that another member may not meet becomes one to try again at once: Unavailable that
        `is_for_another`, or Throttled without a wait. Raises what the last member raises, or
        JudgeError that says why each of them rests."""
        while True:
            member = await self._choose(start_key, failed_at)
            permit: CallPermit | None = None
            self._under_way[member] += 1
            self._n_asked[member] += 1
            try:
                async with enter(member) as permit:
                    yield permit
                return
            except MemberRests:
                continue
            except JudgeError as error:
                if permit is not None:
                    failed_at.add(member)
                    raise self._for_retry(member, error, failed_at) from None
                if not error.is_stalled:
                    raise
                # It was given up while the call waited for it
            finally:
                self._under_way[member] -= 1
                if permit is not None and permit.is_answered:
                    self._rested_since = None

    async def _choose(self, start_key: str | None, failed_at: set[str]) -> str:
        """The member for a call. Waits while all rest. Raises JudgeError if that is for good, or
        has been for too long, Stopped when the run ends."""
        while not (up := [name for name, member in self._members.items() if member.rest() is None]):
            await self._wait_for_one()
        untried = [name for name in up if name not in failed_at]
        if not untried:
            failed_at.clear()
        rates = {name: member.calls_per_min() for name, member in self._members.items()}
        # A capacity that is not known is taken for as much as the largest that is
        largest = max((rate for rate in rates.values() if rate), default=1.0)
        free = {name: rates[name] or largest for name in untried or up}
        if start_key is None:
            return min(free, key=lambda name: self._load(name, free[name]))
        return self._choose_by_start(start_key, free)

    def _load(self, name: str, capacity: float) -> tuple[float, float]:
        """How busy a member is: of two with equal calls under way, who was asked less is next."""
        return (self._under_way[name] + 1) / capacity, self._n_asked[name] / capacity

    def _choose_by_start(self, start_key: str, free: Mapping[str, float]) -> str:
        """The member that keeps a start, the same one in every actor; while it has far more than
        its share of the calls, the next one."""
        n_calls, total = sum(self._under_way[name] for name in free) + 1, sum(free.values())

        def distance(name: str) -> float:
            digest = hashlib.blake2b(f"{start_key} {name}".encode(), digest_size=8).digest()
            return -math.log((int.from_bytes(digest) + 1) / 2**64) / free[name]

        ordered = sorted(free, key=distance)
        for name in ordered:
            if self._under_way[name] + 1 <= BOUND * n_calls * free[name] / total + KEPT_CALLS:
                return name
        return ordered[0]

    async def _wait_for_one(self) -> None:
        """Sleeps while all members rest, at most until the first of them may be tried."""
        if self._hooks.is_stopping():
            raise Stopped("the run is stopping")
        now = self._hooks.clock()
        self._rested_since = now if self._rested_since is None else self._rested_since
        rests = {name: rest for name, member in self._members.items() if (rest := member.rest())}
        if len(rests) < len(self._members):
            return
        waited_s = now - self._rested_since
        is_refused = any(isinstance(rest.error, Throttled) for rest in rests.values())
        patience_s = self._refused_s if is_refused else self._outage_s
        if waited_s > patience_s or all(rest.is_final for rest in rests.values()):
            raise self._all_rest(rests, waited_s)
        shortest_s = min(rest.left_s for rest in rests.values())
        await self._hooks.sleep(min(LOOK_S, max(0.05, shortest_s)))

    def _all_rest(self, rests: Mapping[str, Rest], waited_s: float) -> JudgeError:
        """The error of a call that no member takes: of the kind of the last hope among them."""
        hopes = sorted(rests.values(), key=lambda rest: (rest.is_final, rest.left_s))
        causes = "; ".join(f"{name}: {rest.error}" for name, rest in rests.items())
        held = f" for {waited_s:.0f} s" if waited_s >= 1 else ""
        error = type(hopes[0].error)(f"all of the pool {self._name} rest{held} ({causes})")
        error.status = hopes[0].error.status
        error.is_stalled = all(
            isinstance(rest.error, Throttled | QuotaExhausted) for rest in rests.values()
        )
        return error

    def _for_retry(self, member: str, error: JudgeError, failed_at: Collection[str]) -> JudgeError:
        """The error for the retry policy: one that another may not meet is tried at once."""
        rests = {name: of_pool.rest() for name, of_pool in self._members.items()}
        is_one_up = any(rests[name] is None for name in rests if name not in failed_at)
        others = [rest for name, rest in rests.items() if name != member]
        if isinstance(error, Throttled):
            if is_one_up or rests[member] is not None:  # else it waits here, which is no try
                error.retry_after_s = 0.0
            return error
        if isinstance(error, FATAL) and any(rest is None or not rest.is_final for rest in others):
            text = f"{member}: {error}"
            error = Unavailable(text, status=error.status, code=error.code, kind=error.kind)
        error.is_for_another = isinstance(error, Unavailable) and is_one_up
        return error

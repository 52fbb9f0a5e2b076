"""One judge actor at the cluster's limiter: its calls in flight, and the reports of what they
took."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.admission_options import AdmissionOptions, RunHooks
from memray_eval.judges.limits.rate_limiter import (
    REQUESTS,
    CallCost,
    Grant,
    LimiterPort,
    Reservation,
    Standing,
    known_lanes,
)

NOTHING = CallCost()
REPORT_S = 2.0  # what calls took is reported after so long, where no reservation took it along


@dataclass(eq=False)
class CallPermit:
    """One call that may be made now. The caller says what it used; a call that failed used nothing
    that is known of."""

    raw_input: float
    estimate: CallCost
    sent_at: float = 0.0
    used: CallCost = NOTHING
    is_counted: bool = False  # among those that ended, beforehand
    is_answered: bool = False


class LimiterMember:
    """Speaks to the limiter for one actor and one judge. Each reservation takes along what calls
    took since the last one; where none comes, a report does."""

    def __init__(
        self, judge: str, limiter: LimiterPort, options: AdmissionOptions, hooks: RunHooks
    ) -> None:
        self._judge, self._limiter, self._options, self._hooks = judge, limiter, options, hooks
        self._owed, self._done, self._answered = NOTHING, 0, 0
        self._report: asyncio.Task[None] | None = None
        self._told_at = -math.inf
        self.in_flight: dict[CallPermit, None] = {}  # in the order of their sending
        # What was learnt goes along with each reservation, for a limiter that was restarted.
        self.told: RateLimits | None = None
        self.learnt_at = -math.inf
        self._found_per_min: float | None = None

    def calls_per_min(self, cost: CallCost) -> float | None:
        """How many calls of this cost the limits allow that are known; None: as many as one
        likes."""
        told, set_first = known_lanes(self.told or RateLimits()), known_lanes(self._options.limits)
        if not self._options.is_firm:
            found = {} if self._found_per_min is None else {REQUESTS: self._found_per_min}
            told, set_first = set_first, found | told
        known = told | set_first
        return min((limit / max(1.0, cost.of(lane)) for lane, limit in known.items()), default=None)

    async def reserve(self, costs: tuple[CallCost, ...]) -> Grant:
        """Asks for slots for calls of these costs."""
        grant = await self._limiter.reserve(self._reservation(costs))
        self._found_per_min = grant.found_per_min
        return grant

    async def wait_for_pause(self, known_until: float) -> float:
        """Until when nobody may ask the judge, once that is later than `known_until`."""
        return await self._limiter.pause(self._judge, known_until, self._options.member)

    async def standing(self) -> Standing:
        return await self._limiter.standing(self._judge)

    async def learn(self, told: RateLimits) -> None:
        """Tells the limiter what the provider has told. Never raises: where the limiter is out of
        reach, it is told again with the next answer."""
        if self.told is None:
            self.learnt_at = self._hooks.clock()
        self.told = told
        try:
            await self._limiter.learn(self._judge, told)
        except Exception:
            self.told = None

    async def report_throttle(self, permit: CallPermit, retry_after_s: float | None) -> float:
        """Tells the limiter of a 429 at once; until when nobody may ask the judge."""
        self._done += self._count_outlived(permit) - permit.is_counted
        done, self._done = self._done, 0
        try:
            return await self._limiter.throttled(self._judge, permit.sent_at, retry_after_s, done)
        except Exception:  # out of reach: the caller must hear of the 429, not of that
            return self._hooks.clock() + (1.0 if retry_after_s is None else retry_after_s)

    def begin(self, permit: CallPermit) -> None:
        self.in_flight[permit] = None

    def end(self, permit: CallPermit, is_throttled: bool) -> None:
        """Notes what an ended call took beyond its estimate, for the next report. Where a call
        failed the estimate stands: the provider may have counted it."""
        del self.in_flight[permit]
        if is_throttled or permit.used != NOTHING:
            self._owed = self._owed.plus(permit.used.minus(permit.estimate))
        self._done += not (is_throttled or permit.is_counted)
        self._answered += permit.is_answered
        if self._report is None or self._report.done():
            # The first at once: the limiter waits for one call before it lets more go.
            first_after_s = 0.0 if self._report is None else REPORT_S
            self._report = asyncio.create_task(self._send_reports(first_after_s))

    def correct(self, more: CallCost) -> None:
        """Notes what a call takes beyond the cost that its slot was reserved for."""
        self._owed = self._owed.plus(more)

    def close(self) -> None:
        if self._report is not None:
            self._report.cancel()

    async def _send_reports(self, after_s: float) -> None:
        """Reports what calls took while no reservation takes it along, as while one waits at the
        limiter: others may go sooner for it."""
        while True:
            if after_s:
                await self._hooks.sleep(after_s)
            if not self._done and not self._answered and self._owed == NOTHING:
                return
            left_s = self._told_at + REPORT_S - self._hooks.clock()
            if after_s and left_s > 0:  # a reservation has taken along what there was till then
                after_s = left_s
                continue
            with suppress(Exception):  # a limiter that starts anew has no use for the report
                await self._limiter.reserve(self._reservation(()))
            after_s = REPORT_S

    def _reservation(self, costs: tuple[CallCost, ...]) -> Reservation:
        owed, done, answered = self._owed, self._done, self._answered
        self._owed, self._done, self._answered = NOTHING, 0, 0
        self._told_at = self._hooks.clock()
        return Reservation(
            judge=self._judge,
            member=self._options.member,
            costs=costs,
            limits=self._options.limits,
            is_firm=self._options.is_firm,
            owed=owed,
            done=done,
            members=self._options.members,
            found_per_min=self._found_per_min,
            told=self.told,
            answered=answered,
            run=self._options.run,
        )

    def _count_outlived(self, refused: CallPermit) -> int:
        """Counts calls that were sent no later than a refused one and are still in flight: most
        will be answered. Refusals come back first, and without those others the few of a burst
        would look like all of it."""
        outlived = [
            other
            for other in self.in_flight
            if other is not refused and other.sent_at <= refused.sent_at and not other.is_counted
        ]
        for other in outlived:
            other.is_counted = True
        return len(outlived)

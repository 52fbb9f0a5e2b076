"""Tells when a judge lets no call through any more, and gives it up."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from memray_eval.errors import Stopped, Throttled
from memray_eval.judges.limits.admission_options import AdmissionOptions, Rest, RunHooks
from memray_eval.judges.limits.limiter_member import LimiterMember
from memray_eval.judges.limits.notices import QUIET_S, Notices, describe_limit
from memray_eval.judges.limits.rate_limiter import HeldBy, Standing
from memray_eval.judges.limits.slot_queue import SlotQueue

LOOK_S = 1.0  # how often it looks, while calls wait, whether the judge lets any through
LET_THROUGH_S = 3.0  # a call that is under way for so long was not refused: a 429 comes at once
# A call that was refused comes back within so long, where the provider does not say when.
LONGEST_BACKOFF_S = 60.0
# A judge that was given up is asked again after so long, where the run goes on without it.
PROBE_S = 60.0


class StallWatch:
    """Watches one judge while calls wait or will be tried again. Says after QUIET_S that none is
    let through, fails the waiting ones after `patience_s`, and ends their waiting when the run
    stops."""

    def __init__(
        self,
        member: LimiterMember,
        queue: SlotQueue,
        notices: Notices,
        options: AdmissionOptions,
        hooks: RunHooks,
    ) -> None:
        self._member, self._queue, self._notices = member, queue, notices
        self._options, self._hooks = options, hooks
        self._answered_at = self._retries_until = -math.inf
        self._last_refusal = ""
        self._given_up: tuple[str, float] | None = None  # why, and until when
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to watch, where it does not yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def check(self) -> None:
        """Raises Throttled while the judge is given up; after a pause a few calls try again."""
        if self._given_up is not None and self._hooks.clock() < self._given_up[1]:
            raise _stalled_error(self._given_up[0])

    def rest(self) -> Rest | None:
        """How long it is given up for, and why."""
        if self._given_up is None:
            return None
        reason, until = self._given_up
        left_s = until - self._hooks.clock()
        return Rest(left_s, _stalled_error(reason), is_final=True) if left_s > 0 else None

    def note_answer(self) -> None:
        self._answered_at, self._last_refusal = self._hooks.clock(), ""
        self._given_up = None

    def note_refusal(self, error: Throttled) -> None:
        """Remembers a 429, and for how long its call may sleep before it comes back."""
        retry_after_s = error.retry_after_s
        self._last_refusal = str(error)
        if retry_after_s is not None:
            self._last_refusal += f"; Retry-After {retry_after_s:.10g} s"
        is_believed = retry_after_s is not None and retry_after_s <= self._options.patience_s
        sleeps_s = (retry_after_s or 0.0) if is_believed else LONGEST_BACKOFF_S
        self._retries_until = self._hooks.clock() + LOOK_S + sleeps_s

    async def _watch(self) -> None:
        clock = self._hooks.clock
        began = clock()
        while self._queue.n_waiting or self._member.in_flight or clock() <= self._retries_until:
            await self._hooks.sleep(LOOK_S)
            if self._hooks.is_stopping():
                self._queue.fail_waiting(lambda: Stopped("the run is stopping"))
                continue
            if (now := clock()) - max(began, self._answered_at) < QUIET_S:
                continue
            with suppress(Exception):  # a limiter out of reach fails the waiting calls elsewhere
                self._assess(await self._member.standing(), began, now)

    def _assess(self, standing: Standing, began: float, now: float) -> None:
        """Reports or gives up a judge by how long it has refused all calls, or held all back."""
        refused_s, slotless_s = (  # of this run: the limiter may know of an earlier one
            0.0 if since is None else now - max(since, began)
            for since in (standing.refused_since, standing.slotless_since)
        )
        if any(now - permit.sent_at > LET_THROUGH_S for permit in self._member.in_flight):
            refused_s = 0.0  # slow, not refused
        refusal = self._last_refusal or "429: too many requests"
        if refused_s >= QUIET_S:
            self._notices.report_refusals(refusal)
        patience_s = self._options.patience_s
        if refused_s >= patience_s:
            self._give_up(
                f"no call has been let through for {patience_s:g} s (judging.ceiling_s): {refusal}",
                now,
            )
        elif (held_by := standing.held_by) is not None:
            self._assess_limit(held_by, slotless_s, now)

    def _assess_limit(self, held_by: HeldBy, slotless_s: float, now: float) -> None:
        """A limit that the user has set is waited for, however long that takes."""
        if self._options.is_set_by_user(held_by.lane):
            return
        if slotless_s >= QUIET_S and not held_by.is_assumed:
            self._notices.report_told_limit(held_by)
        patience_s = self._options.patience_s
        if slotless_s >= patience_s:
            self._give_up(
                f"no call could be sent for {patience_s:g} s (judging.ceiling_s): they wait for "
                f"{describe_limit(held_by)}",
                now,
            )

    def _give_up(self, reason: str, now: float) -> None:
        """Fails the calls that wait. Those that came after the last pause have QUIET_S to try."""
        if self._given_up is None or now >= self._given_up[1] + QUIET_S:
            self._given_up = reason, now + PROBE_S
        elif now >= self._given_up[1]:
            return
        self._queue.fail_waiting(lambda: _stalled_error(reason))


def _stalled_error(reason: str) -> Throttled:
    error = Throttled(reason)
    error.is_stalled = True
    return error

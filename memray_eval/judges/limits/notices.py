"""Limits of one judge as a person sees them: those that the provider's headers state, lines about
calls that wait, and the watch that gives a judge up which lets no call through."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from memray_eval.config.sections import RateLimits
from memray_eval.errors import Stopped, Throttled
from memray_eval.judges.limits.limiter_member import AdmissionOptions, LimiterMember, RunHooks
from memray_eval.judges.limits.rate_limiter import StallStatus
from memray_eval.judges.limits.rate_pacer import LANES, REQUESTS, HeldBy

QUIET_S = 10.0  # a judge is reported after this long without an answer and with 429s alone
LOOK_S = 1.0  # how often it looks, while calls wait, whether the judge lets any through
LET_THROUGH_S = 3.0  # a call that is under way for this long was not refused: a 429 comes at once
# A call that was refused comes back within this long, if the provider does not say when.
LONGEST_BACKOFF_S = 60.0
# A judge that was given up is asked again after this long, if the run goes on without it.
PROBE_S = 60.0
# A limit outside of these is not believed.
LEAST_REQUESTS_PER_MIN = 0.1
LEAST_TOKENS_PER_MIN = 1.0
MOST_PER_MIN = 1e15
_LANE_OF_HEADER = {
    "x-ratelimit-limit-requests": REQUESTS,
    "x-ratelimit-limit-tokens": "tokens_per_min",
    "anthropic-ratelimit-requests-limit": REQUESTS,
    "anthropic-ratelimit-input-tokens-limit": "input_tokens_per_min",
    "anthropic-ratelimit-output-tokens-limit": "output_tokens_per_min",
}


def limits_from_headers(headers: Mapping[str, str]) -> RateLimits | None:
    """The limits in OpenAI's (x-ratelimit-limit-...) and Anthropic's headers; None without any."""
    limits = {
        lane: per_min
        for header, lane in _LANE_OF_HEADER.items()
        if (per_min := _parse_limit(headers, header)) is not None
    }
    return RateLimits.model_validate(limits) if limits else None


def _parse_limit(headers: Mapping[str, str], header: str) -> float | None:
    try:
        per_min = float(headers.get(header, ""))
    except ValueError:
        return None
    is_requests = _LANE_OF_HEADER[header] == REQUESTS
    least = LEAST_REQUESTS_PER_MIN if is_requests else LEAST_TOKENS_PER_MIN
    return per_min if least <= per_min <= MOST_PER_MIN else None


class Notices:
    """The notices of one judge."""

    def __init__(
        self, judge_name: str, options: AdmissionOptions, say: Callable[[str], None]
    ) -> None:
        self._name, self._options, self._say = judge_name, options, say
        self._texts = set[str]()

    def report_refusals(self, refusal: str) -> None:
        """A judge has refused every call for QUIET_S; `refusal` is what it said last."""
        self._say_once(
            f"no call has been let through for {QUIET_S:g} s ({refusal.partition(';')[0]}); the "
            f"others wait. After {self._options.patience_s:g} s without one (judging.ceiling_s) "
            "the run stops, to be resumed"
        )

    def report_told_limit(self, held_by: HeldBy) -> None:
        """Calls have waited for QUIET_S for a limit of the provider's own."""
        self._say_once(
            f"calls wait for {describe_limit(held_by)}, which the provider told, by headers or by "
            "its 429s"
        )

    def report_assumed_limit(self, held_by: HeldBy) -> None:
        """Calls wait for a limit that neither the user nor the provider has named."""
        self._say_once(
            f"calls wait for {describe_limit(held_by)}, which is only assumed (the judge table's, "
            "of a beginner's account): the provider has not told its own. If yours allows more, "
            f"raise it: --set 'judging.limits={{{self._name}: {{{held_by.lane}: NUMBER}}}}', also "
            "with `memray-eval resume latest`"
        )

    def report_lower_limits(self, stated: RateLimits) -> None:
        """Reports limits that the provider tells lower than the user has set them."""
        for lane in LANES:
            stated_per_min, own_per_min = getattr(stated, lane), getattr(self._options.limits, lane)
            if not self._options.is_set_by_user(lane) or stated_per_min is None:
                continue
            if stated_per_min < own_per_min:
                self._say_once(
                    f"its headers tell of {describe_limit(HeldBy(lane, stated_per_min, False))}, "
                    f"less than judging.limits ({own_per_min:,.10g}), which is kept"
                )

    def report_implausible_headers(self, headers: Mapping[str, str]) -> None:
        """Reports headers that should tell a limit and hold none, such as 0.000001 requests/min."""
        for header in _LANE_OF_HEADER:
            if (text := headers.get(header)) and _parse_limit(headers, header) is None:
                told = f"its header {header}: {text[:40]!r}"
                self._say_once(f"{told} is no plausible limit and is ignored")

    def report_implausible_retry_after(self, retry_after_s: float) -> None:
        self._say_once(
            f"its Retry-After of {retry_after_s:.10g} s is not plausible and is ignored; a call "
            f"waits for {self._options.patience_s:g} s in all (judging.ceiling_s)"
        )

    def _say_once(self, text: str) -> None:
        if text not in self._texts:
            self._texts.add(text)
            self._say(f"{self._name}: {text}")


def describe_limit(held_by: HeldBy) -> str:
    return f"a limit of {describe_rate(held_by.lane, held_by.per_min)}"


def describe_rate(lane: str, per_min: float) -> str:
    """A lane's rate: 3,600 requests/min."""
    return f"{per_min:,.10g} {lane.replace('_per_min', '/min').replace('_', ' ')}"


class StallWatch:
    """Watches one judge while calls wait. Says after QUIET_S that none is let through, fails the
    waiting ones after `patience_s`, and ends their waiting when the run stops."""

    def __init__(
        self,
        member: LimiterMember,
        notices: Notices,
        options: AdmissionOptions,
        hooks: RunHooks,
    ) -> None:
        self._member, self._notices = member, notices
        self._options, self._hooks = options, hooks
        self._answered_at = self._retries_until = -math.inf
        self._last_refusal = ""
        self._given_up: tuple[str, float] | None = None  # why, and until when
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to watch, if it does not yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def check(self) -> None:
        """Raises Throttled while the judge is given up; after a pause a few calls try again."""
        if self._given_up is not None and self._hooks.clock() < self._given_up[1]:
            raise _stalled_error(self._given_up[0])

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
        while self._member.n_waiting or self._member.in_flight or clock() <= self._retries_until:
            await self._hooks.sleep(LOOK_S)
            if self._hooks.is_stopping():
                self._member.fail_waiting(lambda: Stopped("the run is stopping"))
                continue
            if (now := clock()) - max(began, self._answered_at) < QUIET_S:
                continue
            try:
                standing = await self._member.standing()
            except Exception as error:  # the queue fails the calls that wait
                self._member.note_failure("stalled calls were not looked for", error)
            else:
                self._assess(standing, began, now)

    def _assess(self, standing: StallStatus, began: float, now: float) -> None:
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
        self._member.fail_waiting(lambda: _stalled_error(reason))


def _stalled_error(reason: str) -> Throttled:
    error = Throttled(reason)
    error.is_stalled = True
    return error

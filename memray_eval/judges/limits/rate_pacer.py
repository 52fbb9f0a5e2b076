"""The schedule of calls to one judge: per limited quantity the time from which there is room,
moved forward by every call's share of a minute (the generic cell rate algorithm, GCRA). That alone
lets a minute pass its limit by one call: what was let go in the last minute is counted too."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from memray_eval.config.sections import RateLimits
from memray_eval.judges.call_metrics import BindingLimit, LimitSource
from memray_eval.types import TokenCounts

# Slots are given so far ahead, no further: what is learnt meanwhile reaches all within it.
HORIZON_S = 5.0
# A minute's worth of calls is spread over so much more than a minute, for clocks and late calls.
SLACK_S = 0.7
WINDOW_S = 60.0 + SLACK_S
LATE_S = 0.5  # a slot older than this is not used any more; below SLACK_S
# Calls of so short a time are planned together, if the limits let several go in it.
GROUP_S = 0.02
# On a 429 the pace halves; it grows back by this share of the limit a second.
CUT, RECOVERY_PER_S = 0.5, 1 / 60
# Over about this many calls, this share of 429s is no chance any more; a burst is of so long.
MEMORY_CALLS, SIGN, BURST_S = 50.0, 0.25, 1.0
# After this long a judge is tried again, whatever its Retry-After: somebody may have mended it.
LONGEST_PAUSE_S = 600.0
# A limit that was just learnt is approached from this share of it, at this rate.
FIRST_PACE, FIRST_RECOVERY_PER_S = 0.5, 1 / 20
# A limit that nobody tells is taken to be what was answered in the minute before a 429: this at
# least at first, later this share of the one before. The pace grows past it as it grew back.
FIRST_FOUND_PER_MIN, LEAST_KEPT = 60.0, 0.7
NEVER = -1e12  # a time before all others
REQUESTS = "requests_per_min"
LANES = (REQUESTS, "tokens_per_min", "input_tokens_per_min", "output_tokens_per_min")
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


class CallCost(NamedTuple):
    """Tokens of one call or several, estimated or known. The input's kinds are a Usage's."""

    input_tokens: float = 0.0
    output_tokens: float = 0.0
    cached_input_tokens: float = 0.0
    cache_write_tokens: float = 0.0

    @classmethod
    def from_usage(cls, usage: TokenCounts) -> CallCost:
        return cls(*(getattr(usage, name) for name in cls._fields))

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    def minus(self, other: CallCost) -> CallCost:
        return CallCost(*(left - right for left, right in zip(self, other, strict=True)))

    def plus(self, other: CallCost) -> CallCost:
        return CallCost(*(left + right for left, right in zip(self, other, strict=True)))

    def in_lane(self, lane: str, calls: int = 1) -> float:
        """How much of a lane these calls take. Tokens from a cache count where both kinds do
        together, OpenAI's way, and not where input counts apart, Anthropic's."""
        if lane == REQUESTS:
            return calls
        if lane == "tokens_per_min":
            return self.tokens
        if lane == "input_tokens_per_min":
            return self.input_tokens - self.cached_input_tokens
        return self.output_tokens


NOTHING = CallCost()


class SlidingWindow:
    """What was let go in the last WINDOW_S, slot by slot."""

    def __init__(self) -> None:
        self._slots: deque[tuple[float, int, CallCost]] = deque()
        self._calls, self._cost = 0, CallCost()

    def add(self, at: float, calls: int, cost: CallCost) -> None:
        """Slots come in order of time."""
        self._slots.append((at, calls, cost))
        self._calls, self._cost = self._calls + calls, self._cost.plus(cost)

    def forget(self, now: float) -> None:
        while self._slots and self._slots[0][0] <= now - WINDOW_S:
            _, calls, cost = self._slots.popleft()
            self._calls, self._cost = self._calls - calls, self._cost.minus(cost)
        if not self._slots:
            self._cost = CallCost()  # no dust of floats

    def room_at(self, cost: CallCost, limits: Mapping[str, float], more: int = 1) -> float:
        """From when this many more calls, of this cost together, stay within the limits; those that
        are above them alone, from when nothing else is left."""
        calls, total, at = self._calls + more, self._cost.plus(cost), -math.inf
        slots = iter(self._slots)
        while any(total.in_lane(lane, calls) > limit for lane, limit in limits.items()):
            if (slot := next(slots, None)) is None:
                break
            at, calls, total = slot[0] + WINDOW_S, calls - slot[1], total.minus(slot[2])
        return at


class RatePacer:
    """One judge's schedule. Times are epoch seconds, all from the caller. Limits are firm (set by
    the user) or assumed (learnt ones replace them). After 429s the pace halves and grows back.
    Where no limit is known, requests are free until 429s show one."""

    def __init__(
        self,
        limits: RateLimits,
        is_firm: bool,
        not_before: float = 0.0,
        provider_limits: RateLimits | None = None,
    ) -> None:
        self._firm = limits if is_firm else None
        self._assumed = RateLimits() if is_firm else limits
        self._provider_limits = known_lanes(provider_limits or RateLimits())
        self._learnt: float | None = None
        self._per_min = self._effective()
        self._free_at = dict.fromkeys(LANES, not_before)
        # The last slot of the limiter before may be just then.
        if not_before and self._per_min[REQUESTS]:
            self._free_at[REQUESTS] += WINDOW_S / (self._per_min[REQUESTS] or math.inf)
        self.blocked_until = self._last_slot = not_before
        self._remembers_from = not_before + WINDOW_S if not_before else 0.0
        self._factor, self._cut_at, self._slowed_at = 1.0, NEVER, NEVER
        self._recovery_per_s = RECOVERY_PER_S
        self._throttle_share, self._found_at = 0.0, NEVER
        # When calls ended, how many, and how many of them by a 429
        self._ended = deque[tuple[float, int, int]]()
        self._last_minute = SlidingWindow()
        self.is_proven = is_firm
        self.refused_since: float | None = None

    @property
    def is_free(self) -> bool:
        return all(limit is None for limit in self._per_min.values())

    @property
    def concurrency(self) -> int | None:
        return (self._firm or self._assumed).concurrency

    @property
    def found_per_min(self) -> float | None:
        """The limit on requests that 429s have taught; None: another is known, or none was met."""
        is_set = self._firm is not None and self._firm.requests_per_min is not None
        return None if is_set or REQUESTS in self._provider_limits else self._learnt

    def limits(self) -> RateLimits:
        """What is known now."""
        return RateLimits(**self._per_min, concurrency=self.concurrency)

    def reserve(self, costs: Sequence[CallCost], now: float) -> tuple[float, ...]:
        """Slots for the first of the calls that start within the horizon."""
        caps, times = self._caps(now), list[float]()
        self._last_minute.forget(now)
        # Calls of GROUP_S are planned together; without a limit each goes alone
        size = max(1, int(self.calls_per_s(costs) * GROUP_S)) if caps and costs else 1
        while len(times) < len(costs):
            group = costs[len(times) : len(times) + size]
            cost = _sum_costs(group)
            earliest = self._earliest_if_free(cost, caps, now, len(group))
            due = max([earliest, *(self._free_at[lane] for lane in caps)])
            start = max(due, self._last_slot)
            if start > now + HORIZON_S:
                if len(group) == 1:
                    break
                size = len(group) // 2  # a part of them may find room
                continue
            # What one lane holds up another may make good, if the last minute is known in full.
            since = earliest if due >= self._remembers_from else due
            for lane in caps:
                took_s = self._duration_s(lane, cost.in_lane(lane, len(group)), due)
                self._free_at[lane] = max(self._free_at[lane], since) + took_s
            until = max([start, *(self._free_at[lane] for lane in caps)])
            gap_s = (min(start + GROUP_S, until) - start) / len(group)
            times += (start + gap_s * index for index in range(len(group)))
            self._last_slot = times[-1]
            if caps:  # a group leaves the minute when its last call does
                self._last_minute.add(self._last_slot, len(group), cost)
                self._last_minute.forget(start)
        return tuple(times)

    def calls_per_s(self, costs: Sequence[CallCost]) -> float:
        """How many calls of these costs the limits allow in a second; infinite without one."""
        n, total = len(costs), _sum_costs(costs)
        return min(
            (
                limit / 60.0 * n / max(n, total.in_lane(lane, n))
                for lane, limit in self._per_min.items()
                if limit
            ),
            default=math.inf,
        )

    def opens_at(self, now: float, cost: CallCost = CallCost()) -> float:
        """From when `reserve` gives a slot to a call of this cost."""
        caps = self._caps(now)
        earliest = self._earliest_if_free(cost, caps, now)
        due = max([earliest, *(self._free_at[lane] for lane in caps)])
        return max(due, self._last_slot) - HORIZON_S

    def held_by(self, cost: CallCost, now: float) -> BindingLimit | None:
        """The limit that a call of this cost waits for, if beyond the horizon."""
        caps = self._caps(now)
        due = {
            lane: max(self._free_at[lane], self._last_minute.room_at(cost, {lane: caps[lane]}))
            for lane in caps
        }
        lane = max(due, key=lambda lane: due[lane], default=REQUESTS)
        if not due or due[lane] <= now + HORIZON_S or self.blocked_until > now:
            return None
        is_assumed = (  # neither set nor told
            lane not in self._provider_limits
            and (self._firm is None or getattr(self._firm, lane) is None)
            and not (lane == REQUESTS and self.found_per_min)
        )
        source: LimitSource = "assumed" if is_assumed else "told"
        return BindingLimit(what=lane, amount=self._per_min[lane] or 0.0, source=source)

    def set_limits(self, firm: RateLimits | None, assumed: RateLimits, now: float) -> None:
        """Takes the limits that the runs of this moment bring: what their users have set, else
        (None) what they assume. Those of a run that is over are lifted by it."""
        if (firm, assumed) == (self._firm, self._assumed):
            return
        self._firm, self._assumed = firm, assumed
        self.is_proven = self.is_proven or firm is not None
        self._change_rates(now)

    def settle(self, correction: CallCost, done: int, now: float, answered: int = 0) -> None:
        """Calls ended: what they took beyond their estimates moves the token lanes on, or back.
        Fewer than none: some that were counted beforehand got a 429."""
        if answered:
            self.refused_since = None
        self._throttle_share = min(1.0, self._throttle_share * (1.0 - 1.0 / MEMORY_CALLS) ** done)
        self._note_ended(now, done)
        for lane in self._caps(now).keys() - {REQUESTS}:
            more = correction.in_lane(lane)
            self._free_at[lane] += math.copysign(self._duration_s(lane, abs(more), now), more)
        if any(correction):
            self._last_minute.add(max(now, self._last_slot), 0, correction)
        self.is_proven = self.is_proven or done > 0

    def throttled(self, sent_at: float, retry_after_s: float | None, now: float) -> None:
        """A call that was sent at `sent_at` got a 429. If a found limit is tried out, or a SIGN
        share of the last calls got one, all slots move past its Retry-After, and the pace halves
        once for all calls sent before. Fewer are a provider's hiccups: those calls wait, the others
        go on."""
        self.is_proven = True
        self.refused_since = now if self.refused_since is None else self.refused_since
        self._throttle_share += (1.0 - self._throttle_share) / MEMORY_CALLS
        self._note_ended(now, 1, 1)
        recent = takewhile(lambda entry: entry[0] >= now - BURST_S, reversed(self._ended))
        ended, refused = map(sum, zip(*(entry[1:] for entry in recent), strict=True))
        # Of the last calls, and of all of the last second: a burst's refusals are told in a row
        is_sign = self._throttle_share >= SIGN and refused >= SIGN * ended
        if self.found_per_min is None and not is_sign:
            return
        pause_s = 1.0 if retry_after_s is None else min(retry_after_s, LONGEST_PAUSE_S)
        self.blocked_until = max(self.blocked_until, now + pause_s)
        if sent_at <= self._cut_at:
            return
        factor, found = self._factor_now(now), self.found_per_min
        # Within a minute, calls from before the last 429 count still.
        if self.is_free or (found and now - self._found_at > 60.0):
            answered = sum(ended - refused for _, ended, refused in self._ended)
            least = LEAST_KEPT * found if found else FIRST_FOUND_PER_MIN
            self._learnt = self._per_min[REQUESTS] = max(least, answered)
            self._found_at, factor = now, 1.0
        self._cut_at = now
        self._slow_down(factor * CUT, now)
        # Slots given at the old pace are dropped, and not made good.
        self.blocked_until = max(self.blocked_until, self._last_slot)
        self._free_at = {lane: max(at, self.blocked_until) for lane, at in self._free_at.items()}

    def learn(self, limits: RateLimits, now: float) -> bool:
        """Takes over what the provider says of what the user has not set, if that is news. The
        first time the pace begins below it: many calls start at once then, some of them late."""
        if (stated := known_lanes(limits)).items() <= self._provider_limits.items():
            return False
        if not self.is_proven:
            self._slow_down(FIRST_PACE, now, FIRST_RECOVERY_PER_S)
        self.is_proven = True
        self._provider_limits |= stated
        if REQUESTS in stated:
            self._learnt = None
        self._change_rates(now)
        return True

    def _note_ended(self, now: float, calls: int, refused: int = 0) -> None:
        self._ended.append((now, calls, refused))
        while self._ended[0][0] <= now - 60.0:
            self._ended.popleft()

    def _slow_down(self, factor: float, now: float, recovery_per_s: float = RECOVERY_PER_S) -> None:
        """The pace grows back from when slots are given again."""
        self._factor, self._slowed_at, self._recovery_per_s = factor, now, recovery_per_s
        self._free_at = {lane: max(at, now) for lane, at in self._free_at.items()}

    def _change_rates(self, now: float) -> None:
        """Goes by what is known now. What waits ahead was planned at the old rates; it is out of
        every minute's count a window after the last slot, however low the new ones are."""
        for lane, after in self._effective().items():
            before, self._per_min[lane] = self._per_min[lane], after
            if before and after and (ahead_s := self._free_at[lane] - now) > 0:
                longest_s = max(ahead_s, WINDOW_S + HORIZON_S)
                self._free_at[lane] = now + min(ahead_s * before / after, longest_s)
            elif bool(before) != bool(after):
                self._free_at[lane] = max(now, self._free_at[lane]) if after else now

    def _effective(self) -> dict[str, float | None]:
        """The limit of every lane: firm, else the provider's, else found, else assumed."""
        limits: dict[str, float | None] = dict.fromkeys(LANES)
        if self._firm is None:
            limits |= known_lanes(self._assumed)
        if self._learnt is not None:
            limits[REQUESTS] = self._learnt
        return limits | self._provider_limits | known_lanes(self._firm or RateLimits())

    def _earliest_if_free(
        self, cost: CallCost, caps: Mapping[str, float], now: float, calls: int = 1
    ) -> float:
        """When calls of this cost together may be sent, if every lane were free."""
        return max(now, self.blocked_until, self._last_minute.room_at(cost, caps, calls))

    def _duration_s(self, lane: str, amount: float, start: float) -> float:
        """Seconds from `start` until a lane has room for more, while the pace recovers."""
        even_s = amount * WINDOW_S / (self._per_min[lane] or math.inf)
        factor = self._factor_now(start)
        if factor >= 1.0:
            return even_s / factor
        after = math.sqrt(factor**2 + 2 * self._recovery_per_s * even_s)
        if after <= 1.0:
            return (after - factor) / self._recovery_per_s
        return even_s + (1.0 - factor) ** 2 / (2 * self._recovery_per_s)

    def _caps(self, now: float) -> dict[str, float]:
        """Per limited lane, what may be let go in a minute, the cut pace not counted again."""
        factor = max(1.0, self._factor_now(now)) * (1 + 1e-9)
        return {lane: limit * factor for lane, limit in self._per_min.items() if limit}

    def _factor_now(self, now: float) -> float:
        recovers_s = max(0.0, now - max(self.blocked_until, self._slowed_at))
        grown = self._factor + recovers_s * self._recovery_per_s
        return min(1.0, grown) if self.found_per_min is None else grown


def _sum_costs(costs: Sequence[CallCost]) -> CallCost:
    return CallCost(*map(math.fsum, zip(*costs, strict=True)))


def known_lanes(limits: RateLimits) -> dict[str, float]:
    return {lane: limit for lane in LANES if (limit := getattr(limits, lane)) is not None}


def read_headers(headers: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """The limits in OpenAI's (x-ratelimit-limit-...) and Anthropic's headers by lane, and the
    headers that should tell one and hold none, such as 0.000001 requests/min."""
    limits, odd = dict[str, float](), list[str]()
    for header, lane in _LANE_OF_HEADER.items():
        least = LEAST_REQUESTS_PER_MIN if lane == REQUESTS else LEAST_TOKENS_PER_MIN
        if not (text := headers.get(header)):
            continue
        with suppress(ValueError):
            if least <= (per_min := float(text)) <= MOST_PER_MIN:
                limits[lane] = per_min
                continue
        odd.append(header)
    return limits, odd


def describe_rate(lane: str, per_min: float) -> str:
    """A lane's rate: 3,600 requests/min."""
    return f"{per_min:,.10g} {lane.replace('_per_min', '/min').replace('_', ' ')}"

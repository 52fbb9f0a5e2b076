"""The cluster-wide rate limiter: hands out time slots for calls to each judge, in chunks. Each
judge has a `RatePacer`: per limited quantity the time from which there is room again, moved forward
by every call's share of a minute (the generic cell rate algorithm, GCRA); as that alone lets a
minute pass its limit by one call, what was let go in the last minute is counted too. A slot that
comes too late to be used is given back."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import orjson

from memray_eval.config.sections import RateLimits
from memray_eval.types import TokenCounts

# Slots are given so far ahead, no further: what is learnt meanwhile reaches all within it.
HORIZON_S = 5.0
# A minute's worth of calls is spread over so much more than a minute, for clocks and late calls.
SLACK_S = 0.7
WINDOW_S = 60.0 + SLACK_S
LATE_S = 0.5  # a slot older than this is not used any more; below SLACK_S
TOLD_S = 0.05  # of a call that was later than this the limiter is told
# What was held up, for up to a horizon (a process had no CPU), is made good at this many times the
# pace; so long a gap between calls is enough for that.
CATCH_UP_PACE, LONGEST_GAP_S = 2.0, 1.0
FREE_S = 2.0  # without a limit a member need not ask again for this long
# Calls of so short a time are planned together, if the limits let several go in it.
GROUP_S = 0.02
# If more calls than that may go, members ask this often a second all together, each for the
# calls that it makes meanwhile: an actor takes some 0.8 ms a message. None waits for longer.
MESSAGES_PER_S, LONGEST_GATHER_S = 100.0, 0.5
LEAST_TURN = 25  # slots that a member may have at a time, if nobody else waits
# Until a judge has answered, one call goes at a time; another when it has not come back for so
# long. After so many that failed, one at a time would only make an outage longer.
CANARY_S, FAILED_CANARIES = 10.0, 3
# The first in the queue waits at least GATHER_S, for more than one slot, and looks every LOOK_S.
GATHER_S, LOOK_S = 0.1, 1.0
# On a 429 the pace halves; it grows back by this share of the limit a second.
CUT, RECOVERY_PER_S = 0.5, 1 / 60
# Over about this many calls, this share of 429s is no chance any more.
MEMORY_CALLS, SIGN = 50.0, 0.25
# After this long a judge is tried again, whatever its Retry-After: somebody may have mended it.
LONGEST_PAUSE_S = 600.0
# A limit that was just learnt is approached from this share of it, at this rate.
FIRST_PACE, FIRST_RECOVERY_PER_S = 0.5, 1 / 20
# What is taken for an unknown limit at least, when the first 429 comes after few calls.
FIRST_FOUND_PER_MIN = 60.0
# A found limit moves to a little below the pace that was too much, but not down by more.
SHYNESS, LEAST_KEPT = 0.95, 0.7
# A found limit is tried out slowly at first, then faster: at double pace this long after it was
# reached.
DOUBLES_S = 200.0
# A member not heard of for this long is gone; one that waits is heard of in half of it.
MEMBER_S = 60.0
# A judge that nobody has asked for this long is forgotten, with what was learnt of it.
FORGET_S = 86_400.0
NEVER = -1e12  # a time before all others, which JSON has
# Where limiters share a window, its slots that are no longer corrected go together by so much.
SHARED_S = 0.1
REQUESTS = "requests_per_min"
LANES = (REQUESTS, "tokens_per_min", "input_tokens_per_min", "output_tokens_per_min")


T = TypeVar("T")


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

    def in_lane(self, lane: str) -> float:
        """How much of a lane one call takes. Tokens from a cache count where both kinds do
        together, OpenAI's way, and not where input counts apart, Anthropic's."""
        if lane == REQUESTS:
            return 1.0
        if lane == "tokens_per_min":
            return self.tokens
        if lane == "input_tokens_per_min":
            return self.input_tokens - self.cached_input_tokens
        return self.output_tokens


NOTHING = CallCost()


class LateSlot(NamedTuple):
    """A slot, what its call was planned to take, and when that went instead (epoch seconds; None:
    not at all)."""

    at: float
    cost: CallCost
    sent_at: float | None = None


class Reservation(NamedTuple):
    """A member's (a judge actor's) request for slots of these costs; with all limits that it knows,
    for a restarted limiter, and what its last calls took: `correction`, actual minus estimated
    tokens; `done`, how many ended, those with a 429 apart; `answered`, how many by an answer;
    `late` are slots that were not kept."""

    judge: str
    member: str
    costs: tuple[CallCost, ...]
    limits: RateLimits
    is_firm: bool
    correction: CallCost = CallCost()
    done: int = 0
    members: int = 1
    found_per_min: float | None = None
    provider_limits: RateLimits | None = None
    answered: int = 0
    run: str = ""
    late: tuple[LateSlot, ...] = ()


class HeldBy(NamedTuple):
    """The limit that calls wait for, and if it is assumed: neither set nor told."""

    lane: str
    per_min: float
    is_assumed: bool


class StallStatus(NamedTuple):
    """Since when (epoch seconds) all calls to a judge got a 429; since when some wait and none was
    given a slot, and for which limit. None: it is not so."""

    refused_since: float | None = None
    slotless_since: float | None = None
    held_by: HeldBy | None = None


class Grant(NamedTuple):
    """When the first calls of a reservation may be sent (epoch seconds), or until when any may;
    calls in flight of the member (None: any number); the limit that 429s have taught, and the one
    that these calls wait for. `gather_s` is to pass before the member asks again."""

    times: tuple[float, ...] = ()
    free_until: float = 0.0
    share: int | None = None
    found_per_min: float | None = None
    held_by: HeldBy | None = None
    gather_s: float = 0.0


class SlidingWindow:
    """What was let go in the last WINDOW_S, slot by slot."""

    def __init__(self) -> None:
        self._slots: deque[tuple[float, int, CallCost]] = deque()
        self._calls, self._cost = 0, CallCost()

    def add(self, at: float, calls: int, cost: CallCost) -> None:
        """Slots come in order of time."""
        self._slots.append((at, calls, cost))
        self._calls, self._cost = self._calls + calls, self._cost.plus(cost)

    def correct(self, late: Iterable[LateSlot]) -> None:
        """Counts calls when they went, and those that did not go no longer."""
        later, moved = list[tuple[float, int, CallCost]](), list[tuple[float, int, CallCost]]()
        for slot in sorted(late, key=lambda slot: -slot.at):
            while self._slots and self._slots[-1][0] >= slot.at:
                later.append(self._slots.pop())
            if not later or later[-1][0] > slot.at + GROUP_S:
                continue  # it is forgotten
            at, calls, cost = later[-1]
            later[-1] = at, calls - 1, cost.minus(slot.cost)
            if slot.sent_at is None:
                self._calls, self._cost = self._calls - 1, self._cost.minus(slot.cost)
            else:
                moved.append((slot.sent_at, 1, slot.cost))
        self._slots.extend(sorted(later + moved, key=lambda entry: entry[0]))

    def forget(self, now: float) -> None:
        while self._slots and self._slots[0][0] <= now - WINDOW_S:
            _, calls, cost = self._slots.popleft()
            self._calls, self._cost = self._calls - calls, self._cost.minus(cost)
        if not self._slots:
            self._cost = CallCost()  # no dust of floats

    def dump(self) -> list[list[float]]:
        """[time, calls, *cost] of its slots; old ones within SHARED_S together, at the last one's
        time."""
        dumped, old = list[list[float]](), NEVER
        for at, calls, cost in self._slots:
            if dumped and at < self._slots[-1][0] - 2 * HORIZON_S and at // SHARED_S == old:
                added = zip(dumped[-1][1:], (calls, *cost), strict=True)
                dumped[-1] = [at, *(before + more for before, more in added)]
            else:
                dumped.append([at, calls, *cost])
            old = at // SHARED_S
        return dumped

    @classmethod
    def load(cls, dumped: Iterable[Sequence[float]]) -> SlidingWindow:
        window, slots = cls(), [(at, int(calls), CallCost(*cost)) for at, calls, *cost in dumped]
        window._slots, window._calls = deque(slots), sum(calls for _, calls, _ in slots)
        window._cost = _sum_costs([NOTHING, *(cost for _, _, cost in slots)])
        return window

    def room_at(self, cost: CallCost, limits: Mapping[str, float], more: int = 1) -> float:
        """From when this many more calls, of this cost together, stay within the limits; those that
        are above them alone, from when nothing else is left."""
        calls, total, at = self._calls + more, self._cost.plus(cost), -math.inf
        slots = iter(self._slots)
        while any(
            (calls if lane == REQUESTS else total.in_lane(lane)) > limit
            for lane, limit in limits.items()
        ):
            if (slot := next(slots, None)) is None:
                break
            at, calls, total = slot[0] + WINDOW_S, calls - slot[1], total.minus(slot[2])
        return at


class RatePacer:
    """One judge's schedule. Times are epoch seconds, all from the caller. Limits are firm (set by
    the user) or assumed (learnt ones replace them). After a 429 the pace halves and grows back. A
    quantity without a limit is free until the first 429: then the limit is searched for from the
    calls of the minute before, and tried out from a little below the last 429."""

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
        self._blocked_until = self._last_slot = self._spaced_until = not_before
        self._remembers_from = not_before + WINDOW_S if not_before else 0.0
        self._factor, self._cut_at, self._eased_at = 1.0, NEVER, NEVER
        self._recovery_per_s = RECOVERY_PER_S
        self._throttle_share, self._last_second = 0.0, deque[tuple[float, int, int]]()
        self._learnt_at, self._moved_at = NEVER, NEVER
        self._ended: deque[tuple[float, int]] = deque()
        self._last_minute = SlidingWindow()
        self.is_proven, self._n_failed = is_firm, 0
        self.refused_since: float | None = None
        self._refused_at = NEVER

    def dump(self) -> dict[str, Any]:
        """What `load` makes the same pacer of, for JSON."""
        return {**vars(self), "_last_minute": self._last_minute.dump()}

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> RatePacer:
        pacer = cls(RateLimits(), is_firm=False)
        for name, value in dumped.items():
            if name == "_last_minute":
                value = SlidingWindow.load(value)
            elif name in ("_firm", "_assumed"):
                value = value and RateLimits(**value)
            elif isinstance(value, list):
                value = deque(map(tuple, value))
            setattr(pacer, name, value)
        return pacer

    @property
    def is_free(self) -> bool:
        return all(limit is None for limit in self._per_min.values())

    @property
    def concurrency(self) -> int | None:
        return (self._firm or self._assumed).concurrency

    @property
    def found_per_min(self) -> float | None:
        """The limit that 429s have taught; None: another is known, or none was met."""
        return self._learnt if self._is_learnt else None

    @property
    def _is_learnt(self) -> bool:
        """True if the limit on requests is one that 429s have taught."""
        is_set = self._firm is not None and self._firm.requests_per_min is not None
        return self._learnt is not None and not is_set and REQUESTS not in self._provider_limits

    def limits(self) -> RateLimits:
        """What is known now."""
        return RateLimits(**self._per_min, concurrency=self.concurrency)

    def reserve(self, costs: Sequence[CallCost], now: float) -> tuple[float, ...]:
        """Slots for the first of the calls that start within the horizon."""
        caps, times = self._caps(now), list[float]()
        self._last_minute.forget(now)
        size = self._group_size(costs)
        while len(times) < len(costs):
            group = costs[len(times) : len(times) + size]
            cost = group[0] if len(group) == 1 else _sum_costs(group)
            earliest = self._earliest_if_free(cost, caps, now, len(group))
            due = max(earliest, *(self._free_at[lane] for lane in caps), now)
            # In order; what refunds and delays have brought forward comes closer together.
            start = max(due, self._last_slot, self._spaced_until)
            if start > now + HORIZON_S:
                if len(group) == 1:
                    break
                size = len(group) // 2  # a part of them may find room
                continue
            # What one lane holds up, at most a horizon, another may make good, and what held up
            # those who ask, if the last minute is known to the full.
            since, longest_s = due, 0.0
            if due >= self._remembers_from:
                since = earliest - HORIZON_S if self._catches_up(earliest) else earliest
            for lane in caps:
                amount = len(group) if lane == REQUESTS else cost.in_lane(lane)
                took_s = self._duration_s(lane, amount, due)
                self._free_at[lane] = max(self._free_at[lane], since) + took_s
                longest_s = max(longest_s, took_s)
            gap_s = min(LONGEST_GAP_S, longest_s / CATCH_UP_PACE)
            self._last_slot, self._spaced_until = start, start + gap_s
            if len(group) == 1:
                times.append(start)
            else:
                free_at = max(self._free_at[lane] for lane in caps)
                until = min(start + GROUP_S, max(self._spaced_until, free_at))
                gap_s = max(0.0, until - start) / len(group)
                times += (start + gap_s * index for index in range(len(group)))
                self._last_slot = times[-1]
            if caps:  # a group leaves the minute when its last call does
                self._last_minute.add(self._last_slot, len(group), cost)
                self._last_minute.forget(start)
        return tuple(times)

    def _catches_up(self, now: float) -> bool:
        """False for a pause in asking, for a pace that recovers, and within LONGEST_PAUSE_S of a
        429: the provider may count by the second."""
        is_calm = now - self._refused_at > LONGEST_PAUSE_S
        return is_calm and self._last_slot >= now - HORIZON_S and self._factor_now(now) >= 1.0

    def calls_per_s(self, costs: Sequence[CallCost]) -> float:
        """How many calls of these costs the limits allow in a second; infinite without one."""
        n, total = len(costs), _sum_costs(costs)
        return min(
            (
                limit / 60.0 * n / max(n, n if lane == REQUESTS else total.in_lane(lane))
                for lane, limit in self._per_min.items()
                if limit
            ),
            default=math.inf,
        )

    def _group_size(self, costs: Sequence[CallCost]) -> int:
        """How many calls are planned together: those of GROUP_S; without a limit one."""
        if not costs or self.is_free:
            return 1
        return max(1, int(self.calls_per_s(costs) * GROUP_S))

    def opens_at(self, now: float, cost: CallCost = CallCost()) -> float:
        """From when `reserve` gives a slot to a call of this cost."""
        send_at = self._earliest_send(cost, self._caps(now), now)
        return max(send_at, self._last_slot, self._spaced_until) - HORIZON_S

    def blocked_until(self) -> float:
        return self._blocked_until

    def held_by(self, cost: CallCost, now: float) -> HeldBy | None:
        """The limit that a call of this cost waits for, if beyond the horizon."""
        caps = self._caps(now)
        due = {
            lane: max(self._free_at[lane], self._last_minute.room_at(cost, {lane: caps[lane]}))
            for lane in caps
        }
        lane = max(due, key=lambda lane: due[lane], default=REQUESTS)
        if not due or due[lane] <= now + HORIZON_S or self._blocked_until > now:
            return None
        is_assumed = (
            lane not in self._provider_limits
            and (self._firm is None or getattr(self._firm, lane) is None)
            and not (self._is_learnt and lane == REQUESTS)
        )
        return HeldBy(lane, self._per_min[lane] or 0.0, is_assumed)

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
        self._last_second.append((now, done, 0))
        while self._last_second[0][0] < now - LOOK_S:
            self._last_second.popleft()
        if self.is_free:
            self._ended.append((now, done))
            while self._ended[0][0] < now - 60.0:
                self._ended.popleft()
        elif self._is_learnt and now - self._learnt_at <= HORIZON_S:  # they ended before it
            self._learnt = max(FIRST_FOUND_PER_MIN, (self._learnt or 0.0) + done)
            self._per_min[REQUESTS] = self._learnt
        for lane in self._caps(now):
            if lane != REQUESTS:
                self._free_at[lane] += math.copysign(
                    self._duration_s(lane, abs(correction.in_lane(lane)), now),
                    correction.in_lane(lane),
                )
        if any(correction):
            self._last_minute.add(max(now, self._last_slot), 0, correction)
        self._n_failed += done - answered
        self.is_proven = self.is_proven or answered > 0 or self._n_failed >= FAILED_CANARIES

    def correct(self, late: Sequence[LateSlot], now: float) -> None:
        """Takes over when calls went; for those that did not there is room for others."""
        self._last_minute.correct(late)
        unsent = [slot for slot in late if slot.sent_at is None] if self._catches_up(now) else []
        for slot in unsent:
            for lane in self._caps(now):
                amount = 1.0 if lane == REQUESTS else slot.cost.in_lane(lane)
                self._free_at[lane] -= self._duration_s(lane, amount, now)

    def throttled(self, sent_at: float, retry_after_s: float | None, now: float) -> None:
        """A call that was sent at `sent_at` got a 429. If a found limit is tried out, or a SIGN
        share of the last calls got one, all slots move past its Retry-After, and the pace halves
        once for all calls sent before. Fewer are a provider's hiccups: those calls wait, the others
        go on."""
        self.is_proven, self._refused_at = True, now
        self.refused_since = now if self.refused_since is None else self.refused_since
        self._throttle_share += (1.0 - self._throttle_share) / MEMORY_CALLS
        self._last_second.append((now, 1, 1))
        factor = self._factor_now(now)
        if not self._is_learnt and not self._is_sign(now):
            if not self.is_free and now - self._eased_at > HORIZON_S:
                self._ease(factor * (1.0 - self._throttle_share), now)
            return
        pause_s = 1.0 if retry_after_s is None else min(retry_after_s, LONGEST_PAUSE_S)
        self._blocked_until = max(self._blocked_until, now + pause_s)
        if sent_at <= self._cut_at:
            return
        if self.is_free:
            ended = sum(calls for moment, calls in self._ended if moment > now - 60.0)
            self._find(max(FIRST_FOUND_PER_MIN, ended), now)
        # Within a minute, calls from before the last 429 count still.
        elif self._is_learnt and now - self._moved_at > 60.0:
            kept = max(LEAST_KEPT, SHYNESS * factor)
            self._learnt, self._moved_at = kept * (self._learnt or 0.0), now
            self._per_min[REQUESTS] = self._learnt
            factor /= kept
        self._cut_at = now
        self._ease(factor * CUT, now)
        # Slots given at the old pace are dropped, and not made good.
        self._blocked_until = max(self._blocked_until, self._last_slot)
        self._free_at = {lane: max(at, self._blocked_until) for lane, at in self._free_at.items()}

    def learn(self, limits: RateLimits, now: float) -> None:
        """Takes over what the provider says of what the user has not set. The first time the pace
        begins below it: many calls start at once then, some of them late."""
        if not self.is_proven:
            self._ease(FIRST_PACE, now, FIRST_RECOVERY_PER_S)
        self.is_proven = True
        self._provider_limits |= known_lanes(limits)
        if limits.requests_per_min is not None:
            self._learnt = None
        self._change_rates(now)

    def resume(self, found_per_min: float, now: float) -> None:
        """Takes over a limit that was found before a restart, if nothing is known."""
        if self.is_free:
            self._find(found_per_min, NEVER)
            self._free_at[REQUESTS] = max(now, self._blocked_until) + WINDOW_S / found_per_min

    def _is_sign(self, now: float) -> bool:
        """True if 429s are a SIGN share of the last MEMORY_CALLS, and of all calls of the last
        second: the refusals of a burst are told in a row."""
        if self._throttle_share < SIGN:
            return False
        recent = [entry for entry in self._last_second if entry[0] >= now - LOOK_S]
        return sum(throttles for _, _, throttles in recent) >= SIGN * sum(
            calls for _, calls, _ in recent
        )

    def _ease(self, factor: float, now: float, recovery_per_s: float = RECOVERY_PER_S) -> None:
        """Slows the pace down; it grows back from when slots are given again."""
        self._factor, self._eased_at, self._recovery_per_s = factor, now, recovery_per_s
        self._free_at = {lane: max(at, now) for lane, at in self._free_at.items()}

    def _find(self, per_min: float, now: float) -> None:
        self._per_min[REQUESTS] = self._learnt = per_min
        self._learnt_at = self._moved_at = now

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

    def _earliest_send(self, cost: CallCost, caps: Mapping[str, float], now: float) -> float:
        """When a call may be sent, going by limits and pauses."""
        return max(
            self._earliest_if_free(cost, caps, now), *(self._free_at[lane] for lane in caps), now
        )

    def _earliest_if_free(
        self, cost: CallCost, caps: Mapping[str, float], now: float, calls: int = 1
    ) -> float:
        """The same, if every lane were free; for this many calls of this cost together."""
        return max(now, self._blocked_until, self._last_minute.room_at(cost, caps, calls))

    def _duration_s(self, lane: str, amount: float, start: float) -> float:
        """Seconds from `start` until there is room for more in a lane: a share of a minute,
        stretched while the pace recovers by `_recovery_per_s`."""
        even_s = amount * WINDOW_S / (self._per_min[lane] or math.inf)
        factor = self._factor_now(start)
        if factor >= 1.0:
            return even_s / factor
        after = math.sqrt(factor**2 + 2 * self._recovery_per_s * even_s)
        if after <= 1.0:
            return (after - factor) / self._recovery_per_s
        return (
            (1.0 - factor) / self._recovery_per_s
            + even_s
            - (1.0 - factor**2) / (2 * self._recovery_per_s)
        )

    def _caps(self, now: float) -> dict[str, float]:
        """Per limited lane, what may be let go in a minute, the cut pace not counted again."""
        factor = max(1.0, self._factor_now(now)) * (1 + 1e-9)
        return {lane: limit * factor for lane, limit in self._per_min.items() if limit}

    def _factor_now(self, now: float) -> float:
        grown = (
            self._factor
            + max(0.0, now - max(self._blocked_until, self._eased_at)) * self._recovery_per_s
        )
        if grown <= 1.0 or not self._is_learnt:
            return min(1.0, grown)
        beyond_s = (grown - 1.0) / self._recovery_per_s
        return 1.0 + (beyond_s / DOUBLES_S) ** 3


def _plain(value: object) -> object:
    """What JSON has for the parts of a pace."""
    return value.model_dump() if isinstance(value, RateLimits) else list(cast(deque[Any], value))


def _sum_costs(costs: Sequence[CallCost]) -> CallCost:
    return CallCost(*map(math.fsum, zip(*costs, strict=True)))


def known_lanes(limits: RateLimits) -> dict[str, float]:
    return {lane: limit for lane in LANES if (limit := getattr(limits, lane)) is not None}


def lowest_limits(limits: Iterable[RateLimits]) -> RateLimits:
    """The limits that all of these keep to: the lowest of each kind."""
    by_kind: dict[str, list[float]] = {}
    for of_member in limits:
        for kind, limit in of_member.model_dump(exclude_none=True).items():
            by_kind.setdefault(kind, []).append(limit)
    return RateLimits(**{kind: min(of_kind) for kind, of_kind in by_kind.items()})


@dataclass
class _Member:
    """A member: when it was last heard of, its run, and the limits that it brings."""

    heard_at: float
    run: str
    limits: RateLimits
    is_firm: bool

    @property
    def brings(self) -> tuple[RateLimits, bool]:
        return self.limits, self.is_firm


class LimiterPort(Protocol):
    """The limiter as a judge actor sees it, near or far."""

    async def reserve(self, wanted: Reservation) -> Grant: ...

    async def throttled(
        self, judge: str, sent_at: float, retry_after_s: float | None, done: int
    ) -> float:
        """Tells of a 429, and of the calls that since the last report have ended or outlived it
        (those that are refused later are taken off again); until when nobody may ask the judge."""
        ...

    async def learn(self, judge: str, limits: RateLimits) -> None: ...

    async def pause(self, judge: str, known_until: float, member: str = "") -> float: ...

    async def standing(self, judge: str) -> StallStatus: ...


class SharedLimits(Protocol):
    """What limiters of several clusters know together of each judge."""

    async def swap(self, judge: str, change: Callable[[bytes | None], tuple[T, bytes]]) -> T:
        """Puts what `change` makes in the place of what is known (None: nothing, or what this
        limiter was the last to put there), with nothing in between: it is called again if another
        limiter was first. Raises ServiceLost."""
        ...

    async def close(self) -> None: ...


class _Signal:
    """Wakes all who wait for a change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """At most this long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)

    def announce(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


@dataclass(eq=False)
class _Judge:
    """A judge as the limiter knows it: `canary_at` is when the last call that goes first went, and
    `slotless` since when calls wait and none was given a slot, and for which limit."""

    name: str
    pace: RatePacer
    asked_at: float
    members: dict[str, _Member] = field(default_factory=dict)
    applied_at: float = NEVER
    queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    n_waiting: int = 0
    canary_at: float = NEVER
    slotless: tuple[float, HeldBy | None] | None = None
    changed: _Signal = field(default_factory=_Signal)
    paused: _Signal = field(default_factory=_Signal)
    swapping: asyncio.Lock = field(default_factory=asyncio.Lock)

    def dump(self) -> bytes:
        """What limiters share of it, as JSON."""
        times = {"canary_at": self.canary_at, "applied_at": self.applied_at}
        shared = {**times, "members": self.members, "pace": self.pace.dump()}
        return orjson.dumps(shared, default=_plain)

    def load(self, dumped: bytes) -> None:
        shared = orjson.loads(dumped)
        self.canary_at, self.applied_at = shared["canary_at"], shared["applied_at"]
        self.members = {
            name: _Member(**{**member, "limits": RateLimits(**member["limits"])})
            for name, member in shared["members"].items()
        }
        self.pace = RatePacer.load(shared["pace"])

    def report(self, wanted: Reservation, is_over: bool, now: float) -> None:
        """Takes over what a member's calls took, and its limits unless its run is over."""
        if not is_over:
            before = self.members.get(wanted.member)
            member = _Member(now, wanted.run, wanted.limits, wanted.is_firm)
            self.members[wanted.member] = member
            is_new = before is None or before.brings != member.brings
            if is_new or now - self.applied_at >= LOOK_S:
                self.apply_limits(now)
        was_proven = self.pace.is_proven
        self.pace.settle(wanted.correction, wanted.done, now, wanted.answered)
        self.pace.correct(wanted.late, now)
        if wanted.found_per_min is not None:
            self.pace.resume(wanted.found_per_min, now)
        if wanted.done and not was_proven:
            # If the call that went first has failed, the next takes its place at once.
            self.canary_at = NEVER
            self.changed.announce()

    def hear(self, member: str, now: float) -> bool:
        """Notes that a member is there; False for a stranger."""
        if (heard := self.members.get(member)) is not None:
            heard.heard_at = now
        return heard is not None

    def drop(self, run: str, now: float) -> None:
        for name in [name for name, member in self.members.items() if member.run == run]:
            del self.members[name]
        self.apply_limits(now)

    def look(
        self, wanted: Reservation, now: float
    ) -> tuple[Grant | None, tuple[CallCost, ...], float]:
        """What the first in the queue gets now: slots, and those of its turn's calls that have
        none yet; freedom until the given moment; while nothing is known, to be the one call that
        goes first; or nothing for these seconds."""
        pace, last_held_by = self.pace, self.slotless[1] if self.slotless else None
        if now - self.applied_at >= LOOK_S:
            self.apply_limits(now)
        if pace.is_proven and pace.is_free and pace.blocked_until() <= now:
            return Grant(free_until=now + FREE_S), (), 0.0
        if not pace.is_proven and now - self.canary_at <= CANARY_S:
            return None, (), LOOK_S
        costs = wanted.costs[: self.slots_a_turn(wanted) if pace.is_proven else 1]
        if times := pace.reserve(costs, now):
            self.canary_at, left = times[0], costs[len(times) :]
            held_by = pace.held_by(left[0], now) if left else None
            return Grant(times, held_by=held_by or last_held_by), left, 0.0
        since = self.slotless[0] if self.slotless else now
        self.slotless = since, pace.held_by(costs[0], now)
        return None, (), pace.opens_at(now, costs[0]) - now

    def apply_limits(self, now: float) -> None:
        """Forgets lost members; the others' limits hold (without others the last ones')."""
        self.applied_at = now
        for name in [name for name, m in self.members.items() if m.heard_at < now - MEMBER_S]:
            del self.members[name]
        firm = {member.limits for member in self.members.values() if member.is_firm}
        assumed = {member.limits for member in self.members.values() if not member.is_firm}
        if self.members:
            self.pace.set_limits(lowest_limits(firm) if firm else None, lowest_limits(assumed), now)

    def gather_s(self, wanted: Reservation) -> float:
        """For how long members gather calls, so that all their messages are no more than
        MESSAGES_PER_S; 0.0 if no more calls may go anyway."""
        if self.pace.is_free or self.pace.calls_per_s(wanted.costs) <= MESSAGES_PER_S:
            return 0.0
        return min(LONGEST_GATHER_S, len(self.members) / MESSAGES_PER_S)

    def slots_a_turn(self, wanted: Reservation) -> int:
        """How many slots a member gets before the next one's turn: so few that all who wait have
        had theirs within a horizon. With more at a time, those who ask for one call would wait for
        a round of all the others' chunks. Twice what it sends until it asks again, at most."""
        per_s, gather_s = self.pace.calls_per_s(wanted.costs), self.gather_s(wanted)
        turn = per_s * HORIZON_S / self.n_waiting
        most = LEAST_TURN
        if gather_s:
            most = max(most, int(2 * per_s * gather_s / max(1, len(self.members))))
        return max(1, int(min(turn, most, len(wanted.costs))))

    def share_of(self, wanted: Reservation) -> int | None:
        """A member's part of the calls in flight: an even one over as many members as the run has
        or were seen, the rest to those seen first. Never below one."""
        if self.pace.concurrency is None:
            return None
        seen = list(self.members)
        even, left_over = divmod(self.pace.concurrency, max(wanted.members, len(seen)))
        return max(1, even + (wanted.member in seen[:left_over]))


class Limiter:
    """The paces of all judges of a cluster, behind one queue each. The lowest firm limits of the
    members that live hold for all of them; one not heard of for MEMBER_S counts no more. `hold_s`
    after a restart nothing is granted, as earlier slots may still be in use. What limiters of
    several clusters know is `shared`, which then has all of it through a restart."""

    def __init__(
        self,
        hold_s: float = 0.0,
        clock: Callable[[], float] = time.time,
        shared: SharedLimits | None = None,
    ) -> None:
        self._shared = shared
        self._clock, self._not_before = clock, clock() + hold_s if hold_s else 0.0
        self._judges: dict[str, _Judge] = {}
        self._left_runs: deque[str] = deque(maxlen=100)

    async def reserve(self, wanted: Reservation) -> Grant:
        """At least one slot (waits for one in the horizon), or freedom without a limit."""
        judge = self._judge_of(wanted)
        is_over = wanted.run in self._left_runs
        await self._change(judge, partial(judge.report, wanted, is_over))
        granted, gather_s = Grant(), 0.0
        if wanted.costs:
            gather_s = judge.gather_s(wanted)
            judge.n_waiting += 1
            try:
                async with judge.queue:
                    granted = await self._wait_for_slots(wanted, judge)
                    judge.slotless = None
            finally:
                judge.n_waiting -= 1
                if not judge.n_waiting:
                    judge.slotless = None
        share = judge.share_of(wanted)
        found = judge.pace.found_per_min
        return granted._replace(share=share, found_per_min=found, gather_s=gather_s)

    async def leave(self, run: str) -> None:
        """Ends a run: its limits hold no longer, its reservations end without a slot."""
        self._left_runs.append(run)
        for judge in list(self._judges.values()):
            await self._change(judge, partial(judge.drop, run))
            judge.changed.announce()

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.close()

    async def _change(self, judge: _Judge, change: Callable[[float], T]) -> T:
        """Makes a change to a judge now; to what limiters share of it, once more for each of them
        that was first."""
        if self._shared is None:
            return change(self._clock())

        def change_shared(dumped: bytes | None) -> tuple[T, bytes]:
            if dumped is not None:  # else what was known last is as good
                judge.load(dumped)
            return change(self._clock()), judge.dump()

        async with judge.swapping:
            paused_until = judge.pace.blocked_until()
            changed = await self._shared.swap(judge.name, change_shared)
        if judge.pace.blocked_until() > paused_until:
            judge.paused.announce()
        return changed

    async def _wait_for_slots(self, wanted: Reservation, judge: _Judge) -> Grant:
        """The first in the queue waits for its slots, or for freedom."""
        granted, left = None, tuple[CallCost, ...]()
        while granted is None:
            if wanted.run in self._left_runs:
                return Grant()
            granted, left, wait_s = await self._change(judge, partial(judge.look, wanted))
            if granted is None:
                await judge.changed.wait(min(LOOK_S, max(GATHER_S, wait_s)))
        if left:  # or who is the last to find some would always get less than the others
            await asyncio.sleep(GATHER_S)
            more = await self._change(judge, lambda now: judge.pace.reserve(left, now))
            return granted._replace(times=granted.times + more)
        return granted

    async def throttled(
        self, judge: str, sent_at: float, retry_after_s: float | None, done: int
    ) -> float:
        if (state := self._judges.get(judge)) is None:
            return 0.0

        def refuse(now: float) -> None:
            state.pace.settle(NOTHING, done, now)
            state.pace.throttled(sent_at, retry_after_s, now)

        await self._change(state, refuse)
        state.changed.announce()
        state.paused.announce()
        return state.pace.blocked_until()

    async def learn(self, judge: str, limits: RateLimits) -> None:
        if (state := self._judges.get(judge)) is not None:
            await self._change(state, lambda now: state.pace.learn(limits, now))
            state.changed.announce()

    async def pause(self, judge: str, known_until: float, member: str = "") -> float:
        """Until when nobody may ask a judge, as soon as that is later than what the member knows;
        the same after a while. A member that waits for slots is heard of by it."""
        deadline, is_heard = self._clock() + MEMBER_S / 2, False
        while (left_s := deadline - self._clock()) > 0:
            if (state := self._judges.get(judge)) is None:
                await asyncio.sleep(min(LOOK_S, left_s))  # its first reservation is on its way
                continue
            if not is_heard and member in state.members:
                is_heard = await self._change(state, partial(state.hear, member))
            if (until := state.pace.blocked_until()) > known_until:
                return until
            await state.paused.wait(left_s)
        return known_until

    async def standing(self, judge: str) -> StallStatus:
        """Since when a judge's calls are refused, or wait for a slot."""
        if (state := self._judges.get(judge)) is None:
            return StallStatus()
        return StallStatus(state.pace.refused_since, *(state.slotless or (None, None)))

    def limits_by_judge(self) -> Mapping[str, RateLimits]:
        """The limits of every judge so far."""
        return {name: judge.pace.limits() for name, judge in self._judges.items()}

    def _judge_of(self, wanted: Reservation) -> _Judge:
        now = self._clock()
        if (judge := self._judges.get(wanted.judge)) is None:
            self._forget_idle(now)
            brought = wanted.limits, wanted.is_firm, self._not_before, wanted.provider_limits
            judge = _Judge(wanted.judge, RatePacer(*brought), now)
            self._judges[wanted.judge] = judge
        judge.asked_at = now
        return judge

    def _forget_idle(self, now: float) -> None:
        for name, judge in list(self._judges.items()):
            if judge.asked_at < now - FORGET_S and not judge.n_waiting:
                del self._judges[name]

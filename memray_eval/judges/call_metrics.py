"""Counts a judge's calls: how many were sent, the outcome of each, their tokens and waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args

from pydantic import Field

from memray_eval.errors import JudgeError, Refused, Throttled, Truncated, Unavailable, Unreadable
from memray_eval.types import Frozen, Usage

Outcome: TypeAlias = Literal[
    "ok", "malformed", "refused", "truncated", "throttled", "unavailable", "error", "abandoned"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# Who says so: the job or the judge table, the provider, or nobody
LimitSource: TypeAlias = Literal["set", "told", "assumed"]
IN_FLIGHT, REFUSALS, OUTAGE = "in_flight", "refusals", "outage"
_BY_TYPE: dict[type, Outcome] = {
    Throttled: "throttled",
    Unavailable: "unavailable",
    Unreadable: "malformed",
    Refused: "refused",
    Truncated: "truncated",
}


def outcome_of(error: JudgeError) -> Outcome:
    """The outcome of a call that an error ended; `error` is final."""
    return next((_BY_TYPE[kind] for kind in type(error).__mro__ if kind in _BY_TYPE), "error")


class BindingLimit(Frozen):
    """What keeps the next call to a judge back. `what` is a lane of the rate limiter with `amount`
    a minute, IN_FLIGHT with `amount` calls at a time, REFUSALS (its 429s) with `amount` seconds to
    go, or OUTAGE. `source`: set by the user, told by the provider, or assumed."""

    what: str
    amount: float
    source: LimitSource


class Calls(Frozen):
    """What became of some of a judge's calls: `sent`, `retried` of them not the first for their
    verdict, `repeated` of them under way when another session was killed; those that ended, by
    `outcomes`; verdicts `cached` and `missed` among paid calls, by how many calls each `took`, and
    `failed`; `unkept` ones could not be remembered. The tokens of `uncounted` calls and dollars of
    `unpriced_calls` are unknown."""

    sent: int = 0
    retried: int = 0
    repeated: int = 0
    unkept: int = 0
    outcomes: Mapping[str, int] = Field(default_factory=dict)
    cached: int = 0
    missed: int = 0
    took: Mapping[int, int] = Field(default_factory=dict)
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    waited_s: float = 0.0
    uncounted: int = 0
    unpriced_calls: int = 0

    def __add__(self, other: Calls) -> Calls:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        outcomes, took = Counter(self.outcomes), Counter(self.took)
        outcomes.update(other.outcomes)
        took.update(other.took)
        return Calls(outcomes=outcomes, took=took, **sums)


_SUMMED = tuple(name for name in Calls.model_fields if name not in ("outcomes", "took"))


class CallMetricsSnapshot(Frozen):
    """One judge's calls in one actor since the last snapshot, the wait of each, how many are in
    flight or wait now, and the limit that keeps others back."""

    calls: Calls = Calls()
    waits_s: tuple[float, ...] = ()
    in_flight: int = 0
    waiting: int = 0
    limit: BindingLimit | None = None


class CallObserver:
    """Counts one judge's calls since they were last read out. It never waits and never raises."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_flight = self._waiting = 0
        # Says which limit keeps calls back; asked when the calls are read out
        self.binding: Callable[[], BindingLimit | None] = lambda: None
        self._reset()

    def _reset(self) -> None:
        self._counts: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._took: Counter[int] = Counter()
        self._cost_usd, self._waits_s = 0.0, list[float]()

    @property
    def is_news(self) -> bool:
        """True if there is something to read out: what was counted, or is under way."""
        counted = (self._counts, self._outcomes, self._took, self._waits_s)
        return bool(any(counted) or self._in_flight or self._waiting)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a call's wait for its time slot, and for a judge that is down."""
        began = self._clock()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self._waits_s.append(self._clock() - began)

    def on_sent(self, is_again: bool) -> None:
        """A call goes to the provider; `is_again`: it is not the first for its verdict."""
        self._in_flight += 1
        self._counts["sent"] += 1
        self._counts["retried"] += is_again

    def on_ended(
        self, outcome: Outcome, used: Usage, cost_usd: float, is_counted: bool = True
    ) -> None:
        """A call that was sent is over."""
        self._in_flight -= 1
        self._outcomes[outcome] += 1
        self._counts.update({"uncounted": not is_counted, **dict(used)})
        self._cost_usd += cost_usd

    def count(self, event: Literal["cached", "missed", "repeated", "unkept"]) -> None:
        """Something happened that Calls counts by this name."""
        self._counts[event] += 1

    def on_verdict(self, calls: int, is_failed: bool) -> None:
        """A verdict came, or an abstention, or (`is_failed`) neither, after this many calls."""
        self._took[calls] += 1
        self._counts["failed"] += is_failed

    def drain(self) -> CallMetricsSnapshot:
        by_kind = {"outcomes": self._outcomes, "took": self._took}
        sums = {"cost_usd": self._cost_usd, "waited_s": sum(self._waits_s)}
        snapshot = CallMetricsSnapshot(
            calls=Calls(**self._counts, **by_kind, **sums),
            waits_s=tuple(self._waits_s),
            in_flight=self._in_flight,
            waiting=self._waiting,
            limit=self.binding(),
        )
        self._reset()
        return snapshot

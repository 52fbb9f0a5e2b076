"""A circuit breaker for one judge in one actor: one that is down gets a probe now and then."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from memray_eval.config.sections import BreakerConfig
from memray_eval.errors import (
    JudgeError,
    Malformed,
    QuotaExhausted,
    Refused,
    Throttled,
    Truncated,
    Unauthorised,
    Unavailable,
    UnknownModel,
    Unreadable,
    WrongAddress,
)

FAILURES, FATALS = 20, 3  # calls in a row without an answer, and with an error of FATAL
LONGEST_PROBE_S = 60.0  # the longest pause between two probes
# No verdict, but somebody answered.
ALIVE = (Throttled, Refused, Truncated, Malformed, Unreadable)
# Asking again does not help until somebody fixes it.
UNREACHED_S = 16.0  # after so long, a judge that was never reached is taken for none
FATAL = (Unauthorised, UnknownModel, WrongAddress, QuotaExhausted)


@dataclass
class _Outage:
    """Why and since when the breaker is open, and its probe: due, out, failed."""

    cause: JudgeError
    is_fatal: bool
    since_s: float
    pause_s: float
    probe_at_s: float
    is_probing: bool = False
    probe_error: JudgeError | None = None


class Breaker:
    """Each call that `admit` let go ends in one of the `record_` methods. For one event loop."""

    def __init__(
        self,
        name: str,
        config: BreakerConfig,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._config, self._say, self._clock = name, config, say, clock
        self._failures = self._fatals = self._in_flight = 0
        self._outage: _Outage | None = None
        self._is_reached = False

    @property
    def is_unreached(self) -> bool:
        """True if it is open, and there never was a connection to the judge's server."""
        return self._outage is not None and not self._is_reached

    @property
    def _outage_s(self) -> float:
        """How long calls wait while it is open; a patience above the usual counts in any case."""
        longest_s = self._config.outage_s
        if self._is_reached or longest_s > BreakerConfig().outage_s:
            return longest_s
        return min(longest_s, UNREACHED_S)

    @property
    def is_open(self) -> bool:
        """True if the judge is not asked now, but for probes."""
        return self._outage is not None

    @property
    def is_given_up(self) -> bool:
        """True if it is open for what somebody has to fix."""
        return self._outage is not None and self._outage.is_fatal

    def admit(self) -> float:
        """Seconds to wait before asking again; 0.0: go, the breaker is closed or this call is its
        one probe. While it is open and no probe is due, raises what opened it (one of FATAL), or
        Unavailable once it has been open for `outage_s`, or for UNREACHED_S if the judge was never
        reached."""
        outage = self._outage
        if outage is None:
            self._in_flight += 1
            return 0.0
        now_s = self._clock()
        if now_s >= outage.probe_at_s and not outage.is_probing:
            outage.is_probing, outage.probe_error = True, None
            self._in_flight += 1
            return 0.0
        if outage.is_fatal:
            raise type(outage.cause)(f"{self._name} is not asked for now: {outage.cause}")
        if now_s - outage.since_s > self._outage_s:
            if self.is_unreached:
                raise Unavailable(
                    f"its server was never reached: {outage.cause}. Start it, or fix its address "
                    "(servers, judging.base_urls); `memray-eval doctor JOB` asks it"
                )
            raise Unavailable(
                f"{self._name} has not answered for {_span_text(self._config.outage_s)}; calls "
                "fail until it does"
            )
        # A probe that is out may bring good news at any time: look again soon, not after a pause
        # that has grown long.
        if outage.is_probing:
            return min(self._config.probe_s, outage.pause_s)
        end_s = outage.since_s + self._outage_s if self.is_unreached else outage.probe_at_s
        return min(outage.probe_at_s, end_s + 0.01) - now_s

    def record_success(self) -> None:
        """A call was answered. Also one from before the opening: whoever answers is alive."""
        self._failures = self._fatals = 0
        self._is_reached = True
        if self._outage is not None:
            outage_s = self._clock() - self._outage.since_s
            self._say(f"{self._name}: answers again after {_span_text(outage_s)}")
            self._outage = None
        self._end_call()

    def record_failure(self, error: JudgeError) -> None:
        """A call ended in `error`. A plain JudgeError changes no count, but fails a probe."""
        if isinstance(error, ALIVE):
            return self.record_success()
        self._is_reached |= not error.is_unreached
        if self._outage is None:
            self._count(error)
            if self._fatals >= FATALS:
                self._open(error, self._clock(), is_fatal=True)
            elif self._failures >= FAILURES:
                self._open(error, self._clock(), is_fatal=False)
        elif self._outage.is_probing:
            self._outage.probe_error = error
        self._end_call()

    def record_abandoned(self) -> None:
        """A call was cancelled: nothing is known. If it was the probe, another call may probe."""
        self._end_call()

    def _count(self, error: JudgeError) -> None:
        """Neither kind ends a row of the other: a 503 says nothing of the key."""
        self._failures += isinstance(error, Unavailable)
        self._fatals += isinstance(error, FATAL)

    def _open(self, cause: JudgeError, since_s: float, *, is_fatal: bool) -> None:
        pause_s = LONGEST_PROBE_S if is_fatal else min(self._config.probe_s, LONGEST_PROBE_S)
        self._outage = _Outage(
            cause, is_fatal, since_s, pause_s, probe_at_s=self._clock() + pause_s
        )
        count, meanwhile = (
            (self._fatals, "calls fail at once") if is_fatal else (self._failures, "pausing")
        )
        calls = f"{count} calls in a row" if count > 1 else "a call"
        self._say(f"{self._name}: {calls} failed ({cause}); {meanwhile}, next try in {pause_s:g} s")

    def _end_call(self) -> None:
        """One call less is out. While calls from before the opening are out too, nobody knows which
        was the probe: it is over when the last has ended."""
        self._in_flight = max(0, self._in_flight - 1)
        outage = self._outage
        if outage is None or not outage.is_probing or self._in_flight:
            return
        outage.is_probing = False
        if (error := outage.probe_error) is None:
            return
        self._count(error)
        if self._fatals >= FATALS and not outage.is_fatal:
            self._open(error, outage.since_s, is_fatal=True)  # it came back, and refuses the key
        else:
            outage.pause_s = min(2 * outage.pause_s, LONGEST_PROBE_S)
            outage.probe_at_s = self._clock() + outage.pause_s


def _span_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

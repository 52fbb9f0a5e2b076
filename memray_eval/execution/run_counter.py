"""The run's counter: what its stages report to the driver and hear from it, in one place."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from memray_eval.execution.progress import (
    STAGES,
    CallTotals,
    EnginePhases,
    RunTelemetry,
    Snapshot,
    StageCount,
)
from memray_eval.execution.run_log import EVENTS, CollectedLogs, LogEntry, make_entry
from memray_eval.judges.call_metrics import CallMetricsSnapshot, CallObserver
from memray_eval.provider_http.parameters import ParameterBook, ParameterStanding, ParameterStep

SAME_S = 60.0  # the same line, told again within so long, is what another worker saw too
SHOWN_CAUGHT = 3


class RunCounter:
    """A run's counter, as stages report to it and its driver reads it (a ParameterPort): counts,
    lines for a person, and if the run stops. `logs`, `engines` and `parameters` keep what workers
    tell of these. On Ray stages have a RemoteCounter, which reports without waiting: a lost report
    costs a number on the display and in the manifest."""

    def __init__(self, stages: Sequence[str] = STAGES, most_caught: float = math.inf) -> None:
        self._stages = dict.fromkeys(STAGES, StageCount())
        self._order, self._unasked = tuple(stages), 0
        self._lines: list[str] = []
        self.logs, self.engines = CollectedLogs(), EnginePhases(self.add_line)
        self.parameters = ParameterBook(self.add_line)
        self._line_at: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._stop: str | None = None
        self._has_failed_unit = False
        self._caught, self._most_caught = 0, most_caught
        self._calls = CallTotals()

    def count(self, counts: Mapping[str, int]) -> None:
        """Adds to figures that the manifest keeps."""
        self._counts.update(counts)

    def add(self, stage: str, rows: int, started: float, ended: float, failed: int = 0) -> None:
        """Counts rows that a stage is done with, `failed` among them."""
        self._stages[stage] = self._stages[stage].plus(rows, started, ended, failed)

    def add_unasked(self, turns: int) -> None:
        """Counts turns of the plan that no session comes to any more."""
        self._unasked += turns

    def record_calls(self, member: str, snapshots: Mapping[str, CallMetricsSnapshot]) -> None:
        """Counts the new judge calls of one actor."""
        self._calls.add(member, snapshots, time.time())

    async def is_stopping(self) -> bool:
        return self._stop is not None

    async def report_calls(self, member: str, snapshots: Mapping[str, CallMetricsSnapshot]) -> None:
        """As record_calls; returns when the counter has them."""
        self.record_calls(member, snapshots)

    async def negotiate(self, step: ParameterStep) -> ParameterStanding:
        return self.parameters.take(step)

    def telemetry(self) -> RunTelemetry:
        return RunTelemetry(
            stages=self._stages,
            events=self._lines,
            counts=dict(sorted(self._counts.items())),
            calls=self._calls.figures(),
            stopped=self._stop,
            caught=self._caught,
            parameters=self.parameters.known(),
        )

    def snapshot(self, lines_since: int, within_s: float = 0.0) -> Snapshot | None:
        """The run now, with lines for a person from that one on; None if it takes too long."""
        return Snapshot(
            stages={stage: self._stages[stage] for stage in self._order},
            lines=tuple(self._lines[lines_since:]),
            judges=self._calls.judges_now(time.time()),
            unasked=self._unasked,
            engines=self.engines.at(time.time()),
        )

    def add_line(self, line: str) -> None:
        """Shows a person a line, once if several workers send it within SAME_S."""
        now = time.time()
        if now - self._line_at.get(line, 0.0) > SAME_S:
            self._show(logging.INFO, line)
        self._line_at[line] = now

    def _show(self, level: int, line: str) -> None:
        """Shows a line to a person, and logs it."""
        self._lines.append(line)
        self.logs.add([make_entry(level, EVENTS, line)])

    def take_logs(self) -> tuple[list[LogEntry], int]:
        """The entries logged since the last call, and how many there was no room for."""
        return self.logs.take()

    def stop(self, reason: str) -> None:
        """Ends the run early: nothing new is read or judged. The first reason stays."""
        if self._stop is None:
            self._stop = reason
            self._show(logging.WARNING, f"Stopping: {reason}")

    def stopping(self) -> str | None:
        """The reason why the run ends early; None while it does not."""
        return self._stop

    def record_failure(self, stage: str, sample_id: str, error: str) -> None:
        """Notes a record that a stage could not work on; more than the run tolerates end it."""
        self._caught += 1
        if self._caught <= SHOWN_CAUGHT:
            self._lines.append(
                f"The stage {stage} failed on sample {sample_id!r}, which is an error now: {error}"
            )
        if self._caught > self._most_caught:
            self.stop(
                f"stages failed on {self._caught} records, more than the tolerance allows; the "
                f"last in {stage}: {error}"
            )

    def record_failed_unit(self, what: str) -> None:
        """Shows the first unit that failed, and why."""
        if not self._has_failed_unit:
            self._has_failed_unit = True
            self.add_line(f"The first failed answer is {what}")


@dataclass
class BlockReport:
    """The result of a block's work."""

    rows: int = 0
    failed: int = 0


@contextmanager
def report_block(counter: RunCounter, stage: str) -> Iterator[BlockReport]:
    """Reports the block's work when it ends well; the block says what that was."""
    started, done = time.time(), BlockReport()
    yield done
    counter.add(stage, done.rows, started, time.time(), done.failed)


class CallReporter:
    """The judge calls of one actor, on their way to the run's counter: many calls, few messages."""

    def __init__(self, counter: RunCounter) -> None:
        self._counter, self._member = counter, uuid4().hex
        self._observers = defaultdict[str, CallObserver](CallObserver)

    def watch(self, judge: str) -> CallObserver:
        return self._observers[judge]

    async def report(self) -> None:
        """Tells what is new, and returns when it was heard."""
        news = {judge: observer for judge, observer in self._observers.items() if observer.is_news}
        if snapshots := {judge: observer.drain() for judge, observer in news.items()}:
            await self._counter.report_calls(self._member, snapshots)

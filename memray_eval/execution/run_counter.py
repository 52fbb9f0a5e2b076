"""The run's counter: what its stages report to the driver and hear from it, in one place; what it
knows of the run at a moment, and what a display adds to that."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from uuid import uuid4

from pydantic import Field

from memray_eval.config.sections import Budget
from memray_eval.execution.run_log import EVENTS, CollectedLogs, LogEntry, make_entry
from memray_eval.judges.call_metrics import (
    IN_FLIGHT,
    OUTCOMES,
    BindingLimit,
    CallMetricsSnapshot,
    CallObserver,
    Calls,
)
from memray_eval.judges.limits.budget import Spending
from memray_eval.provider_http.parameters import ParameterBook, ParameterStanding, ParameterStep
from memray_eval.types import Frozen

STAGES = ("read", "generate", "judge", "embed", "write")
STALE_S = 10.0  # a judge actor that tells nothing for so long has nothing in flight, or has died
SAME_S = 60.0  # the same line, told again within so long, is what another worker saw too
SHOWN_CAUGHT = 3
# PENDING: no node has room for its placement group yet; starting: its process comes up there, and
# waits for its turn on the node (engine.starts_at_once)
EnginePhase: TypeAlias = Literal["PENDING", "starting", "downloading", "loading", "up"]
PHASES: tuple[EnginePhase, ...] = get_args(EnginePhase)


class EnginesNow(NamedTuple):
    """Engines of one model that are in the same phase, and how long the first of them has been."""

    model: str
    phase: EnginePhase
    n: int
    longest_s: float


class _Engine(NamedTuple):
    model: str
    phase: EnginePhase
    since: float
    took: Mapping[EnginePhase, float]  # seconds in the phases before


class EnginePhases:
    """The engines of a run, by name. Times are epoch seconds."""

    def __init__(self, say: Callable[[str], None] = lambda line: None) -> None:
        self._say, self._engines = say, dict[str, _Engine]()

    def enter(
        self, name: str, model: str | None, phase: EnginePhase, now: float | None = None
    ) -> None:
        """Notes the phase that an engine enters; `say` hears when all of the model's are up."""
        now = time.time() if now is None else now
        before = self._engines.get(name)
        model, was = model or (before and before.model), before and before.phase
        if model is None or was == phase or (phase == "starting" and was not in (None, "PENDING")):
            return
        took = dict[EnginePhase, float]()
        if before is not None and before.phase != "up" and phase != "PENDING":
            so_far = before.took.get(before.phase, 0.0)
            took = {**before.took, before.phase: so_far + now - before.since}
        self._engines[name] = _Engine(model, phase, now, took)
        engines = [engine for engine in self._engines.values() if engine.model == model]
        if any(engine.phase != "up" for engine in engines):
            return
        longest = {name: max(engine.took.get(name, 0.0) for engine in engines) for name in PHASES}
        times = ", ".join(f"{s:.0f} s {name}" for name, s in longest.items() if s >= 0.5)
        self._say(f"Engines of {model}: {len(engines)} up, after at most {times or '0 s'}.")

    def end(self, name: str) -> None:
        self._engines.pop(name, None)

    def at(self, now: float) -> tuple[EnginesNow, ...]:
        """The engines of each model of which some are not up, by phase."""
        ages: defaultdict[tuple[str, EnginePhase], list[float]] = defaultdict(list)
        for engine in self._engines.values():
            ages[engine.model, engine.phase].append(now - engine.since)
        return tuple(
            EnginesNow(model, phase, len(of_phase), max(of_phase))
            for model in sorted({model for model, phase in ages if phase != "up"})
            for phase in PHASES
            if (of_phase := ages.get((model, phase)))
        )


class StageCount(Frozen):
    """One stage so far: rows done, `failed` of them at it, seconds its workers were busy (summed),
    and its first start and last end (epoch)."""

    rows: int = 0
    failed: int = 0
    busy_s: float = 0.0
    started: float | None = None
    ended: float | None = None

    def plus(self, rows: int, started: float, ended: float, failed: int = 0) -> StageCount:
        return StageCount(
            rows=self.rows + rows,
            failed=self.failed + failed,
            busy_s=self.busy_s + ended - started,
            started=started if self.started is None else min(self.started, started),
            ended=ended if self.ended is None else max(self.ended, ended),
        )

    @property
    def span_s(self) -> float | None:
        """From its first start to its last end."""
        return None if self.started is None or self.ended is None else self.ended - self.started

    def beside(self, other: StageCount) -> StageCount:
        """Both stages as one, which may run at the same time."""
        if other.started is None or other.ended is None:
            return self
        return self.plus(other.rows, other.started, other.ended, other.failed)


class RunTelemetry(Frozen):
    """What a counter was told, for the manifest; `caught`: records that broke a stage."""

    stages: dict[str, StageCount]
    events: list[str]
    counts: dict[str, int]
    calls: dict[str, Any]
    stopped: str | None
    caught: int = 0
    parameters: dict[str, dict[str, str]] = Field(default_factory=dict)


def verdicts_of(calls: Calls) -> int:
    """The verdicts that came or were remembered."""
    return sum(calls.took.values()) + calls.cached


class Snapshot(Frozen):
    """A run at a moment. `lines` are new ones for a person; `unasked` units of the plan will not
    come any more; `engines` are those of models of which some are not up."""

    stages: dict[str, StageCount] = Field(default_factory=dict)
    lines: tuple[str, ...] = ()
    judges: dict[str, CallMetricsSnapshot] = Field(default_factory=dict)
    unasked: int = 0
    engines: tuple[EnginesNow, ...] = ()

    @property
    def n_failed(self) -> int:
        """Units that have failed so far, at least: later stages count earlier ones again."""
        return max((count.failed for count in self.stages.values()), default=0)


class RunOutline(Frozen):
    """What a display shows of a run and its counter does not know: its units, of which earlier
    sessions `finished` and `generated` some, and what each stage waits for at first."""

    name: str
    total: int
    finished: int = 0
    generated: int = 0
    stages: tuple[str, ...] = STAGES
    first_waits: Mapping[str, str] = Field(default_factory=dict)
    verdicts_a_unit: int = 0
    budget: Budget = Budget()
    spent_before: Spending = Spending()

    def before(self, stage: str) -> int:
        """Units that earlier sessions took through a stage."""
        return self.finished + (self.generated if stage in ("read", "generate") else 0)

    def progress(self, snapshot: Snapshot, stage: str) -> float:
        """Units through a stage; at the judge stage verdicts count as their share of a unit."""
        rows = snapshot.stages.get(stage, StageCount()).rows
        if stage != "judge" or not self.verdicts_a_unit:
            return rows
        verdicts = sum(verdicts_of(judge.calls) for judge in snapshot.judges.values())
        most = self.total - self.before(stage)
        return max(rows, min(verdicts / self.verdicts_a_unit, most))

    def stages_of(self, phase: str | None) -> tuple[str, ...]:
        """The stages that run in a phase; all of them where a run has no phases."""
        if phase is None:
            return self.stages
        early = ("read", "generate")
        return tuple(stage for stage in self.stages if (stage in early) == (phase == "generate"))


class CallTotals:
    """A run's judge calls, summed over its actors, and how many are under way."""

    def __init__(self) -> None:
        self._calls: dict[str, Calls] = {}
        self._heard = dict[str, tuple[float, Mapping[str, CallMetricsSnapshot]]]()

    def add(self, member: str, snapshots: Mapping[str, CallMetricsSnapshot], now: float) -> None:
        """Adds an actor's report on its judges, at a time of `now`'s clock."""
        self._heard[member] = now, snapshots
        for judge, snapshot in snapshots.items():
            self._calls[judge] = self._calls.get(judge, Calls()) + snapshot.calls

    def under_way(self, now: float) -> dict[str, tuple[int, int]]:
        """Calls in flight, and calls that wait for slots, by judge, of recently heard actors."""
        is_recent = {member: now - at <= STALE_S for member, (at, _) in self._heard.items()}
        self._heard = {member: of for member, of in self._heard.items() if is_recent[member]}
        sums = dict.fromkeys(self._calls, (0, 0))
        for _, snapshots in self._heard.values():
            for judge, snapshot in snapshots.items():
                in_flight, waiting = sums[judge]
                sums[judge] = in_flight + snapshot.in_flight, waiting + snapshot.waiting
        return sums

    def judges_now(self, now: float) -> dict[str, CallMetricsSnapshot]:
        """All calls of each judge, those under way, and the limit that keeps others back."""
        under_way = self.under_way(now)
        return {
            judge: CallMetricsSnapshot(
                calls=calls,
                in_flight=under_way[judge][0],
                waiting=under_way[judge][1],
                limit=self._binding_limit(judge),
            )
            for judge, calls in self._calls.items()
        }

    def _binding_limit(self, judge: str) -> BindingLimit | None:
        """The limit that holds back most calls; places in flight of several actors add up."""
        snapshots = [heard[judge] for _, heard in self._heard.values() if judge in heard]
        snapshots.sort(key=lambda snapshot: -snapshot.waiting)
        limits = [snapshot.limit for snapshot in snapshots if snapshot.limit]
        if not limits or limits[0].what != IN_FLIGHT:
            return limits[0] if limits else None
        n_places = sum(limit.amount for limit in limits if limit.what == IN_FLIGHT)
        return limits[0].model_copy(update={"amount": n_places})

    def figures(self) -> dict[str, Any]:
        """The sums of all judges, and under `judges` those of each; {} where no model judged. `ok`
        to `abandoned` are what became of the calls `sent`; of `verdicts`, not remembered ones,
        `failed` came to nothing; `tries` says how many took so many calls."""
        by_judge = {judge: _figures(calls) for judge, calls in sorted(self._calls.items())}
        return by_judge and _figures(sum(self._calls.values(), Calls())) | {"judges": by_judge}


def _figures(calls: Calls) -> dict[str, Any]:
    return {
        "sent": calls.sent,
        **{outcome: calls.outcomes.get(outcome, 0) for outcome in OUTCOMES},
        "verdicts": sum(calls.took.values()),
        "tries": {str(n): calls.took[n] for n in sorted(calls.took)},
        **calls.model_dump(exclude={"sent", "outcomes", "took"}),
    }


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

    def take_logs(self) -> list[LogEntry]:
        """The entries logged since the last call."""
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

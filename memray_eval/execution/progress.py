"""A run's progress: what its counter knows at a moment, and what a display adds to it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from pydantic import Field

from memray_eval.config.sections import Budget
from memray_eval.judges.call_metrics import (
    IN_FLIGHT,
    OUTCOMES,
    BindingLimit,
    CallMetricsSnapshot,
    Calls,
)
from memray_eval.judges.limits.budget import Spending
from memray_eval.types import Frozen

STAGES = ("read", "generate", "judge", "embed", "write")
STALE_S = 10.0  # a judge actor that tells nothing for so long has nothing in flight, or has died
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
        if not self._calls:
            return {}
        by_judge = {judge: _figures(calls) for judge, calls in sorted(self._calls.items())}
        return _figures(sum(self._calls.values(), Calls())) | {"judges": by_judge}


def _figures(calls: Calls) -> dict[str, Any]:
    return {
        "sent": calls.sent,
        **{outcome: calls.outcomes.get(outcome, 0) for outcome in OUTCOMES},
        "verdicts": sum(calls.took.values()),
        "tries": {str(n): calls.took[n] for n in sorted(calls.took)},
        **calls.model_dump(exclude={"sent", "outcomes", "took"}),
    }

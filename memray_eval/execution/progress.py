"""How far a run is: what its counter knows at a moment, and what a display needs to know of the run
beside it. live_view.py shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import Field

from memray_eval.execution.engine_phases import EnginesNow
from memray_eval.judges.call_metrics import BindingLimit
from memray_eval.judges.limits.budget import Spending
from memray_eval.types import Frozen

STAGES = ("read", "generate", "judge", "embed", "write")


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
    """All that a run's counter was told, for the manifest: `calls` as execution/call_totals.py
    makes them, the affect stage's `counts`, records that broke a stage (`caught`), and
    `parameters` that models refused."""

    stages: dict[str, StageCount]
    events: list[str]
    counts: dict[str, int]
    calls: dict[str, Any]
    stopped: str | None
    caught: int = 0
    parameters: dict[str, dict[str, str]] = Field(default_factory=dict)


class FailedUnit(Frozen):
    """A unit that failed, and why."""

    unit_id: str
    sample_id: str
    candidate: str
    error: str


class JudgeNow(Frozen):
    """One judge's calls: `sent` in this session, `verdicts` that came or were remembered, calls not
    answered, calls that wait for their slot, and the limit that keeps others back."""

    sent: int = 0
    verdicts: int = 0
    in_flight: int = 0
    waiting: int = 0
    limit: BindingLimit | None = None

    @property
    def is_called(self) -> bool:
        return bool(self.sent or self.in_flight or self.waiting)


class Snapshot(Frozen):
    """A run at a moment. `lines` are new ones for a person; `spent` is this session's; `stopping`
    says why the run ends early. `unasked` units of the plan will not come any more. `engines`
    are those of models of which some are not up."""

    stages: dict[str, StageCount] = Field(default_factory=dict)
    lines: tuple[str, ...] = ()
    judges: dict[str, JudgeNow] = Field(default_factory=dict)
    spent: Spending = Spending()
    first_failure: FailedUnit | None = None
    stopping: str | None = None
    unasked: int = 0
    engines: tuple[EnginesNow, ...] = ()

    @property
    def n_failed(self) -> int:
        """Units that have failed so far, at least: later stages count earlier ones again."""
        return max((count.failed for count in self.stages.values()), default=0)


class ProgressSource(Protocol):
    """What the display reads from. It must never break a run: what cannot be read is None."""

    def snapshot(self, lines_since: int, within_s: float) -> Snapshot | None:
        """The run now, with a person's lines from that one on; None if it takes too long."""


class RunOutline(Frozen):
    """The facts of a run that a display shows and its counter does not know: its units, of which
    earlier sessions `finished` and `generated` some, its stages with what each waits for at first,
    verdicts a unit, the budget (None: no limit), earlier spending."""

    name: str
    total: int
    finished: int = 0
    generated: int = 0
    stages: tuple[str, ...] = STAGES
    first_waits: Mapping[str, str] = Field(default_factory=dict)
    verdicts_a_unit: int = 0
    budget_usd: float | None = None
    budget_tokens: int | None = None
    spent_before: Spending = Spending()

    def before(self, stage: str) -> int:
        """Units that earlier sessions took through a stage."""
        return self.finished + (self.generated if stage in ("read", "generate") else 0)

    def progress(self, snapshot: Snapshot, stage: str) -> float:
        """Units of this session that are through a stage. A judge's block may take minutes: where
        it is not done yet, the verdicts that it has count as their share of a unit."""
        rows = snapshot.stages.get(stage, StageCount()).rows
        if stage != "judge" or not self.verdicts_a_unit:
            return rows
        verdicts = sum(judge.verdicts for judge in snapshot.judges.values())
        most = self.total - self.before(stage)
        return max(rows, min(verdicts / self.verdicts_a_unit, most))

    def stages_of(self, phase: str | None) -> tuple[str, ...]:
        """The stages that run in a phase; all of them where a run has no phases."""
        if phase is None:
            return self.stages
        early = ("read", "generate")
        return tuple(stage for stage in self.stages if (stage in early) == (phase == "generate"))

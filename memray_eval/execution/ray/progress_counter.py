"""A run's counter as an actor, and how workers and the driver reach it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import ray

from memray_eval.execution.exported_metrics import Exporter
from memray_eval.execution.progress import STAGES, RunTelemetry, Snapshot
from memray_eval.execution.ray.log_collection import send_logs_to
from memray_eval.execution.ray.metric_recorders import new_recorder
from memray_eval.execution.run_counter import RunCounter, StageReports
from memray_eval.execution.run_log import LogEntry
from memray_eval.execution.stopping import ScoredUnits, StopWatch
from memray_eval.judges.call_metrics import CallMetricsSnapshot
from memray_eval.provider_http.parameters import Standing, Step

ANSWER_S = 10.0
# The methods of a counter that return nothing
REPORTS = (
    "count", "add", "add_carried", "record_answers", "record_failure", "record_failed_unit",
    "record_scores", "record_logs", "add_line", "stop", "restore_parameters",
)  # fmt: skip


@ray.remote(num_cpus=0, max_restarts=-1)
class ProgressCounter(RunCounter):
    """The run's counter; also the process that exports the run's metrics."""

    def __init__(
        self, run_id: str = "", stages: Sequence[str] = STAGES, most_caught: float = math.inf
    ) -> None:
        super().__init__(stages, most_caught, Exporter(run_id, new_recorder))


@dataclass(frozen=True)
class RemoteCounter:
    """A RunReports whose counter is an actor. A worker that receives it sends what it logs, from
    `log_level` on (the driver's), to the counter."""

    actor: Any
    log_level: int = field(default_factory=logging.getLogger("memray_eval").getEffectiveLevel)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        send_logs_to(cast(StageReports, self), self.log_level)

    def __getattr__(self, name: str) -> Any:
        """Reports to the counter, without waiting until it has heard."""
        if name not in REPORTS:
            raise AttributeError(name)
        return getattr(self.actor, name).remote

    def watch_for(self, watch: StopWatch, before: Sequence[ScoredUnits] = ()) -> None:
        ray.get(self.actor.watch_for.remote(watch, before))

    def stopping(self) -> str | None:
        reason: str | None = ray.get(self.actor.stopping.remote())
        return reason

    async def is_stopping(self) -> bool:
        return await self.actor.stopping.remote() is not None

    async def negotiate(self, step: Step) -> Standing:
        with suppress(ray.exceptions.RayError):  # it is being restarted: a call learns by itself
            standing: Standing = await self.actor.take_step.remote(step)
            return standing
        return Standing(dict(step.changes))

    async def report_calls(self, member: str, snapshots: Mapping[str, CallMetricsSnapshot]) -> None:
        with suppress(ray.exceptions.RayError):  # figures about the run must not end it
            await self.actor.record_calls.remote(member, snapshots)

    def snapshot(self, lines_since: int, within_s: float) -> Snapshot | None:
        try:
            snapshot: Snapshot = ray.get(self.actor.look.remote(lines_since), timeout=within_s)
            return snapshot
        except ray.exceptions.RayError:
            return None

    def telemetry(self) -> RunTelemetry:
        telemetry: RunTelemetry = ray.get(self.actor.telemetry.remote())
        return telemetry

    def take_logs(self) -> tuple[list[LogEntry], int]:
        entries, n_dropped = ray.get(self.actor.take_logs.remote(), timeout=ANSWER_S)
        return entries, n_dropped

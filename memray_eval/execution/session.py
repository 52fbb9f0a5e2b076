"""A run whose folder exists: its pipelines, its manifest, its summary."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from memray_eval.config.secrets import held_keys, variables_of
from memray_eval.errors import EvalError, Interrupted, ServiceLost, Stopped, describe_error
from memray_eval.execution.interrupts import handle_termination
from memray_eval.execution.plan import engine_device, fit_engine, judge_pool
from memray_eval.execution.progress import STAGES, RunSize, RunTelemetry, display_progress
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.judge_server import judge_server
from memray_eval.execution.ray.log_collection import RunLog, keep_run_log
from memray_eval.execution.ray.pipeline import PipelineSetup, judge_waiting, run_pipeline
from memray_eval.execution.ray.progress_counter import CounterView, ProgressCounter
from memray_eval.execution.ray.services import (
    Handles,
    failure_reason,
    on_driver_node,
    start_services,
)
from memray_eval.execution.ray.workers import WorkerContext
from memray_eval.execution.resume_state import drop_duplicates
from memray_eval.execution.run_manifest import build_manifest
from memray_eval.execution.run_plan import RunPlan
from memray_eval.execution.run_summary import inapplicable_metrics, summarise_run
from memray_eval.execution.schedule import (
    Group,
    judge_actors_per_pipeline,
    run_concurrently,
    schedule,
)
from memray_eval.judges.limits.budget import Spending
from memray_eval.report.console import render
from memray_eval.results.run_folder import RunFolder
from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import Summary

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """A run that ended, with the exit code its failures call for; `stopped` says why, when it ended
    early, `has_failed` that more units failed than are tolerated, and `warnings` what else calls
    for exit code 1. `n_missing` units were planned and are not in the records of a run that went to
    its end."""

    folder: RunFolder
    summary: Summary
    exit_code: int
    stopped: str | None = None
    has_failed: bool = False
    warnings: tuple[str, ...] = ()
    n_missing: int = 0


class RunSession:
    """One session of a run whose folder exists: its pipelines, its manifest, its summary."""

    def __init__(self, plan: RunPlan, folder: RunFolder) -> None:
        self.plan, self.spec, self.folder = plan, plan.spec, folder

    def run(self, quiet: bool) -> RunResult:
        """Runs what is left to its summary. Raises EvalError when a stage could not be started or a
        service died, Interrupted after SIGINT or SIGTERM. However it ends, the manifest says so,
        and what was finished is kept."""
        n_session = len(self.plan.before.get("sessions", ())) + 1
        held = held_keys(os.environ, variables_of(self.spec))
        with handle_termination() as ending, keep_run_log(self.folder, n_session, held) as log:
            try:
                with cluster.watch_ray_processes(partial(self._end_without_ray, log)):
                    return self._run_to_summary(quiet, log)
            except KeyboardInterrupt:
                self._record_end("interrupted", f"interrupted by {ending.number.name}")
                text = (
                    f"Interrupted by {ending.number.name}: {self._finished_units()}. {self._go_on}"
                )
                raise Interrupted(text, ending.exit_code) from None
            except BaseException as error:
                ours = (
                    ServiceLost(f"Ray has failed: {failure_reason(error)}")
                    if cluster.is_ray_error(error)
                    else error
                )
                status = "stopped" if isinstance(ours, Stopped) else "failed"
                self._record_end(
                    status, str(ours) if isinstance(ours, EvalError) else describe_error(ours)
                )
                ours.add_note(self._go_on)
                if ours is error:
                    raise
                raise ours from error

    def _run_to_summary(self, quiet: bool, log: RunLog) -> RunResult:
        here = on_driver_node()
        counter: Any = ProgressCounter.options(scheduling_strategy=here).remote(  # type: ignore[attr-defined]
            self.folder.run_id, self._stages(), self.spec.tolerated(self.plan.n_units)
        )
        log.follow(counter)
        self._write_manifest("running")
        self._run_waves(counter, quiet)
        telemetry = CounterView(counter).telemetry()
        stopped = telemetry.stopped
        if stopped and not self.folder.parts():
            raise Stopped(f"stopped before any unit was finished: {stopped}")
        drop_duplicates(self.folder)
        summary = summarise_run(self.plan, self.folder, telemetry, stopped)
        n_missing = 0 if stopped else max(0, self.plan.n_units - summary.n_units)
        self.folder.write_summary(summary, render(summary))
        self._write_manifest(
            "stopped" if stopped else "finished",
            error=stopped,
            summary=summary,
            telemetry=telemetry,
        )
        if not stopped:
            self.folder.delete_responses()
        has_failed = summary.n_failed_units + n_missing > self.spec.tolerated(
            summary.n_units + n_missing
        )
        warnings = tuple(inapplicable_metrics(self.spec, self.folder, summary.metrics))
        exit_code = int(bool(stopped or has_failed or warnings))
        return RunResult(self.folder, summary, exit_code, stopped, has_failed, warnings, n_missing)

    @property
    def _go_on(self) -> str:
        return f"Go on with `memray-eval resume {self.folder.path}`."

    def _finished_units(self) -> str:
        """How far the run is, for the last line of one that was interrupted."""
        done = 0
        # Nothing is written yet, or the folder is out of reach: the run ends anyway
        with suppress(Exception):
            done = self.folder.records().count_rows()
        return f"{done} of {self.plan.n_units} units are finished and kept"

    def _record_end(self, status: str, reason: str) -> None:
        # A full disk, a lost lease: the error that ended the session is the one to tell
        with suppress(Exception):
            self._write_manifest(status, error=reason)

    def _end_without_ray(self, log: RunLog, process: str) -> None:
        """Ends this process, while Ray still lets it, after the death of one of Ray's that it
        cannot do without."""
        reason = f"Ray's {process} has died on this machine (killed, or out of memory)"
        self._record_end("failed", reason)
        print(
            escape_controls(f"error: {reason}; {self._finished_units()}. {self._go_on}"),
            file=sys.stderr,
            flush=True,
        )
        logger.error("session ended early: %s", reason)
        log.close()
        os._exit(ServiceLost.exit_code)

    def _run_waves(self, counter: Any, quiet: bool) -> None:
        dead: list[str] = []

        def died(reason: str) -> None:
            dead.append(reason)
            counter.stop.remote(reason)

        device = engine_device(self.spec, self.plan.capacity.gpus)
        context = WorkerContext(
            self.folder.path, counter, stops_on_failure=self.spec.stops_on_failure
        )
        pool = judge_pool(self.spec, self.plan.capacity.cpus, self.plan.block_rows)
        waves = schedule(self.spec, self.plan.capacity, device)
        pipelines = max(map(len, waves))
        extent = RunSize(
            total=self.plan.n_units,
            finished=len(self.plan.resume_state.finished),
            generated=len(self.plan.resume_state.generated),
        )
        with (
            judge_server(self.spec.embedded_judge, self.spec.engine, device, died) as url,
            display_progress(CounterView(counter), extent, quiet, self._stages()),
        ):
            setup = PipelineSetup(
                plan=self.plan,
                context=context,
                device=device,
                handles=self._services(max(pool.actors, pipelines), pool.max_in_flight, counter),
                embedded_url=url,
                engine=self.spec.engine,
                tasks_at_once=max(2, int(self.plan.capacity.cpus) // 4),
                judge_tasks=pool.tasks,
            )
            for wave in waves:
                sharing = replace(
                    setup,
                    judge_actors=judge_actors_per_pipeline(
                        self.spec, wave, self.plan.capacity.cpus
                    ),
                )
                run_concurrently(wave, partial(self._run_group, sharing), counter.stop.remote)
        if dead:
            raise ServiceLost(dead[0])

    def _run_group(self, shared: PipelineSetup, group: Group) -> None:
        """Judges what earlier sessions generated, then generates what they did not, if the run goes
        on."""
        found, state = self.plan.found, self.plan.resume_state
        engine = fit_engine(
            self.spec.engine_of(group[0].model), found.context_chars / max(1, found.n_samples)
        )
        setup = replace(shared, engine=engine)
        if state.waiting and not setup.context.is_stopping():
            judge_waiting(setup, group)
        n_generated = len(state.finished) + len(state.generated)
        if n_generated < self.plan.n_units and not setup.context.is_stopping():
            run_pipeline(setup, group)

    def _services(self, members: int, max_in_flight: int, counter: Any) -> Handles | None:
        if not self.spec.calls_judges:
            return None
        spent = (
            _spending_of_earlier_sessions(self.folder)
            if len(self.plan.resume_state.finished)
            else Spending()
        )
        return start_services(
            self.spec.budget,
            self.spec.judging.cache,
            self.folder.path,
            spent,
            members,
            max_in_flight,
            counter,
        )

    def _stages(self) -> tuple[str, ...]:
        """The stages that this run has."""
        at_judge, at_embed = self.spec.by_stage()
        has = {"generate": not self.spec.has_responses, "judge": at_judge, "embed": at_embed}
        return tuple(stage for stage in STAGES if has.get(stage, True))

    def _write_manifest(
        self,
        status: str,
        error: str | None = None,
        summary: Summary | None = None,
        telemetry: RunTelemetry | None = None,
    ) -> None:
        run_id = self.folder.run_id
        manifest = build_manifest(self.plan, run_id, status, error, summary, telemetry)
        self.folder.write_manifest(manifest)


def _spending_of_earlier_sessions(folder: RunFolder) -> Spending:
    """What the finished units of earlier sessions cost."""
    usd, tokens = 0.0, 0
    for batch in folder.records().to_batches(columns=["scores"]):
        for scores in batch.column("scores").to_pylist():
            usd += sum(score["cost_usd"] or 0.0 for score in scores or ())
            tokens += sum(
                (score["input_tokens"] or 0) + (score["output_tokens"] or 0)
                for score in scores or ()
            )
    return Spending(usd=usd, tokens=tokens)

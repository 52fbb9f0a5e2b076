"""A run whose folder exists: its pipelines, its manifest, its summary."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from memray_eval.config.secrets import held_keys, variables_of
from memray_eval.config.sections import EngineConfig
from memray_eval.errors import EvalError, Interrupted, ServiceLost, Stopped, describe_error
from memray_eval.execution.interrupts import DRAIN_S, Ending, handle_termination
from memray_eval.execution.plan import (
    SERVER_GIB,
    Device,
    engine_device,
    fit_engine,
    judge_pool,
    judging_pools,
)
from memray_eval.execution.progress import STAGES, RunSize, RunTelemetry, display_progress
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.judge_server import judge_server
from memray_eval.execution.ray.log_collection import RunLog, keep_run_log
from memray_eval.execution.ray.pipeline import (
    PipelineSetup,
    generate_responses,
    judge_waiting,
    run_pipeline,
)
from memray_eval.execution.ray.placement_groups import NodeReservation
from memray_eval.execution.ray.progress_counter import CounterView, ProgressCounter
from memray_eval.execution.ray.services import (
    Handles,
    end_services,
    failure_reason,
    finish_calls,
    on_driver_node,
    start_services,
)
from memray_eval.execution.ray.workers import WorkerContext
from memray_eval.execution.resume_state import ResumeState, drop_duplicates, find_waiting
from memray_eval.execution.run_manifest import build_manifest
from memray_eval.execution.run_plan import RunPlan
from memray_eval.execution.run_summary import inapplicable_metrics, summarise_run
from memray_eval.execution.schedule import (
    Group,
    judge_actors_per_pipeline,
    run_concurrently,
    schedule,
    wave_pools,
)
from memray_eval.execution.spending import SpendingBook, spending_so_far
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
        self._phase: Literal["generate", "judge"] | None = None

    def run(self, quiet: bool) -> RunResult:
        """Runs what is left to its summary. Raises EvalError when a stage could not be started or a
        service died, Interrupted after SIGINT or SIGTERM, once what was in flight is finished (or
        DRAIN_S have passed). However it ends, the manifest says so,
        and what was finished is kept."""
        n_session = len(self.plan.before.get("sessions", ())) + 1
        held = held_keys(os.environ, variables_of(self.spec))
        with handle_termination() as ending, keep_run_log(self.folder, n_session, held) as log:
            try:
                with cluster.watch_ray_processes(partial(self._end_without_ray, log)):
                    return self._run_to_summary(quiet, log, ending)
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

    def _run_to_summary(self, quiet: bool, log: RunLog, ending: Ending) -> RunResult:
        here = on_driver_node()
        counter: Any = ProgressCounter.options(scheduling_strategy=here).remote(  # type: ignore[attr-defined]
            self.folder.run_id, self._stages(), self.spec.tolerated(self.plan.n_units)
        )
        log.follow(counter)
        self._write_manifest("running")

        def stop() -> None:
            counter.stop.remote(
                f"{ending.number.name} came: what is in flight is finished and written, for up to "
                f"{DRAIN_S:g} s; another signal ends it at once"
            )
            # Now: who sent the signal may not wait for so long
            self._record_end("interrupted", f"interrupted by {ending.number.name}")

        with ending.draining(stop):
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

        spec, capacity, order = self.spec, self.plan.capacity, self.plan.phases.order
        device = engine_device(spec, capacity.all_gpus)
        context = WorkerContext(self.folder.path, counter, stops_on_failure=spec.stops_on_failure)
        # What judges afterwards must find room when the nodes with GPUs are gone
        judge_cpus = capacity.cpus if order == "together" else capacity.cpus_beside_gpus
        pool = judge_pool(spec, judge_cpus, self.plan.block_rows)
        waves = schedule(spec, capacity, device, scores=order == "together")
        pipelines = max(map(len, waves))
        extent = RunSize(
            total=self.plan.n_units,
            finished=len(self.plan.resume_state.finished),
            generated=len(self.plan.resume_state.generated),
        )
        serve = partial(
            judge_server,
            engine=spec.engine,
            device=device,
            on_death=died,
            say=counter.add_line.remote,
            memory_gib=SERVER_GIB if capacity.nodes else 0.0,
        )
        with (
            self._services(max(pool.actors, pipelines), pool.max_in_flight, counter) as handles,
            display_progress(CounterView(counter), extent, quiet, self._stages()),
        ):
            setup = PipelineSetup(
                plan=self.plan,
                context=context,
                device=device,
                handles=handles,
                engine=spec.engine,
                reservation=self.plan.reservation or NodeReservation(),
                tasks_at_once=max(2, int(capacity.cpus) // 4),
                judge_actors=pool.actors,
                judge_tasks=pool.tasks,
            )
            if order == "together":
                with serve(spec.embedded_judge) as url:
                    self._generate_and_judge(replace(setup, embedded_url=url), waves)
            else:
                if order == "apart":
                    asked = spec.embedded_judge if spec.embedded_affect_judge else None
                    with serve(asked) as url:
                        self._generate(replace(setup, embedded_url=url), waves)
                if not context.is_stopping():
                    setup = replace(setup, tasks_at_once=max(2, int(judge_cpus) // 4))
                    self._judge(setup, serve)
            finish_calls(handles)
        if dead:
            raise ServiceLost(dead[0])

    def _generate_and_judge(self, setup: PipelineSetup, waves: Sequence[Sequence[Group]]) -> None:
        """Each response is judged as soon as it is there: first those of earlier sessions, then
        what they did not generate, if the run goes on."""
        state = self.plan.resume_state

        def run_group(shared: PipelineSetup, group: Group) -> None:
            if state.waiting and not shared.context.is_stopping():
                judge_waiting(shared, group)
            if self._is_generated(state) or shared.context.is_stopping():
                return
            run_pipeline(replace(shared, engine=self._fitted_engine(group, setup.device)), group)

        for wave in waves:
            sharing = replace(
                setup,
                judge_actors=judge_actors_per_pipeline(self.spec, wave, self.plan.capacity.cpus),
                label_selector=self._label_selector(wave, setup.device),
            )
            run_concurrently(wave, partial(run_group, sharing), setup.context.counter.stop.remote)
            setup.reservation.remove()

    def _label_selector(
        self, wave: Sequence[Group], device: Device, scores: bool = True
    ) -> dict[str, str] | None:
        pools = wave_pools(self.spec, wave, self.plan.capacity, device, scores)
        return cluster.select_cpu_nodes(pools)

    def _generate(self, setup: PipelineSetup, waves: Sequence[Sequence[Group]]) -> None:
        """The first of two phases: all responses, into the folder. Engines and their GPUs are let
        go when it ends."""
        counter = setup.context.counter
        self._enter_phase("generate")
        counter.add_line.remote("Phase 1 of 2: generating; judges come when all is generated.")

        def generate_group(shared: PipelineSetup, group: Group) -> None:
            if not setup.context.is_stopping():
                engine = self._fitted_engine(group, setup.device)
                generate_responses(replace(shared, engine=engine), group)

        for wave in waves:
            selector = self._label_selector(wave, setup.device, scores=False)
            sharing = replace(setup, label_selector=selector)
            run_concurrently(wave, partial(generate_group, sharing), counter.stop.remote)
            setup.reservation.remove()

    def _judge(
        self,
        setup: PipelineSetup,
        serve: Callable[[str | None], AbstractContextManager[str | None]],
    ) -> None:
        """The second of two phases: judges all responses in the folder, this session's and those of
        earlier ones, of all candidates at once."""
        spec, counter, before = self.spec, setup.context.counter, self.plan.resume_state
        waiting = find_waiting(self.folder, before.finished)
        if not waiting.waiting:
            return
        self._enter_phase("judge")
        counter.add_line.remote(
            f"Phase 2 of 2: judging {len(waiting.generated)} responses; no engine is up."
        )
        counter.add_carried.remote(len(before.generated))
        pools = judging_pools(spec, setup.device, setup.judge_actors)
        with serve(spec.embedded_judge) as url:
            judging = replace(
                setup,
                embedded_url=url,
                label_selector=cluster.select_cpu_nodes(pools),
                plan=replace(self.plan, resume_state=waiting),
            )
            judge_waiting(judging, spec.candidates, is_earlier=False)

    def _enter_phase(self, phase: Literal["generate", "judge"]) -> None:
        self._phase = phase
        self._write_manifest("running")

    def _is_generated(self, state: ResumeState) -> bool:
        return len(state.finished) + len(state.generated) >= self.plan.n_units

    def _fitted_engine(self, group: Group, device: Device) -> EngineConfig:
        """The engine of a group's model, with batches for contexts as long as the dataset's."""
        found = self.plan.found
        mean_chars = found.context_chars / max(1, found.n_samples)
        return fit_engine(self.spec.engine_of(group[0].model), mean_chars, device)

    @contextmanager
    def _services(self, members: int, max_in_flight: int, counter: Any) -> Iterator[Handles | None]:
        if not self.spec.calls_judges:
            yield None
            return
        n_before = len(self.plan.before.get("sessions", ()))
        spent = Spending()
        if n_before and self.spec.budget.is_set:
            spent = spending_so_far(self.folder, n_before)
        handles = start_services(
            self.spec.budget,
            self.spec.judging.cache,
            self.folder.path,
            spent,
            members,
            max_in_flight,
            counter,
            n_before + 1,
        )
        try:
            yield handles
        finally:
            if not self.spec.budget.is_set:
                self._book_spending(counter, n_before)
            end_services(handles)

    def _book_spending(self, counter: Any, n_before: int) -> None:
        """Adds up what a session without a budget paid: a later one may have one. A session that is
        killed adds nothing."""
        # Ray has ended, or the folder is out of reach: the error that ended the session counts
        with suppress(Exception):
            book = self.folder.read_spending()
            if book.get("sessions", 0) < n_before:
                return  # an earlier one kept none: its scores tell more
            calls = CounterView(counter).telemetry().calls
            paid = Spending(
                usd=book.get("usd", 0.0) + calls.get("cost_usd", 0.0),
                tokens=book.get("tokens", 0)
                + sum(calls.get(kind, 0) for kind in ("input_tokens", "output_tokens")),
            )
            SpendingBook(self.folder.path, n_before + 1).write_now(paid)

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
        manifest = build_manifest(self.plan, run_id, status, error, summary, telemetry, self._phase)
        self.folder.write_manifest(manifest)

"""The stages of a run as Ray Data pipelines, with the services that they share as actors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import cast

from memray_eval.config.sections import EngineConfig
from memray_eval.errors import GenerationError, ServiceLost
from memray_eval.execution.batch_judging import judges_in_batches, pay_in_batches_here
from memray_eval.execution.executors import Phase
from memray_eval.execution.plan import (
    Device,
    Pool,
    engine_device,
    engines_at_first,
    explain_lack,
    fit_engine,
    judge_actors,
    judge_pool,
    judging_pools,
)
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.judge_port import judge_port
from memray_eval.execution.ray.pipeline import (
    PipelineSetup,
    judge_waiting,
    run_pipeline,
)
from memray_eval.execution.ray.placement_groups import NodeReservation
from memray_eval.execution.ray.progress_counter import ProgressCounter, RemoteCounter
from memray_eval.execution.ray.services import (
    end_services,
    failure_reason,
    finish_calls,
    on_driver_node,
    start_actors,
)
from memray_eval.execution.resume_state import find_unscored, find_waiting
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_plan import Group, RunPlan
from memray_eval.execution.schedule import (
    OnEngineEnd,
    Wave,
    Work,
    pools_beside,
    run_waves,
    schedule,
)
from memray_eval.execution.services import JudgeServices
from memray_eval.execution.stage_context import StageContext
from memray_eval.execution.waiting import Waiting
from memray_eval.models.adapters import with_adapters
from memray_eval.results.run_folder import RunFolder

logger = logging.getLogger(__name__)


class RayExecutor:
    """An Executor (execution/executors.py) on the Ray that this process is connected to."""

    def __init__(self, plan: RunPlan, folder: RunFolder) -> None:
        self.plan, self.spec, self.folder = plan, plan.spec, folder

    @contextmanager
    def watch(self, on_death: Callable[[str], None]) -> Iterator[None]:
        def died(process: str) -> None:
            on_death(f"Ray's {process} has died on this machine (killed, or out of memory)")

        with cluster.watch_ray_processes(died):
            yield

    def translate(self, error: BaseException) -> BaseException:
        if cluster.is_ray_error(error):
            return ServiceLost(f"Ray has failed: {failure_reason(error)}")
        return error

    def start_counter(self, stages: Sequence[str]) -> RunCounter:
        placed = ProgressCounter.options(scheduling_strategy=on_driver_node())  # type: ignore[attr-defined]
        most_caught = self.spec.tolerated(self.plan.n_units)
        actor = placed.remote(self.folder.run_id, stages, most_caught)
        return cast(RunCounter, RemoteCounter(actor))

    def run(
        self, counter: RunCounter, enter_phase: Callable[[Phase], None], waiting: Waiting
    ) -> None:
        self._counter, self._enter_phase, self._waiting = counter, enter_phase, waiting
        self._why_dead: str | None = None  # of the embedded judge's engines
        spec, capacity, order = self.spec, self.plan.capacity, self.plan.phases.order
        device = engine_device(spec, capacity.all_gpus)
        # What judges afterwards must find room when the nodes with GPUs are gone
        judge_cpus = capacity.cpus if order == "together" else capacity.cpus_beside_gpus
        pool = judge_pool(spec, judge_cpus, self.plan.block_rows)
        waves = schedule(spec, capacity, device, scores=order == "together")
        members = max(pool.actors, *map(len, waves))
        context = StageContext(
            self.folder.path, counter, stops_on_failure=spec.config.on_error == "fail"
        )
        with self._services(members, pool.max_in_flight) as services:
            setup = PipelineSetup(
                plan=self.plan,
                context=context,
                device=device,
                services=services,
                engine=spec.config.engine,
                reservation=self.plan.reservation or NodeReservation(),
                tasks_at_once=max(2, int(capacity.cpus) // 4),
                judge_actors=pool.actors,
                judge_tasks=pool.tasks,
            )
            if order == "together":
                self._pay_in_batches(services, self.plan)
                self._generate_and_judge(setup, waves)
            else:
                if order == "apart":
                    self._generate(setup, waves)
                if not setup.context.is_stopping():
                    self._judge(replace(setup, tasks_at_once=max(2, int(judge_cpus) // 4)))
            with waiting("the memory of paid calls to be merged"):
                finish_calls(services)
        if self._why_dead is not None:
            raise ServiceLost(self._why_dead)

    @contextmanager
    def _serve(self, setup: PipelineSetup, model: str | None) -> Iterator[PipelineSetup]:
        """The setup with the port of the judge's engines, if there is a model."""
        if model is None:
            yield setup
            return

        def end(reason: str) -> None:
            self._why_dead = self._why_dead or reason
            self._counter.stop(reason)

        assert self.spec.judge_engine is not None
        assert setup.services is not None
        engine = self._fit(self.spec.judge_engine, setup.device)
        port = judge_port(model, engine, setup.device, setup.context, setup.reservation, end)
        with ExitStack() as stack:
            with self._waiting(f"the judge's engines to load {model}"):
                url = stack.enter_context(port)
            yield replace(setup, services=replace(setup.services, embedded_url=url))

    def _generate_and_judge(self, setup: PipelineSetup, waves: Sequence[Wave]) -> None:
        """Each response is judged as soon as it is there, those of earlier sessions first."""

        def run_group(shared: PipelineSetup, group: Group, on_engine_end: OnEngineEnd) -> None:
            if self.plan.resume_state.waiting and not shared.context.is_stopping():
                judge_waiting(shared, group)
            if not self.plan.is_generated and not shared.context.is_stopping():
                self._run_pipeline(self._with_engine(shared, group), group, on_engine_end)

        with self._serve(setup, self.spec.embedded_judge) as served:
            self._run_waves(served, waves, run_group)

    def _run_pipeline(self, setup: PipelineSetup, group: Group, on_engine_end: OnEngineEnd) -> None:
        """Runs a group's pipeline. One that fails when its engines have given their nodes to the
        next model, as where a node with responses is lost, judges what is in the run's folder."""
        if on_engine_end is None:
            run_pipeline(setup, group)
            return
        ended = list[bool]()

        def engine_ended() -> None:
            ended.append(True)
            on_engine_end()

        try:
            run_pipeline(setup, group, engine_ended)
        except GenerationError as error:
            if not ended or setup.context.is_stopping():
                raise
            logger.warning("%s; the responses in the run's folder are judged", error)
            unscored = find_unscored(self.folder)
            if unscored.waiting:
                plan = replace(self.plan, resume_state=unscored)
                judge_waiting(replace(setup, plan=plan), group, is_earlier=False)

    def _run_waves(
        self,
        setup: PipelineSetup,
        waves: Sequence[Wave],
        run_group: Callable[[PipelineSetup, Group, OnEngineEnd], None],
        scores: bool = True,
    ) -> None:
        """Runs the groups of each wave side by side, and one wave after the other, or beside the
        end of the last where it fits. `scores`: each pipeline has judges too."""
        spec, capacity = self.spec, self.plan.capacity

        def find_pools(tails: Sequence[Wave], wave: Wave) -> list[Pool]:
            return pools_beside(spec, tails, wave, capacity, setup.device, scores)

        def has_room(tails: Sequence[Wave], wave: Wave) -> bool:
            return explain_lack(find_pools(tails, wave), capacity) is None

        def begin(wave: Wave, tails: Sequence[Wave]) -> Work:
            if wave is not waves[0]:
                setup.reservation.remove()
            if tails:
                names = ", ".join(candidate.name for group in wave for candidate in group)
                logger.info("%s: starting beside the end of the models before", names)
            pools = find_pools(tails, wave)
            shared = replace(setup, label_selector=cluster.select_cpu_nodes(pools))
            if scores:
                actors = judge_actors(spec, capacity.cpus, len(wave))
                shared = replace(shared, judge_actors=actors)
            if len(wave) == 1:  # the models of a larger one would take the same room
                engine = spec.engine_of(wave[0][0].model)
                at_first = engines_at_first(engine, pools, capacity)
                shared = replace(shared, engines_at_first=at_first)
            return partial(run_group, shared)

        run_waves(waves, begin, has_room, setup.context.counter.stop)
        setup.reservation.remove()

    def _generate(self, setup: PipelineSetup, waves: Sequence[Wave]) -> None:
        """The first of two phases: all responses, into the folder. Engines end with it."""
        self._enter_phase("generate")
        line = "Phase 1 of 2: generating; judges come when all is generated."
        setup.context.counter.add_line(line)

        def generate_group(shared: PipelineSetup, group: Group, on_engine_end: OnEngineEnd) -> None:
            if not setup.context.is_stopping():
                fitted = self._with_engine(shared, group)
                run_pipeline(fitted, group, on_engine_end, scores=False)

        model = self.spec.embedded_judge if self.spec.asks_embedded_first else None
        with self._serve(setup, model) as served:
            self._run_waves(served, waves, generate_group, scores=False)

    def _judge(self, setup: PipelineSetup) -> None:
        """The second of two phases: judges all responses in the folder, of all sessions."""
        spec, counter, before = self.spec, setup.context.counter, self.plan.resume_state
        waiting = find_waiting(self.folder, before.finished)
        if not waiting.waiting:
            return
        self._enter_phase("judge")
        self._pay_in_batches(setup.services, replace(self.plan, resume_state=waiting))
        if setup.context.is_stopping():
            return
        counter.add_line(
            f"Phase 2 of 2: judging {len(waiting.generated)} responses; no engine is up."
        )
        counter.add_carried(len(before.generated))
        pools = judging_pools(spec, setup.device, setup.judge_actors)
        with self._serve(setup, spec.embedded_judge) as served:
            judging = replace(
                served,
                label_selector=cluster.select_cpu_nodes(pools),
                plan=replace(self.plan, resume_state=waiting),
            )
            judge_waiting(judging, spec.config.candidates, is_earlier=False)

    def _pay_in_batches(self, services: JudgeServices | None, plan: RunPlan) -> None:
        """Has judge calls paid in batches if the job says so, rendered in this process."""
        if services is not None and judges_in_batches(self.spec, self.folder):
            pay_in_batches_here(plan, self.folder, services, self._counter, self._waiting)

    def _with_engine(self, setup: PipelineSetup, group: Group) -> PipelineSetup:
        """With the engine of a group's model."""
        engine = self._fit(self.spec.engine_of(group[0].model), setup.device)
        return replace(setup, engine=with_adapters(engine, group, setup.device == "cpu"))

    def _fit(self, engine: EngineConfig, device: Device) -> EngineConfig:
        """An engine with batches for contexts as long as the dataset's."""
        scan = self.plan.scan
        mean_chars = scan.context_chars / max(1, scan.n_samples)
        return fit_engine(engine, mean_chars, device, self.plan.block_rows)

    @contextmanager
    def _services(self, members: int, max_in_flight: int) -> Iterator[JudgeServices | None]:
        if not self.spec.calls_judges:
            yield None
            return
        services = start_actors(
            self.plan, self.folder, max_in_flight, self._counter.add_line, members
        )
        try:
            yield services
        finally:
            end_services(services)

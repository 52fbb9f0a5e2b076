"""The stages of a run as Ray Data pipelines, with the services that they share as actors."""

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import ray
from aiohttp import web
from ray.exceptions import RayActorError, RayError, RayTaskError

from memray_eval.config.sections import EngineConfig, least_of
from memray_eval.errors import GenerationError, JudgeError, ServiceLost, describe_error
from memray_eval.execution.batch_judging import judges_in_batches, pay_in_batches_here
from memray_eval.execution.executors import Phase, run_on_a_loop
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
from memray_eval.execution.ray.engine import engine_starter
from memray_eval.execution.ray.engine_client import READY_S, EngineFinder
from memray_eval.execution.ray.pipeline import PipelineSetup, judge_waiting, run_pipeline
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    NodeReservation,
    group_of_engine,
    pipeline_of,
)
from memray_eval.execution.ray.reporting import ProgressCounter, RemoteCounter
from memray_eval.execution.ray.services import failure_reason, on_driver_node, start_actors
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
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.waiting import Waiting
from memray_eval.models.adapters import with_adapters
from memray_eval.results.run_folder import RunFolder

FINISH_S = 60.0  # for merging segments at the end of a run

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
        if isinstance(error, RayError):
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
                self._pay_in_batches(setup)
                self._generate_and_judge(setup, waves)
            else:
                if order == "apart":
                    self._generate(setup, waves)
                if not setup.context.is_stopping():
                    self._judge(replace(setup, tasks_at_once=max(2, int(judge_cpus) // 4)))
            if services is not None:
                with waiting("the memory of paid calls to be merged"):
                    run_on_a_loop(services.finish(FINISH_S))
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
                judge_waiting(replace(setup, plan=plan), group)

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
                engine = spec.config.engine_of(wave[0][0].model)
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
        self._pay_in_batches(replace(setup, plan=replace(self.plan, resume_state=waiting)))
        if setup.context.is_stopping():
            return
        counter.add_line(
            f"Phase 2 of 2: judging {len(waiting.generated)} responses; no engine is up."
        )
        pools = judging_pools(spec, setup.device, setup.judge_actors)
        with self._serve(setup, spec.embedded_judge) as served:
            judging = replace(
                served,
                label_selector=cluster.select_cpu_nodes(pools),
                plan=replace(self.plan, resume_state=waiting),
            )
            judge_waiting(judging, spec.config.candidates)

    def _pay_in_batches(self, setup: PipelineSetup) -> None:
        """Has judge calls paid in batches if the job says so, rendered in this process."""
        if setup.services is not None and judges_in_batches(self.spec, self.folder):
            pay_in_batches_here(setup, self._waiting)

    def _with_engine(self, setup: PipelineSetup, group: Group) -> PipelineSetup:
        """With the engine of a group's model."""
        engine = self._fit(self.spec.config.engine_of(group[0].model), setup.device)
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
            run_on_a_loop(services.end())


MOST_LOST = 5  # engines that are lost with one call before it is given up
_LEAVE_S, _CLOSE_S = 1.0, 5.0


@contextmanager
def judge_port(
    model: str,
    config: EngineConfig,
    device: Device,
    context: StageContext | None,
    reservation: NodeReservation,
    on_failure: Callable[[str], None],
) -> Iterator[str]:
    """The base URL of `config.replicas` engines of a judge's model (of a range the least), for the
    time of a run, once the first is up. Engines that are lost come up again; `on_failure` hears
    why too few ever will. Raises JudgeError if none comes up."""
    least, group = least_of(config.replicas), group_of_engine(config, device)
    counter = None if context is None else context.counter
    with EnginePlacement(group, reservation, counter=counter, has_clients=False) as placement:
        start = engine_starter(config, model, device, context)
        names = [placement.next_client(start)["name"] for _ in range(least)]
        port: Any = JudgePort.options(  # type: ignore[attr-defined]
            scheduling_strategy=on_driver_node()
        ).remote(model, pipeline_of(names[0]) or "", least, context)
        address = _free_address()
        serving, ready = port.serve.remote(*address), port.ready.remote()

        def watch() -> None:
            if why := _ended(serving):
                on_failure(why)

        try:
            ray.wait([serving, ready], num_returns=1)
            if (why := _ended(serving, timeout=0)) is not None:
                raise JudgeError(why)
            threading.Thread(target=watch, daemon=True).start()
            yield "http://{}:{}/v1".format(*address)
        finally:
            closed = port.close.remote()
            ray.wait([serving, ready, closed], num_returns=3, timeout=_CLOSE_S)
            ray.kill(port)


def _ended(serving: Any, timeout: float | None = None) -> str | None:
    """Why engines have failed, "" where the run ends; None if it serves on after `timeout`."""
    try:
        return str(ray.get(serving, timeout=timeout))
    except (ray.exceptions.GetTimeoutError, RayActorError):  # time is up, or it was killed
        return None
    except RayError as error:
        return f"the port of the judge's engines has failed: {failure_reason(error)}"


def _free_address() -> tuple[str, int]:
    host = ray.util.get_node_ip_address()
    with socket.create_server((host, 0)) as probe:
        return host, int(probe.getsockname()[1])


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class JudgePort(EngineFinder):
    """Forwards requests to the engine with the fewest under way; those of one that is lost go to
    another. Ray restarts it, and repeats `serve`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._under_way, self._is_closed = Counter[Any](), False

    async def close(self) -> None:
        self._is_closed = True

    async def ready(self) -> None:
        """Returns once an engine is up, or at `close`."""
        while not (self._up or self._is_closed):
            await asyncio.sleep(READY_S / 10)

    async def serve(self, host: str, port: int) -> str:
        """Serves until `close`, or until too few engines are left; returns why they failed."""
        app = web.Application(client_max_size=0)  # prompts of any length
        app.router.add_route("*", "/v1/{path:.+}", self._forward)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LEAVE_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            while not self._is_closed:
                if len(self._up) < self._least:
                    await asyncio.to_thread(self._find_engines)
                await asyncio.sleep(READY_S)
            return ""
        except GenerationError as error:
            return str(error)
        finally:
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.Response:
        call = request.method, request.path, await request.read()
        for _ in range(MOST_LOST):
            while not (up := self._up):
                await asyncio.sleep(READY_S / 10)
            engine = min(up, key=self._under_way.__getitem__)
            self._under_way[engine] += 1
            try:
                reply = await self._call(engine, engine.serve.remote(*call))
            except RayTaskError as error:
                return _refuse(500, describe_error(error.cause))
            finally:
                self._under_way[engine] -= 1
            if reply is not None:
                status, body = reply
                return web.Response(status=status, body=body, content_type="application/json")
        return _refuse(400, f"{MOST_LOST} engines of {self._model} died while they were asked this")


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)

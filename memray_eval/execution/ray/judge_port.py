"""The engines of a judge's model behind one port that speaks OpenAI's protocol. They are engines as
the candidates' are; a small model proves the plumbing, not the scores."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from aiohttp import web
from ray.exceptions import RayActorError, RayError, RayTaskError

from memray_eval.config.sections import EngineConfig, least_of
from memray_eval.errors import GenerationError, JudgeError, describe_error
from memray_eval.execution.plan import Device
from memray_eval.execution.ray.engine import engine_starter
from memray_eval.execution.ray.engine_client import READY_S, EngineFinder
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    NodeReservation,
    group_of_engine,
    pipeline_of,
)
from memray_eval.execution.ray.services import failure_reason, on_driver_node
from memray_eval.execution.stage_context import StageContext

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
                reply = await self._call(engine, engine.serve, *call)
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

"""The private APIs of Ray that execution/ray/ray_compat.py uses still do what we rely on."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import ray
import ray._private.services
import ray._private.worker
from ray.exceptions import RayActorError

from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.ray_compat import (
    DRIVER_LOGGERS,
    STREAMED,
    free_resources,
    held_resources,
    is_repeated_task,
    living_jobs,
    set_repartition_options,
    worker_output_path,
)
from tests.build import wait_until
from tests.conftest import HANG_S


def test_rays_own_processes_of_this_driver_are_found() -> None:
    assert {"raylet", "gcs_server"} == set(cluster._vital_processes())


def test_a_repartition_takes_the_options_that_it_is_given() -> None:
    rows = ray.data.from_items([{"row": row} for row in range(10)], override_num_blocks=1)
    spread = rows.repartition(target_num_rows_per_block=2)
    set_repartition_options(spread, num_cpus=0.25, label_selector={"ray.io/node-id": "!in(none)"})
    assert spread._logical_plan.dag.ray_remote_args["num_cpus"] == 0.25
    assert sum(batch.num_rows for batch in spread.iter_batches(batch_format="pyarrow")) == 10


def test_a_task_that_ray_runs_again_knows_it(tmp_path: Path) -> None:
    """Also one that yields its blocks, as the stages of a pipeline do."""

    @ray.remote(num_cpus=0.1, max_retries=1)
    def dies_once() -> Iterator[bool]:
        yield is_repeated_task()
        if not (mark := tmp_path / "died").exists():
            mark.touch()
            os._exit(1)
        yield is_repeated_task()

    results = [ray.get(ref) for ref in dies_once.options(num_returns="streaming").remote()]
    assert results[-1] is True
    assert not is_repeated_task()
    (first,) = ray.get(
        [ray.remote(num_cpus=0.1)(is_repeated_task).remote()]  # type: ignore[arg-type]
    )
    assert first is False


def test_the_loggers_that_are_silenced_are_those_that_ray_writes_to() -> None:
    """Ray Data sets levels of its own when it runs, so they are not what is looked at."""
    written_to = {ray._private.worker.logger.name, ray._private.services.logger.name}
    assert written_to <= set(DRIVER_LOGGERS)


def test_a_worker_knows_the_file_of_its_output() -> None:
    results = ray.get(ray.remote(worker_output_path).remote())
    assert results.endswith(".out")
    assert os.path.isfile(results)
    assert worker_output_path() == ""


def cpus_held() -> set[float]:
    return {ref.resources.get("CPU", 0.0) for ref in held_resources()}


@ray.remote(num_cpus=0.5)
class Holder:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def test_what_actors_and_placement_groups_hold_is_told_with_their_job() -> None:
    job = ray.get_runtime_context().get_job_id()
    holder = Holder.remote()  # type: ignore[attr-defined]
    node = ray.get(holder.node.remote())
    group = ray.util.placement_group([{"CPU": 0.25}, {"CPU": 0.25}])
    assert group.wait(HANG_S)
    idle = Holder.options(num_cpus=0).remote()  # type: ignore[attr-defined]
    ray.get(idle.node.remote())
    held = [(ref.job_id, ref.node_id, ref.resources.get("CPU", 0.0)) for ref in held_resources()]
    assert held.count((job, node, 0.5)) == 1
    assert held.count((job, node, 0.25)) == 2
    assert free_resources()[node].get("CPU", 0.0) <= 1.0
    ray.util.remove_placement_group(group)
    ray.kill(holder)
    wait_until(lambda: not {0.5, 0.25} & cpus_held(), "they are still held")


def test_a_living_job_is_told_with_what_it_runs() -> None:
    jobs = living_jobs()
    assert list(jobs) == [ray.get_runtime_context().get_job_id()]
    assert "pytest" in next(iter(jobs.values()))


def test_a_call_to_an_actor_that_is_restarted_fails_soon(tmp_path: Path) -> None:
    """By which an engine's clients know that it is lost (engine_client.py)."""
    slow = Restarted.options(num_cpus=0, max_restarts=-1).remote(tmp_path)  # type: ignore[attr-defined]
    assert ray.get(slow.ready.options(max_task_retries=-1).remote(), timeout=HANG_S)
    pid = ray.get(slow.pid.remote(), timeout=HANG_S)
    under_way = slow.sleep.remote()
    os.kill(pid, signal.SIGKILL)
    for reference in (under_way, slow.pid.remote()):
        with pytest.raises(RayActorError):
            ray.get(reference, timeout=HANG_S)
    (tmp_path / "go on").touch()
    assert ray.get(slow.ready.options(max_task_retries=-1).remote(), timeout=HANG_S)


def test_what_was_yielded_is_heard_of_an_actor_that_dies_at_once(tmp_path: Path) -> None:
    (tmp_path / "go on").touch()
    heard = list[int]()
    for _ in range(4):
        dying = Restarted.options(num_cpus=0).remote(tmp_path)  # type: ignore[attr-defined]
        with suppress(RayActorError):
            for reply in dying.die.options(**STREAMED).remote():
                heard.append(ray.get(reply))
    assert heard == [1] * 4


@ray.remote
class Restarted:
    """Starts at once at first; again when there is a file `go on`."""

    def __init__(self, folder: Path) -> None:
        if (folder / "started").exists():
            while not (folder / "go on").exists():
                time.sleep(0.05)
        (folder / "started").touch()

    async def ready(self) -> bool:
        return True

    async def pid(self) -> int:
        return os.getpid()

    async def sleep(self) -> None:
        await asyncio.sleep(600)

    async def die(self) -> AsyncIterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

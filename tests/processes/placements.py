"""`python -m tests.processes.placements MODELS`: engines on a cluster whose head works at nothing,
as JSON after each pipeline. The engines' model comes into the folder MODELS, and the GPU of the
first pipeline's last engine is somebody else's at first.

clients  the name of each engine client's node, one for each client
groups   the names of the engines' placement groups
phases   of the first pipeline, moment by moment: the number of engines by phase, and the longest
         time of one in it
lines    what a person is told"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import ray
from ray.cluster_utils import Cluster
from ray.core.generated import gcs_pb2
from ray.util.placement_group import placement_group_table

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import fit_engine
from memray_eval.execution.ray import engine
from memray_eval.execution.ray.cluster import _QUIET, select_cpu_nodes
from memray_eval.execution.ray.engine import add_engines
from memray_eval.execution.ray.pipeline import set_up_data_context
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    NodeReservation,
    group_of_engine,
)
from memray_eval.execution.ray.reporting import ProgressCounter, RemoteCounter
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stages.context import StageContext
from tests.clusters.fake_engine import fake_engine, prompt_rows
from tests.clusters.observing import again_and_again
from tests.conftest import HANG_S

MODEL = "org/model"
PIPELINES, ENGINES = 4, 5
DOWNLOAD_S, LOAD_S = 4.0, 3.0


def downloading_engine(models: Path) -> type:
    """A fake engine whose model comes file by file, as the hub's client writes it, and then
    loads."""
    loads = fake_engine(load_s=LOAD_S)

    class DownloadingEngine(loads):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            file = models / f"models--{MODEL.replace('/', '--')}" / "blobs" / "1.incomplete"
            file.parent.mkdir(parents=True, exist_ok=True)
            until = time.monotonic() + DOWNLOAD_S
            while time.monotonic() < until:
                file.touch()
                time.sleep(0.2)
            file.unlink(missing_ok=True)
            super().__init__(*args, **kwargs)

    return DownloadingEngine


class Seen:
    """What is seen of a cluster while a block runs."""

    def __init__(self, counter: RunCounter) -> None:
        self._counter = counter
        self.groups: set[str] = set()
        self.phases: list[dict[str, tuple[int, float]]] = []

    def look(self) -> None:
        self.groups |= {group["name"] for group in placement_group_table().values()} - {""}
        snapshot = self._counter.snapshot(0, 5.0)
        if snapshot is not None and snapshot.engines:
            self.phases.append({now.phase: (now.n, now.longest_s) for now in snapshot.engines})


def give_way(group: Any, seen: Seen) -> None:
    """Gives a GPU back once the other engines download."""
    while not any("downloading" in moment for moment in seen.phases):
        time.sleep(0.2)
    ray.util.remove_placement_group(group)


def nodes_of_clients() -> list[str]:
    """The node of each client that there was, also of those that have ended."""
    accessor = ray._private.state.state._connect_and_get_accessor()
    actors = map(gcs_pb2.ActorTableData.FromString, accessor.get_actor_table(None, None))
    clients = [actor for actor in actors if actor.name.startswith("memray_eval client")]
    return [client.address.node_id.hex() for client in clients]


def generate(config: EngineConfig, context: StageContext) -> None:
    group = group_of_engine(config, "gpu", MODEL)
    with EnginePlacement(group, NodeReservation(), counter=context.counter) as placement:
        prompts = ray.data.from_items(prompt_rows(ENGINES, MODEL), override_num_blocks=ENGINES)
        selector = select_cpu_nodes([])
        answered = add_engines(
            prompts, config, MODEL, "gpu", placement, context, label_selector=selector
        )
        assert len(list(answered.iter_rows())) == ENGINES


def main(models: Path) -> None:
    os.environ.update(_QUIET | {"HF_HUB_CACHE": str(models)})
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    names = {cluster.head_node.node_id: "head"}
    for name, gpus in (("cpu-1", 0), ("cpu-2", 0), ("gpu-1", ENGINES)):
        names[cluster.add_node(num_cpus=2, num_gpus=gpus).node_id] = name
    ray.init(address=cluster.address, log_to_driver=False)

    vars(engine)["VllmEngine"] = downloading_engine(models)
    set_up_data_context(no_progress_timeout_s=HANG_S)
    settings = {"device": "gpu", "cpus": 0.1, "replicas": ENGINES, "starts_at_once": None}
    config = fit_engine(EngineConfig.model_validate(settings), 1.0, "gpu")
    counter = cast(RunCounter, RemoteCounter(ProgressCounter.remote()))  # type: ignore[attr-defined]
    context, seen = StageContext(str(models), counter), Seen(counter)
    first: list[dict[str, tuple[int, float]]] = []
    try:
        with again_and_again(seen.look, 0.3):
            in_the_way = ray.util.placement_group([{"GPU": 1.0}])
            assert in_the_way.wait(HANG_S)
            threading.Thread(target=give_way, args=(in_the_way, seen), daemon=True).start()
            for n_done in range(PIPELINES):
                generate(config, context)
                first = first if n_done else list(seen.phases)
                snapshot = counter.snapshot(0, 5.0)
                lines = snapshot.lines if snapshot is not None else ()
                clients = sorted(names[node] for node in nodes_of_clients())
                done = {"clients": clients, "groups": sorted(seen.groups)}
                print(json.dumps(done | {"phases": first, "lines": lines}), flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

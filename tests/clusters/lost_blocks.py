"""`python -m tests.clusters.lost_blocks CONFIG`: a run on three nodes of this machine. When all its
responses are written and few are judged, the node with the actor that asks the candidate dies."""

import sys
import threading
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from memray_eval.config.schema import RunConfig
from memray_eval.execution.ray.services import LIMITER, NAMESPACE
from memray_eval.execution.runs import run
from memray_eval.results.run_folder import RESPONSES, RunFolder

NODES = 2


def node_of(name: str) -> str | None:
    """Where the living actor of a class is."""
    for actor in ray._private.state.actors().values():
        if name in actor["ActorClassName"] + actor["Name"] and actor["State"] == "ALIVE":
            return str(actor["Address"]["NodeID"])
    return None


def main() -> None:
    config = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    nodes = [cluster.add_node(num_cpus=2) for _ in range(NODES)]
    ray.init(address=cluster.address, log_to_driver=False)

    def kill() -> None:
        while not (folders := list(Path(config.out).glob("*/run.yaml"))):
            time.sleep(0.1)
        folder, lost = RunFolder(str(folders[0].parent)), None
        while sum(
            folder.read_part(name, RESPONSES).num_rows for name in folder.parts(RESPONSES)
        ) < (config.limit or 0):
            lost = node_of("AskServers") or lost  # it ends with the last answer
            time.sleep(0.1)
        print(f"limiter on the head: {node_of(LIMITER) == ray.get_runtime_context().get_node_id()}")
        (victim,) = [node for node in nodes if node.node_id == lost]
        print(f"node lost, {len(folder.parts())} parts of records written", flush=True)
        cluster.remove_node(victim, allow_graceful=False)

    threading.Thread(target=kill, daemon=True).start()
    code = run(config, print, quiet=True).exit_code
    assert ray.get_actor(LIMITER, namespace=NAMESPACE)
    ray.shutdown()  # before its nodes, or Ray ends this process without a word
    cluster.shutdown()
    sys.exit(code)


if __name__ == "__main__":
    main()

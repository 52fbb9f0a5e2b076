"""`python -m tests.clusters.phases_run CONFIG GPUS SEEN BOOKS`: a run, or its resume, on a cluster
of its own: a head and a node without GPUs, and with GPUS=1 a node with one that is not there. Each
line of SEEN says how many GPUs are free in which phase; BOOKS are the engines' (fake_engine.py)."""

import json
import os
import sys
import threading
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from memray_eval.config.schema import RunConfig
from memray_eval.execution.ray import engine
from memray_eval.execution.ray.cluster import _QUIET
from memray_eval.execution.runs import resume, run
from tests.clusters.fake_engine import fake_engine


def phase_of(out: Path) -> str | None:
    """The phase that the run's manifest names."""
    for path in out.glob("*/manifest.json"):
        phase = json.loads(path.read_text())["phases"]["phase"]
        return None if phase is None else str(phase)
    return None


def main() -> None:
    config = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
    n_gpus, seen, books = int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    os.environ.update({name: value for name, value in _QUIET.items() if name not in os.environ})
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=2)
    if n_gpus:
        cluster.add_node(num_cpus=2, num_gpus=n_gpus)
    ray.init(address=cluster.address, log_to_driver=False)
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            free = ray.available_resources().get("GPU", 0.0)
            with seen.open("a") as file:
                file.write(json.dumps([phase_of(Path(config.out)), free]) + "\n")

    threading.Thread(target=watch, daemon=True).start()
    vars(engine)["VllmEngine"] = fake_engine(books)
    begun = sorted(Path(config.out).glob("*/run.yaml"))
    done = resume(str(begun[0].parent), print) if begun else run(config, print)
    is_over.set()
    ray.shutdown()
    cluster.shutdown()
    sys.exit(done.exit_code)


if __name__ == "__main__":
    main()

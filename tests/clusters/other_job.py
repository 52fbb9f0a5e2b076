"""Another job of the cluster: `python -m tests.clusters.other_job ADDRESS hold|run|wait ...`.

hold GPUS      holds so many in an actor, and as many CPUs
run CPUS       runs a task that takes so many
wait N HOLD_S  waits for nodes for N engines of two GPUs each, as a run does, and has them so long
"""

import sys
import time

import ray

from memray_eval.execution.plan import Capacity
from memray_eval.execution.ray import cluster, placement_groups
from memray_eval.execution.ray.placement_groups import GroupSpec, NodeReservation


def say(word: str) -> None:
    print(word, flush=True)


def hold(gpus: str) -> None:
    @ray.remote
    class Trainer:
        def start(self) -> None:
            pass

    trainer = Trainer.options(num_gpus=float(gpus), num_cpus=float(gpus)).remote()  # type: ignore[attr-defined]
    ray.get(trainer.start.remote())
    say("holds")
    time.sleep(600)


def run(cpus: str) -> None:
    @ray.remote
    def long() -> None:
        time.sleep(600)

    task = long.options(num_cpus=float(cpus)).remote()  # type: ignore[attr-defined]
    say("runs")
    ray.get(task)


def wait(engines: str, hold_s: str) -> None:
    placement_groups.PATIENCE_S, placement_groups.POLL_S = 1.0, 0.2
    free = Capacity(where="the cluster", cpus=12, gpus=4, memory_gib=1)
    wanted = [GroupSpec(({"GPU": 1.0}, {"GPU": 1.0}), "STRICT_PACK")] * int(engines)
    with NodeReservation() as reservation:
        say("waits")
        cluster.wait_for_nodes(free, [], wanted, reservation, 60, say=lambda text: None)
        say("has them")
        time.sleep(float(hold_s))
    say("done")


if __name__ == "__main__":
    address, verb, *words = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    {"hold": hold, "run": run, "wait": wait}[verb](*words)

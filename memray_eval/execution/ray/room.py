"""Waits until a cluster has room for a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from memray_eval.config.sections import least_of
from memray_eval.errors import ResourceError
from memray_eval.execution.capacity import Capacity
from memray_eval.execution.plan import engine_device
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.engine import group_of_engine
from memray_eval.execution.ray.placement_groups import GroupSpec, NodeReservation
from memray_eval.execution.run_plan import PhaseOrder, RunSpec
from memray_eval.execution.schedule import check_turns, pools_in_turn, schedule

SETTLE_S = 5.0  # what others' tasks hold at a moment may be free in the next


def wait_for_room(
    spec: RunSpec,
    capacity: Capacity,
    order: PhaseOrder,
    reservation: NodeReservation,
    say: Callable[[str], None],
) -> Capacity:
    """The capacity that the run starts with. A cluster that is let grow need hold the first models
    only, whose nodes `reservation` holds from then on; for those that come later it grows while
    they wait."""
    device, wait_s = engine_device(spec, capacity.all_gpus), spec.cluster.wait_s
    if not wait_s:
        return free_capacity(spec, capacity, order)
    engines: list[GroupSpec] = []
    if order != "judge":
        for candidate, *_ in schedule(spec, capacity, device, scores=order == "together")[0]:
            if candidate.backend == "vllm":
                engine = spec.engine_of(candidate.model)
                engines += [group_of_engine(engine, device)] * least_of(engine.replicas)
    pools = pools_in_turn(spec, capacity, device, order)[0]
    return cluster.wait_for_nodes(capacity, pools, engines, reservation, wait_s, say)


def free_capacity(spec: RunSpec, capacity: Capacity, order: PhaseOrder) -> Capacity:
    """The capacity, looked at again for some seconds where others hold what the run needs: tasks
    come and go. Raises ResourceError where the run does not fit."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            check_turns(spec, capacity, order)
            return capacity
        except ResourceError:
            if not capacity.holdings or time.monotonic() >= deadline:
                raise
        time.sleep(0.5)
        capacity = cluster.cluster_capacity(capacity.where)

"""Where a run is, and how it gets the capacity that it starts on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal, TypeAlias

from memray_eval.execution.capacity import Capacity, local_capacity
from memray_eval.execution.executors import choose_executor
from memray_eval.execution.plan import engine_device
from memray_eval.execution.prepare.checks import check_device, decide_phases
from memray_eval.execution.run_plan import RunPlan, RunSpec
from memray_eval.execution.schedule import check_turns
from memray_eval.execution.waiting import Waiting

# In this process if few units turn up, on a Ray of its own, or on a cluster that is there
SiteKind: TypeAlias = Literal["local", "alone", "joined"]


class RunSite:
    """The place of a run, decided when it is made; what it starts or joins stays for as long as
    `stack` lives. `waiting` is told what takes time."""

    def __init__(self, spec: RunSpec, stack: ExitStack, waiting: Waiting) -> None:
        self.kind = _choose_site(spec)
        self.waiting = waiting
        self._spec, self._stack = spec, stack
        self._first: Capacity | None = None

    @property
    def capacity(self) -> Capacity:
        """The resources to start on."""
        assert self._first is not None
        return self._first

    def reach(self, is_new: bool) -> None:
        """Finds what there is: on this machine, or on the cluster, which is joined. Raises
        ConfigError or ResourceError if the run would fit in no order of its phases."""
        spec = self._spec
        if self.kind != "joined":
            self._first = local_capacity(spec.config.cluster)
            if self.kind == "alone":
                check_turns(spec, self._first, spec.config.cluster.phases)
            return
        check_device(spec)
        self.connect()
        if is_new and not spec.config.cluster.wait_s:
            from memray_eval.execution.ray.cluster import free_capacity

            self._first = free_capacity(spec, self.capacity, spec.config.cluster.phases)

    def connect(self) -> Capacity:
        """Joins the run's cluster, or starts one; nothing if that is done."""
        if self._first is None or not is_on_ray():
            address = self._spec.config.cluster.address
            what = "Ray to start" if address is None else f"the Ray cluster at {address}"
            with self.waiting(what):
                from memray_eval.execution.ray import cluster

                self._first = self._stack.enter_context(
                    cluster.connected(self._spec.config.cluster)
                )
        return self.capacity

    def acquire(self, plan: RunPlan, say: Callable[[str], None]) -> RunPlan:
        """Gives the plan its executor, the order of its phases and the nodes that it starts on.
        Raises ConfigError or ResourceError if there is no room."""
        spec = plan.spec
        executor = choose_executor(spec, plan.n_units, is_on_ray=is_on_ray())
        if executor.name == "local":
            say(f"Executor: local ({executor.reason}).")
            return replace(plan, executor="local")
        phases = decide_phases(spec, plan.scan, plan.resume_state)
        is_on_gpus = engine_device(spec, self.capacity.all_gpus) == "gpu"
        if spec.metrics and not spec.has_responses and (phases.order != "together" or is_on_gpus):
            say(f"Phases: {phases.order} ({phases.reason}).")
        if self.kind != "joined":
            check_turns(spec, self.capacity, phases.order)
            return replace(plan, capacity=self.connect(), phases=phases)
        from memray_eval.execution.ray.cluster import wait_for_room
        from memray_eval.execution.ray.placement_groups import NodeReservation

        with self.waiting("nodes with room for the run"):
            held = self._stack.enter_context(NodeReservation())
            capacity = wait_for_room(spec, plan.capacity, phases.order, held, say)
        return replace(plan, capacity=capacity, phases=phases, reservation=held)


def _choose_site(spec: RunSpec) -> SiteKind:
    if choose_executor(spec, is_on_ray=is_on_ray()).name == "local":
        return "local"
    return "alone" if spec.config.cluster.address is None and not is_on_ray() else "joined"


def is_on_ray() -> bool:
    """Tells if this process has joined a Ray cluster."""
    # A process that has not imported it has not: it takes a second to import
    if "ray" not in sys.modules:
        return False
    from memray_eval.execution.ray import cluster

    return cluster.is_connected()

"""What a cluster offers, group by group: its kinds of node, and how many there may be of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from memray_eval.execution.capacity import Capacity, Node
from memray_eval.execution.plan import SLACK
from memray_eval.types import Frozen

NO_BOUND = 2147483647  # KubeRay's default of maxReplicas
COUNTED = 1000  # nodes of a group that are looked at one by one


class NodeGroup(Frozen):
    """Nodes of one kind: what one of them has, and how many there are at least and at most.
    `accelerator_type` is Ray's name (H100), and `memory_gib` None, where the file does not say."""

    name: str
    cpus: float
    gpus: int = 0
    accelerator_type: str | None = None
    memory_gib: float | None = None
    min_nodes: int
    max_nodes: int
    is_head: bool = False
    is_spot: bool = False

    @property
    def node(self) -> Node:
        """One of them."""
        return Node(cpus=self.cpus, gpus=self.gpus, accelerator_type=self.accelerator_type)

    def holds(self, cpus: float, gpus: int) -> int:
        """The number of workers of this size one node has room for."""
        by_cpu = int((self.cpus + SLACK) / cpus) if cpus else NO_BOUND
        return min(by_cpu, self.gpus // gpus) if gpus else by_cpu


class ClusterSpec(Frozen):
    """A cluster's groups of nodes, as its file offers them, the head first. `max_workers` bounds
    all workers together, where the file does."""

    where: str
    kind: Literal["RayCluster", "RayJob", "RayService", "launcher"]
    groups: tuple[NodeGroup, ...]
    max_workers: int | None = None

    @property
    def gpus(self) -> int:
        return sum(group.gpus * group.max_nodes for group in self.groups)

    def at_most(self) -> Capacity:
        """With every group at its largest, of which at most COUNTED nodes."""
        return self.with_nodes(
            {group.name: min(group.max_nodes, COUNTED) for group in self.groups}, self.where
        )

    def at_first(self) -> Capacity:
        """The capacity before the autoscaler adds anything."""
        return self.with_nodes(
            {group.name: group.min_nodes for group in self.groups}, f"{self.where} at first"
        )

    def with_nodes(self, nodes: Mapping[str, int], where: str) -> Capacity:
        """The capacity of so many nodes of each group; memory without bound if it does not say."""
        up = [group for group in self.groups for _ in range(nodes[group.name])]
        return Capacity(
            where=where,
            cpus=sum(group.cpus for group in up),
            gpus=sum(group.gpus for group in up),
            memory_gib=sum(
                math.inf if group.memory_gib is None else group.memory_gib for group in up
            ),
            nodes=tuple(group.node for group in up),
        )

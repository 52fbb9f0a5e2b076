"""What a machine or a cluster has to give."""

from __future__ import annotations

from memray_eval.types import Frozen


class Node(Frozen):
    """One node of a cluster: what Ray may hand out there, and Ray's name for the kind of its
    GPUs."""

    cpus: float
    gpus: float = 0.0
    accelerator_type: str | None = None


class Capacity(Frozen):
    """What a machine or cluster has; `nodes` where it has several."""

    where: str
    cpus: float
    gpus: float
    memory_gib: float
    nodes: tuple[Node, ...] = ()

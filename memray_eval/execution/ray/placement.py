"""Which nodes of a cluster's offer a run would take, counted without the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memray_eval.config.sections import EngineConfig, least_of, most_of
from memray_eval.errors import ConfigError
from memray_eval.execution.capacity import Capacity, Node
from memray_eval.execution.plan import (
    ENGINES,
    JUDGES,
    Device,
    Pool,
    explain_lack,
    has_room,
    placement_order,
    without,
)
from memray_eval.execution.ray.cluster_spec import NO_BOUND, ClusterSpec, NodeGroup
from memray_eval.execution.run_plan import RunSpec
from memray_eval.types import Frozen


class EngineUse(Frozen):
    """One model's engines: how many at least and at most, how many `fit`, and the GPUs of each."""

    model: str
    replicas: int
    most: int
    fit: int
    gpus: int


class Placement(Frozen):
    """The nodes of an offer that a run would be on. `nodes` of each group are up while it runs, and
    `capacity` is theirs; `judge_cpus` are the CPUs of the nodes that its judge actors are on.
    `problems` say what would keep it from starting as it is planned."""

    cluster_spec: ClusterSpec
    nodes: dict[str, int]
    capacity: Capacity
    judge_cpus: float
    engines: tuple[EngineUse, ...]
    problems: tuple[str, ...]


def plan_placement(
    cluster_spec: ClusterSpec, spec: RunSpec, waves: Sequence[Sequence[Pool]], device: Device
) -> Placement:
    """Places a run's pools, wave by wave. Raises ConfigError if an engine fits on no node."""
    models = dict.fromkeys(
        candidate.model for candidate in spec.candidates if candidate.backend == "vllm"
    )
    engines = tuple(
        _engine_use(cluster_spec, model, spec.engine_of(model), device) for model in models
    )
    placed = [_place_pools(cluster_spec, pools) for pools in waves]
    nodes = {
        group.name: max(wave.nodes[group.name] for wave in placed) for group in cluster_spec.groups
    }
    short = [
        f"engine.replicas{'' if use.replicas == use.most else '.min'} is {use.replicas}, and "
        f"{use.fit} fit ({use.model})"
        for use in engines
        if use.fit < use.replicas
    ]
    homeless = dict.fromkeys(
        name for wave in placed for name in wave.homeless if not (short and name == ENGINES)
    )
    problems = short + [
        f"not all of the {name} find room on a node, even with every group at its largest"
        for name in homeless
    ]
    if not problems:
        on_gpus = bool(models) and device == "gpu"
        problems += _check_first_wave(cluster_spec, spec, waves, on_gpus)
    return Placement(
        cluster_spec=cluster_spec,
        nodes=nodes,
        capacity=cluster_spec.with_nodes(nodes, cluster_spec.where),
        judge_cpus=max(1.0, min(wave.judge_cpus for wave in placed)),
        engines=engines,
        problems=tuple(problems),
    )


def _engine_use(
    cluster_spec: ClusterSpec, model: str, engine: EngineConfig, device: Device
) -> EngineUse:
    """The use of an engine: the workers of one part are on one node."""
    workers = engine.workers // engine.parts
    cpus, gpus = engine.cpus * workers, workers if device == "gpu" else 0
    suited = [
        group
        for group in cluster_spec.groups
        if device == "cpu" or engine.accelerator_type in (None, group.accelerator_type)
    ]
    held = {group: group.holds(cpus, gpus) for group in suited}
    stages, left = 0, NO_BOUND if cluster_spec.max_workers is None else cluster_spec.max_workers
    for group, a_node in sorted(held.items(), key=lambda held: -held[1]):
        nodes = group.max_nodes if group.is_head else min(group.max_nodes, left)
        stages, left = stages + a_node * nodes, left - (0 if group.is_head else nodes)
    if not stages:
        raise ConfigError(_explain_no_room(cluster_spec, model, engine, cpus, gpus))
    return EngineUse(
        model=model,
        replicas=least_of(engine.replicas),
        most=most_of(engine.replicas),
        fit=stages // engine.parts,
        gpus=gpus * engine.parts,
    )


class _PlacedPools(NamedTuple):
    """The nodes of some pools, the CPUs of those with judges, and the pools without room."""

    nodes: dict[str, int]
    judge_cpus: float
    homeless: tuple[str, ...]


class _RunningNode(NamedTuple):
    """A node that is up, and what it has left."""

    group: NodeGroup
    node: Node


def _place_pools(cluster_spec: ClusterSpec, pools: Sequence[Pool]) -> _PlacedPools:
    """Each actor takes the first node with room: engines where they leave the fewest GPUs over, the
    others off GPU nodes if they can. A group grows when its nodes are full."""
    up = [
        _RunningNode(group, group.node)
        for group in cluster_spec.groups
        for _ in range(group.min_nodes)
    ]
    judges, homeless = set[int](), dict[str, None]()
    for pool in placement_order(pools):
        for _ in range(pool.actors):
            index = _find_node(cluster_spec, up, pool)
            if index is None:
                homeless[pool.name] = None
                break
            group, node = up[index]
            up[index] = _RunningNode(group, without(node, pool))
            if pool.name == JUDGES:
                judges.add(index)
    nodes = {
        group.name: sum(node_up.group == group for node_up in up) for group in cluster_spec.groups
    }
    return _PlacedPools(nodes, sum(up[index].group.cpus for index in judges), tuple(homeless))


def _find_node(cluster_spec: ClusterSpec, up: list[_RunningNode], pool: Pool) -> int | None:
    """The index of a node with room for one actor, added if its group may grow; or None."""
    workers = sum(not node_up.group.is_head for node_up in up)

    # as an actor looks for room: the fewest GPUs left over, the fewest GPUs, the head last
    def rank(group: NodeGroup) -> tuple[float, int, bool]:
        left_over = group.gpus % pool.gpus if pool.gpus else group.gpus
        return left_over, group.gpus, group.is_head

    for group in sorted(cluster_spec.groups, key=rank):
        for index, node_up in enumerate(up):
            if node_up.group == group and has_room(node_up.node, pool):
                return index
        may_grow = sum(node_up.group == group for node_up in up) < group.max_nodes
        is_full = cluster_spec.max_workers is not None and workers >= cluster_spec.max_workers
        if may_grow and not is_full and has_room(group.node, pool):
            up.append(_RunningNode(group, group.node))
            return len(up) - 1
    return None


def _explain_no_room(
    cluster_spec: ClusterSpec, model: str, engine: EngineConfig, cpus: float, gpus: int
) -> str:
    needed = f"{gpus} GPUs and {cpus:g} CPUs" if gpus else f"{cpus:g} CPUs"
    if gpus and engine.accelerator_type is not None:
        needed += f" (accelerator_type {engine.accelerator_type})"
    groups = [group for group in cluster_spec.groups if group.max_nodes]
    nodes = ", ".join(
        f"{group.name}: {group.gpus} GPUs ({group.accelerator_type}) and {group.cpus:g} CPUs"
        if group.gpus
        else f"{group.name}: {group.cpus:g} CPUs"
        for group in groups
    )
    hint = "" if not gpus or any(group.gpus for group in groups) else "; or set engine.device: cpu"
    return (
        f"an engine of {model} (tensor_parallel {engine.tensor_parallel}) needs {needed} on one "
        f"node, and no node of {cluster_spec.where} has them ({nodes}){hint}"
    )


def _check_first_wave(
    cluster_spec: ClusterSpec, spec: RunSpec, waves: Sequence[Sequence[Pool]], on_gpus: bool
) -> Iterator[str]:
    """Yields what keeps a run from starting before the cluster has grown."""
    first = cluster_spec.at_first()
    if on_gpus and spec.engine.device == "auto" and not first.gpus:
        yield (
            "no GPU is up at first, and engine.device: auto would take CPUs: set engine.device=gpu"
        )
    if spec.cluster.wait_s:
        return
    why = next(filter(None, (explain_lack(pools, first) for pools in waves)), None)
    if why is not None:
        lack = why.partition(";")[0]
        yield (
            f"{lack}: set cluster.wait_s, so that the run waits for nodes, or raise the groups' "
            "minimum"
        )

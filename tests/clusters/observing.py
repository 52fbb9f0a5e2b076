"""What can be seen of a cluster from outside: its placement groups, and which node ran what."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import ray
from ray.core.generated import gcs_pb2
from ray.util.placement_group import placement_group_table

from memray_eval.execution.ray.ray_compat import held_resources


class Group(NamedTuple):
    """A placement group that is not removed."""

    id: str
    state: str
    gpus: float
    nodes: frozenset[str]


def groups() -> list[Group]:
    return [
        Group(
            name,
            group["state"],
            sum(bundle.get("GPU", 0.0) for bundle in group["bundles"].values()),
            frozenset(group["bundles_to_node_id"].values()),
        )
        for name, group in placement_group_table().items()
        if group["state"] != "REMOVED"
    ]


def describe(moments: list[list[Group]]) -> str:
    """The groups of each moment that differs from the one before: their states and GPUs, and which
    they are, numbered as they came."""
    numbers: dict[str, int] = {}
    lines = list[str]()
    for moment in moments:
        described = [
            f"{numbers.setdefault(group.id, len(numbers) + 1)}: {group.state} {group.gpus:g} GPUs"
            for group in moment
        ]
        if (line := ", ".join(sorted(described)) or "no group") not in lines[-1:]:
            lines.append(line)
    return "\n  ".join(["groups, moment by moment:", *lines])


@contextmanager
def watched_groups() -> Iterator[list[list[Group]]]:
    """Lists the groups again and again while the block runs."""
    seen: list[list[Group]] = []
    with again_and_again(lambda: seen.append(groups())):
        yield seen


@contextmanager
def watched_memory() -> Iterator[set[float]]:
    """Every amount of memory, in bytes, that an actor declares while the block runs."""
    seen: set[float] = set()
    with again_and_again(
        lambda: seen.update(holding.resources.get("memory", 0.0) for holding in held_resources())
    ):
        yield seen


@contextmanager
def again_and_again(look: Callable[[], object], every_s: float = 0.1) -> Iterator[None]:
    """Looks while the block runs."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(every_s):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10)


def nodes_by_task() -> dict[str, set[str]]:
    """The nodes that ran each task, and each actor's method, of this job."""
    job = ray.get_runtime_context().get_job_id()
    ran_on: dict[str, set[str]] = {}
    accessor = ray._private.state.state._connect_and_get_accessor()
    for raw in accessor.get_task_events():
        event = gcs_pb2.TaskEvents.FromString(raw)
        if event.job_id.hex() == job and event.state_updates.node_id:
            name = event.task_info.name
            ran_on.setdefault(name, set()).add(event.state_updates.node_id.hex())
    return ran_on

"""Every private API of Ray that runs use, each with why; job_client.py has those of submission.
tests/unit/execution/ray/test_ray_compat.py holds this, and names the one that an upgrade lacks."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ray
from ray.data import Dataset

DRIVER_LOGGERS = ("ray", "ray.data", "ray.llm", "ray._private.worker", "ray._private.services")
# A method that waits until the caller has what it yielded, which else may die with the actor
STREAMED = {"num_returns": "streaming", "_generator_backpressure_num_objects": 1}
_INTERNAL = "_ray_internal"  # the namespace of jobs that Ray runs for itself begins with it


def worker_output_path() -> str:
    """The file that takes what this worker and its child processes print; empty in a driver."""
    return str(ray._private.worker.global_worker.get_out_file_path())


def is_repeated_task() -> bool:
    """True if Ray runs this task again: it failed, or its output was lost with a node."""
    worker = ray._private.worker.global_worker
    return bool(worker.connected and worker.core_worker.get_current_task_attempt_number() > 0)


def is_restarted_actor() -> bool:
    """True if Ray restarted this actor: it died, or its node was lost. False outside an actor."""
    context = ray.get_runtime_context()
    return bool(context.get_actor_id() and context.was_current_actor_reconstructed)


def set_repartition_options(dataset: Dataset, **options: Any) -> None:
    """Gives the tasks of a repartition that was just added these options of Ray's, which it does
    not take itself: a whole CPU each could be waited for without end."""
    dataset._logical_plan.dag.ray_remote_args.update(options)


def map_batches_placed(
    dataset: Dataset, actor: type, next_options: Callable[[], dict[str, Any]], **kwargs: Any
) -> Dataset:
    """`Dataset.map_batches` whose actors are started with `next_options()` each, as Ray Data LLM
    starts its engines. The public method's own parameter for it ends with Ray 2.64."""
    return dataset.map_batches_internal(actor, ray_remote_args_fn=next_options, **kwargs)


class Held(NamedTuple):
    """The share of a node that an actor, or a bundle of a group, holds: resources by name."""

    job_id: str
    node_id: str
    resources: Mapping[str, float]


def held_resources() -> list[Held]:
    """The resources that jobs hold by living actors and placement groups, running tasks left out.
    Ray's public listings ask the dashboard, which a cluster may lack."""
    from ray.core.generated import gcs_pb2

    accessor = ray._private.state.state._connect_and_get_accessor()
    holders = []
    for raw in accessor.get_actor_table(None, "ALIVE"):
        actor = gcs_pb2.ActorTableData.FromString(raw)
        # In a placement group their names are the group's own, and its bundles are counted
        resources = dict(actor.required_resources)
        holders.append(Held(actor.job_id.hex(), actor.address.node_id.hex(), resources))
    for raw in accessor.get_placement_group_table():
        group = gcs_pb2.PlacementGroupTableData.FromString(raw)
        if group.state == gcs_pb2.PlacementGroupTableData.REMOVED:
            continue
        for bundle in group.bundles:
            if bundle.node_id:  # it has its place
                resources = dict(bundle.unit_resources)
                holders.append(Held(group.creator_job_id.hex(), bundle.node_id.hex(), resources))
    return holders


def free_resources() -> dict[str, dict[str, float]]:
    """The free resources of each node, by the node's id; some 100 ms old."""
    free: dict[str, dict[str, float]] = ray._private.state.available_resources_per_node()
    return free


def living_jobs() -> dict[str, str]:
    """Each job that has not ended, by its id, with the name it was submitted under, if it was, and
    what it runs. Ray's public listing asks the dashboard, which a cluster may lack."""
    from ray.core.generated import gcs_pb2

    accessor = ray._private.state.state._connect_and_get_accessor()
    jobs = {}
    for raw in accessor.get_job_table(
        skip_submission_job_info_field=True, skip_is_running_tasks_field=True
    ):
        job = gcs_pb2.JobTableData.FromString(raw)
        if job.is_dead or job.config.ray_namespace.startswith(_INTERNAL):
            continue
        submitted = job.config.metadata.get("job_submission_id")
        names = [name for name in (submitted, job.entrypoint) if name]
        jobs[job.job_id.hex()] = ", ".join(names)
    return jobs

"""The private APIs of Ray are in execution/ray/ray_compat.py and job_client.py, and still there;
tests/ray/test_ray_compat.py has what they do."""

import ast
import importlib
import inspect
from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path

import pytest
from ray.actor import ActorHandle
from ray.core.generated import gcs_pb2
from ray.data import Dataset
from ray.util import accelerators

from memray_eval.execution.ray.job_client import JOB_LOGGERS, JobDetails
from memray_eval.execution.ray.ray_compat import DRIVER_LOGGERS
from tests.conftest import REPOSITORY

PRODUCT = REPOSITORY / "memray_eval"
COMPAT = ("ray_compat.py", "job_client.py")
# What ray_compat.py uses of Ray's modules and classes; what instances have is tried in tests/ray
PRIVATE = [
    ("ray._private.worker", "global_worker.get_out_file_path"),
    ("ray._private.worker", "global_worker.connected"),
    ("ray._raylet", "CoreWorker.get_current_task_attempt_number"),
    ("ray._private.state", "state._connect_and_get_accessor"),
    ("ray._private.state", "available_resources_per_node"),
    ("ray._raylet", "GlobalStateAccessor.get_actor_table"),
    ("ray._raylet", "GlobalStateAccessor.get_placement_group_table"),
    ("ray._raylet", "GlobalStateAccessor.get_job_table"),
    ("ray.data", "Dataset.map_batches_internal"),
    ("ray.job_submission", "JobSubmissionClient._do_request"),
    ("ray.job_submission", "JobSubmissionClient._raise_error"),
]
PLACING = inspect.signature(Dataset.map_batches_internal).parameters
OUTSIDE = {"ray.core", "ray.dashboard", "ray.data._internal", "ray.llm"}  # of Ray's public API


@pytest.mark.parametrize(("module", "name"), PRIVATE, ids=lambda part: part)
def test_ray_still_has(module: str, name: str) -> None:
    reduce(getattr, name.split("."), importlib.import_module(module))  # or AttributeError, by name


@pytest.mark.parametrize("name", [*DRIVER_LOGGERS, *JOB_LOGGERS])
def test_ray_still_has_the_module_of_a_logger(name: str) -> None:
    assert importlib.util.find_spec(name)


def private_uses(source: str) -> Iterator[str]:
    """What a module takes of Ray beyond its public API, and of any object beyond its own."""
    for node in ast.walk(ast.parse(source)):
        names = list[str]()
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                continue
            is_own = node.attr.startswith("__") or node.attr in ("_exit", "_replace")
            if node.attr.startswith("_") and not is_own:
                yield names[0]
        for name in names:
            parts = name.split(".")
            if parts[0] == "ray" and (
                any(part.startswith("_") and not part.startswith("__") for part in parts)
                or {".".join(parts[:2]), ".".join(parts[:3])} & OUTSIDE
            ):
                yield name


@pytest.mark.parametrize(
    "path",
    [
        path
        for folder in ("execution/ray", "submission")
        for path in sorted((PRODUCT / folder).glob("*.py"))
        if path.name not in COMPAT
    ],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_what_is_private_to_ray_is_used_by_these_alone(path: Path) -> None:
    assert sorted(set(private_uses(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    ("names", "used"),
    [
        # What a job's state is read from
        (JobDetails.model_fields, "start_time end_time submission_id job_id metadata"),
        (JobDetails.model_fields, "status message driver_exit_code"),
        # The actors of a stage are placed one by one
        (PLACING, "compute batch_size batch_format zero_copy_batch fn_constructor_args"),
        (PLACING, "ray_remote_args_fn runtime_env accelerator_type num_cpus num_gpus"),
        # The accelerators that it labels nodes with
        (map(str, vars(accelerators).values()), "H100 A100 L4 T4"),
        # What jobs hold
        (gcs_pb2.ActorTableData.DESCRIPTOR.fields_by_name, "job_id address required_resources"),
        (gcs_pb2.PlacementGroupTableData.DESCRIPTOR.fields_by_name, "creator_job_id bundles state"),
        (gcs_pb2.JobTableData.DESCRIPTOR.fields_by_name, "job_id is_dead config entrypoint"),
    ],
)
def test_ray_still_has_the_names_that_are_used(names: Iterable[str], used: str) -> None:
    assert set(used.split()) <= set(names)


def test_handles_of_one_actor_are_equal() -> None:
    """Workers tell by this whether they send their log to another run than before."""
    assert ActorHandle.__eq__ is not object.__eq__

"""The private API of Ray's that needs no cluster to be looked at is still there, as
execution/ray/ray_compat.py relies on it; tests/ray/test_ray_compat.py has the rest."""

from __future__ import annotations

import inspect

import pytest
from ray.actor import ActorHandle
from ray.core.generated import gcs_pb2
from ray.data import Dataset
from ray.job_submission import JobSubmissionClient

from memray_eval.execution.ray.ray_compat import JobDetails, accelerator_names, engine_stage_class


def test_a_jobs_details_have_what_its_state_is_read_from() -> None:
    times, names = {"start_time", "end_time"}, {"submission_id", "job_id", "metadata"}
    states = {"status", "message", "driver_exit_code"}
    assert times | names | states <= JobDetails.model_fields.keys()
    assert {"submit_job", "get_job_info", "stop_job", "tail_job_logs"} <= set(
        dir(JobSubmissionClient)
    )


def test_the_actors_of_a_stage_can_be_placed_one_by_one() -> None:
    parameters = inspect.signature(Dataset.map_batches_internal).parameters
    taken = {"compute", "batch_size", "batch_format", "zero_copy_batch", "fn_constructor_args"}
    placed = {"ray_remote_args_fn", "runtime_env", "accelerator_type", "num_cpus", "num_gpus"}
    assert taken | placed <= parameters.keys()


@pytest.mark.heavy
def test_the_engine_stage_can_be_subclassed_as_ours_is() -> None:
    pytest.importorskip("vllm")
    stage = engine_stage_class()
    parameters = inspect.signature(stage._generate_with_error_handling).parameters
    assert list(parameters) == ["self", "row", "batch_uuid"]
    assert inspect.iscoroutinefunction(stage._generate_with_error_handling)
    module = inspect.getmodule(stage)
    assert inspect.iscoroutinefunction(module.vLLMEngineWrapper._generate_async)  # type: ignore[union-attr]


def test_ray_names_the_accelerators_that_it_labels_nodes_with() -> None:
    assert {"H100", "A100", "L4", "T4"} <= accelerator_names()


def test_what_jobs_hold_is_in_the_tables_that_are_read() -> None:
    fields = {
        gcs_pb2.ActorTableData: {"job_id", "address", "required_resources"},
        gcs_pb2.PlacementGroupTableData: {"creator_job_id", "bundles", "state"},
        gcs_pb2.JobTableData: {"job_id", "is_dead", "config", "entrypoint"},
    }
    for table, names in fields.items():
        assert names <= set(table.DESCRIPTOR.fields_by_name)


def test_handles_of_one_actor_are_equal() -> None:
    """Workers tell by this whether they send their log to another run than before."""
    assert ActorHandle.__eq__ is not object.__eq__

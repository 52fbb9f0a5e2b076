"""Every private API of Ray that this project uses, each with why. tests/ray/test_ray_compat.py
fails where an upgrade lacks one."""

from __future__ import annotations

from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.dashboard.modules.job.pydantic_models import JobDetails
from ray.data import Dataset
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

# The names below are public, but for JobDetails: who submits jobs takes them from here, so that Ray
# is imported in one room.
__all__ = ["AuthenticationError", "JobDetails", "JobSubmissionClient", "request_resources"]

DRIVER_LOGGERS = ("ray", "ray.data", "ray.llm", "ray._private.worker", "ray._private.services")
JOB_LOGGERS = ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")


def local_node() -> Any:
    """The node that this process started or joined, with its processes; None where it is not
    connected."""
    return ray._private.worker.global_worker.node


def set_repartition_cpus(dataset: Dataset, cpus: float) -> None:
    """Makes the tasks of a repartition that was just added ask for so many CPUs. It takes no
    options, and its tasks want a whole CPU each: beside an engine on two CPUs they would wait for
    ever."""
    dataset._logical_plan.dag.ray_remote_args["num_cpus"] = cpus


def engine_stage_class() -> Any:
    """Ray Data LLM's engine stage, to be subclassed. Importing it takes seconds."""
    from ray.llm._internal.batch.stages.vllm_engine_stage import vLLMEngineStageUDF

    return vLLMEngineStageUDF

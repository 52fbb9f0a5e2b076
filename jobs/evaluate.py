"""A run on the cluster that this process is in: the entrypoint of `ray job submit` and of KubeRay's
RayJob.

    ray job submit --address http://HEAD:8265 --working-dir . -- \
        python jobs/evaluate.py jobs/memory.yaml --out s3://bucket/results --run-id nightly-1

It takes the options of `memray-eval run` and has its exit codes. With a --run-id a job that is
started again goes on where the one before ended. `memray-eval submit` does the same from a machine
that has only the cluster's address. With `--results FILE` it is `memray-eval evaluate FILE`. With
`--rayjob` a run that no other cluster would end otherwise (exit codes 1, 2, 4) stops its Ray job:
KubeRay retries a job that FAILED, on a new cluster, and not one that is STOPPED.
"""

from __future__ import annotations

import json
import os
import sys
import time

from memray_eval.cli import program

FINAL = (1, 2, 4)  # its budget is spent, its config is wrong, its calls are in batches
STOPPED_S = 300.0  # in which also a busy Ray ends the driver of a job that it stops: this process


def stop_if_final(code: int) -> None:
    """Has Ray stop the job that this process is the driver of. Returns for other exit codes, for a
    process that is no driver, and if the cluster does not answer: then the job FAILED."""
    if code not in FINAL:
        return
    try:
        from memray_eval.execution.ray.job_client import JobClient

        job = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])
        print(f"exit code {code}: this Ray job is stopped, so that it is not retried", flush=True)
        JobClient().stop_job(job["metadata"]["job_submission_id"])
        time.sleep(STOPPED_S)
    except Exception as error:  # Ray raises whatever comes
        print(f"warning: it could not be stopped, and is retried: {error}", flush=True)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--rayjob"]
    judges = any(word.partition("=")[0] == "--results" for word in words)
    command = ["evaluate"] if judges else ["run", "--set", "cluster.address=auto"]
    is_rayjob = len(words) < len(sys.argv) - 1
    sys.argv[1:] = [*command, *words]
    program(*([stop_if_final] if is_rayjob else []))

"""Wraps Ray's job API, with errors that say what to do."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from urllib.parse import urlsplit

from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution.interrupts import DRAIN_S
from memray_eval.execution.ray.ray_compat import (
    JOB_LOGGERS,
    TOKEN_ADVICE,
    JobClient,
    JobDetails,
)
from memray_eval.storage.scratch import ScratchFolder
from memray_eval.submission.package import Package
from memray_eval.submission.watch import JobState

for _name in JOB_LOGGERS:
    # They report each upload and stream; we report once
    logging.getLogger(_name).setLevel(logging.WARNING)

# Ray's time between a job's SIGTERM and SIGKILL, 3 s unless it is set: enough to end in order.
STOP_WAIT = {"RAY_JOB_STOP_WAIT_TIME_S": str(int(DRAIN_S) + 5)}


class Jobs:
    """The jobs of the cluster whose dashboard is at `address` (http://HOST:8265). Methods raise
    ResourceError if it does not answer or take the token, ConfigError for an unknown job."""

    def __init__(self, address: str | None) -> None:
        self.address = normalise_address(address)
        # Ray's client would let this variable overrule its argument
        os.environ["RAY_API_SERVER_ADDRESS"] = self.address
        try:
            self._client = JobClient(self.address)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:  # a server, and not Ray's
            raise ResourceError(
                f"what answers at {self.address} is not a Ray dashboard: {error}"
            ) from None

    def submit(self, package: Package) -> str:
        """Sends the package, unless the cluster has it already, and starts the job; returns its id.
        It gets no environment variable but the time it has to end when it is stopped: what the
        nodes have, it has. Raises ConfigError if a job is at work on its run."""
        run_id = package.metadata["run_id"]
        if busy := [job.job_id for job in self.list() if job.run_id == run_id and not job.is_over]:
            raise ConfigError(
                f"run {run_id} is at work as job {busy[0]}; follow it, or stop it first "
                "(`memray-eval job --help`)"
            )
        with ScratchFolder("submit") as folder:
            path = Path(folder) / "job.zip"
            path.write_bytes(package.data)
            job_id: str = self._client.submit_job(
                entrypoint=package.entrypoint,
                runtime_env={"working_dir": str(path), "env_vars": STOP_WAIT},
                metadata=dict(package.metadata),
            )
        return job_id

    def state(self, name: str) -> JobState:
        """The job of that id, or the last one of the run of that id."""
        return _to_state(self._client.get_job_info(self._find_id(name)))

    def stop(self, name: str) -> bool:
        """Asks the job to end; False if it has ended already."""
        return bool(self._client.stop_job(self._find_id(name)))

    def log(self, name: str) -> str:
        """All that it has printed so far."""
        return str(self._client.get_job_logs(self._find_id(name)))

    def list(self) -> list[JobState]:
        """The submitted jobs, oldest first."""
        submitted = (details for details in self._client.list_jobs() if details.submission_id)
        return sorted(map(_to_state, submitted), key=lambda job: job.started_s or float("inf"))

    def _find_id(self, name: str) -> str:
        jobs = self.list()
        if any(job.job_id == name for job in jobs):
            return name
        if of_run := [job.job_id for job in jobs if job.run_id == name]:
            return of_run[-1]
        raise ConfigError(
            f"no job and no run {name!r} at {self.address}; `memray-eval job list` shows what "
            "there is"
        )


def normalise_address(address: str | None) -> str:
    """The dashboard's address as Ray's client wants it. Raises ConfigError if it is not one."""
    if "@" in (address or ""):
        raise ConfigError(
            f"--address has a user or password in it; leave them out. {TOKEN_ADVICE}."
        )
    try:
        parts = urlsplit(address or "")
    except ValueError:  # a bracket without its other one
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        subject = f"--address {address!r} is" if address else "there is no --address, which is"
        raise ConfigError(
            f"{subject} not the address of a cluster's dashboard: http://HEAD:8265 (or set "
            "RAY_API_SERVER_ADDRESS)"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _to_state(details: JobDetails) -> JobState:
    metadata = details.metadata or {}
    return JobState(
        job_id=details.submission_id or details.job_id or "",
        status=str(details.status.value),
        run_id=metadata.get("run_id"),
        suite=metadata.get("suite"),
        samples=metadata.get("samples"),
        out=metadata.get("out"),
        message=details.message,
        driver_exit_code=details.driver_exit_code,
        started_s=None if not details.start_time else details.start_time / 1000,
        ended_s=None if not details.end_time else details.end_time / 1000,
    )

"""The commands for a cluster elsewhere: submit, and job status, stop, logs, list."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from memray_eval.cli.app import CLUSTER, app, say, show
from memray_eval.cli.options import CONFIG, JobOptions, argument, flag, option, takes
from memray_eval.text_processing.values import escape_controls

if TYPE_CHECKING:
    from memray_eval.submission.package import Jobs, JobState

DETACHED = 130

ADDRESS = option(
    "The cluster's dashboard: http://HEAD:8265. With token authentication: RAY_AUTH_MODE=token and "
    "RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, in this shell.",
    envvar=["RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"],
    show_default=False,
)
JOB = argument("Id of a job, or of a run (its last job).")
FOLLOW = flag("Print the job's output until it ends; Ctrl-C detaches.", None, "--follow", "-f")

job_app = typer.Typer(no_args_is_help=True, help="Manage jobs on a cluster, through Ray's job API.")
app.add_typer(job_app, name="job", rich_help_panel=CLUSTER)


@app.command(
    rich_help_panel=CLUSTER, epilog="Example: memray-eval submit job.yaml --run-id night-1"
)
@takes("config address follow no_wait limit out run_id yes settings")
def submit(
    options: JobOptions,
    config: Path = CONFIG,
    address: str | None = ADDRESS,
    follow: bool = FOLLOW,
    no_wait: bool = flag("Return as soon as the cluster has the job.", None, "--no-wait"),
) -> None:
    """Run a job on a cluster: package it, send it, wait, and exit with its exit code.

    API keys stay on the nodes (a Kubernetes secret, docker's --env-file); a job that contains one
    is refused. A local dataset of up to 4 MB is sent along; a larger one and the results belong on
    s3://, gs:// or a folder that all nodes share. Submitting again with the same --run-id
    continues where the run stopped. Exit code 3 if the cluster cannot be reached."""
    from memray_eval.benchmarks.own import suite_name
    from memray_eval.execution.prepare.resolve import resolve_reading
    from memray_eval.execution.prepare.scanning import scan_dataset
    from memray_eval.execution.runs import check_run_id
    from memray_eval.results.run_folder import new_run_id
    from memray_eval.submission.package import make_package

    job, run_id = options.load_job(config), options.run_id
    if run_id is None:
        run_id = new_run_id(job.dataset, job.measured or (suite_name(job.suite),))
    package = make_package(job, check_run_id(run_id), os.environ, options.yes)
    # One elsewhere is looked at by the job itself, and so is what a reader of one's own reads
    if "://" not in job.dataset and job.reader is None:
        package = package.with_samples(
            scan_dataset(resolve_reading(job).with_columns(say), []).n_samples
        )
    jobs = _connect(address)
    job_id = jobs.submit(package)
    say(
        f"Run {run_id} is job {job_id} at {jobs.address}: {package.n_files} files, "
        f"{len(package.data) / 1e6:.2f} MB."
    )
    if no_wait:
        show(job_id)
        say(_describe_watching(jobs, job_id))
        return
    _wait_and_exit(jobs, job_id, follow)


@job_app.command(epilog="Example: memray-eval job status JOB")
def status(
    job: str = JOB, address: str | None = ADDRESS, as_json: bool = JobOptions.as_json
) -> None:
    """Print a job's status. Exits with 0 whatever it is."""
    state = _connect(address).state(job)
    show(state.model_dump_json(indent=2) if as_json else _describe_state(state))


@job_app.command(epilog="Example: memray-eval job stop JOB")
def stop(job: str = JOB, address: str | None = ADDRESS) -> None:
    """Stop a job. To resume its run, submit it again with the same --run-id."""
    jobs = _connect(address)
    state = jobs.state(job)
    if not jobs.stop(state.job_id):
        say(f"It had ended already: {_describe_state(state)}")
        return
    # Not submitted by us
    go_on = (
        f" Go on with `memray-eval submit CONFIG --run-id {state.run_id}`." if state.run_id else ""
    )
    say(f"Job {state.job_id} is being stopped.{go_on}")


@job_app.command(epilog="Example: memray-eval job logs JOB")
def logs(job: str = JOB, address: str | None = ADDRESS, follow: bool = FOLLOW) -> None:
    """Print a job's output; with --follow until it ends, then exit with its exit code."""
    jobs = _connect(address)
    if follow:
        _wait_and_exit(jobs, jobs.state(job).job_id, follow)
    show(jobs.log(job), end="")


@job_app.command("list", epilog="Example: memray-eval job list")
def list_jobs(address: str | None = ADDRESS, as_json: bool = JobOptions.as_json) -> None:
    """List the jobs submitted to the cluster, oldest first."""
    for state in _connect(address).list():
        show(state.model_dump_json() if as_json else _describe_state(state))


def _connect(address: str | None) -> Jobs:
    # Ray takes a second to import: only if it is used
    from memray_eval.submission.package import Jobs

    return Jobs(address)


def _wait_and_exit(jobs: Jobs, job_id: str, shown: bool) -> None:
    """Waits until the job is over, then exits with its code. Ctrl-C detaches and leaves it
    running."""
    from memray_eval.submission.package import watch

    def print_log(text: str) -> None:
        sys.stdout.write(escape_controls(text))
        sys.stdout.flush()

    try:
        state = watch(jobs, job_id, print_log if shown else None)
    except KeyboardInterrupt:
        say(f"\nDetached; the job goes on. {_describe_watching(jobs, job_id)}")
        raise typer.Exit(DETACHED) from None
    say(_describe_state(state))
    if state.status == "FAILED" and state.driver_exit_code is None and state.message:
        say(state.message)
    raise typer.Exit(state.exit_code)


def _describe_watching(jobs: Jobs, job_id: str) -> str:
    at = f"{job_id} --address {jobs.address}"
    return (
        f"Watch it with `memray-eval job logs --follow {at}`, end it with `memray-eval job stop "
        f"{at}`."
    )


def _describe_state(state: JobState) -> str:
    words = [state.job_id, state.status]
    if state.run_id:
        words.append(f"run {state.run_id}")
    if state.samples:
        words.append(f"{state.samples} samples")
    if state.started_s is not None:
        words.append(f"{(state.ended_s or time.time()) - state.started_s:.0f} s")
    if state.status == "FAILED":
        words.append(f"exit code {state.exit_code}")
    return "  ".join(words) + (
        f"  -> {state.out}/{state.run_id}" if state.out and state.run_id else ""
    )

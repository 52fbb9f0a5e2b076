"""Builds the package that a job takes to the cluster: one small zip with the code, the config, and
the config's own files; sends it through Ray's job API (http://HEAD:8265), and follows the job.

memray_eval/...     the code, so that a cluster needs its dependencies only; it precedes an
                    installed one
job.yaml            the resolved config, its paths relative to the package
files/dataset/NAME  a local dataset
files/...           templates, prompts/N, rubrics/N and judges, likewise

The same run makes the same bytes, so a package is sent to a cluster once.
"""

from __future__ import annotations

import io
import logging
import os
import shlex
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from memray_eval._version import PACKAGE
from memray_eval.benchmarks.own import suite_name
from memray_eval.config.schema import DEFAULT_OUT, RunConfig
from memray_eval.config.secrets import held_keys, refuse_keys, refuse_keys_in_file, variables_of
from memray_eval.config.sections import names_a_file, names_a_text_file
from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution.interrupts import DRAIN_S
from memray_eval.execution.ray.job_client import JOB_LOGGERS, TOKEN_ADVICE, JobClient, JobDetails
from memray_eval.extensions import read_own_file, split_reference
from memray_eval.storage.leases import ScratchFolder
from memray_eval.storage.paths import JOB_FILE
from memray_eval.types import Frozen

CONFIG_FILE = "job.yaml"
# Of the package, compressed; of a dataset in it, as it lies
MAX_BYTES, MAX_DATASET_BYTES = 5_000_000, 4_000_000
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Package(Frozen):
    """A job's zip, the command that starts its driver, and the metadata for the job list."""

    data: bytes
    n_files: int
    entrypoint: str
    metadata: dict[str, str]

    def with_samples(self, n_samples: int) -> Package:
        """Returns the package with the number of samples in its metadata."""
        return self.model_copy(update={"metadata": self.metadata | {"samples": str(n_samples)}})


def make_package(
    config: RunConfig, run_id: str, environ: Mapping[str, str], yes: bool = False
) -> Package:
    """Packs a run. `environ` is this machine's environment, whose keys must not be in the package;
    `yes` lets the run start without a budget. Raises ConfigError for a key in the config or its
    files, a dataset that is too large to send, and results that would be lost."""
    refuse_keys(config, environ)
    if "://" not in config.out and config.out == str(Path.cwd() / DEFAULT_OUT):
        raise ConfigError(
            "the results would be written on a node of the cluster and be lost with it: name a "
            "place that all nodes reach, --out s3://BUCKET/results or a shared folder"
        )
    packed = _PackedFiles(held_keys(environ, variables_of(config)))
    moved = yaml.safe_dump(_relocate_files(config, packed), sort_keys=False, allow_unicode=True)
    code = {f"memray_eval/{name}": file.read_bytes() for name, file in _files_below(PACKAGE)}
    files = {**code, **packed.files, CONFIG_FILE: moved.encode()}
    data = _zip(files)
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"the package would have {len(data) / 1e6:.1f} MB, over {MAX_BYTES / 1e6:g} MB: put "
            "the dataset on s3:// or gs://, or name a folder that all nodes have with file:///..."
        )
    words = ["python", "-m", "memray_eval", "run", CONFIG_FILE, "--run-id", run_id]
    words += ["--yes"] if yes else []
    metadata = {"run_id": run_id, "suite": suite_name(config.suite), "out": config.out}
    return Package(data=data, n_files=len(files), entrypoint=shlex.join(words), metadata=metadata)


class _PackedFiles:
    """Collects the files of a config for the package, each read once and checked for keys."""

    def __init__(self, held: Mapping[str, str]) -> None:
        self._held, self._n_own = held, 0
        self.files: dict[str, bytes] = {}

    def pack(self, what: str, path: str, folder: str, is_text: bool = True) -> str:
        """Packs a file as `put` does, and returns its place as a job:// path, which every node
        reads from its own copy. A URL stays as it is."""
        if "://" in path:
            return path
        mend = f"file://{path} is one that the nodes have"
        return JOB_FILE + self.put(what, path, folder, is_text, mend)

    def put(
        self,
        what: str,
        path: str,
        folder: str,
        is_text: bool = True,
        mend: str = "name a file of this machine",
    ) -> str:
        """Packs a file or folder; returns its place in the package. Raises ConfigError."""
        target = f"{folder}/{Path(path).name}"
        sources = [] if "://" in path else list(_files_below(Path(path)))
        if not sources:
            raise ConfigError(f"{what}: there is no {path} here to be sent; {mend}")
        for relative, file in sources:
            try:
                data = file.read_bytes()
            except OSError as error:
                raise ConfigError(
                    f"{what}: cannot read {file} to send it: {error.strerror}"
                ) from None
            refuse_keys_in_file(f"{what}: {file}", data, self._held, is_text)
            self.files[f"{target}/{relative}" if relative else target] = data
        return target

    def relocate(self, what: str, value: Any) -> Any:
        """Packs the files of code, rubrics and templates that a config's value names, with what
        they import; returns it with their places in the package."""
        if isinstance(value, dict):
            return {key: self.relocate(f"{what}.{key}", item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.relocate(what, item) for item in value]
        if not isinstance(value, str):
            return value
        path, attribute = split_reference(value) or ("", "")
        folder = f"files/own/{self._n_own}"
        if not path.endswith(".py"):
            is_file = names_a_text_file(value)
            self._n_own += is_file
            return self.put(what, value, folder) if is_file else value
        self._n_own += 1
        file = read_own_file(path)
        for name, _ in file.sources:
            target = (Path(folder) / name).parent.as_posix()
            self.put(f"{what}: {path}", str(Path(path).parent / name), target)
        return ":".join(filter(None, (f"{folder}/{file.name}", attribute)))


def _relocate_files(config: RunConfig, packed: _PackedFiles) -> dict[str, Any]:
    """The config as a mapping, with its paths pointing into the package. Data read on all nodes,
    and prompts, whose paths are part of units' identity, are job:// paths."""
    data = config.model_dump(mode="json")
    data["cluster"]["address"] = "auto"
    for key in ("dataset", "samples", "ids", "templates", "errata"):
        if (path := getattr(config, key)) is not None:
            if is_data := key in ("dataset", "samples"):
                _check_dataset(path)
            data[key] = packed.pack(key, path, f"files/{key}", is_text=not is_data)
    for number, candidate in enumerate(data["candidates"]):
        if names_a_file(path := candidate["prompt"]):
            key, folder = f"candidates.{number}.prompt", f"files/prompts/{number}"
            candidate["prompt"] = packed.pack(key, path, folder)
    for number, (key, rubric) in enumerate(config.rubrics.items()):
        if names_a_file(rubric):  # relative to job.yaml, as load_config has it
            data["rubrics"][key] = packed.put(f"rubrics.{key}", rubric, f"files/rubrics/{number}")
    for key in ("suite", "reader", "metrics", "include", "servers"):
        data[key] = packed.relocate(key, data[key])
    for candidate in data["candidates"]:
        candidate["memory"] = packed.relocate("memory", candidate["memory"])
    # relative to the working directory
    if (models := config.judging.models) is not None:
        data["judging"]["models"] = packed.put("judging.models", models, "files/judges")
    return data


def _check_dataset(path: str) -> None:
    if "://" in path:
        return
    # Not a link to nowhere
    size = sum(file.stat().st_size for _, file in _files_below(Path(path)) if file.exists())
    if size > MAX_DATASET_BYTES:
        raise ConfigError(
            f"dataset: {path} has {size / 1e6:.1f} MB and {MAX_DATASET_BYTES / 1e6:g} MB may "
            "travel with a job: put it on s3:// or gs://, or name one that all nodes have with "
            "file:///..."
        )


def _files_below(path: Path) -> Iterator[tuple[str, Path]]:
    """A file as ("", itself), or a folder's files by name, without hidden ones and caches."""
    if path.is_file():
        yield "", path
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name != "__pycache__"
        )
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith(".pyc"):
                file = Path(folder) / name
                yield file.relative_to(path).as_posix(), file


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


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
        **{name: metadata.get(name) for name in ("run_id", "suite", "samples", "out")},
        message=details.message,
        driver_exit_code=details.driver_exit_code,
        started_s=None if not details.start_time else details.start_time / 1000,
        ended_s=None if not details.end_time else details.end_time / 1000,
    )


POLL_S = 2.0
PATIENCE_S = 120.0  # how long the cluster may be out of reach before we say so and go
NO_EXIT_CODE = 3  # of a job whose driver never ran, or whose node was lost


class JobState(Frozen):
    """A job's state as the cluster reports it, times in epoch seconds. `run_id`, `suite`, `samples`
    and `out` are what `submit` noted."""

    job_id: str
    status: str
    run_id: str | None = None
    suite: str | None = None
    samples: str | None = None
    out: str | None = None
    message: str | None = None
    driver_exit_code: int | None = None
    started_s: float | None = None
    ended_s: float | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")

    @property
    def exit_code(self) -> int:
        """0 for a job that succeeded; the driver's own code if it failed, 128 + n when signal n
        ended it, NO_EXIT_CODE when there is none; 1 for one that was stopped, and while it runs."""
        if self.status == "SUCCEEDED":
            return 0
        if self.status != "FAILED":
            return 1
        code = self.driver_exit_code
        return NO_EXIT_CODE if not code else 128 - code if code < 0 else code


def watch(
    jobs: Jobs,
    job_id: str,
    write: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> JobState:
    """Waits until the job is over and returns its last state; `write` gets what it prints, each
    character once. Raises ResourceError when the cluster is out of reach for over PATIENCE_S."""
    reached, n_written = clock(), 0
    while True:
        try:
            state = jobs.state(job_id)  # before the log, which is whole once the job is over
            reached = clock()
        except ResourceError:
            if clock() - reached > PATIENCE_S:
                raise
        else:
            if write is not None:
                with suppress(ResourceError):  # the log may have gone with its node
                    text = jobs.log(job_id)
                    write(text[n_written:])
                    n_written = max(n_written, len(text))
            if state.is_over:
                return state
        sleep(POLL_S)

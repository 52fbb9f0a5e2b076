"""Builds the package that a job takes to the cluster: one small zip with the code, the config, and
the config's own files.

memray_eval/...     the code, so that a cluster needs its dependencies only; it precedes an
                    installed one
job.yaml            the resolved config, its paths relative to the package
files/dataset/NAME  a local dataset
files/...           templates, prompts/N, rubrics/N and judges, likewise

The same run makes the same bytes, so a package is sent to a cluster once.
"""

from __future__ import annotations

import io
import os
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from memray_eval._version import PACKAGE
from memray_eval.benchmarks.own import suite_name
from memray_eval.config.schema import DEFAULT_OUT, RunConfig
from memray_eval.config.secrets import held_keys, refuse_keys, refuse_keys_in_file, variables_of
from memray_eval.config.sections import names_a_file, names_a_text_file
from memray_eval.errors import ConfigError
from memray_eval.extensions import read_own_file, split_reference
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
        self._held = held
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


def _relocate_files(config: RunConfig, packed: _PackedFiles) -> dict[str, Any]:
    """The config as a mapping, with its paths pointing into the package. Data read on all nodes,
    and prompts, whose paths are part of units' identity, are job:// paths."""
    _check_dataset(config.dataset)
    data = config.model_dump(mode="json")
    data["cluster"]["address"] = "auto"
    data["dataset"] = packed.pack("dataset", config.dataset, "files/dataset", is_text=False)
    if config.samples is not None:
        _check_dataset(config.samples)
        data["samples"] = packed.pack("samples", config.samples, "files/samples", is_text=False)
    for key in ("ids", "templates", "errata"):
        if (path := getattr(config, key)) is not None:
            data[key] = packed.pack(key, path, f"files/{key}")
    for number, candidate in enumerate(config.candidates):
        if names_a_file(candidate.prompt):
            key, folder = f"candidates.{number}.prompt", f"files/prompts/{number}"
            data["candidates"][number]["prompt"] = packed.pack(key, candidate.prompt, folder)
    for number, (key, rubric) in enumerate(config.rubrics.items()):
        if names_a_file(rubric):  # relative to job.yaml, as load_config has it
            data["rubrics"][key] = packed.put(f"rubrics.{key}", rubric, f"files/rubrics/{number}")
    own = _OwnFiles(packed)
    for key in ("suite", "reader", "metrics", "include", "servers"):
        data[key] = own.relocate(key, data[key])
    for candidate in data["candidates"]:
        candidate["memory"] = own.relocate("memory", candidate["memory"])
    # relative to the working directory
    if (models := config.judging.models) is not None:
        data["judging"]["models"] = packed.put("judging.models", models, "files/judges")
    return data


class _OwnFiles:
    """Packs the files of code, rubrics and templates that a config's values name, with what they
    import, and names their places in the package."""

    def __init__(self, packed: _PackedFiles) -> None:
        self._packed, self._n = packed, 0

    def relocate(self, what: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.relocate(f"{what}.{key}", item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.relocate(what, item) for item in value]
        if not isinstance(value, str):
            return value
        path, attribute = split_reference(value) or ("", "")
        if path.endswith(".py"):
            return ":".join(filter(None, (self._put_code(what, path), attribute)))
        if names_a_text_file(value):
            return self._packed.put(what, value, self._folder())
        return value

    def _put_code(self, what: str, path: str) -> str:
        file, folder = read_own_file(path), self._folder()
        for name, _ in file.sources:
            target = (Path(folder) / name).parent.as_posix()
            self._packed.put(f"{what}: {path}", str(Path(path).parent / name), target)
        return f"{folder}/{file.name}"

    def _folder(self) -> str:
        self._n += 1
        return f"files/own/{self._n - 1}"


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

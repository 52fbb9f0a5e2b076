"""The run folder: where a run's config, records and summaries are written and read back.

results/<run_id>/run.yaml            the resolved config, no secrets
                 manifest.json       versions, dataset fingerprint, judge per metric, timings,
                                     counts, status
                 records/*.parquet   one row per unit
                 problems.jsonl      the dataset's invalid entries, when a run skipped them
                 disagreements.jsonl the units that judge and rule disagree on, where both scored
                 summary.json, summary.txt
                 log.jsonl           what the run logged (execution/run_log.py)
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import yaml
from pyarrow import fs
from pydantic import ValidationError

from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, DataError
from memray_eval.results.schema import RECORD_SCHEMA, from_table_apart
from memray_eval.storage.leases import hold_lease, taken_over_error
from memray_eval.storage.paths import (
    is_object_store,
    locate,
    translate_cloud_errors,
    whole_file,
    write_whole,
)
from memray_eval.types import DISAGREEMENTS, Frozen, Record, Summary

Kind = Literal["records", "responses"]
RECORDS: Kind = "records"
RESPONSES: Kind = "responses"
LOCK, LEASE = ".lock", ".lease"  # mark a folder in use: on a local disk, and in the cloud


class RunFolder:
    """One run's folder, on a local path or a cloud URL. Every file appears whole or not at all."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._filesystem, self._inner = locate(self.path)
        self._is_lost: Callable[[], bool] = bool

    @property
    def run_id(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def local_path(self) -> Path | None:
        """Where the folder lies on this machine's disk; None where it lies elsewhere."""
        return Path(self._inner) if isinstance(self._filesystem, fs.LocalFileSystem) else None

    def create(self) -> None:
        """Creates the folder. Raises ConfigError if it cannot be written; in an object store that
        shows only at the first object."""
        if is_object_store(self._filesystem):
            return
        try:
            for kind in (RECORDS, RESPONSES):
                self._filesystem.create_dir(f"{self._inner}/{kind}", recursive=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make the run folder {self.path}: {error}; name another place with --out"
            ) from None

    def write_config(self, values: Mapping[str, Any]) -> None:
        """Writes the run's resolved config, as plain values."""
        self._write("run.yaml", yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        self._write("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    def read_config(self) -> Any:
        """The values that write_config wrote. Raises DataError where there are none, or they are no
        YAML."""
        try:
            return parse_yaml(self._read("run.yaml").decode("utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise DataError(
                f"{self.path}/run.yaml is not a config of this version: {error}"
            ) from None

    @contextmanager
    def held(
        self, lease: Callable[..., AbstractContextManager[Callable[[], bool]]] = hold_lease
    ) -> Iterator[None]:
        """Keeps other processes out of the run folder while the block runs: on a local disk by a
        file lock, in the cloud by a lease. After losing the lease, this folder refuses to write.
        Raises ConfigError if another process is at work, and what `hold_lease` raises."""
        if not isinstance(self._filesystem, fs.LocalFileSystem):
            with lease(self._filesystem, f"{self._inner}/{LEASE}", self.path) as self._is_lost:
                yield
            return
        with ExitStack() as stack:
            try:
                lock = stack.enter_context(open(f"{self._inner}/{LOCK}", "w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another process is at work in {self.path}; wait for it, or end it first"
                ) from None
            except OSError as error:
                raise ConfigError(
                    f"cannot keep {self.path} to this process: {error}; is it yours to write?"
                ) from None
            yield

    def has_manifest(self) -> bool:
        """Whether a run has begun in this folder."""
        return self._has_file("manifest.json")

    def has_config(self) -> bool:
        """Whether the folder holds a run's config."""
        return self._has_file("run.yaml")

    def read_manifest(self) -> dict[str, Any]:
        """Reads the manifest. Raises DataError if it is missing or not a JSON object."""
        try:
            return dict(json.loads(self._read("manifest.json")))
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}/manifest.json is not JSON of a run: {error}") from None

    def write_problems(self, problems: Iterable[Frozen]) -> None:
        self._write(
            "problems.jsonl", "".join(problem.model_dump_json() + "\n" for problem in problems)
        )

    def write_disagreements(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Writes one line of JSON per row and returns how many. Replaces what an earlier session
        wrote, unless `rows` raises."""
        count = 0
        with (
            translate_cloud_errors(self.path),
            whole_file(self._filesystem, f"{self._inner}/{DISAGREEMENTS}") as file,
        ):
            for row in rows:
                count += 1
                file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        return count

    def write_summary(self, summary: Summary, text: str) -> None:
        self._write("summary.json", summary.model_dump_json(indent=2) + "\n")
        self._write("summary.txt", text)

    def read_summary(self) -> Summary:
        """Reads the summary. Raises DataError if it is missing or invalid."""
        try:
            return Summary.model_validate_json(self._read("summary.json"))
        except ValidationError as error:
            raise DataError(
                f"{self.path}/summary.json is not a summary of this version: {error.error_count()} "
                "problems"
            ) from None

    def write_log(self, name: str, data: bytes) -> None:
        """Writes one of the files of the run's log whole; for a folder that is not local."""
        self._write(name, data.decode("utf-8", "replace"))  # a full disk cuts lines anywhere

    def read_log(self, name: str) -> bytes:
        """Raises DataError where there is none."""
        return self._read(name)

    def write_part(self, table: pa.Table, kind: Kind = RECORDS) -> str:
        """Writes a block as one file, named after its units, so that a retried task overwrites the
        same file. Returns the file's name."""
        units = "\n".join(table.column("unit_id").to_pylist())
        name = f"part-{hashlib.blake2b(units.encode(), digest_size=8).hexdigest()}.parquet"
        buffer = io.BytesIO()
        pq.write_table(table.cast(RECORD_SCHEMA), buffer, compression="zstd")
        with translate_cloud_errors(self.path):
            write_whole(self._filesystem, f"{self._inner}/{kind}/{name}", buffer.getvalue())
        return name

    def parts(self, kind: Kind = RECORDS) -> list[str]:
        """Lists the names of the parts written so far, sorted."""
        selector = fs.FileSelector(f"{self._inner}/{kind}", allow_not_found=True)
        with translate_cloud_errors(self.path):
            infos = self._filesystem.get_file_info(selector)
        return sorted(info.base_name for info in infos if info.base_name.endswith(".parquet"))

    def read_part(
        self, name: str, kind: Kind = RECORDS, columns: list[str] | None = None
    ) -> pa.Table:
        with translate_cloud_errors(self.path):
            return pq.read_table(
                f"{self._inner}/{kind}/{name}", columns=columns, filesystem=self._filesystem
            )

    def delete_part(self, name: str, kind: Kind = RECORDS) -> None:
        with translate_cloud_errors(self.path):
            self._filesystem.delete_file(f"{self._inner}/{kind}/{name}")

    def last_written(self) -> float:
        """When the folder was last written to, in epoch seconds; 0.0 for an empty one."""
        selector = fs.FileSelector(self._inner, recursive=True, allow_not_found=True)
        with translate_cloud_errors(self.path):
            infos = self._filesystem.get_file_info(selector)
        moments = (
            info.mtime.timestamp()
            for info in infos
            if info.mtime is not None and info.base_name not in (LOCK, LEASE)
        )
        return max(moments, default=0.0)

    def delete_responses(self) -> None:
        """Deletes the responses kept for a resume, if there are any."""
        with translate_cloud_errors(self.path):
            if (
                self._filesystem.get_file_info(f"{self._inner}/{RESPONSES}").type
                == fs.FileType.Directory
            ):
                self._filesystem.delete_dir(f"{self._inner}/{RESPONSES}")

    def records(self) -> pads.Dataset:
        """All records written so far, as an Arrow dataset. Raises DataError if there are none."""
        files = [f"{self._inner}/{RECORDS}/{name}" for name in self.parts()]
        if not files:
            raise DataError(f"{self.path} holds no records")
        return pads.dataset(
            files, schema=RECORD_SCHEMA, format="parquet", filesystem=self._filesystem
        )

    def each(self) -> Iterator[Record]:
        """Yields all records, holding one block in memory at a time. A row that broke a stage and
        no longer reads as a record is left out."""
        for batch in self.records().to_batches():
            yield from from_table_apart(
                pa.Table.from_batches([batch]), lambda sample_id, error: None
            )[0]

    def _has_file(self, name: str) -> bool:
        with translate_cloud_errors(self.path):
            info = self._filesystem.get_file_info(f"{self._inner}/{name}")
        return bool(info.type == fs.FileType.File)

    def _write(self, name: str, text: str) -> None:
        if self._is_lost():
            raise taken_over_error(self.path)
        with translate_cloud_errors(self.path):
            write_whole(self._filesystem, f"{self._inner}/{name}", text.encode())

    def _read(self, name: str) -> bytes:
        try:
            with (
                translate_cloud_errors(self.path),
                self._filesystem.open_input_stream(f"{self._inner}/{name}") as stream,
            ):
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                f"{self.path} has no {name}; give the folder of a finished run (results/<run_id>)"
            ) from None


def new_run_id(suite: str, candidate: str) -> str:
    """suite-candidate-time-random: sorts by suite and time, and two runs of one second differ."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    name = "".join(letter if letter.isalnum() else "-" for letter in candidate)[:32]
    return f"{suite}-{name}-{stamp}-{secrets.token_hex(2)}"

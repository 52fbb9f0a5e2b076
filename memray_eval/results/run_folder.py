"""The run folder: where a run's config, records and summaries are written and read back.

results/<run_id>/run.yaml            the resolved config, no secrets
                 manifest.json       format, versions, dataset fingerprint, judge per metric,
                                     timings, counts, status
                 records/*.parquet   one row per unit, in parts of up to 2,048 (results/parts.py)
                 responses/*.parquet the same of units that are not judged yet; deleted at the end
                 spending.json       what judge calls have cost so far, for a resumed run's budget
                 problems.jsonl      the dataset's invalid entries, when a run skipped them
                 disagreements.jsonl the units that judge and rule disagree on, where both scored
                 summary.json, summary.txt
                 scan.json           what the scan of the dataset found, for resumes
                 pairs.json          the figures of a pairwise run (analysis/pairs.py)
                 log.jsonl           what the run logged (execution/run_log.py)
                 sinks/*/*.parquet   the events that a sink has sent (sinks/otlp.py)
                 batches/            what was sent to batch APIs (judges/batches/journal.py)
"""

import fcntl
import io
import json
import logging
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import yaml
from pyarrow import fs
from pydantic import ValidationError

from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, DataError, reason_of
from memray_eval.results.parts import (
    Part,
    UnitIndex,
    UnitNumbers,
    digest_name,
    encode_part,
    index_file,
    index_in,
    join_rows,
    new_part_name,
    unit_numbers,
)
from memray_eval.results.schema import RECORD_SCHEMA, from_table_apart
from memray_eval.storage.leases import ScratchFolder, hold_lease, taken_over_error
from memray_eval.storage.paths import (
    GCS,
    REQUESTS_AT_ONCE,
    did_you_mean,
    is_object_store,
    locate,
    map_ahead,
    translate_cloud_errors,
    whole_file,
    write_whole,
)
from memray_eval.types import DISAGREEMENTS, Record, Summary

Kind = Literal["records", "responses"]
RECORDS: Kind = "records"
RESPONSES: Kind = "responses"
LOCK, LEASE = ".lock", ".lease"  # mark a folder in use: on a local disk, and in the cloud
BATCHES = "batches"
SCAN, SPENDING = "scan.json", "spending.json"
FIGURES_OF_PAIRS = "pairs.json"
FORMAT = 1  # of a run folder, as its manifest names it
LOCAL_READS_AT_ONCE = 8
_GIVE = "give the folder of a finished run (results/<run_id>)"
READ_AT_ONCE = 256  # rows of a part that are records at the same time
_PARQUET = pads.ParquetFileFormat()

logger = logging.getLogger(__name__)


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
        """The folder's path on this machine's disk; None if it is elsewhere."""
        return Path(self._inner) if isinstance(self._filesystem, fs.LocalFileSystem) else None

    @property
    def rewrite_pause_s(self) -> float:
        """The pause before a file is rewritten: Google's store takes one write a second."""
        return 1.0 if self._filesystem.type_name == GCS else 0.0

    def create(self) -> None:
        """Creates the folder. Raises ConfigError if it cannot; an object store shows that later."""
        if is_object_store(self._filesystem):
            return
        try:
            for kind in (RECORDS, RESPONSES):
                self._filesystem.create_dir(f"{self._inner}/{kind}", recursive=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make the run folder {self.path}: {reason_of(error)}; name "
                "another place with --out"
            ) from None

    def write_config(self, values: Mapping[str, Any]) -> None:
        """Writes the run's resolved config, as plain values."""
        self.write("run.yaml", yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest, which names the folder's format first."""
        values = {"format": FORMAT, **manifest}
        self.write("manifest.json", json.dumps(values, indent=2, ensure_ascii=False) + "\n")

    def read_config(self) -> Any:
        """The values that write_config wrote. Raises DataError without any, or no YAML."""
        try:
            return parse_yaml(self.read("run.yaml").decode("utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise DataError(
                f"{self.path}/run.yaml is not a config of this version: {error}"
            ) from None

    @contextmanager
    def held(
        self, lease: Callable[..., AbstractContextManager[Callable[[], bool]]] = hold_lease
    ) -> Iterator[None]:
        """Keeps other processes out while the block runs, by a file lock, in the cloud by a lease;
        once that is lost nothing is written. Raises ConfigError if one is at work."""
        if self.local_path is None:
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
                    f"cannot keep {self.path} to this process: {reason_of(error)}; is "
                    "it yours to write?"
                ) from None
            yield

    def has_manifest(self) -> bool:
        """True if a run has begun in this folder."""
        return self.has_file("manifest.json")

    def has_file(self, name: str) -> bool:
        return bool(self.infos([name])[0].type == fs.FileType.File)

    def infos(self, names: Sequence[str]) -> list[fs.FileInfo]:
        """The file system's infos of these names in the folder, in their order."""
        with translate_cloud_errors(self.path):
            return list(self._filesystem.get_file_info([f"{self._inner}/{name}" for name in names]))

    def read_manifest(self) -> dict[str, Any]:
        """Raises DataError if it is missing, no JSON object, or of another format than this one."""
        try:
            manifest = dict(json.loads(self.read("manifest.json")))
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}/manifest.json is not JSON of a run: {error}") from None
        if (stored := manifest.get("format", "none")) != FORMAT:
            raise DataError(
                f"{self.path}/manifest.json is of format {stored}, and this version reads format "
                f"{FORMAT}; use the version of memray-eval that wrote it"
            )
        return manifest

    def write_json(self, name: str, values: Any, indent: int | None = None) -> None:
        """Writes one of the files SCAN, SPENDING or FIGURES_OF_PAIRS."""
        separators = (",", ":") if indent is None else None
        text = json.dumps(values, indent=indent, ensure_ascii=False, separators=separators)
        self.write(name, text + "\n")

    def read_json(self, name: str) -> Any:
        """Reads what write_json wrote last; None if there is nothing, or it is not JSON."""
        try:
            return json.loads(self.read(name))
        except (DataError, ValueError):
            return None

    def write_disagreements(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Writes a line of JSON per row, for an earlier session's, and returns how many."""
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
        self.write("summary.json", summary.model_dump_json(indent=2) + "\n")
        self.write("summary.txt", text)

    def read_summary(self) -> Summary:
        """Raises DataError if it is missing or invalid, or of another format."""
        if self.has_manifest():
            status = self.read_manifest().get("status", "not known")
            if not self.has_file("summary.json"):
                raise DataError(
                    f"{self.path} has no summary yet, for its run has not finished (its status is "
                    f"{status}). `memray-eval view {shlex.quote(self.path)}` shows it as far as it "
                    f"is; `memray-eval resume {shlex.quote(self.path)}` goes on if it was ended"
                )
        try:
            return Summary.model_validate_json(self.read("summary.json"))
        except ValidationError as error:
            raise DataError(
                f"{self.path}/summary.json is not a summary of this version: {error.error_count()} "
                "problems"
            ) from None

    def read_spending(self) -> dict[str, Any]:
        """The cost of the run's judge calls over all of its sessions; {} without any."""
        spending = self.read_json(SPENDING)
        return spending if isinstance(spending, dict) else {}

    def write_sent(self, journal: str, rows: pa.Table) -> None:
        """Adds rows to the journal of what a sink has sent."""
        file = io.BytesIO()
        pq.write_table(rows, file, compression="zstd")
        self.write(f"sinks/{journal}/{new_part_name()}", file.getvalue())

    def read_sent(self, journal: str) -> Iterator[pa.Table]:
        """Yields what write_sent wrote to a journal. Raises DataError for what cannot be read."""
        folder = f"sinks/{journal}"
        names = [f"{folder}/{info.base_name}" for info in self._list(folder)]
        parts = [name for name in names if name.endswith(".parquet")]
        return map_ahead(self._read_table, parts, self._requests_at_once)

    def list_batch_files(self) -> list[str]:
        """The names of the files of the journal of batches."""
        files = (info for info in self._list(BATCHES) if info.type == fs.FileType.File)
        return sorted(info.base_name for info in files)

    def read_batch_files(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yields files of the journal of batches. Raises DataError for a missing one."""
        paths = [f"{BATCHES}/{name}" for name in names]
        return map_ahead(self.read, paths, self._requests_at_once)

    def write_part(self, table: pa.Table, kind: Kind = RECORDS, name: str | None = None) -> str:
        """Writes rows as one whole file; without `name` after its units: a retry overwrites it."""
        name = digest_name(table) if name is None else name
        with translate_cloud_errors(self.path):
            write_whole(self._filesystem, self._path_of(name, kind), encode_part(table))
        return name

    def write_parts(self, tables: Iterable[pa.Table], kind: Kind = RECORDS) -> None:
        """Writes rows as few parts as they fit into, under names that no part has yet."""
        names = ((table, kind, new_part_name()) for table in join_rows(tables))
        deque(map_ahead(lambda of: self.write_part(*of), names, self._requests_at_once), maxlen=0)

    def list_parts(self, kind: Kind = RECORDS) -> list[Part]:
        """Lists the parts written so far, sorted by name."""
        return sorted(
            Part(info.base_name, info.size or 0, info.mtime_ns)
            for info in self._list(kind)
            if info.base_name.endswith(".parquet")
        )

    def some_parts(self) -> list[Part]:
        """The parts of the records, sorted by name. Raises DataError without any."""
        if not (parts := self.list_parts()):
            raise DataError(f"{self.path} holds no records")
        return parts

    def parts(self, kind: Kind = RECORDS) -> list[str]:
        """Lists the names of the parts written so far, sorted."""
        return [part.name for part in self.list_parts(kind)]

    def read_part(
        self, name: str, kind: Kind = RECORDS, columns: list[str] | None = None
    ) -> pa.Table:
        """Reads a part: all of it in one request, with nulls in columns that older versions lack,
        or some of its columns, named as in Parquet (scores.list.element.status)."""
        with (
            translate_cloud_errors(self.path),
            self._filesystem.open_input_file(self._path_of(name, kind)) as file,
        ):
            source = pa.BufferReader(file.read_buffer()) if columns is None else file
            whole = pq.ParquetFile(source, pre_buffer=True)  # of a cloud: few requests
            table = whole.read(columns=columns).replace_schema_metadata(None)
        for field in RECORD_SCHEMA if columns is None else ():
            if field.name not in table.column_names:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        return table if columns else table.select(RECORD_SCHEMA.names)

    def read_parts(
        self, names: Sequence[str], kind: Kind = RECORDS, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yields parts in the order of their names, several read at once."""
        read = partial(self.read_part, kind=kind, columns=columns)
        return map_ahead(read, names, self._requests_at_once)

    def read_indexes(self, parts: Sequence[Part], kind: Kind = RECORDS) -> Iterator[UnitIndex]:
        """Yields the index of each part, in order. Raises DataError for an unreadable part."""
        return map_ahead(partial(self._read_index, kind), parts, self._requests_at_once)

    def index_units(self, kind: Kind = RESPONSES) -> dict[str, UnitNumbers]:
        """The units of each part, by the part's name."""
        parts = self.list_parts(kind)
        indexes = self.read_indexes(parts, kind)
        return {part.name: index.units for part, index in zip(parts, indexes, strict=True)}

    def find_units(
        self,
        unit_ids: Collection[str],
        index: Mapping[str, UnitNumbers] | None = None,
        kind: Kind = RESPONSES,
    ) -> pa.Table:
        """The rows that are kept of some units, one each, in no order; looked up in an `index` of
        parts, else in that of all parts now: for the few units that have to be done again."""
        wanted, index = unit_numbers(unit_ids), self.index_units(kind) if index is None else index
        names = [name for name, units in index.items() if np.isin(wanted, units).any()]
        tables, missing = [RECORD_SCHEMA.empty_table()], set(unit_ids)
        for rows in self.read_parts(names, kind):
            is_wanted = [unit in missing for unit in rows.column("unit_id").to_pylist()]
            tables.append(rows.filter(pa.array(is_wanted, pa.bool_())).cast(RECORD_SCHEMA))
            missing -= set(tables[-1].column("unit_id").to_pylist())
        return pa.concat_tables(tables)

    def delete_parts(self, names: Sequence[str], kind: Kind = RECORDS) -> None:
        paths = (self._path_of(name, kind) for name in names)
        with translate_cloud_errors(self.path):
            deque(map_ahead(self._filesystem.delete_file, paths, self._requests_at_once), maxlen=0)

    def last_written(self) -> float:
        """The time of the folder's last write, in epoch seconds; 0.0 for an empty one."""
        moments = (
            info.mtime.timestamp()
            for info in self._list("", recursive=True)
            if info.mtime is not None and info.base_name not in (LOCK, LEASE)
        )
        return max(moments, default=0.0)

    def delete_responses(self) -> None:
        """Deletes the responses kept for a resume, if there are any."""
        (info,) = self.infos([RESPONSES])
        if info.type == fs.FileType.Directory:
            with translate_cloud_errors(self.path):
                self._filesystem.delete_dir(info.path)

    def records(self, parts: Sequence[Part] | None = None) -> pads.Dataset:
        """All records, or those of some parts, as a dataset. Raises DataError without any."""
        parts = self.some_parts() if parts is None else parts
        files = [(self._path_of(part.name, RECORDS), part.size) for part in parts]
        return _open_dataset(files, self._filesystem)

    @contextmanager
    def local_records(self) -> Iterator[pads.Dataset]:
        """The records for several passes: a cloud's are copied to the temporary folder while the
        block runs, a request each, if they fit twice over. Raises DataError if there are none."""
        parts = self.some_parts()
        size = sum(part.size for part in parts)
        if self.local_path or 2 * size > shutil.disk_usage(tempfile.gettempdir()).free:
            yield self.records(parts)
            return
        with ScratchFolder("records") as copies:
            started = time.monotonic()
            copy = partial(self._copy_part, copies)
            files = list(map_ahead(copy, parts, self._requests_at_once))
            did = f"{len(parts)} parts ({size / 1e6:.0f} MB) copied from {self.path}"
            logger.info("%s in %.1f s", did, time.monotonic() - started)
            yield _open_dataset(files, fs.LocalFileSystem())

    def each_part(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yields the records part by part, in the columns of RECORD_SCHEMA. One part is in memory;
        a scan of `records` may have all of them there, ahead of a slow reader."""
        for part in self.list_parts():
            with translate_cloud_errors(self.path):
                table = self.records([part]).to_table(columns=columns)
            yield table

    def each(self) -> Iterator[Record]:
        """Yields all records, a part in memory, without unreadable rows. Raises DataError."""
        self.some_parts()
        for table in self.each_part():
            for first in range(0, table.num_rows, READ_AT_ONCE):
                rows = table.slice(first, READ_AT_ONCE)
                yield from from_table_apart(rows, lambda sample_id, error: None)[0]

    @property
    def _requests_at_once(self) -> int:
        return REQUESTS_AT_ONCE if self.local_path is None else LOCAL_READS_AT_ONCE

    def _path_of(self, name: str, kind: Kind) -> str:
        return f"{self._inner}/{kind}/{name}"

    def _read_index(self, kind: Kind, part: Part) -> UnitIndex:
        path = self._path_of(part.name, kind)
        try:
            with translate_cloud_errors(self.path):
                try:
                    footer = _fragment(path, part.size, self._filesystem).metadata
                except pa.ArrowInvalid:  # it may have been written again since it was listed
                    footer = _PARQUET.make_fragment(path, self._filesystem).metadata
                if (index := index_in(footer)) is not None:
                    return index
                with self._filesystem.open_input_file(path) as file:
                    return index_file(file)
        except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError) as error:
            raise DataError(
                f"{self.path}/{kind}/{part.name} cannot be read ({error}); put it back from a "
                "copy, or delete it to have its units done again"
            ) from None

    def _read_table(self, name: str) -> pa.Table:
        try:
            return pq.read_table(pa.BufferReader(self.read(name)))
        except pa.ArrowInvalid as error:
            raise DataError(f"{self._inner}/{name} cannot be read ({error}); delete it") from None

    def _copy_part(self, copies: str, part: Part) -> tuple[str, int]:
        """Copies a part to a local folder; returns its path there and its size."""
        path = Path(copies) / part.name
        return str(path), path.write_bytes(self.read(f"{RECORDS}/{part.name}"))

    def _list(self, folder: str, recursive: bool = False) -> list[fs.FileInfo]:
        """Lists a folder of this one; empty if it does not exist."""
        path = f"{self._inner}/{folder}".rstrip("/")
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        with translate_cloud_errors(self.path):
            return list(self._filesystem.get_file_info(selector))

    def write(self, name: str, data: str | bytes) -> None:
        """Writes a file whole, in a folder that is made for it."""
        if self._is_lost():
            raise taken_over_error(self.path)
        path = f"{self._inner}/{name}"
        with translate_cloud_errors(self.path):
            if "/" in name and not is_object_store(self._filesystem):
                self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            write_whole(self._filesystem, path, data.encode() if isinstance(data, str) else data)

    def read(self, name: str) -> bytes:
        """A file's bytes. Raises DataError if it does not exist."""
        try:
            with (
                translate_cloud_errors(self.path),
                self._filesystem.open_input_stream(f"{self._inner}/{name}") as stream,
            ):
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(f"{self.path} has no {name}; {self.what_instead()}") from None

    def what_instead(self, otherwise: str = _GIVE) -> str:
        """The name to suggest if this is not a run's folder: a similar one, or `otherwise`."""
        if self.local_path is None or self.local_path.exists():
            return otherwise
        kinds, is_bare = (fs.FileType.Directory,), "/" not in self.path
        runs = did_you_mean(f"results/{self.path}", kinds) if is_bare else ""
        return did_you_mean(self.path, kinds, *["latest"] * is_bare) or runs or otherwise


def _open_dataset(files: Sequence[tuple[str, int]], filesystem: fs.FileSystem) -> pads.Dataset:
    fragments = [_fragment(path, size, filesystem) for path, size in files]
    return pads.FileSystemDataset(fragments, RECORD_SCHEMA, _PARQUET, filesystem)


def _fragment(path: str, size: int, filesystem: fs.FileSystem) -> pads.ParquetFileFragment:
    """A part as it was listed: who knows its size need not ask for it."""
    return _PARQUET.make_fragment(path, filesystem, file_size=size)


def new_run_id(dataset: str, measured: Sequence[str]) -> str:
    """time-data-metrics-random: sorts by time, and two runs of one second differ. The data have
    their file's or folder's name (the end of a long one); the first of several metrics has the
    number of the others."""
    stamp, random = time.strftime("%Y%m%d-%H%M%S", time.gmtime()), secrets.token_hex(2)
    data = re.sub(r"^(\d{8}-\d{6}-)(.*)-\w{4}$", r"\2", dataset.rstrip("/").rpartition("/")[2])
    data = re.sub(r"^[\d-]*|\.\w+$", "", data)
    more = f"-and-{len(measured) - 1}" if len(measured) > 1 else ""
    metric = re.sub(r"\.\w+$", "", re.sub(r".*[/:]", "", measured[0]))
    data, metric = (re.sub(r"\W+", "-", name) for name in (data or "data", metric))
    names = data[-24:].strip("-_"), metric[:28].strip("-_")
    return f"{stamp}-{'-'.join(filter(None, names))}{more}-{random}"

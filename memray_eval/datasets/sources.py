"""Where samples come from, as a stream of entries, whole or a shard of it: a folder of samples, JSON, JSONL, Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import ijson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from memray_eval.datasets.parsing import Fault, InvalidSample, parse_json
from memray_eval.errors import DataError
from memray_eval.storage import locate, open_reader
from memray_eval.types import Frozen

Kind = Literal["folder", "json", "jsonl", "parquet"]
SAMPLE_FILE = "sample.json"
LIST_KEYS = ("samples", "results", "responses")
_SUFFIXES: dict[str, Kind] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_PARQUET_JSON = ("memory", "history", "traits", "emotion", "metadata")  # may be JSON text in a Parquet column


class Shard(Frozen):
    """A stretch of a source that one task reads: positions `start` to `stop` (bytes of a JSONL, rows of a Parquet, items of
    a JSON, `names` of a folder), but for the positions in `skip`. `rows` and `size` (bytes) say how much that is."""

    kind: Kind
    path: str
    start: int = 0
    stop: int | None = None
    names: tuple[str, ...] = ()
    skip: tuple[int, ...] = ()
    rows: int = 0
    size: int = 0


class Entry(NamedTuple):
    """One entry of a source: where it stands, its ordinal there, its raw object or what made it unreadable, its bytes."""

    position: int
    end: int
    path: str
    place: str
    raw: Any | InvalidSample
    size: int


def whole(path: str) -> list[Shard]:
    """The sources that a dataset path stands for, each as one shard. Raises DataError that says what a dataset can be."""
    filesystem, inner = locate(path)
    info = filesystem.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise DataError(f"no dataset at {path}")
    if info.type == fs.FileType.File:
        return [_of_file(path)]
    children = sorted(filesystem.get_file_info(fs.FileSelector(inner)), key=lambda child: str(child.path))
    children = [child for child in children if not child.base_name.startswith((".", "_"))]
    if "records" in {child.base_name for child in children} and "manifest.json" in {child.base_name for child in children}:
        return whole(f"{path.rstrip('/')}/records")  # a run folder
    folders = tuple(child.base_name for child in children if child.type == fs.FileType.Directory)
    files = [child.base_name for child in children if _suffix(child.base_name) in (".jsonl", ".ndjson", ".parquet", ".pq")]
    if folders and not files:
        return [Shard(kind="folder", path=path, names=folders)]
    if files:
        return [_of_file(f"{path.rstrip('/')}/{name}") for name in files]
    raise DataError(
        f"{path} holds no samples; a dataset is a folder of <id>/{SAMPLE_FILE}, a folder of .jsonl or .parquet files, "
        "or one .json, .jsonl or .parquet file"
    )


def entries(shard: Shard) -> Iterator[Entry]:
    """The entries of a shard in order, unreadable ones included, those in `skip` left out."""
    skip = frozenset(shard.skip)
    read = {"folder": _folder, "json": _json, "jsonl": _jsonl, "parquet": _parquet}[shard.kind]
    return (entry for entry in read(shard) if entry.position not in skip)


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2].lower() if "." in name else ""


def _of_file(path: str) -> Shard:
    kind = _SUFFIXES.get(_suffix(path))
    if kind is None:
        raise DataError(f"{path}: cannot tell its format from its name; it must end in {', '.join(_SUFFIXES)}")
    return Shard(kind=kind, path=path)


def _folder(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    for position, name in enumerate(shard.names, start=shard.start):
        path = f"{shard.path.rstrip('/')}/{name}/{SAMPLE_FILE}"
        data, raw = b"", None
        try:
            with open_reader(filesystem, f"{inner.rstrip('/')}/{name}/{SAMPLE_FILE}") as file:
                data = file.read()
            raw = parse_json(data)
        except FileNotFoundError:
            raw = InvalidSample([Fault(message=f"the folder has no {SAMPLE_FILE}")])
        except OSError as error:
            raw = InvalidSample([Fault(message=f"cannot be read: {error}")])
        except InvalidSample as error:
            raw = error
        yield Entry(position, position + 1, path, "", raw, len(data))


def _jsonl(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    position = shard.start
    with open_reader(filesystem, inner, shard.start) as file:
        for number, line in enumerate(file, start=1):
            start, position = position, position + len(line)
            if line.strip():
                try:
                    raw = parse_json(line)
                except InvalidSample as error:
                    raw = error
                yield Entry(start, position, shard.path, f"line {number}", raw, len(line))
            if shard.stop is not None and position >= shard.stop:
                return


def _holder(filesystem: fs.FileSystem, inner: str) -> str:
    """The key under which an object holds its list, "" for a plain list. Broken JSON is told when it is read for good."""
    with open_reader(filesystem, inner) as file:
        if file.peek(3)[:3] == b"\xef\xbb\xbf":
            file.read(3)
        try:
            for prefix, event, _ in ijson.parse(file):
                if event == "start_array" and (prefix == "" or prefix in LIST_KEYS):
                    return str(prefix)
        except (ijson.JSONError, UnicodeDecodeError):
            pass
    return ""


def _json(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    holder = _holder(filesystem, inner)
    with open_reader(filesystem, inner) as file:
        if file.peek(3)[:3] == b"\xef\xbb\xbf":
            file.read(3)
        position = 0
        try:
            for raw in ijson.items(file, f"{holder}.item" if holder else "item", use_float=True):
                if position >= shard.start and (shard.stop is None or position < shard.stop):
                    yield Entry(position, position + 1, shard.path, f"item {position + 1}", raw, 0)
                position += 1
        except (ijson.JSONError, UnicodeDecodeError) as error:
            text = (
                "not UTF-8; save it as UTF-8" if _is_encoding(error) else f"broken JSON after item {position}: {_first(error)}"
            )
            yield Entry(position, position + 1, shard.path, "", InvalidSample([Fault(message=text)]), 0)
            return
    if position == 0:
        fault = Fault(message='holds no samples; it must be a list of samples, or an object with the list under "samples"')
        yield Entry(0, 1, shard.path, "", InvalidSample([fault]), 0)


def _is_encoding(error: Exception) -> bool:
    return isinstance(error, UnicodeDecodeError) or "utf" in str(error).lower()


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _parquet(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    try:
        with filesystem.open_input_file(inner) as source, pq.ParquetFile(source) as file:
            yield from _parquet_rows(file, shard)
    except (pa.ArrowException, OSError) as error:
        fault = Fault(message=f"not a readable Parquet file: {_first(error)}")
        yield Entry(shard.start, shard.start + 1, shard.path, "", InvalidSample([fault]), 0)


def _parquet_rows(file: pq.ParquetFile, shard: Shard) -> Iterator[Entry]:
    """Rows start to stop; only the row groups that hold them are read, in batches of 256 rows."""
    groups: list[int] = []
    first = position = 0
    for index in range(file.num_row_groups):
        rows = file.metadata.row_group(index).num_rows
        if position + rows > shard.start and (shard.stop is None or position < shard.stop):
            if not groups:
                first = position
            groups.append(index)
        position += rows
    if not groups:
        return
    position = first
    for batch in file.iter_batches(batch_size=256, row_groups=groups):
        size = batch.nbytes // max(1, batch.num_rows)
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            if shard.stop is not None and position >= shard.stop:
                return
            if position >= shard.start:
                yield Entry(position, position + 1, shard.path, f"row {position + 1}", _plain(row), size)
            position += 1


def _plain(row: dict[str, Any]) -> dict[str, Any] | InvalidSample:
    """A Parquet row as JSON would have it: JSON text parsed, and keys that Arrow filled with null dropped."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, str) and name in _PARQUET_JSON:
            try:
                out[name] = parse_json(value.encode())
            except InvalidSample as error:
                return InvalidSample(
                    [Fault(field=name, message=fault.message) for fault in error.faults], str(row.get("id") or "")
                )
        elif isinstance(value, dict):
            out[name] = {key: inner for key, inner in value.items() if inner is not None}
        elif value is not None:
            out[name] = value
    return out

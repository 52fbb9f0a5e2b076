"""Where samples come from, as a stream of entries, whole or a shard of it: a folder of samples,
JSON, JSONL, Parquet."""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, NamedTuple

import ijson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pydantic import Field

from memray_eval.datasets.hub import HUB, fetch_dataset
from memray_eval.datasets.parsing import Fault, InvalidSample, Nesting, parse_json
from memray_eval.errors import DataError
from memray_eval.storage.paths import DamagedFile, locate, open_reader
from memray_eval.types import Frozen

Kind = Literal["folder", "json", "jsonl", "parquet", "arrow"]
SAMPLE_FILE = "sample.json"
LIST_KEYS = ("samples", "results", "responses")
# Where the head of a file of responses says who answered, and for which suite; the first that is
# there counts.
HEADER_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "candidate": ("candidate",),
        "model": ("model", "model_name", "model.name", "metadata.model"),
        "suite": ("suite",),
    }
)
_SUFFIXES: dict[str, Kind] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
}
_DESCRIPTIONS = (
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "state.json",
)  # of a Hugging Face dataset
MAX_LINE_BYTES = 128 << 20  # of a JSONL; ten million tokens of context are about 50 MiB
BATCH_BYTES = 16 << 20  # of a Parquet file, decoded at once
_LOOKED_AT = 8  # children of a folder, to tell samples from data files
_PARQUET_JSON = (
    "memory",
    "history",
    "traits",
    "emotion",
    "metadata",
)  # may be JSON text in a Parquet column


class Shard(Frozen):
    """A stretch of a source that one task reads: positions `start` to `stop` (bytes of a JSONL,
    rows of a Parquet, items of a JSON, `names` of a folder), but for the positions in `skip`; or
    the positions in `take`, in that order (a JSON: in the file's). `rows` and `size` (bytes) say
    how much that is. `header` holds what a JSON object says of all its items (`read_header`): an
    item that says nothing itself inherits it."""

    kind: Kind
    path: str
    start: int = 0
    stop: int | None = None
    names: tuple[str, ...] = ()
    skip: tuple[int, ...] = ()
    take: tuple[int, ...] = ()
    rows: int = 0
    size: int = 0
    header: dict[str, str] = Field(default_factory=dict)


class Entry(NamedTuple):
    """One entry of a source: where it stands, its ordinal there, its raw object or what made it
    unreadable, its bytes."""

    position: int
    end: int
    path: str
    place: str
    raw: Any | InvalidSample
    size: int


def whole(path: str) -> list[Shard]:
    """The sources that a dataset path stands for, each as one shard; hf://OWNER/NAME is fetched
    from the hub. Raises DataError that says what a dataset can be."""
    path = fetch_dataset(path) if path.startswith(HUB) else path
    filesystem, inner = locate(path)
    info = filesystem.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise DataError(f"no dataset at {path}")
    if info.type == fs.FileType.File:
        return [_of_file(path)]
    if info.type == fs.FileType.Unknown:
        raise DataError(
            f"{path} is neither a file nor a folder (a FIFO, socket or device); copy what it "
            f"holds to a file"
        )
    children = sorted(
        filesystem.get_file_info(fs.FileSelector(inner)), key=lambda child: str(child.path)
    )
    children = [child for child in children if not child.base_name.startswith((".", "_"))]
    if "records" in {child.base_name for child in children} and "manifest.json" in {
        child.base_name for child in children
    }:
        return whole(f"{path.rstrip('/')}/records")  # a run folder
    folders = tuple(child.base_name for child in children if child.type == fs.FileType.Directory)
    files = _data_files(child.base_name for child in children if child.type == fs.FileType.File)
    if files and not (folders and all(_suffix(name) == ".json" for name in files)):
        return [_of_file(f"{path.rstrip('/')}/{name}") for name in files]
    if folders and (below := _files_below(filesystem, inner, folders)):
        return [_of_file(f"{path.rstrip('/')}/{name}") for name in below]
    if folders:
        return [Shard(kind="folder", path=path, names=folders)]
    raise DataError(
        f"{path} holds no samples; a dataset is a folder of <id>/{SAMPLE_FILE}, a folder of "
        f".jsonl or .parquet files (as "
        "Hugging Face lays them out, too), or one .json, .jsonl, .parquet or .arrow file"
    )


def _data_files(names: Iterable[str]) -> list[str]:
    """Those of a folder's files that hold samples: a .json only where nothing else does."""
    found = [
        name
        for name in names
        if _suffix(name) in _SUFFIXES and name.rpartition("/")[2] not in _DESCRIPTIONS
    ]
    return [name for name in found if _suffix(name) != ".json"] or found


def _files_below(filesystem: fs.FileSystem, inner: str, folders: Sequence[str]) -> list[str]:
    """The data files in a folder's folders (a split or a task each), none where these are
    samples."""
    looked_at = folders[:_LOOKED_AT]
    samples = filesystem.get_file_info(
        [f"{inner.rstrip('/')}/{name}/{SAMPLE_FILE}" for name in looked_at]
    )
    if any(info.type == fs.FileType.File for info in samples):
        return []
    below: list[str] = []
    for name in folders:
        found = filesystem.get_file_info(
            fs.FileSelector(f"{inner.rstrip('/')}/{name}", recursive=True)
        )
        paths = (
            str(info.path).removeprefix(f"{inner.rstrip('/')}/")
            for info in found
            if info.type == fs.FileType.File
        )
        below += sorted(
            _data_files(
                path for path in paths if not any(part.startswith(".") for part in path.split("/"))
            )
        )
        if not below and name == looked_at[-1]:
            return []
    return below


def entries(shard: Shard) -> Iterator[Entry]:
    """The entries of a shard in order, unreadable ones included, those in `skip` left out."""
    skip = frozenset(shard.skip)
    read = {
        "folder": _folder,
        "json": _json,
        "jsonl": _jsonl,
        "parquet": _parquet,
        "arrow": _arrow,
    }[shard.kind]
    return (entry for entry in read(shard) if entry.position not in skip)


def _suffix(name: str) -> str:
    """The ending that tells a file's format, past that of its packing."""
    name = name.removesuffix(".gz").removesuffix(".zst")
    return "." + name.rpartition(".")[2].lower() if "." in name else ""


def _of_file(path: str) -> Shard:
    kind = _SUFFIXES.get(_suffix(path))
    if kind is None:
        raise DataError(
            f"{path}: cannot tell its format from its name; it must end in {', '.join(_SUFFIXES)}"
        )
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
    if shard.take:
        with open_reader(filesystem, inner) as file:
            for position in shard.take:
                file.seek(position)
                line = file.readline()
                yield _line(shard.path, position, f"byte {position}", line)
        return
    position, number = shard.start, 0
    try:
        with open_reader(filesystem, inner, shard.start) as file:
            while line := file.readline(MAX_LINE_BYTES):
                start, position, number = position, position + len(line), number + 1
                if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    position += _skip_line(file)
                    fault = Fault(
                        message=f"the line is longer than {MAX_LINE_BYTES >> 20} MiB; no sample "
                        f"is so long"
                    )
                    yield Entry(
                        start, position, shard.path, f"line {number}", InvalidSample([fault]), 0
                    )
                elif line.strip():
                    yield _line(shard.path, start, f"line {number}", line)
                if shard.stop is not None and position >= shard.stop:
                    return
    except DamagedFile as error:
        yield _unread(shard.path, position, f"line {number}", error)


def _skip_line(file: BinaryIO) -> int:
    """Reads to the end of a line; how many bytes that were."""
    skipped = 0
    while part := file.readline(1 << 20):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def _unread(path: str, position: int, last: str, error: DamagedFile) -> Entry:
    """What stands for the rest of a file that cannot be read any further."""
    fault = Fault(message=f"nothing after {last} can be read: {error}")
    return Entry(position, position + 1, path, "", InvalidSample([fault]), 0)


def _line(path: str, position: int, place: str, line: bytes) -> Entry:
    try:
        raw = parse_json(line)
    except InvalidSample as error:
        raw = error
    return Entry(position, position + len(line), path, place, raw, len(line))


def _holder(filesystem: fs.FileSystem, inner: str) -> str:
    """The key under which an object holds its list, "" for a plain list. Broken JSON is told when
    it is read for good."""
    with open_reader(filesystem, inner) as file:
        try:
            _skip_mark(file)
            for prefix, event, _ in ijson.parse(_GuardedJson(file)):
                if event == "start_array" and (prefix == "" or prefix in LIST_KEYS):
                    return str(prefix)
        except (ijson.JSONError, UnicodeDecodeError, DamagedFile):
            pass
    return ""


def read_header(shard: Shard) -> dict[str, str]:
    """What a JSON object says beside its list, before or after it: the text at each of HEADER_KEYS.
    Nothing for a plain list and for other formats. Broken JSON is reported when its items are
    read."""
    if shard.kind != "json":
        return {}
    paths = {path for names in HEADER_KEYS.values() for path in names}
    found: dict[str, str] = {}
    filesystem, inner = locate(shard.path)
    with open_reader(filesystem, inner) as file:
        try:
            _skip_mark(file)
            for prefix, event, value in ijson.parse(_GuardedJson(file)):
                if prefix == "" and event == "start_array":
                    return {}
                if prefix in paths and event == "string" and value.strip():
                    found.setdefault(prefix, value.strip())
        except (ijson.JSONError, UnicodeDecodeError, OSError):
            pass
    first = {
        field: next((path for path in names if path in found), None)
        for field, names in HEADER_KEYS.items()
    }
    return {field: found[path] for field, path in first.items() if path is not None}


def _json(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    holder = _holder(filesystem, inner)
    with open_reader(filesystem, inner) as file:
        position, wanted = 0, frozenset(shard.take)
        try:
            _skip_mark(file)
            for raw in ijson.items(
                _GuardedJson(file), f"{holder}.item" if holder else "item", use_float=True
            ):
                if (
                    position in wanted
                    if wanted
                    else shard.start <= position and (shard.stop is None or position < shard.stop)
                ):
                    item = _with_header(raw, shard.header)
                    yield Entry(position, position + 1, shard.path, f"item {position + 1}", item, 0)
                position += 1
                if wanted and position > shard.take[-1]:
                    return
        except (ijson.JSONError, UnicodeDecodeError) as error:
            text = (
                "not UTF-8; save it as UTF-8"
                if _is_encoding(error)
                else f"broken JSON after item {position}: {_first(error)}"
            )
            yield Entry(
                position, position + 1, shard.path, "", InvalidSample([Fault(message=text)]), 0
            )
            return
        except DamagedFile as error:
            yield _unread(shard.path, position, f"item {position}", error)
            return
    if position == 0:
        fault = Fault(
            message="holds no samples; it must be a list of samples, or an object with the list "
            'under "samples"'
        )
        yield Entry(0, 1, shard.path, "", InvalidSample([fault]), 0)


def _skip_mark(file: io.BufferedReader) -> None:
    """Reads past a byte order mark."""
    if file.peek(3)[:3] == b"\xef\xbb\xbf":
        file.read(3)


class _GuardedJson:
    """A file of JSON for ijson, which takes time that grows with the square of the depth, and dies
    of a number of thousands of digits. Raises JSONError before it comes to that."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._nesting = file, Nesting()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        try:
            self._nesting.feed(data)
        except InvalidSample as error:
            raise ijson.JSONError(str(error).removeprefix("broken JSON: ")) from None
        return data


def _with_header(raw: Any, header: Mapping[str, str]) -> Any:
    """An item with what its file's head says, where it says nothing itself."""
    if not header or not isinstance(raw, dict):
        return raw
    silent = [
        field for field in header if all(raw.get(name) is None for name in HEADER_KEYS[field])
    ]
    return {**raw, **{field: header[field] for field in silent}}


def _is_encoding(error: Exception) -> bool:
    return isinstance(error, UnicodeDecodeError) or "utf" in str(error).lower()


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _parquet(shard: Shard) -> Iterator[Entry]:
    filesystem, inner = locate(shard.path)
    try:
        with filesystem.open_input_file(inner) as source, pq.ParquetFile(source) as file:
            yield from _taken_rows(file, shard) if shard.take else _parquet_rows(file, shard)
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
    ) as error:  # ValueError: text that is no UTF-8
        fault = Fault(message=f"not a readable Parquet file: {_first(error)}")
        yield Entry(shard.start, shard.start + 1, shard.path, "", InvalidSample([fault]), 0)


def _parquet_rows(file: pq.ParquetFile, shard: Shard) -> Iterator[Entry]:
    """Rows start to stop; only the row groups that hold them are read, a batch at a time."""
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
    for batch in file.iter_batches(_rows_at_once(file, groups[0]), row_groups=groups):
        size = batch.nbytes // max(1, batch.num_rows)
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            if shard.stop is not None and position >= shard.stop:
                return
            if position >= shard.start:
                yield Entry(
                    position, position + 1, shard.path, f"row {position + 1}", _plain(row), size
                )
            position += 1


def _rows_at_once(file: pq.ParquetFile, group: int) -> int:
    """So many rows that a batch holds about BATCH_BYTES: few where contexts are long."""
    meta = file.metadata.row_group(group)
    return max(1, min(256, BATCH_BYTES * int(meta.num_rows) // max(1, int(meta.total_byte_size))))


def _taken_rows(file: pq.ParquetFile, shard: Shard) -> Iterator[Entry]:
    """The rows in `take`, in that order; each row group that holds any is read once, and only those
    rows are kept of it."""
    wanted, found, first = sorted(shard.take), dict[int, Entry](), 0
    for index in range(file.num_row_groups):
        rows = file.metadata.row_group(index).num_rows
        here = wanted[bisect_left(wanted, first) : bisect_left(wanted, first + rows)]
        position = first
        for batch in (
            file.iter_batches(_rows_at_once(file, index), row_groups=[index]) if here else ()
        ):
            mine = [row for row in here if position <= row < position + batch.num_rows]
            taken = batch.take(pa.array([row - position for row in mine], pa.int64()))
            size = taken.nbytes // max(1, taken.num_rows)
            for row, raw in zip(mine, taken.to_pylist(maps_as_pydicts="lossy"), strict=True):
                found[row] = Entry(row, row + 1, shard.path, f"row {row + 1}", _plain(raw), size)
            position += batch.num_rows
        first += rows
    return (found[row] for row in shard.take)


def _arrow(shard: Shard) -> Iterator[Entry]:
    """Rows of an Arrow stream or file, as Hugging Face saves datasets."""
    filesystem, inner = locate(shard.path)
    wanted, position, kept = frozenset(shard.take), 0, dict[int, Entry]()
    try:
        for batch in _arrow_batches(filesystem, inner):
            size = batch.nbytes // max(1, batch.num_rows)
            for offset in range(batch.num_rows):
                row = position + offset
                if (
                    row in wanted
                    if wanted
                    else row >= shard.start and (shard.stop is None or row < shard.stop)
                ):
                    raw = _plain(batch.slice(offset, 1).to_pylist(maps_as_pydicts="lossy")[0])
                    entry = Entry(row, row + 1, shard.path, f"row {row + 1}", raw, size)
                    if wanted:
                        kept[row] = entry
                    else:
                        yield entry
            position += batch.num_rows
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
    ) as error:  # ValueError: text that is no UTF-8
        fault = Fault(message=f"not a readable Arrow file: {_first(error)}")
        yield Entry(shard.start, shard.start + 1, shard.path, "", InvalidSample([fault]), 0)
    yield from (kept[row] for row in shard.take if row in kept)


def _arrow_batches(filesystem: fs.FileSystem, inner: str) -> Iterator[pa.RecordBatch]:
    with filesystem.open_input_file(inner) as source:
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
        else:
            yield from (file.get_batch(index) for index in range(file.num_record_batches))


def _without_binary(value: Any) -> Any:
    """A value without what JSON cannot hold (recordings, pictures), and its objects without their
    null fields."""
    if isinstance(value, dict):
        found = {key: _without_binary(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner is not None}
    if isinstance(value, list):
        return [_without_binary(inner) for inner in value]
    return None if isinstance(value, bytes) else value


def _plain(row: dict[str, Any]) -> dict[str, Any] | InvalidSample:
    """A Parquet row as JSON would have it: JSON text parsed, and keys that Arrow filled with null
    dropped."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, str) and name in _PARQUET_JSON:
            try:
                out[name] = parse_json(value.encode())
            except InvalidSample as error:
                return InvalidSample(
                    [Fault(field=name, message=fault.message) for fault in error.faults],
                    str(row.get("id") or ""),
                )
        elif (plain := _without_binary(value)) is not None:
            out[name] = plain
    return out

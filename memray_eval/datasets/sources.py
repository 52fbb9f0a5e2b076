"""Finds the files of a dataset, fetched from the hub if need be, and reads them as a stream of
entries, whole or shard by shard."""

import lzma
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, cast

import pyarrow as pa
from pyarrow import fs

from memray_eval.config.environment import cache_dir
from memray_eval.datasets.columnar_files import read_arrow, read_csv, read_parquet
from memray_eval.datasets.forms import form_of
from memray_eval.datasets.json_files import (
    SAMPLE_FILE,
    first_line,
    kind_of_json,
    read_document,
    read_folder,
    read_header,
    read_json,
    read_jsonl,
)
from memray_eval.datasets.parsing import SAVE_SO, Fault, InvalidSample, invalid, json_or_fault
from memray_eval.datasets.shards import Entry, Kind, Shard
from memray_eval.errors import DataError, describe_error
from memray_eval.ports import PublishedFiles
from memray_eval.storage.paths import did_you_mean, find_encoding, locate, open_reader

_SAMPLES = "samples/"
_ZSTD = 93  # the method, which Python's zipfile does not know
_RULE = re.compile(r"^(?:-{3,}|={3,}|\*{3,})[ \t]*$", re.MULTILINE)


def read_eval(shard: Shard) -> Iterator[Entry]:
    """The samples of an Inspect log, a zip of JSON files."""
    filesystem, inner = locate(shard.path)
    try:
        with filesystem.open_input_file(inner) as source, zipfile.ZipFile(source) as log:
            names = [info for info in log.infolist() if info.filename.startswith(_SAMPLES)]
            stop = len(names) if shard.stop is None else shard.stop
            for position in shard.take or range(shard.start, min(stop, len(names))):
                info, number = names[position], position + 1
                try:
                    raw = json_or_fault(_read_member(log, source, info))
                except _DAMAGED as error:
                    raw = invalid(f"cannot be unpacked: {error}")
                yield shard.entry(position, number, info.filename, raw, info.file_size, number)
            if not names:
                yield shard.broken_entry(0, "holds no samples: a log without samples/*.json")
    except (zipfile.BadZipFile, OSError, pa.ArrowException, NotImplementedError) as error:
        yield shard.broken_entry(shard.start, f"not a readable Inspect log: {error}")


# What unpacking a member raises, encrypted ones and codecs that Python lacks among them
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError),
    *(struct.error, pa.ArrowException, ValueError),
)


def _read_member(log: zipfile.ZipFile, source: IO[bytes], info: zipfile.ZipInfo) -> bytes:
    if info.compress_type != _ZSTD:
        return log.read(info)
    source.seek(info.header_offset)
    name, extra = struct.unpack("<HH", source.read(30)[26:])
    source.seek(info.header_offset + 30 + name + extra)
    packed = source.read(info.compress_size)
    unpacked = pa.Codec("zstd").decompress(packed, info.file_size, asbytes=True)
    return cast(bytes, unpacked)


def read_text(shard: Shard) -> Iterator[Entry]:
    """The transcripts of a text file, which lines of dashes divide."""
    try:
        with open_reader(*locate(shard.path), encoding=shard.encoding) as file:
            text = re.sub(r"\r\n?", "\n", file.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        what = f"not UTF-8 (byte {error.start}); {SAVE_SO}"
        yield shard.broken_entry(0, what)
        return
    except OSError as error:
        yield shard.broken_entry(0, f"cannot be read: {error}")
        return
    is_wanted = shard.picker()
    parts = filter(None, map(str.strip, _RULE.split(text)))
    for position, part in enumerate(parts):
        if is_wanted(position):
            row, number = {"transcript": part}, position + 1
            yield shard.entry(position, number, f"transcript {number}", row, len(part), number)


__all__ = ["Entry", "Shard", "entries", "read_header", "sources_of"]

HUB = "hf://"
_WANTED = ["*.jsonl", "*.json", "*.parquet", "*.arrow", "*.zip"]  # of a dataset of the hub
_SUFFIXES: dict[str, Kind] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".eval": "eval",
    ".txt": "text",
}
_READERS: dict[Kind, Callable[[Shard], Iterator[Entry]]] = {
    "folder": read_folder,
    "json": read_json,
    "jsonl": read_jsonl,
    "csv": read_csv,
    "document": read_document,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "eval": read_eval,
    "text": read_text,
}
# Of a Hugging Face dataset, and of a run folder
_DESCRIPTIONS = (
    *"dataset_info.json dataset_infos.json dataset_dict.json state.json".split(),
    *"log.jsonl log.1.jsonl log.2.jsonl".split(),
)
_SUMMARY = re.compile(r"(?:^|[/_-])(?:summary|metrics|scores?|config|args)\.json$")
# What `datasets` leaves beside a dataset that it reads
_SCRATCH = re.compile(r"(?:^|/)cache-[\w-]+\.arrow$")
# A split's name in a path: a folder's, or the end of a file's but for a part's numbers
_SPLITS = "test validation valid val dev training train auxiliary_train".split()
_NAME = f"({'|'.join(_SPLITS)})"
_SPLIT = re.compile(
    rf"((?:.*/)?){_NAME}/.*|((?:.*?[/._-])?){_NAME}(?:[-_.]?\d[^/]*)?", re.IGNORECASE
)
_LOOKED_AT = 8  # children of a folder, to tell samples from data files


def sources_of(
    path: str, files: PublishedFiles | None = None, say: Callable[[str], None] | None = None
) -> list[Shard]:
    """The sources of a dataset's path (hf://OWNER/NAME: fetched from the hub), each as one whole
    shard; it may lie there as a benchmark published it. Of several splits the test is read, else
    the validation; `say` hears so. Raises DataError: what a dataset is."""
    path = fetch_dataset(path) if path.startswith(HUB) else path
    filesystem, inner = locate(path)
    info = filesystem.get_file_info(inner)
    is_there = info.type in (fs.FileType.File, fs.FileType.Directory)
    if files is not None and is_there and (published := files.find(path)) is not None:
        return [
            Shard(kind=file.kind, path=file.path, published=True, beside=file.beside)
            for file in published
        ]
    if info.type == fs.FileType.NotFound:
        hint = "" if "://" in path else did_you_mean(path, (fs.FileType.File,))
        raise DataError(f"no dataset at {path}{'; ' if hint else ''}{hint}")
    if info.type == fs.FileType.File:
        return [_file_shard(path)]
    if info.type == fs.FileType.Unknown:
        what = "neither a file nor a folder (a FIFO, socket or device)"
        raise DataError(f"{path} is {what}; copy what it holds to a file")
    children = filesystem.get_file_info(fs.FileSelector(inner))
    kinds = {child.base_name: child.type for child in children}
    names = sorted(name for name in kinds if not name.startswith((".", "_")))
    if {"records", "manifest.json"} <= {*names}:
        return sources_of(f"{path.rstrip('/')}/records")  # a run folder
    folders = tuple(name for name in names if kinds[name] == fs.FileType.Directory)
    data = _pick_data_files(name for name in names if kinds[name] == fs.FileType.File)
    if data and not (folders and all(_suffix(name) == ".json" for name in data)):
        return _file_shards(path, data, say)
    if folders and (below := _find_files_below(filesystem, inner, folders)):
        return _file_shards(path, below, say)
    if folders:
        return [Shard(kind="folder", path=path, names=folders)]
    raise DataError(
        f"{path} holds no samples; a dataset is a folder of <id>/{SAMPLE_FILE}, one of "
        ".jsonl, .csv or .parquet files (as Hugging Face lays them out, too), or one .json, "
        ".jsonl, .csv, .tsv, .parquet, .arrow, .eval or .txt file"
    )


def _pick_data_files(names: Iterable[str]) -> list[str]:
    """The files that hold samples: not texts beside others, nor JSON beside other than texts."""
    readable = (name for name in names if _suffix(name) in _SUFFIXES)
    files = [name for name in readable if name.rpartition("/")[2] not in _DESCRIPTIONS]
    files = [name for name in files if not _SCRATCH.search(name)] or files
    files = [name for name in files if _suffix(name) != ".txt"] or files
    rows = [name for name in files if _suffix(name) != ".json"]
    return rows or [name for name in files if not _SUMMARY.search(name)] or files


def _find_files_below(filesystem: fs.FileSystem, inner: str, folders: Sequence[str]) -> list[str]:
    """The data files in a folder's subfolders; none if those are samples themselves."""
    folder = inner.rstrip("/")
    samples = [f"{folder}/{name}/{SAMPLE_FILE}" for name in folders[:_LOOKED_AT]]
    if any(info.type == fs.FileType.File for info in filesystem.get_file_info(samples)):
        return []
    below: list[str] = []
    for number, name in enumerate(folders, 1):
        infos = filesystem.get_file_info(fs.FileSelector(f"{folder}/{name}", recursive=True))
        files = (str(info.path) for info in infos if info.type == fs.FileType.File)
        paths = (path.removeprefix(f"{folder}/") for path in files)
        below += sorted(_pick_data_files(path for path in paths if "/." not in f"/{path}"))
        if not below and number == len(samples):
            return []
    return below


def prepared(source: Shard, encoding: str = "") -> Shard:
    """A whole source with what its name does not say: how its text is written (as its byte order
    mark says, else in `encoding`), and whether a JSON file holds lines or one document."""
    if source.kind in ("parquet", "arrow", "eval", "folder"):
        return source.model_copy(update={"encoding": encoding})
    try:
        encoding = find_encoding(*locate(source.path), encoding)
    except OSError:  # which its reader says
        return source
    source = source.model_copy(update={"encoding": encoding})
    kind = source.kind if source.published else kind_of_json(source)
    if kind != source.kind:
        source = source.model_copy(update={"kind": kind, "header": {}})
    if source.published or kind not in ("json", "jsonl"):
        return source
    first = next((entry.raw for entry in entries(source)), None)
    form = form_of([first]) if isinstance(first, Mapping) else None
    if form is None or not form.once or not isinstance(first, Mapping):
        return source
    value = first.get(form.once)
    is_one = isinstance(value, str)
    return source.model_copy(update={"only": {form.once: value}}) if is_one else source


def entries(shard: Shard, files: PublishedFiles | None = None) -> Iterator[Entry]:
    """Reads the entries of a shard in order: unreadable ones too, but not those in `skip`; of a
    published file its questions."""
    skip, only = frozenset(shard.skip), [*shard.only.items()]
    if not shard.published or files is None:
        for entry in _READERS[shard.kind](shard):
            if entry.position in skip:
                continue
            row = entry.raw if only and isinstance(entry.raw, Mapping) else {}
            if all(row.get(name) in (None, own) for name, own in only):
                yield entry
        return
    position, is_wanted = 0, shard.picker()
    for item in entries(Shard(kind=shard.kind, path=shard.path, published=True)):
        for within, raw in _questions_of(item, files):
            if is_wanted(position) and position not in skip:
                where, number = ", ".join(filter(None, (item.place, within))), position + 1
                yield item._replace(
                    position=position, end=number, place=where, raw=raw, number=number
                )
            position += 1
        end = shard.take[-1] + 1 if shard.take else shard.stop
        if end is not None and position >= end:
            return


def _questions_of(item: Entry, files: PublishedFiles) -> Iterator[tuple[str, Any]]:
    """The questions of one item, by their place in it, and each one's fields or faults."""
    is_own = isinstance(item.raw, Mapping) and "query" in item.raw  # a sample in our own format
    if is_own or isinstance(item.raw, InvalidSample):
        yield "", item.raw
        return
    try:
        for question in files.questions(item.raw, item.path):
            faults = [Fault(field=field, message=message) for field, message in question.faults]
            broken = InvalidSample(faults, str(question.fields.get("id") or ""))
            yield question.place, broken if faults else dict(question.fields)
    except Exception as error:  # an odd item; a layout raises ValueError to say what is wrong
        reason = str(error) if isinstance(error, ValueError) else describe_error(error)
        yield "", invalid(reason)


def file_stem(path: str) -> str:
    """A file's or folder's name, without the endings of its format."""
    name = path.rstrip("/").rpartition("/")[2].removesuffix(".gz").removesuffix(".zst")
    return name.rpartition(".")[0] if _suffix(name) in _SUFFIXES else name


def _suffix(name: str) -> str:
    """The suffix that tells a file's format, without that of its compression."""
    name = name.removesuffix(".gz").removesuffix(".zst")
    return "." + name.rpartition(".")[2].lower() if "." in name else ""


def _one_split(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files without those of other splits beside a test or a validation; and what was left
    out, as splits."""
    stems = {name: f"{name.rpartition('/')[0]}/{file_stem(name)}".lstrip("/") for name in names}
    found = {name: match for name in names if (match := _SPLIT.fullmatch(stems[name]))}
    places = {name: (m[1] or m[3] or "", (m[2] or m[4]).lower()) for name, m in found.items()}
    kept, left = [*names], list[str]()
    for place in {place for place, _ in places.values()}:
        of = {name: split for name, (at, split) in places.items() if at == place}
        wanted = min(of.values(), key=_SPLITS.index)
        others = [name for name, split in of.items() if split != wanted and "train" not in wanted]
        kept = [name for name in kept if name not in others]
        left += [of[name] for name in others]
    return kept, sorted({*left})


def _file_shards(
    folder: str, names: Sequence[str], say: Callable[[str], None] | None
) -> list[Shard]:
    """The files of a folder; where they are several, each has its name for a label."""
    names, left = _one_split(names)
    if left and say is not None:
        taken = f"{', '.join(names[:_LOOKED_AT])}{', ...' if len(names) > _LOOKED_AT else ''}"
        how = "name the file or folder of another"
        say(f"Of {folder} {taken} is read, not its splits {', '.join(left)}; {how}.")
    labels = [name.partition(".")[0] if len(names) > 1 else "" for name in names]
    labels = labels if len({*labels}) == len(names) else [*names]
    return [
        _file_shard(f"{folder.rstrip('/')}/{name}").model_copy(update={"label": label})
        for name, label in zip(names, labels, strict=True)
    ]


def _file_shard(path: str) -> Shard:
    kind = _SUFFIXES.get(_suffix(path))
    if kind is None:
        ends = ", ".join(_SUFFIXES)
        raise DataError(f"{path}: cannot tell its format from its name; it must end in {ends}")
    return Shard(kind=kind, path=path)


def fetch_dataset(path: str) -> str:
    """Fetches the dataset hf://OWNER/NAME, or a file or folder of it, hf://OWNER/NAME/PATH, and
    unpacks its zip files (LongBench has data.zip). Returns the path on this machine. Raises
    DataError if the hub does not give it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    owner, _, rest = path.removeprefix(HUB).removeprefix("datasets/").strip("/").partition("/")
    name, _, below = rest.partition("/")
    folder = cache_dir() / "datasets" / f"{owner}--{name}".removesuffix("--")
    name = f"{owner}/{name}".removesuffix("/")
    wanted = [below, *(f"{below}/{ending}" for ending in _WANTED)] if below else _WANTED
    try:
        snapshot_download(name, repo_type="dataset", allow_patterns=wanted, local_dir=folder)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise DataError(
            f"{path} cannot be fetched: {first_line(error)}. Download it elsewhere and name its "
            "folder as the dataset."
        ) from None
    for archive in folder.rglob("*.zip"):
        target = archive.with_suffix("")
        if not target.exists():
            pending = target.with_name(f"{target.name}.pending")
            shutil.unpack_archive(archive, pending, "zip")
            pending.rename(target)
    return str(folder / below)

"""Reads entries out of JSON: a folder of sample.json files, a JSONL, one combined JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, cast

import ijson

from memray_eval.datasets.conversations import is_conversation
from memray_eval.datasets.json_layouts import EVENTS_HEAD, GuardedJson, has_rows, rows_of
from memray_eval.datasets.parsing import InvalidSample, invalid, parse_json
from memray_eval.datasets.shards import Entry, Kind, Shard
from memray_eval.errors import reason_of
from memray_eval.storage.encodings import open_text
from memray_eval.storage.paths import DamagedFile, locate

SAMPLE_FILE = "sample.json"
# Where the head of a file of responses says who answered, and for which suite; the first that is
# there counts.
HEADER_KEYS: Mapping[str, tuple[str, ...]] = {
    "candidate": ("candidate",),
    "model": ("model", "model_name", "model.name", "metadata.model"),
    "suite": ("suite",),
}
MAX_LINE_BYTES = 128 << 20  # of a JSONL; ten million tokens of context are about 50 MiB


def read_folder(shard: Shard) -> Iterator[Entry]:
    for position, name in enumerate(shard.names, start=shard.start):
        path = f"{shard.path.rstrip('/')}/{name}/{SAMPLE_FILE}"
        raw, size = _read_file(path, shard.encoding)
        yield Entry(position, position + 1, path, "", raw, size, position + 1)


def read_document(shard: Shard) -> Iterator[Entry]:
    """A JSON file that is one item, whatever it holds."""
    raw, size = _read_file(shard.path, shard.encoding)
    yield shard.entry(0, 1, "", raw, size, 1)


def _read_file(path: str, encoding: str) -> tuple[Any, int]:
    """What a JSON file holds, or why it cannot be read, and its bytes."""
    data = b""
    try:
        with open_text(*locate(path), 0, encoding) as file:
            data = file.read()
        return parse_json(data), len(data)
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError) and path.endswith(f"/{SAMPLE_FILE}")
        why = f"the folder has no {SAMPLE_FILE}" if is_absent else None
        return invalid(why or f"cannot be read: {reason_of(error)}"), 0
    except InvalidSample as error:
        return error, len(data)


def read_jsonl(shard: Shard) -> Iterator[Entry]:
    if shard.take:
        with open_text(*locate(shard.path), 0, shard.encoding) as file:
            for position, number in zip(shard.take, shard.numbers or shard.take, strict=True):
                file.seek(position)
                line = file.readline()
                yield _parse_line(shard, position, f"byte {position}", line, number)
        return
    position, number = shard.start, shard.first_number - 1
    try:
        with open_text(*locate(shard.path), shard.start, shard.encoding) as file:
            while line := file.readline(MAX_LINE_BYTES):
                start, position, number = position, position + len(line), number + 1
                if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    while (part := file.readline(1 << 20)) and not part.endswith(b"\n"):
                        position += len(part)  # to the line's end
                    position += len(part)
                    most = f"{MAX_LINE_BYTES >> 20} MiB"
                    text = f"the line is longer than {most}; no sample is so long"
                    yield Entry(start, position, shard.path, f"line {number}", invalid(text), 0)
                elif line.strip():
                    yield _parse_line(shard, start, f"line {number}", line, number)
                if shard.stop is not None and position >= shard.stop:
                    return
    except DamagedFile as error:
        yield shard.broken_entry(position, f"nothing after line {number} can be read: {error}")


def _parse_line(shard: Shard, position: int, label: str, line: bytes, number: int) -> Entry:
    try:
        raw = parse_json(line)
    except InvalidSample as error:
        raw = error
    return shard.entry(position, position + len(line), label, raw, len(line), number)


def read_header(shard: Shard) -> dict[str, str]:
    """What a JSON object says beside its list, before or after it: the text at each of HEADER_KEYS.
    Empty for a plain list, for other formats, and for broken JSON, which its reader reports."""
    if shard.kind != "json":
        return {}
    paths = {path for names in HEADER_KEYS.values() for path in names}
    texts: dict[str, str] = {}
    with open_text(*locate(shard.path), encoding=shard.encoding) as file:
        try:
            _skip_mark(file)
            for prefix, event, value in ijson.parse(GuardedJson(file)):
                if prefix == "" and event == "start_array":
                    return {}
                if prefix in paths and event == "string" and value.strip():
                    texts.setdefault(prefix, value.strip())
        except (ijson.JSONError, UnicodeDecodeError, OSError):
            pass
    return {
        field: next(texts[path] for path in names if path in texts)
        for field, names in HEADER_KEYS.items()
        if not texts.keys().isdisjoint(names)
    }


def read_json(shard: Shard) -> Iterator[Entry]:
    position, is_wanted = 0, shard.picker()
    try:
        for raw in rows_of(lambda: _open_after_mark(shard)):
            if is_wanted(position):
                item, number = _apply_header(raw, shard.header), position + 1
                yield shard.entry(position, number, f"item {number}", item, 0, number)
            position += 1
            if shard.take and position > shard.take[-1]:
                return
        if position == 0:
            wanted = 'a list of samples, or an object with the list under "samples"'
            yield shard.broken_entry(0, f"holds no samples; it must be {wanted}")
    except InvalidSample as error:
        yield shard.broken_entry(position, str(error))
    except (ijson.JSONError, UnicodeDecodeError, DamagedFile) as error:
        is_json = isinstance(error, ijson.JSONError) and "utf" not in str(error).lower()
        text = f"not UTF-8 after item {position}; save it so, or say which --encoding"
        if is_json:
            text = f"broken JSON after item {position}: {first_line(error)}"
        elif isinstance(error, DamagedFile):
            text = f"nothing after item {position} can be read: {error}"
        yield shard.broken_entry(position, text)


def kind_of_json(shard: Shard) -> Kind:
    """The kind of a .json or .jsonl file: a value a line, or one document; else as it is."""
    if shard.kind not in ("json", "jsonl"):
        return shard.kind
    with open_text(*locate(shard.path), encoding=shard.encoding) as file:
        try:
            _skip_mark(file)
            while (first := file.readline(MAX_LINE_BYTES)).isspace():
                pass
            rest = file.read(4096).strip()
            value = parse_json(first)
        except InvalidSample:  # a document over several lines, or a line that is broken
            is_open = first.strip() in (b"[", b"{") or first.lstrip()[:1] == b"["
            return "json" if is_open else shard.kind
        except OSError:
            return shard.kind
    if rest:
        is_lines = isinstance(value, dict) and rest[:1] == b"{"
        if is_lines and value.keys() == EVENTS_HEAD:
            return "json"  # of which several lines are a sample
        return "jsonl" if is_lines else shard.kind
    is_list = isinstance(value, list) and not is_conversation(value)
    return "json" if is_list or has_rows(value) else shard.kind


def _open_after_mark(shard: Shard) -> BinaryIO:
    file = open_text(*locate(shard.path), encoding=shard.encoding)
    _skip_mark(file)
    return cast(BinaryIO, file)


def _skip_mark(file: io.BufferedReader) -> None:
    """Reads past a byte order mark."""
    if file.peek(3)[:3] == b"\xef\xbb\xbf":
        file.read(3)


def _apply_header(raw: Any, header: Mapping[str, str]) -> Any:
    """Adds what the file's header says to an item that does not say it itself."""
    if not header or not isinstance(raw, dict):
        return raw
    return raw | {
        field: header[field]
        for field in header
        if all(raw.get(name) is None for name in HEADER_KEYS[field])
    }


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

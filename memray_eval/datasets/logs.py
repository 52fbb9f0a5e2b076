"""Reads entries out of Inspect's .eval logs and plain transcripts."""

from __future__ import annotations

import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, cast

import pyarrow as pa

from memray_eval.datasets.parsing import InvalidSample, invalid, parse_json
from memray_eval.datasets.shards import Entry, Shard
from memray_eval.storage.encodings import open_text
from memray_eval.storage.paths import locate

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
                    raw: Any = parse_json(_read_member(log, source, info))
                except InvalidSample as error:
                    raw = error
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
        with open_text(*locate(shard.path), encoding=shard.encoding) as file:
            text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"not UTF-8 (byte {error.start}); save it so, or say which --encoding"
        yield shard.broken_entry(0, what)
        return
    except OSError as error:
        yield shard.broken_entry(0, f"cannot be read: {error}")
        return
    is_wanted = shard.picker()
    parts = filter(None, (part.strip() for part in _RULE.split(text)))
    for position, part in enumerate(parts):
        if is_wanted(position):
            row, number = {"transcript": part}, position + 1
            yield shard.entry(position, number, f"transcript {number}", row, len(part), number)

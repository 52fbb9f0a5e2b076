"""Files of JSON lines in a run's folder, on a local path or a cloud URL."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pyarrow import fs

from memray_eval.storage.paths import is_object_store, locate, write_whole


class JsonLines:
    """A file that one process appends to. A line that a kill cut off is not read."""

    def __init__(self, path: str) -> None:
        self._filesystem, self._path = locate(path)
        self._is_whole = not isinstance(self._filesystem, fs.LocalFileSystem)
        if not is_object_store(self._filesystem):
            self._filesystem.create_dir(posixpath.dirname(self._path), recursive=True)

    def read(self) -> list[dict[str, Any]]:
        """The lines; none where there is no such file."""
        return _parse(self._bytes())

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(
            "utf-8", "backslashreplace"
        )
        if self._is_whole:
            return write_whole(self._filesystem, self._path, self._bytes() + data)
        with open(self._path, "ab", buffering=0) as file:
            if file.tell() and not _ends_whole(self._path):
                data = b"\n" + data
            file.write(data)

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        """Writes these in the place of all others."""
        write_whole(self._filesystem, self._path, b"")
        self.append(lines)

    def _bytes(self) -> bytes:
        if self._filesystem.get_file_info(self._path).type != fs.FileType.File:
            return b""
        with self._filesystem.open_input_stream(self._path, compression=None) as stream:
            return bytes(stream.read())


def _ends_whole(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _parse(data: bytes) -> list[dict[str, Any]]:
    lines = []
    for line in data.splitlines():
        with suppress(ValueError):  # a kill cut it off
            lines.append(json.loads(line))
    return lines


def read_folder(path: str, ending: str = ".jsonl") -> dict[str, list[dict[str, Any]]]:
    """The lines of all files at and below a folder, by the path of each in it; none without it."""
    filesystem, inner = locate(path)
    selector = fs.FileSelector(inner, recursive=True, allow_not_found=True)
    files = (info.path for info in filesystem.get_file_info(selector) if info.is_file)
    lines = {}
    for file in sorted(name for name in files if name.endswith(ending)):
        with filesystem.open_input_stream(file, compression=None) as stream:
            lines[posixpath.relpath(file, inner)] = _parse(stream.read())
    return lines

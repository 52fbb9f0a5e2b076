"""Paths that may be local or a cloud URL (s3://, gs://, ...), through pyarrow's file systems."""

from __future__ import annotations

import io
import os
from typing import cast

from pyarrow import fs

from memray_eval.errors import ConfigError


def locate(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path within it. Raises ConfigError for a scheme pyarrow does not know."""
    if "://" not in path:
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        return cast(tuple[fs.FileSystem, str], fs.FileSystem.from_uri(path))
    except (ValueError, OSError) as error:
        raise ConfigError(f"cannot open {path}: {error}") from None


def open_reader(filesystem: fs.FileSystem, path: str, start: int = 0) -> io.BufferedReader:
    """A buffered binary reader from byte `start`. Raises OSError."""
    file = filesystem.open_input_file(path)
    if start:
        file.seek(start)
    return io.BufferedReader(file, buffer_size=1 << 20)


def write_whole(filesystem: fs.FileSystem, path: str, data: bytes) -> None:
    """Writes a file so that it appears whole or not at all: under a pending name, then moved. Overwrites."""
    pending = f"{path}.pending-{os.getpid()}"
    with filesystem.open_output_stream(pending) as stream:
        stream.write(data)
    filesystem.move(pending, path)

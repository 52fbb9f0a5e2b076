"""Writes a report's files, local or in the cloud, so that they appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from pyarrow import fs

from memray_eval.errors import ConfigError
from memray_eval.storage.paths import locate, translate_cloud_errors, whole_file


@contextmanager
def write_atomically(path: str, mend: str = "name another place") -> Iterator[IO[bytes]]:
    """Opens a file for writing, at a local path or cloud URL. If the block raises, what was there
    before stays. Raises ConfigError, with `mend` as the way out, for a place that cannot be
    written, and what `translate_cloud_errors` raises for a cloud."""
    filesystem, inner = locate(path)
    with translate_cloud_errors(path), ExitStack() as stack:
        try:
            if "://" not in path and filesystem.get_file_info(inner).type == fs.FileType.Directory:
                raise ConfigError(f"{path} is a folder; {mend}")
            file = stack.enter_context(whole_file(filesystem, inner))
        except OSError as error:
            if "://" in path:
                raise
            raise ConfigError(f"cannot write {path}: {error}; {mend}") from None
        yield file

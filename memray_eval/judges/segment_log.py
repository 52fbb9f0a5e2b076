"""Judge calls in a folder of any pyarrow file system, for runs whose folder is in the cloud, where
no file can be appended to: each segment is a whole object, many small ones become a few large."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from memray_eval.errors import ConfigError, ResourceError
from memray_eval.judges.call_cache import CachedCall
from memray_eval.storage.paths import is_object_store, locate, translate_cloud_errors, write_whole

logger = logging.getLogger(__name__)

SUFFIX = ".jsonl.zst"
READERS = 32  # requests at once: far away it is the waiting that takes long
READ_AHEAD_BYTES = 16 << 20  # of packed segments that are read before they are taken


class Segment(NamedTuple):
    """The calls of one object; `n_bytes` is its size unpacked."""

    path: str
    calls: list[CachedCall]
    n_bytes: int


class SegmentLog:
    """Judge calls as many whole objects in a folder or a cloud URL, for any number of processes: a
    segment is deleted only when another holds all its calls. `n_unreadable` counts skipped ones."""

    def __init__(self, folder: str) -> None:
        """Raises ConfigError for an unknown scheme. Nothing is made before the first append."""
        self.folder = folder.rstrip("/")
        self.n_unreadable = 0
        self._filesystem, self._inner = locate(self.folder)

    @property
    def is_remote(self) -> bool:
        """Whether an append takes a request to an object store."""
        return is_object_store(self._filesystem)

    def append(self, calls: Sequence[CachedCall]) -> Segment | None:
        """Writes the calls as one object, whole or not at all; None if there are none. Raises
        ResourceError where it cannot be written now, ConfigError where access is denied."""
        if not calls:
            return None
        # Without defaults, so that older versions read what has nothing new in it.
        lines = (call.model_dump_json(exclude_defaults=True) for call in calls)
        text = "".join(f"{line}\n" for line in lines).encode()
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(text)
        # sorts by time, for load
        name = f"calls-{calls[0].created * 1000:015.0f}-{secrets.token_hex(8)}{SUFFIX}"
        path = f"{self._inner}/{name}"
        try:
            with translate_cloud_errors(self.folder):
                if not self.is_remote:
                    self._filesystem.create_dir(self._inner, recursive=True)
                write_whole(self._filesystem, path, sink.getvalue().to_pybytes())
        except OSError as error:
            raise ResourceError(f"cannot write judge calls to {self.folder}: {error}") from None
        return Segment(path, list(calls), len(text))

    def merge(self, calls: Sequence[CachedCall], sources: Sequence[str]) -> Segment | None:
        """Writes `calls`, which must be all those of the segments at the paths `sources`, as one
        segment; only then deletes those. What a kill leaves of them holds the same calls once
        more. Raises what append raises; a segment that cannot be deleted is left."""
        merged = self.append(calls)
        with ThreadPoolExecutor(READERS) as threads:
            n_left = sum(threads.map(self._try_delete, sources))
        if n_left:
            logger.info("%d merged segments could not be deleted in %s", n_left, self.folder)
        return merged

    def load(self) -> Iterator[Segment]:
        """The segments, earlier ones first; unreadable ones are counted. Lists again if another
        process merged one. Raises ConfigError if the folder cannot be listed, unless it does not
        exist."""
        self.n_unreadable = 0
        seen = set[str]()
        with ThreadPoolExecutor(READERS) as readers:
            is_gone = True
            while is_gone:
                is_gone = False
                infos = [info for info in self._list() if info.path not in seen]
                seen.update(info.path for info in infos)
                for path, reading in self._read_ahead(readers, infos):
                    try:
                        data = reading.result()
                        calls = [CachedCall.model_validate_json(line) for line in data.splitlines()]
                    except FileNotFoundError:
                        is_gone = True
                    except (OSError, ValueError):  # cut off, not zstd, not JSON, not a call
                        self.n_unreadable += 1
                    else:
                        yield Segment(path, calls, len(data))

    def _read_ahead(
        self, readers: ThreadPoolExecutor, infos: Sequence[fs.FileInfo]
    ) -> Iterator[tuple[str, Future[bytes]]]:
        """Reads many segments at once, but no more than READ_AHEAD_BYTES of them before they are
        taken; a single one may be larger. The threads only read: if they decoded too, they would
        take the interpreter from whoever stores what is read, at every row."""
        reading, n_bytes = deque[tuple[str, int, Future[bytes]]](), 0
        for info in infos:
            size = int(info.size or 0)
            while reading and (n_bytes + size > READ_AHEAD_BYTES or len(reading) >= 4 * READERS):
                path, done, future = reading.popleft()
                n_bytes -= done
                yield path, future
            reading.append((info.path, size, readers.submit(self._read, info.path)))
            n_bytes += size
        while reading:
            path, _, future = reading.popleft()
            yield path, future

    def _try_delete(self, path: str) -> bool:
        """Whether the segment is still there."""
        try:
            with suppress(FileNotFoundError):  # another process merged it as well
                self._filesystem.delete_file(path)
        except OSError:
            return True
        return False

    def _list(self) -> list[fs.FileInfo]:
        try:
            infos = self._filesystem.get_file_info(
                fs.FileSelector(self._inner, allow_not_found=True)
            )
        except OSError as error:
            raise ConfigError(f"cannot list the judge calls in {self.folder}: {error}") from None
        # What a kill left pending ends otherwise.
        segments = [info for info in infos if info.path.endswith(SUFFIX)]
        return sorted(segments, key=lambda info: info.path)

    def _read(self, path: str) -> bytes:
        with self._filesystem.open_input_stream(path, compression="zstd") as stream:
            data = bytes(stream.read())
        if not data:  # none is written empty, but zstd takes a file cut off at its start for one
            raise ValueError(f"{path} is empty")
        return data

"""The paid calls of a run: found in a file on this machine, kept there or in segments of a cloud
folder. Calls of many judge actors are written together, and lookups wait for no write."""

import asyncio
import logging
import math
import secrets
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from memray_eval.errors import ConfigError, EvalError, ResourceError
from memray_eval.judges.call_cache import BEAT_S, CachedCall, CallCache, Lease
from memray_eval.log_once import log_once
from memray_eval.storage.paths import is_object_store, locate, translate_cloud_errors, write_whole

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
        """Writes `calls`, all those of the segments `sources`, as one segment; only then deletes
        those. Raises what append raises."""
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
        """Reads many segments at once, at most READ_AHEAD_BYTES before they are taken. The threads
        only read: decoding would take the interpreter from whoever stores what is read."""
        waiting, n_bytes = deque((info.path, int(info.size or 0)) for info in infos), 0
        reading = deque[tuple[str, int, Future[bytes]]]()
        while waiting or reading:
            fits = waiting and (not reading or n_bytes + waiting[0][1] <= READ_AHEAD_BYTES)
            if fits and len(reading) < 4 * READERS:
                path, size = waiting.popleft()
                reading.append((path, size, readers.submit(self._read, path)))
                n_bytes += size
            else:
                path, size, future = reading.popleft()
                n_bytes -= size
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


logger = logging.getLogger(__name__)

COMMIT_S = 0.5  # a group of calls is written to an object store at most this often ...
FEW = 32  # ... but after one of fewer calls, where a wait would save no request
PAUSES_S = (0.5, 2.0)  # before a failed write is tried again; the cloud's client has tried before
MERGED_CALLS, MERGED_BYTES = 50_000, 64 << 20  # of a segment that others were merged into
SMALL_SEGMENTS = 500  # so many are merged


class PaidCalls:
    """Judge calls by key, for one event loop. With a log, `cache` is a scratch copy of it. Once
    `put` returns, its calls outlive a kill; what many tasks put goes into few large writes. Calls
    whose write failed are written with the next ones. `n_open` calls were claimed by earlier
    processes of the `run`."""

    def __init__(self, cache: CallCache, log: SegmentLog | None, run: str = "") -> None:
        self._cache, self._log, self.n_open = cache, log, 0
        self._owner = uuid.uuid4().hex
        self._run = run or self._owner
        self._leases, self._is_over = ThreadPoolExecutor(1, "lease-calls"), threading.Event()
        self._reader = CallCache(cache.path)  # a connection of its own: it waits for no writer
        self._lookups = ThreadPoolExecutor(1, "look-up-calls")
        self._writer = ThreadPoolExecutor(1, "write-calls")
        self._waiting = list[tuple[Sequence[CachedCall], asyncio.Future[None]]]()
        self._pump: asyncio.Task[None] | None = None
        self._pending = dict[str, CachedCall]()
        self._unwritten = list[CachedCall]()
        self._small = list[Small]()
        self._commit_s = COMMIT_S if log is not None and log.is_remote else 0.0

    def load(self) -> int:
        """Copies the log's calls into the cache. Returns how many segments could not be read.
        Raises ConfigError if the log cannot be listed."""
        if self._log is None:
            self.n_open = self._cache.join(self._run)
            threading.Thread(target=self._renew, daemon=True, name="renew-leases").start()
            return 0
        for segment in self._log.load():
            self._cache.put(segment.calls)
            self._note_small(segment)
        return self._log.n_unreadable

    async def get(self, keys: Sequence[str]) -> list[CachedCall | None]:
        """The call of each key, None if there is none."""
        calls = {key: call for key in keys if (call := self._pending.get(key)) is not None}
        if others := [key for key in keys if key not in calls]:
            loop = asyncio.get_running_loop()
            calls |= await loop.run_in_executor(self._lookups, self._reader.get, others)
        return [calls.get(key) for key in keys]

    async def claim(self, keys: Sequence[str]) -> list[CachedCall | Lease]:
        """The call of each key, or the lease on it: the intent to ask for it outlives a kill."""
        leases: dict[str, Lease] = dict.fromkeys(keys, "new")
        looked_up = list(keys)
        if self._log is None:
            loop = asyncio.get_running_loop()
            wanted = [key for key in keys if key not in self._pending]
            claim = self._cache.claim
            leases |= await loop.run_in_executor(
                self._leases, claim, wanted, self._owner, self._run
            )
            looked_up = [key for key in keys if leases[key] == "held" or key not in wanted]
        found = await self.get(looked_up) if looked_up else []
        calls = dict(zip(looked_up, found, strict=True))
        return [calls.get(key) or leases[key] for key in keys]

    async def release(self, keys: Sequence[str]) -> None:
        """Gives up the leases on calls that came to nothing."""
        if self._log is None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._leases, self._cache.release, keys, self._owner)

    async def put(self, calls: Sequence[CachedCall]) -> None:
        """Keeps the calls, also if the caller is cancelled. Raises ResourceError or ConfigError if
        they cannot be kept."""
        self._pending |= {call.key: call for call in calls}
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((calls, written))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._write_groups())
        try:
            await written
        finally:
            for call in calls:
                self._pending.pop(call.key, None)

    async def _write_groups(self) -> None:
        """One group after the other: after a large one the next gathers until `_commit_s` from its
        beginning."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            (group, self._waiting), began_at = (self._waiting, []), loop.time()
            together, failed = [call for calls, _ in group for call in calls], None
            try:
                await loop.run_in_executor(self._writer, self._write, together)
            except Exception as error:  # it belongs to those who asked
                failed = error
            for written in [written for _, written in group if not written.done()]:
                if failed is None:
                    written.set_result(None)
                else:
                    written.set_exception(failed)
            if len(together) >= FEW:
                await asyncio.sleep(began_at + self._commit_s - loop.time())

    async def compact(self) -> None:
        """Waits for writes, ends the leases, and merges the small segments. Never raises: what is
        not merged now is merged by the next session."""
        if self._pump is not None:
            await asyncio.wait([self._pump])
        self._is_over.set()
        if self._log is None:
            with suppress(EvalError):
                await asyncio.to_thread(self._cache.renew, self._owner, 0.0)
        else:
            with suppress(EvalError):  # of calls whose write failed: those who put them know
                await asyncio.to_thread(self._write, [])
            await asyncio.to_thread(self._merge)

    def close(self) -> None:
        self._is_over.set()
        for thread in (self._writer, self._lookups, self._leases):
            thread.shutdown()
        self._reader.close()
        self._cache.close()

    def _renew(self) -> None:
        while not self._is_over.wait(BEAT_S):
            with suppress(EvalError, sqlite3.ProgrammingError):  # a full disk; it is closed
                self._cache.renew(self._owner)

    def _write(self, calls: list[CachedCall]) -> None:
        if self._log is None:
            self._cache.put(calls)
            return
        if not (together := [*self._unwritten, *calls]):
            return
        self._unwritten = together[-MERGED_CALLS:]
        try:
            segment = self._append(self._log, together)
        finally:
            self._cache.put(calls)
        self._unwritten = []
        self._note_small(segment)
        if len(self._small) >= SMALL_SEGMENTS:
            self._merge()

    def _append(self, log: SegmentLog, calls: list[CachedCall]) -> Segment | None:
        for pause_s in PAUSES_S:
            try:
                return log.append(calls)
            except ResourceError as error:  # a refusal, a ConfigError, stays one
                log_once(logger, logging.WARNING, "calls unwritten", "%s; it is tried again", error)
            time.sleep(pause_s)
        return log.append(calls)

    def _note_small(self, segment: Segment | None) -> None:
        """Notes a segment to be merged: any two of them make no more than one large one."""
        if segment is None:
            return
        path, calls, n_bytes = segment
        if len(calls) < MERGED_CALLS // 2 and n_bytes < MERGED_BYTES // 2:
            keys = "\n".join(call.key for call in calls)
            self._small.append(Small(path, keys, len(calls), n_bytes))

    def _merge(self) -> None:
        """Merges the small segments that are known. Never raises: they stay for another time."""
        assert self._log is not None
        small, self._small = self._small, []
        groups, n_calls, n_bytes = list[list[Small]](), math.inf, 0
        for part in small:
            n_calls, n_bytes = n_calls + part.n_calls, n_bytes + part.n_bytes
            if n_calls > MERGED_CALLS or n_bytes > MERGED_BYTES:
                groups.append([])
                n_calls, n_bytes = part.n_calls, part.n_bytes
            groups[-1].append(part)
        for parts in groups:
            if len(parts) == 1:
                self._small += parts
                continue
            # From the cache, so that nothing is read again
            keys = dict.fromkeys(key for part in parts for key in part.keys.split("\n"))
            try:
                calls = self._reader.get(keys)
                if len(calls) < len(keys):  # the cache is not whole: the segments stay
                    n_lost = len(keys) - len(calls)
                    raise ResourceError(f"{n_lost} of their calls are not found here")
                self._note_small(
                    self._log.merge(list(calls.values()), [part.path for part in parts])
                )
            except Exception as error:  # of the cloud
                text = "segments of judge calls in %s are not merged, the next session will try: %s"
                where = self._log.folder
                log_once(logger, logging.WARNING, "calls unmerged", text, where, error)


class Small(NamedTuple):
    """A segment that is merged with others. `keys` are those of its calls, one a line."""

    path: str
    keys: str
    n_calls: int
    n_bytes: int

"""Leases on a place in an object store: a small file that its holder keeps rewriting."""

import _thread
import fcntl
import json
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyarrow import fs

from memray_eval.errors import ConfigError, ResourceError
from memray_eval.storage.paths import translate_cloud_errors, write_whole

BEAT_S = 3.0  # how often the holder rewrites its lease
BEATS = 3  # a lease that does not change for this many beats has lost its holder


@contextmanager
def hold_lease(
    filesystem: fs.FileSystem,
    path: str,
    url: str,
    beat_s: float = BEAT_S,
    sleep: Callable[[float], None] = time.sleep,
    on_lost: Callable[[], None] = _thread.interrupt_main,
) -> Iterator[Callable[[], bool]]:
    """Keeps other processes out of `url` while the block runs, by a lease at `path` rewritten every
    `beat_s` seconds; yields a function that tells if it is lost (`on_lost` interrupts). pyarrow has
    no conditional PUT: two that start in the same second may both get in until the next beat.
    Raises ConfigError when another process is at work, ResourceError when one took the lease."""
    lease, stopping, lost = _Lease(filesystem, path, url), threading.Event(), threading.Event()

    def keep() -> None:
        while not stopping.wait(beat_s):
            with suppress(OSError):  # the cloud stumbled: try again at the next beat
                if not lease.is_ours():
                    lost.set()
                    on_lost()
                    return
                lease.beat()

    with translate_cloud_errors(url):
        lease.refuse_live_holder(beat_s, sleep)
        lease.beat()
        sleep(beat_s / BEATS)
        if not lease.is_ours():
            raise lease.in_use_error(lease.read())
    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield lost.is_set
    except KeyboardInterrupt:
        if lost.is_set():
            raise taken_over_error(url) from None
        raise
    finally:
        stopping.set()
        keeper.join()
        with suppress(OSError):  # the next holder waits until a leftover lease expires
            lease.drop()


class _Lease:
    """One holder's lease file, recognised by a random token."""

    def __init__(self, filesystem: fs.FileSystem, path: str, url: str) -> None:
        self._filesystem, self._path, self._url = filesystem, path, url
        self._token, self._beats = secrets.token_hex(8), 0

    def beat(self) -> None:
        content: dict[str, Any] = {"token": self._token, "beat": self._beats}
        content |= {"host": socket.gethostname(), "pid": os.getpid()}
        write_whole(self._filesystem, self._path, json.dumps(content).encode())
        self._beats += 1

    def is_ours(self) -> bool:
        """True if the lease is this holder's, or missing."""
        return bool(self.read().get("token", self._token) == self._token)

    def drop(self) -> None:
        if self.read().get("token") == self._token:
            self._filesystem.delete_file(self._path)

    def refuse_live_holder(self, beat_s: float, sleep: Callable[[float], None]) -> None:
        """Raises ConfigError if another process rewrites the lease within BEATS beats."""
        before = self.read()
        for _ in range(BEATS if before else 0):
            sleep(beat_s)
            now = self.read()
            if now and now != before:
                raise self.in_use_error(now)

    def read(self) -> dict[str, Any]:
        """The lease's content; empty if there is no lease."""
        try:
            with self._filesystem.open_input_stream(self._path) as stream:
                return dict(json.loads(stream.read()))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def in_use_error(self, holder: dict[str, Any]) -> ConfigError:
        who = f"process {holder.get('pid')} of {holder.get('host')}"
        return ConfigError(
            f"another process is at work in {self._url} ({who}); wait for it, or end it first"
        )


def taken_over_error(url: str) -> ResourceError:
    return ResourceError(f"another process took over {url}; this one has stopped, nothing is lost")


PREFIX, PENDING = "memray-eval-", "memray-eval.pending-"
_LOCK, _FILES = ".lock", "files"


class ScratchFolder:
    """A folder for this process alone, removed by `close` or its end; what killed processes left is
    removed by the next that makes one: locks tell, also between containers."""

    def __init__(self, what: str) -> None:
        sweep()
        # Nobody sweeps it before it is locked
        pending = Path(tempfile.mkdtemp(prefix=PENDING))
        lock = os.open(pending / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (pending / _FILES).mkdir()
        token = pending.name.removeprefix(PENDING)
        home = pending.rename(pending.with_name(f"{PREFIX}{what}-{token}"))
        self.path = home / _FILES
        self._end = weakref.finalize(self, _remove, str(home), lock, os.getpid())

    def close(self) -> None:
        self._end()

    def __enter__(self) -> str:
        return str(self.path)

    def __exit__(self, *error: object) -> None:
        self.close()


def sweep() -> int:
    """Removes the folders of processes that ended without doing so, and returns their number."""
    n_removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is somebody else's, or is being removed
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                n_removed += 1
            finally:
                os.close(lock)
    return n_removed


def _remove(path: str, lock: int, pid: int) -> None:
    if os.getpid() == pid:  # not in a process that was forked from it
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)

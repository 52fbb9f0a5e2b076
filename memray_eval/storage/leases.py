"""Holding a place in an object store: a small file that its holder keeps writing anew."""

from __future__ import annotations

import _thread
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyarrow import fs

from memray_eval.errors import ConfigError, ResourceError
from memray_eval.storage.paths import translate_cloud_errors, write_whole

BEAT_S, BEATS = (
    3.0,
    3,
)  # a lease is written anew so often; one that so many beats did not change has no holder any more


@contextmanager
def hold_lease(
    filesystem: fs.FileSystem,
    path: str,
    url: str,
    beat_s: float = BEAT_S,
    sleep: Callable[[float], None] = time.sleep,
    on_lost: Callable[[], None] = _thread.interrupt_main,
) -> Iterator[Callable[[], bool]]:
    """Keeps other processes out of what `url` names, by a lease at `path` that is written anew
    while the block runs.

    pyarrow has no conditional PUT, so two that start in the same second may both get in: the one
    whose lease is gone sees it at its next beat, and `on_lost` interrupts it. A lease that a kill
    left is watched for BEATS beats first; no clock is compared. Gives the block a way to ask
    whether the lease is lost: what it holds is then another's to write. Raises ConfigError where
    another process is at work, ResourceError where one took the lease."""
    lease, stopping, lost = _Lease(filesystem, path), threading.Event(), threading.Event()

    def keep() -> None:
        while not stopping.wait(beat_s):
            with suppress(OSError):  # the cloud stumbles: at the next beat, then
                if not lease.is_ours():
                    lost.set()
                    on_lost()
                    return
                lease.beat()

    with translate_cloud_errors(url):
        _refuse_live_holder(filesystem, path, url, beat_s, sleep)
        lease.beat()
        sleep(beat_s / BEATS)
        if not lease.is_ours():
            raise _in_use_error(url, _read_holder(filesystem, path))
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
        with suppress(OSError):  # what stays is waited out by the next
            lease.drop()


class _Lease:
    """The file of one holder, which tells itself from others by a token."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self._token, self._beats = secrets.token_hex(8), 0

    def beat(self) -> None:
        said = {
            "token": self._token,
            "beat": self._beats,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        write_whole(self._filesystem, self._path, json.dumps(said).encode())
        self._beats += 1

    def is_ours(self) -> bool:
        """Whether nobody else's is there."""
        return bool(
            _read_holder(self._filesystem, self._path).get("token", self._token) == self._token
        )

    def drop(self) -> None:
        if _read_holder(self._filesystem, self._path).get("token") == self._token:
            self._filesystem.delete_file(self._path)


def taken_over_error(url: str) -> ResourceError:
    return ResourceError(f"another process took over {url}; this one has stopped, nothing is lost")


def _refuse_live_holder(
    filesystem: fs.FileSystem, path: str, url: str, beat_s: float, sleep: Callable[[float], None]
) -> None:
    """Raises ConfigError when somebody writes the lease while we look; returns where nobody
    does."""
    before = _read_holder(filesystem, path)
    for _ in range(BEATS if before else 0):
        sleep(beat_s)
        now = _read_holder(filesystem, path)
        if now and now != before:
            raise _in_use_error(url, now)


def _read_holder(filesystem: fs.FileSystem, path: str) -> dict[str, Any]:
    """What the lease says; nothing where there is none."""
    try:
        with filesystem.open_input_stream(path) as stream:
            return dict(json.loads(stream.read()))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _in_use_error(url: str, holder: dict[str, Any]) -> ConfigError:
    who = f"process {holder.get('pid')} of {holder.get('host')}"
    return ConfigError(f"another process is at work in {url} ({who}); wait for it, or end it first")

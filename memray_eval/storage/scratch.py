"""Folders that a process keeps on this machine while it needs them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

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
        made = pending.name.removeprefix(PENDING)
        home = pending.rename(pending.with_name(f"{PREFIX}{what}-{made}"))
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

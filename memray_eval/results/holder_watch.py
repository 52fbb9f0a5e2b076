"""Tells whether a process is at work in a run folder, for those who only look."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable

from pyarrow import fs

from memray_eval.results.run_folder import LEASE, LOCK
from memray_eval.storage.leases import BEAT_S, BEATS
from memray_eval.storage.paths import locate, translate_cloud_errors

LOST_AFTER_S = 2 * BEATS * BEAT_S  # twice what a holder's successor waits


class HolderWatch:
    """Watches one run folder: on a local disk the file lock of its process, in the cloud the lease
    that a process keeps rewriting.

    A local lock is tried as a shared one, which is given back at once: a process that holds it is
    not disturbed. Of a lease only a change counts, as no clocks are compared, so a run in the cloud
    counts as held until its lease has stood still for LOST_AFTER_S."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._filesystem, self._inner = locate(path)
        self._beat: tuple[int | None, float] | None = None  # the lease's time, and when it was seen

    def is_held(self) -> bool:
        """True if a process is at work there now. Raises EvalError for a cloud that does not
        answer."""
        if isinstance(self._filesystem, fs.LocalFileSystem):
            return _is_locked(f"{self._inner}/{LOCK}")
        with translate_cloud_errors(self._path):
            info = self._filesystem.get_file_info(f"{self._inner}/{LEASE}")
        if info.type != fs.FileType.File:
            self._beat = None
            return False
        if self._beat is None or self._beat[0] != info.mtime_ns:
            self._beat = (info.mtime_ns, self._clock())
        return self._clock() - self._beat[1] < LOST_AFTER_S


def _is_locked(path: str) -> bool:
    try:
        with open(path, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock, or none that this user may try
        return False
    return False

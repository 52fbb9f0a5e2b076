"""Finds run folders: by when they were last written to (latest, latest~1, ...), by a name that is
not quite theirs; and tells if a process works in one."""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from memray_eval.config.environment import cache_dir
from memray_eval.errors import DataError
from memray_eval.results.run_folder import LEASE, LOCK, RunFolder
from memray_eval.storage.leases import BEAT_S, BEATS
from memray_eval.storage.paths import locate, translate_cloud_errors

LATEST, _OUTS = "latest", 50
_NAMED = re.compile(rf"{LATEST}(?:~(?P<back>\d+))?")


def remember_out(out: str) -> None:
    """Remembers the folders of the working folder's runs, for `latest`, if the cache can be
    written: outs.txt has a working folder and a folder of runs a line, the last _OUTS of them."""
    path = out if "://" in out else os.path.abspath(out)
    line = f"{os.getcwd()}\t{path}"
    with suppress(OSError):
        outs = cache_dir() / "outs.txt"
        lines = outs.read_text("utf-8").splitlines() if outs.exists() else []
        if lines[-1:] != [line]:
            outs.parent.mkdir(parents=True, exist_ok=True)
            kept = [*(other for other in lines if other != line), line][-_OUTS:]
            outs.write_text("\n".join(kept) + "\n", "utf-8")


def _remembered_outs() -> Iterator[tuple[str, str]]:
    with suppress(OSError, UnicodeDecodeError):
        for line in reversed((cache_dir() / "outs.txt").read_text("utf-8").splitlines()):
            folder, _, out = line.partition("\t")
            yield folder, out


def find_run(name: str, out: str = "results") -> str:
    """The folder of a run: `latest` is the one that was written to last, of `out` and of the
    folders to which runs were written from this working folder, `latest~1` the one before; any
    other name is a folder's own, or that of a run in these. Raises DataError if there are fewer."""
    named = _NAMED.fullmatch(name)
    if "/" in name or (named is None and os.path.exists(name)) or RunFolder(name).has_manifest():
        return name
    remembered = list(_remembered_outs())
    from_cwd = [folder for at, folder in remembered if at == os.getcwd()]
    outs = {os.path.abspath(folder): folder for folder in (*reversed(from_cwd), out.rstrip("/"))}
    if named is None:
        folders = (f"{folder}/{name}" for folder in reversed(outs.values()))
        return next((at for at in folders if RunFolder(at).has_manifest()), name)
    back = int(named["back"] or 0)
    written = sorted(run for folder in outs.values() for run in _runs_of(folder))
    if len(written) <= back:
        has = f"only {len(written)} runs" if written else "no run"
        where = f"; runs of another folder are in {remembered[0][1]}" if remembered else ""
        raise DataError(f"{name}: {out} holds {has}; name the folder of one{where}")
    return written[-1 - back][1]


def _runs_of(out: str) -> Iterator[tuple[int, str]]:
    """The time at which each run of a folder was last written to, and its folder."""
    filesystem, inner = locate(out)
    runs = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    manifests = [f"{run.path}/manifest.json" for run in runs if run.type == fs.FileType.Directory]
    for info in filesystem.get_file_info(manifests):
        if info.type == fs.FileType.File:
            yield info.mtime_ns or 0, f"{out}/{info.path.split('/')[-2]}"


def holds_runs(path: str) -> bool:
    """True if a folder exists and is not a run itself, not even one not begun or damaged."""
    filesystem, inner = locate(path)
    marks = [f"{inner}/{name}" for name in ("manifest.json", "run.yaml", "records")]
    with translate_cloud_errors(path):
        folder, *infos = filesystem.get_file_info([inner, *marks])
    is_run = any(info.type != fs.FileType.NotFound for info in infos)
    return bool(folder.type == fs.FileType.Directory) and not is_run


LOST_AFTER_S = 2 * BEATS * BEAT_S  # twice what a holder's successor waits


class HolderWatch:
    """Watches if a process holds one run folder: on a local disk by its file lock, tried as a
    shared one; in the cloud by its lease, lost when unchanged for LOST_AFTER_S."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._beat: tuple[int | None, float] | None = None  # the lease's time, and when it was seen

    def is_held(self) -> bool:
        """True if a process is at work there now. Raises EvalError for a silent cloud."""
        if (local := self._folder.local_path) is not None:
            return _is_locked(local / LOCK)
        (info,) = self._folder.infos([LEASE])
        if info.type != fs.FileType.File:
            self._beat = None
            return False
        if self._beat is None or self._beat[0] != info.mtime_ns:
            self._beat = (info.mtime_ns, time.monotonic())
        return time.monotonic() - self._beat[1] < LOST_AFTER_S


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock, or none that this user may try
        return False
    return False

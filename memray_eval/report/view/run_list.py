"""The runs of a folder, kept up to date for the list of runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from pyarrow import fs

from memray_eval.errors import DataError
from memray_eval.report.view.run_rows import (
    CLOUD_EVERY_S,
    LOCAL_EVERY_S,
    SCORES_S,
    RunReader,
    RunRow,
)
from memray_eval.storage.parallel import map_ahead
from memray_eval.storage.paths import REQUESTS_AT_ONCE, locate, readable


class UnknownRun(DataError):
    """The folder holds no run of that name."""


class RunList:
    """Every folder in `path` that is a run's, with its row. Looks at most once in `every_s`,
    however many ask, and not at all while nobody does. Safe for several threads."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path.rstrip("/") or "/"
        self._clock, self._lock = clock, threading.Lock()
        self._filesystem, self._inner = locate(self.path)
        self._is_local = isinstance(self._filesystem, fs.LocalFileSystem)
        self.every_s = LOCAL_EVERY_S if self._is_local else CLOUD_EVERY_S
        self._readers: dict[str, RunReader] = {}
        self._rows: dict[str, RunRow] = {}
        self._looked: float | None = None

    def rows(self) -> dict[str, RunRow]:
        """The rows by run id, newest first. Raises DataError if the folder cannot be listed, and
        what a cloud is translated to."""
        with self._lock:
            if self._looked is None or self._clock() - self._looked >= self.every_s:
                self._rows = self._look()
                self._looked = self._clock()
            return self._rows

    def path_of(self, run_id: str) -> str:
        """The path of a run by its id. An id is a name that the listing of this folder has, so that
        none leads anywhere else; any other raises UnknownRun."""
        if run_id not in self._readers:
            with self._lock:
                self._list()
        if run_id not in self._readers:
            raise UnknownRun(f"{self.path} holds no run {run_id!r}")
        return f"{self.path}/{run_id}"

    def _look(self) -> dict[str, RunRow]:
        self._list()
        readers = self._readers.values()
        read_row = partial(RunReader.read, until=time.monotonic() + SCORES_S)
        read = (
            map(read_row, readers)
            if self._is_local
            else map_ahead(read_row, readers, REQUESTS_AT_ONCE)
        )
        found = [row for row in read if row is not None]
        found.sort(key=lambda row: -(row.started_s or row.written_s or 0.0))
        return {row.id: row for row in found}

    def _list(self) -> None:
        selector = fs.FileSelector(self._inner)
        with readable(self.path, f"the runs of {self.path} cannot be listed"):
            infos = self._filesystem.get_file_info(selector)
        names = {info.base_name for info in infos if info.type == fs.FileType.Directory}
        self._readers = {
            name: self._readers.get(name) or RunReader(f"{self.path}/{name}")
            for name in sorted(names)
        }

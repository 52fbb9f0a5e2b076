"""The runs of a folder: their rows, kept up to date, and views of those that are open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
from memray_eval.report.view.run_view import View, viewing
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import REQUESTS_AT_ONCE, locate, map_ahead, readable

MAX_OPEN = 4  # each has an index of up to index.MEMORY_MB in memory


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
        """The rows by run id, newest first. Raises DataError if the folder cannot be listed."""
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
        in_turn = map(read_row, readers)
        read = in_turn if self._is_local else map_ahead(read_row, readers, REQUESTS_AT_ONCE)
        rows = [row for row in read if row is not None]
        rows.sort(key=lambda row: -(row.started_s or row.written_s or 0.0))
        return {row.id: row for row in rows}

    def _list(self) -> None:
        selector = fs.FileSelector(self._inner)
        with readable(self.path, f"the runs of {self.path} cannot be listed"):
            infos = self._filesystem.get_file_info(selector)
        names = {info.base_name for info in infos if info.type == fs.FileType.Directory}
        self._readers = {
            name: self._readers.get(name) or RunReader(f"{self.path}/{name}")
            for name in sorted(names)
        }


@dataclass
class _Opened:
    view: View | None = None
    n_users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stack: ExitStack = field(default_factory=ExitStack)


class OpenedRuns:
    """Views by run id, closed when others were looked at since. Safe for several threads."""

    def __init__(self, runs: RunList, most_open: int = MAX_OPEN) -> None:
        self.runs, self._most_open = runs, most_open
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    @contextmanager
    def view(self, run_id: str) -> Iterator[View]:
        """The view of a run, open while the block runs. Raises UnknownRun, and DataError."""
        path = self.runs.path_of(run_id)
        with self._lock:
            opened = self._opened.setdefault(run_id, _Opened())
            self._opened.move_to_end(run_id)
            opened.n_users += 1
        try:
            with opened.lock:  # the first who asks opens it; others wait for that
                if opened.view is None:
                    opening = viewing(RunFolder(path), home="../../")
                    opened.view = opened.stack.enter_context(opening)
            yield opened.view
        finally:
            with self._lock:
                opened.n_users -= 1
            self._close(self._most_open)

    def close(self) -> None:
        self._close(0)

    def _close(self, most_open: int) -> None:
        """Closes unused ones, the longest unseen first, until this many are left."""
        with self._lock:
            unused = [name for name, opened in self._opened.items() if not opened.n_users]
            n_over = max(0, len(self._opened) - most_open)
            closed = [self._opened.pop(name) for name in unused[:n_over]]
        for opened in closed:
            opened.stack.close()

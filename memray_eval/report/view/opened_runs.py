"""Views of a folder's runs, kept open while they are looked at."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from memray_eval.report.runs_list import RunList
from memray_eval.report.view.run_view import View, viewing
from memray_eval.results.run_folder import RunFolder

MAX_OPEN = 4  # each holds its list's columns: 0.5 KB a unit


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

"""The views of the runs of a folder: a run is opened when somebody looks at it, and closed when
others were looked at since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from memray_eval.report.view.run_list import RunList
from memray_eval.report.view.run_view import View, viewing
from memray_eval.results.run_folder import RunFolder

MOST_OPEN = 4  # each has an index of up to index.MEMORY_MB in memory


@dataclass
class _Opened:
    view: View | None = None
    n_users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stack: ExitStack = field(default_factory=ExitStack)


class OpenedRuns:
    """Views by run id. Safe for several threads."""

    def __init__(self, runs: RunList, most_open: int = MOST_OPEN) -> None:
        self.runs, self._most_open = runs, most_open
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    @contextmanager
    def view(self, run_id: str) -> Iterator[View]:
        """The view of a run, which stays open while the block runs. Raises UnknownRun where the
        folder holds no such run, and DataError for one that cannot be shown."""
        path = self.runs.path_of(run_id)
        with self._lock:
            one = self._opened.setdefault(run_id, _Opened())
            self._opened.move_to_end(run_id)
            one.n_users += 1
        try:
            with one.lock:  # the first who asks opens it; others wait for that
                if one.view is None:
                    opening = viewing(RunFolder(path), home="../../")
                    one.view = one.stack.enter_context(opening)
            yield one.view
        finally:
            with self._lock:
                one.n_users -= 1
            self._close(self._most_open)

    def close(self) -> None:
        self._close(0)

    def _close(self, most_open: int) -> None:
        """Closes those that nobody uses and that were looked at longest ago, until so many are
        left."""
        with self._lock:
            unused = [name for name, one in self._opened.items() if not one.n_users]
            n_over = max(0, len(self._opened) - most_open)
            closed = [self._opened.pop(name) for name in unused[:n_over]]
        for one in closed:
            one.stack.close()

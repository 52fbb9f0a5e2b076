"""A view of a run: its page, rendered again when its files have changed, and answers about its
records."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyarrow import fs

from memray_eval.errors import DataError
from memray_eval.metrics import all_metrics
from memray_eval.report.html.page import Run, render_served
from memray_eval.report.html.samples import describe_numbers, whole_record
from memray_eval.report.reading import readable
from memray_eval.report.view.index import Index
from memray_eval.report.view.parquet_parts import list_parts
from memray_eval.report.view.queries import Query, select
from memray_eval.storage.paths import locate
from memray_eval.types import Summary


class View:
    """Answers questions about one run, from several threads at once. Parts that cannot be read are
    left out of the list and named in `problems`."""

    def __init__(self, run: Run, index: Index) -> None:
        self._run, self._index = run, index
        self._lock = threading.Lock()
        self._made: tuple[Any, str] | None = None  # of what the page was made, and the page
        self._summary: Summary | None = None
        self.problems: list[str] = []

    def refresh(self, tell: Callable[[int], None] = lambda n_units: None) -> None:
        """Indexes what was written since. Raises DataError for a run without records."""
        with readable(self._run.path):
            parts = list_parts(self._run.records())
        self.problems = self._index.refresh(parts, tell)

    def page(self) -> str:
        """Renders the page of the run as it is now; if some records cannot be read, returns the
        last one. Raises DataError if the summary or manifest is broken."""
        self.refresh()
        summary = self._run.read_summary() if _has_summary(self._run) else None
        manifest = self._run.read_manifest()
        with self._lock:
            self._summary = summary
            of = (list(self._index.held.values()), summary, manifest)
            if self._made is None or (self._made[0] != of and not self.problems):
                with readable(self._run.path):
                    self._made = (of, render_served(self._run, summary, manifest, self._named()))
            return self._made[1]

    def answer(self, query: Query, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Returns a page of rows, the names behind their numbers, and a notice for the reader."""
        if query.fresh:
            self.refresh()
        found = select(self._index, query, is_cancelled)
        return {"n": found.n, "rows": found.rows, "index": self._named(), "notice": self._notice()}

    def record(self, unit_id: str) -> dict[str, Any] | None:
        """Returns a whole record as the browser shows it; None for an unknown unit."""
        record = self._index.record(unit_id)
        return None if record is None else whole_record(record, self._index.metrics)

    def _named(self) -> dict[str, Any]:
        scales = {name: metric.scale for name, metric in all_metrics().items()}
        scales |= {
            metric.metric: metric.scale
            for metric in (self._summary.metrics if self._summary else ())
        }
        index = self._index
        return {
            **describe_numbers(index.metrics, index.candidates, index.tasks, scales),
            "total": index.n_units,
        }

    def _notice(self) -> str:
        notices = []
        if self.problems:
            others = (
                f" ({len(self.problems) - 1:,} more cannot either)"
                if len(self.problems) > 1
                else ""
            )
            notices.append(f"{self.problems[0]}{others}. What it holds is left out here.")
        if self._summary and self._summary.n_units != self._index.n_units:
            notices.append(
                f"The figures above are over {self._summary.n_units:,} units; "
                f"{self._index.n_units:,} are listed here."
            )
        if self._summary is None and _has_summary(self._run):
            notices.append("The run has ended: load this page again for its figures.")
        return " ".join(notices)


@contextmanager
def viewing(run: Run, tell: Callable[[int], None] = lambda n_units: None) -> Iterator[View]:
    """Opens a view of the run and indexes its records; calls `tell` with the number of units after
    each file. Raises DataError if this is not a run, holds no records, or has a part or summary
    that cannot be read."""
    run.read_manifest()
    with readable(run.path):
        filesystem = run.records().filesystem
    with tempfile.TemporaryDirectory(prefix="memray-eval-view-") as spill:
        view = View(run, Index(filesystem, spill))
        view.refresh(tell)
        if view.problems:
            raise DataError(view.problems[0])
        view.page()
        yield view


def _has_summary(run: Run) -> bool:
    with readable(run.path):
        filesystem, inner = locate(f"{run.path}/summary.json")
        return bool(filesystem.get_file_info(inner).type == fs.FileType.File)

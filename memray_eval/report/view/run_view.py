"""Views of runs: a run's page, rendered again after changes, and answers about its records."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from jinja2 import TemplateError

from memray_eval.errors import DataError
from memray_eval.report.html.page import ServedRun, render_served
from memray_eval.report.html.samples import describe_numbers, whole_record
from memray_eval.report.runs_list import RunList, RunReader, RunRow
from memray_eval.report.sections import metric_scales
from memray_eval.report.view.answers import Answers, Query
from memray_eval.results.parts import Part
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import Summary

STANDING_S = 1.0
MAX_OPEN = 4  # each holds its columns, about 1 KB a unit
UNFINISHED = ("running", "stopped", "interrupted", "failed")

logger = logging.getLogger(__name__)


class View:
    """Answers about a run, for several threads. Unreadable parts are only in `problems`."""

    def __init__(self, run: RunFolder, home: str = "") -> None:
        self._run, self._answers, self._home = run, Answers(run), home
        self._reader, self._reading = RunReader(run.path), threading.Lock()
        self.every_s = self._reader.every_s
        self._standing: tuple[float, RunRow | None] = (-math.inf, None)
        self._lock = threading.Lock()
        self._made: tuple[Any, str] | None = None  # of what the page was made, and the page
        self._summary: Summary | None = None
        self.problems: list[str] = []

    def refresh(self, tell: Callable[[int], None] = lambda n_units: None) -> None:
        """Reads what is new. Raises DataError for a finished run without records."""
        self.problems = self._answers.refresh(_list_parts(self._run), tell)

    def page(self) -> str:
        """The page of the run as it is, the last one if unreadable. Raises DataError."""
        self.refresh()
        summary = self._run.read_summary() if _has_summary(self._run) else None
        manifest = self._run.read_manifest()
        with self._lock:
            self._summary = summary
            of = (self._answers.parts, summary, manifest)
            if self._made is None or (self._made[0] != of and not self.problems):
                with readable(self._run.path), _as_written():
                    row = self.standing()
                    served = ServedRun(self._run.path, row.title if row else "", self._home)
                    page = render_served(self._run, summary, manifest, self._named(), served)
                self._made = (of, page)
            return self._made[1]

    def answer(self, query: Query, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Returns a page of rows, the names behind their numbers, and a notice for the reader."""
        if query.fresh:
            self.refresh()
        page = self._answers.select(query, is_cancelled)
        return {"n": page.n, "rows": page.rows, "index": self._named(), "notice": self._notice()}

    def standing(self) -> RunRow | None:
        """The state of the run, looked up at most once in STANDING_S, however many ask."""
        with self._reading:
            if time.monotonic() - self._standing[0] >= STANDING_S:
                row = self._reader.read()
                self._standing = (time.monotonic(), row)
            return self._standing[1]

    def record(self, unit_id: str) -> dict[str, Any] | None:
        """Returns a whole record as the browser shows it; None for an unknown unit."""
        record = self._answers.record(unit_id)
        return None if record is None else whole_record(record, self._answers.metrics)

    def _named(self) -> dict[str, Any]:
        scales, answers = metric_scales(self._summary), self._answers
        named = describe_numbers(answers.metrics, answers.candidates, answers.tasks, scales)
        return {**named, "total": answers.n_units}

    def _notice(self) -> str:
        notices = []
        if self.problems:
            more = len(self.problems) - 1
            others = f" ({more:,} more cannot either)" if more else ""
            notices.append(f"{self.problems[0]}{others}. What it holds is left out here.")
        if self._summary and self._summary.n_units != self._answers.n_units:
            notices.append(
                f"The figures above are over {self._summary.n_units:,} answers; "
                f"{self._answers.n_units:,} are listed here."
            )
        if self._summary is None and _has_summary(self._run):
            notices.append("The run has ended: load this page again for its figures.")
        return " ".join(notices)


def open_view(
    run: RunFolder, tell: Callable[[int], None] = lambda n_units: None, home: str = ""
) -> View:
    """Opens a view of the run and reads its records; `tell` hears how many after each file.
    Raises DataError if this is no run, or finished without records, or unreadable."""
    run.read_manifest()
    view = View(run, home)
    view.refresh(tell)
    if view.problems:
        raise DataError(view.problems[0])
    view.page()
    return view


class OpenedRuns:
    """Views by run id: the last `most_open` that were asked for, and those in use. Safe for several
    threads."""

    def __init__(self, runs: RunList, most_open: int = MAX_OPEN) -> None:
        self._runs, self._most_open, self._lock = runs, most_open, threading.Lock()
        self._opening: dict[str, threading.Lock] = {}
        self._in_use: WeakValueDictionary[str, View] = WeakValueDictionary()
        self._last: OrderedDict[str, View] = OrderedDict()

    def view(self, run_id: str) -> View:
        """The view of a run. Raises UnknownRun, and DataError."""
        path = self._runs.path_of(run_id)
        with self._lock:
            opening = self._opening.setdefault(run_id, threading.Lock())
        with opening:  # the first who asks opens it; others wait for that
            view = self._in_use.get(run_id) or open_view(RunFolder(path), home="../../")
            with self._lock:
                self._in_use[run_id] = self._last[run_id] = view
                self._last.move_to_end(run_id)
                if len(self._last) > self._most_open:
                    self._last.popitem(last=False)
        return view


@contextmanager
def _as_written() -> Iterator[None]:
    """Raises DataError where files that somebody else wrote are not as this package writes them."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, TemplateError) as error:
        logger.debug("the page cannot be made", exc_info=True)
        raise DataError(
            f"the page cannot be made: manifest.json or summary.json holds what none of a run does "
            f"({type(error).__name__}: {error})"
        ) from None


def _list_parts(run: RunFolder) -> list[Part]:
    """The files of the records. Raises DataError if a run has finished without any."""
    try:
        with readable(run.path):
            return run.some_parts()
    except DataError:
        if run.read_manifest().get("status") in UNFINISHED:
            return []
        raise


def _has_summary(run: RunFolder) -> bool:
    with readable(run.path):
        return run.has_file("summary.json")

"""Views of runs: a run's page, rendered again after changes, and answers about its records."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import TemplateError
from markupsafe import Markup
from pydantic import Field

from memray_eval.analysis.score_table import ScoreTable
from memray_eval.errors import DataError
from memray_eval.metrics import all_metrics
from memray_eval.report.html.page import ServedRun, render_run
from memray_eval.report.html.samples import (
    SNIPPET,
    STATUSES,
    Embedded,
    Names,
    describe_numbers,
    to_json,
    whole_record,
)
from memray_eval.report.runs_list import RunList, RunReader, RunRow
from memray_eval.results.parts import Part
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from memray_eval.storage.paths import map_ahead, readable
from memray_eval.types import Frozen, Record, Summary, is_estimate

MAX_OPEN = 4  # each holds its columns, about 1 KB a unit
UNFINISHED = ("running", "stopped", "interrupted", "failed")

logger = logging.getLogger(__name__)


class View:
    """Answers about a run, for several threads. Unreadable parts are only in `problems`."""

    def __init__(self, run: RunFolder, home: str = "") -> None:
        self._run, self._answers, self._home = run, UnitTable(run), home
        self._reader, self._reading = RunReader(run.path), threading.Lock()
        self.every_s = self._reader.every_s
        self._lock = threading.Lock()
        self._made: tuple[Any, str] | None = None  # of what the page was made, and the page
        self._summary: Summary | None = None
        self.problems: list[str] = []

    def refresh(self, tell: Callable[[int], None] = lambda n_units: None) -> None:
        """Reads what is new. Raises DataError for a finished run without records."""
        parts = list[Part]()
        try:
            with readable(self._run.path):
                parts = self._run.some_parts()
        except DataError:
            if self._run.read_manifest().get("status") not in UNFINISHED:
                raise
        self.problems = self._answers.refresh(parts, tell)

    def page(self) -> str:
        """The page of the run as it is, the last one if unreadable. Raises DataError."""
        self.refresh()
        summary = self._run.read_summary() if _has_summary(self._run) else None
        manifest = self._run.read_manifest()
        with self._lock:
            self._summary = summary
            of = (self._answers.parts, summary, manifest)
            if self._made is None or (self._made[0] != of and not self.problems):
                row = self.standing()
                served = ServedRun(self._run.path, row.title if row else "", self._home)
                index = Embedded(Markup(to_json(self._named())), (), 0)
                try:
                    with readable(self._run.path):
                        page = render_run(self._run, summary, manifest, index, served)
                except (AttributeError, KeyError, TypeError, ValueError, TemplateError) as error:
                    logger.debug("the page cannot be made", exc_info=True)
                    raise DataError(
                        "the page cannot be made: manifest.json or summary.json holds what none of "
                        f"a run does ({type(error).__name__}: {error})"
                    ) from None
                self._made = (of, page)
            return self._made[1]

    def answer(self, query: Query, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Returns a page of rows, the names behind their numbers, and a notice for the reader."""
        if query.fresh:
            self.refresh()
        page = self._answers.select(query, is_cancelled)
        return {"n": page.n, "rows": page.rows, "index": self._named(), "notice": self._notice()}

    def standing(self) -> RunRow | None:
        """The state of the run as its folder is now."""
        with self._reading:
            return self._reader.read()

    def record(self, unit_id: str) -> dict[str, Any] | None:
        """Returns a whole record as the browser shows it; None for an unknown unit."""
        record = self._answers.record(unit_id)
        return None if record is None else whole_record(record, self._answers.metrics)

    def _named(self) -> dict[str, Any]:
        answers, of_run = self._answers, self._summary.metrics if self._summary else ()
        scales = {name: metric.scale for name, metric in all_metrics().items()}
        scales |= {metric.metric: metric.scale for metric in of_run}  # as they were then
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
    """Views by run id: the last `most_open`, and those in use. Safe for several threads."""

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


def _has_summary(run: RunFolder) -> bool:
    with readable(run.path):
        return run.has_file("summary.json")


_READERS = 4  # parts read at once
_OF_UNITS = (
    "unit_id", "sample_id", "candidate", "task", "query", "response", "error", "duration_s",
    "output_tokens", "epoch",
)  # fmt: skip
SEARCHED = ("sample_id", "query", "response", "error")
_OF_SCORES = tuple(f"scores.list.element.{name}" for name in ("metric", "status", "value", "judge"))
_STATUSES: dict[str, int] = {name: number for number, name in enumerate(STATUSES)}
_ERROR = _STATUSES["error"]
_FIGURES = {"duration": "duration_s", "tokens": "output_tokens"}

Number = Annotated[int, Field(ge=0, le=1_000_000_000)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
Column = npt.NDArray[Any]


class Query(Frozen):
    """A request for a page of samples. Names are numbers; one score has metric, status and value
    together. `sort` is m3+ (metric 3, lowest first), duration-, ..., or "": the run's order."""

    text: str = Field("", max_length=500)
    session: str = Field("", max_length=500)
    candidate: Number | None = None
    task: Number | None = None
    metric: Number | None = None
    status: Annotated[int, Field(ge=0, lt=len(STATUSES))] | None = None
    low: Bound | None = None
    high: Bound | None = None
    sort: str = Field("", pattern=r"^((m[0-9]{1,4}|duration|tokens)[+-])?$")
    start: Number = 0
    size: Annotated[int, Field(ge=1, le=200)] = 40
    fresh: bool = False


class Page(Frozen):
    """`n` units match. `rows` are the page's: a unit's id and the row of the browser's list."""

    n: int
    rows: tuple[tuple[str, list[Any]], ...]


Held: TypeAlias = tuple[pa.Table, dict[str, Column]]  # a part's rows as listed, and their scores


class _Whole(NamedTuple):
    """All parts: what is listed of units, and scores with the number of the unit of each. Unit
    numbers go through the parts; `starts` has the first of each, and the end. It is never changed,
    so that threads may read it."""

    parts: tuple[Part, ...]
    starts: Column
    units: pa.Table
    scores: dict[str, Column]


class UnitTable:
    """The units of the parts last given to `refresh`. Safe for several threads."""

    def __init__(self, folder: RunFolder) -> None:
        self.metrics, self.candidates, self.tasks = Names(), Names(), Names()
        self._folder, self._lock = folder, threading.Lock()
        self._held: dict[Part, Held] = {}
        self._whole = _join(self._held)
        self._found: tuple[_Whole, str, Column] | None = None  # the last search

    @property
    def n_units(self) -> int:
        return int(self._whole.starts[-1])

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._whole.parts

    def refresh(
        self, parts: Iterable[Part], tell: Callable[[int], None] = lambda n_units: None
    ) -> list[str]:
        """Reads new parts and drops those gone. Returns the problems of unreadable ones."""
        with self._lock:
            listed = sorted(parts)
            held = {part: self._held[part] for part in listed if part in self._held}
            problems: list[str] = []
            new = [part for part in listed if part not in held]
            for part, rows in map_ahead(self._read, new, _READERS):
                try:
                    held[part] = self._hold(rows)
                except (DataError, KeyError) as error:
                    problems.append(str(error))
                tell(sum(units.num_rows for units, _ in held.values()))
            if held.keys() != self._held.keys():
                self._held = {part: held[part] for part in listed if part in held}
                self._whole = _join(self._held)
            return problems

    def _read(self, part: Part) -> tuple[Part, pa.Table | DataError]:
        """A part's columns, or why it is unreadable."""
        try:
            return part, _read(self._folder, part, (*_OF_UNITS, *_OF_SCORES))
        except DataError as error:
            return part, error

    def _hold(self, rows: pa.Table | DataError) -> Held:
        if isinstance(rows, DataError):
            raise rows
        table = ScoreTable.of(rows)
        status = table.map_names("status", lambda of: _STATUSES.get(of, _ERROR), np.int8(_ERROR))
        value, units = table.values, table.units
        scores: dict[str, Column] = {
            "unit": table.unit.astype(np.int64),
            "metric": table.map_names("metric", self.metrics.__getitem__, np.int16(-1)),
            "status": status,
            "value": np.where(np.isfinite(value), value, np.nan),
            "estimate": table.is_judge(is_estimate),
        }
        failed = units["error"].is_valid().to_numpy() | table.has(status == _ERROR)
        units = units.append_column("failed", pa.array(failed.astype(np.int64)))
        error = pc.if_else(pc.equal(units["error"], ""), None, units["error"])
        texts = {"query": units["query"], "response": pc.coalesce(error, units["response"], "")}
        shown = {name: pc.utf8_slice_codeunits(text, 0, SNIPPET) for name, text in texts.items()}
        for column, names in (("candidate", self.candidates), ("task", self.tasks)):
            numbers = [names[text or ""] for text in units[column].to_pylist()]
            shown[column] = pa.array(numbers, pa.int64())
        for column, cells in shown.items():
            units = units.set_column(units.schema.get_field_index(column), column, cells)
        return units, scores

    def select(self, query: Query, is_cancelled: Callable[[], bool] = lambda: False) -> Page:
        """Selects a page. Raises DataError if a part to search can no longer be read."""
        whole = self._whole
        if not whole.parts:
            return Page(n=0, rows=())
        fits = np.ones(whole.starts[-1], np.bool_)
        for column in ("candidate", "task"):
            if (number := getattr(query, column)) is not None:
                fits &= whole.units[column].to_numpy() == number
        if query.session:
            fits &= pc.starts_with(whole.units["sample_id"], query.session).to_numpy()
        if (query.metric, query.status, query.low, query.high) != (None,) * 4:
            fits &= _has_score(whole, query)
        if query.text:
            fits &= self._search(whole, query.text, is_cancelled)
        units = _sort(whole, np.flatnonzero(fits), query.sort)
        chosen = units[query.start : query.start + query.size].tolist()
        return Page(n=len(units), rows=tuple(_list_row(whole, unit) for unit in chosen))

    def _search(self, whole: _Whole, text: str, is_cancelled: Callable[[], bool]) -> Column:
        """Marks the units whose id, question, answer or error contains the text, ignoring case. A
        cancelled search finds nothing, and is not kept for the next page."""
        if self._found is not None and self._found[0] is whole and self._found[1] == text:
            return self._found[2]

        def search(part: tuple[Part, int]) -> Column:
            found = np.zeros(part[1], np.bool_)
            if not is_cancelled():
                for texts in _read(self._folder, part[0], SEARCHED, part[1]).columns:
                    matches = pc.match_substring(texts, text, ignore_case=True)
                    found |= pc.fill_null(matches, False).to_numpy()
            return found

        sizes = zip(whole.parts, np.diff(whole.starts).tolist(), strict=True)
        found: Column = np.concatenate([*map_ahead(search, sizes, _READERS)])
        if is_cancelled():
            return np.zeros_like(found)
        self._found = (whole, text, found)
        return found

    def record(self, unit_id: str) -> Record | None:
        """Reads the record; None if there is no such unit. Raises DataError."""
        whole = self._whole
        unit = pc.index(whole.units["unit_id"], unit_id).as_py() if whole.parts else -1
        if unit < 0:
            return None
        number = int(np.searchsorted(whole.starts, unit, "right")) - 1
        part, (start, end) = whole.parts[number], whole.starts[number : number + 2].tolist()
        row = _read(self._folder, part, n=end - start).slice(unit - start, 1)
        if row["unit_id"][0].as_py() != unit_id:
            raise _rewritten(part)
        try:
            return next(from_table(row))
        except (KeyError, ValueError) as error:
            raise _unreadable(part, "holds what is no record", error) from None


def _join(held: Mapping[Part, Held]) -> _Whole:
    tables, scores = [units for units, _ in held.values()], [of for _, of in held.values()]
    starts = np.cumsum([0, *(units.num_rows for units in tables)])
    units = pa.concat_tables(tables, promote_options="permissive") if held else pa.table({})
    joined = {name: np.concatenate([of[name] for of in scores]) for name in (scores or [{}])[0]}
    if joined:
        joined["unit"] += np.repeat(starts[:-1], [len(of["unit"]) for of in scores])
    return _Whole(tuple(held), starts, units, joined)


def _has_score(whole: _Whole, query: Query) -> Column:
    """Marks the units of which one score has the metric, the status and the value asked for."""
    scores = whole.scores
    fits = np.ones(len(scores["unit"]), np.bool_)
    for column in ("metric", "status"):
        if (number := getattr(query, column)) is not None:
            fits &= scores[column] == number
    if query.low is not None:
        fits &= scores["value"] >= query.low
    if query.high is not None:
        fits &= scores["value"] <= query.high
    units = np.zeros(whole.starts[-1], np.bool_)
    units[scores["unit"][fits]] = True
    return units


def _sort(whole: _Whole, units: Column, sort: str) -> Column:
    """Sorts by a figure; units without it come last, equal ones in the order of the run."""
    if not sort:
        return units
    by, sign = sort[:-1], -1.0 if sort.endswith("-") else 1.0
    if by in _FIGURES:
        figures = whole.units[_FIGURES[by]].to_numpy()
    else:
        figures, scores = np.full(whole.starts[-1], np.nan), whole.scores
        rows = scores["metric"] == int(by[1:])
        figures[scores["unit"][rows]] = scores["value"][rows]
    ordered: Column = units[np.argsort(sign * figures[units], kind="stable")]
    return ordered


def _list_row(whole: _Whole, unit: int) -> tuple[str, list[Any]]:
    """A unit's id and its row, in the shape of samples.list_row."""
    (shown,) = whole.units.slice(unit, 1).to_pylist()
    outcomes = []
    for at in range(*np.searchsorted(whole.scores["unit"], (unit, unit + 1)).tolist()):
        metric, status, value, estimate = (whole.scores[name][at].item() for name in (
            "metric", "status", "value", "estimate"))  # fmt: skip
        figures = [] if np.isnan(value) else [round(value, 6), *[1] * estimate]
        outcomes.append([metric, status, *figures])
    fields = ("sample_id", "candidate", "task", "failed", "query", "response", "duration_s",
              "output_tokens")  # fmt: skip
    epoch = shown.get("epoch") or 1
    return shown["unit_id"], [*map(shown.get, fields), outcomes, *([epoch] if epoch > 1 else [])]


def _read(folder: RunFolder, part: Part, columns: Sequence[str] = (), n: int = -1) -> pa.Table:
    """These columns of a part, or all, in one chunk; of `n` rows, if it is known how many. All
    failures are DataErrors."""
    try:
        table = folder.read_part(part.name, columns=[*columns] or None).combine_chunks()
    except FileNotFoundError:
        raise DataError(f"{part.name} is gone from the records; load the page again") from None
    except (OSError, pa.ArrowException, KeyError) as error:
        raise _unreadable(part, "cannot be read", error) from None
    for name in columns:
        if name.partition(".")[0] not in (*table.column_names, "epoch"):  # older ones have no epoch
            raise DataError(
                f"{part.name} of the records has no column {name!r}: another version wrote it, or "
                "another tool"
            )
    if n not in (-1, table.num_rows):
        raise _rewritten(part)
    return table


def _rewritten(part: Part) -> DataError:
    return DataError(f"{part.name} was rewritten; load the page again")


def _unreadable(part: Part, problem: str, error: Exception) -> DataError:
    return DataError(f"{part.name} of the records {problem}: {str(error).partition(chr(10))[0]}")

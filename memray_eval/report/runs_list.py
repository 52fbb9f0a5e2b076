"""The runs of a folder, each read from its folder alone: a row of `list runs` and of the viewer's
list, and the head of the page of a run that goes on."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

import pyarrow as pa
from pyarrow import fs
from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError

from memray_eval.analysis.marks import format_figure, metric_mark, name_figure
from memray_eval.errors import DataError, EvalError
from memray_eval.report.sections import Row, Table, metric_ends, share_of
from memray_eval.results.lookup import HolderWatch
from memray_eval.results.parts import Part, UnitIndex
from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind, RunFolder
from memray_eval.storage.paths import REQUESTS_AT_ONCE, locate, map_ahead, readable
from memray_eval.types import Frozen, MetricSummary, Summary

Status = Literal["preparing", "running", "finished", "stopped", "interrupted", "failed", "damaged"]
_STAMPED = ("manifest.json", "summary.json", "run.yaml", "spending.json")
_BEGUN = ("run.yaml", RECORDS, RESPONSES)  # of which a folder without a manifest has one
LOCAL_EVERY_S, CLOUD_EVERY_S = 1.0, 10.0  # how often a look is worth it
_RATE_OVER_S = 60.0
TREND_RUNS = 12
_BARS = "▁▂▃▄▅▆▇█"
NAMED = 3  # candidates that a title names
_KILLED = "it was killed: no process is at work in its folder"


class UnknownRun(DataError):
    """The folder holds no such run, or the run no such unit."""


class RowFigure(Frozen):
    """A figure as texts; `place` is where on its metric's scale, 0 to 1. `was`, `trend`: the figure
    of the last run before, and a bar a run up to this one, of the same samples, candidate and
    judges."""

    candidate: str
    metric: str
    figure: str
    between: str
    n: int
    mark: str
    place: float | None
    judges: tuple[str, ...] = ()
    was: str = ""
    trend: str = ""


class RunRow(Frozen):
    """A run, as lists show it; `note` says why it ended or what is wrong. `figures` are the
    headline metric's; `is_so_far`: without a summary. `written_s` is of a run without a start."""

    id: str
    status: Status
    note: str = ""
    title: str = ""
    suite: str = ""
    data: str | None = None
    models: tuple[str, ...] = ()
    is_so_far: bool = False
    figures: tuple[RowFigure, ...] = ()
    n_units: int | None = None
    n_done: int = 0
    n_failed: int = 0
    n_answered: int | None = None
    units_per_s: float | None = None
    left_s: float | None = None
    cost_usd: float | None = None
    unpriced_calls: int | None = None
    started_s: float | None = None
    written_s: float | None = None
    took_s: float | None = None

    @property
    def is_live(self) -> bool:
        return self.status in ("preparing", "running")


class _Session(BaseModel):
    started_s: float | None = None
    total_s: float = 0.0


class _Candidate(BaseModel):
    name: str
    model: str = ""


def _at(default: Any, file: str, *path: str) -> Any:
    return Field(default, validation_alias=AliasPath(file, *path))


class _Fields(BaseModel):
    """The fields that are read here of a run's files, which have more."""

    status: str | None = _at(None, "manifest.json", "status")
    error: str | None = _at(None, "manifest.json", "error")
    started: str = _at("", "manifest.json", "started")
    sessions: tuple[_Session, ...] = _at((), "manifest.json", "sessions")
    n_samples: int | None = _at(None, "manifest.json", "dataset", "n_samples")
    data: str | None = Field(
        None,
        validation_alias=AliasChoices(
            *(AliasPath("manifest.json", "dataset", name) for name in ("samples", "fingerprint"))
        ),
    )
    # More than the samples, if some are sessions
    n_asked: int | None = _at(None, "manifest.json", "dataset", "n_asked")
    cost_usd: float | None = _at(None, "manifest.json", "calls", "cost_usd")
    usd: float | None = _at(None, "spending.json", "usd")
    unpriced_calls: int = _at(0, "spending.json", "unpriced_calls")
    name: str = _at("", "run.yaml", "name")
    suite: Any = _at("", "run.yaml", "suite")
    candidates: tuple[_Candidate, ...] = _at((), "run.yaml", "candidates")
    epochs: Annotated[int, Field(ge=1)] = _at(1, "run.yaml", "epochs")


class RunReader:
    """Reads one run's row again and again, only what has changed. Not thread-safe."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = RunFolder(path), clock
        self.every_s = LOCAL_EVERY_S if self.folder.local_path else CLOUD_EVERY_S
        self._holder = HolderWatch(self.folder)
        self._row: RunRow | None = None
        self._stamps: tuple[Any, ...] = ()
        self._is_settled = False  # only a changed file changes the row
        self._has_stumbled = False
        self._progress: deque[tuple[float, int]] = deque()  # when, and how many were done
        self._indexes: dict[Kind, dict[Part, UnitIndex]] = {RECORDS: {}, RESPONSES: {}}

    def read(self) -> RunRow | None:
        """The row as the folder is now; None if it is no run's; an unreadable one says so."""
        infos: Sequence[fs.FileInfo] = ()
        try:
            infos = self.folder.infos(_STAMPED)
            stamps = tuple((info.size, info.mtime_ns) for info in infos)
            if not self._is_settled or stamps != self._stamps:
                has = [info.base_name for info in infos if info.type == fs.FileType.File]
                self._row, self._stamps = self._read_again(has), stamps
            self._has_stumbled = False
            return self._row
        except (EvalError, OSError, pa.ArrowException, ValueError) as error:
            # The parts of a run that ends are written again: what fails once is tried again
            if self._row is not None and self._row.is_live and not self._has_stumbled:
                self._has_stumbled = True
                return self._row
            problem = str(error).replace(f"{self.folder.path}/", "")
            written = _last_written(infos)
            return RunRow(id=self.folder.run_id, status="damaged", note=problem, written_s=written)

    def _read_again(self, has: Sequence[str]) -> RunRow | None:
        self._is_settled = False
        if "manifest.json" not in has:
            run_id, infos = self.folder.run_id, self.folder.infos(_BEGUN)
            if all(info.type == fs.FileType.NotFound for info in infos):
                return None
            if self._holder.is_held():
                return RunRow(id=run_id, status="preparing", note="it is being prepared")
            note = "it has no manifest.json: its run ended before it began, or the file was deleted"
            return RunRow(id=run_id, status="damaged", note=note, written_s=_last_written(infos))
        files = {"manifest.json": self.folder.read_manifest()}
        manifest = _parse({**files, "spending.json": self.folder.read_spending()})
        status, note = self._find_status(manifest, "summary.json" in has)
        paid = manifest.cost_usd if manifest.usd is None else manifest.usd
        fields: dict[str, Any] = {
            "id": self.folder.run_id,
            "status": status,
            "note": note,
            "data": manifest.data,
            "started_s": _started(manifest),
            "took_s": self._took(manifest, status),
            "cost_usd": paid or None,
            "unpriced_calls": manifest.unpriced_calls or None,
        }
        # Another status has no summary, or that of an earlier session
        if "summary.json" in has and status in ("finished", "stopped"):
            fields |= _summary_fields(self.folder.read_summary())
        elif status != "damaged":
            fields |= self._fields_so_far(manifest, status)
        self._is_settled = status not in ("running", "damaged")
        return RunRow.model_validate(fields)

    def _find_status(self, manifest: _Fields, has_summary: bool) -> tuple[Status, str]:
        note = manifest.error or ""
        if manifest.status == "running":
            return ("running", "") if self._holder.is_held() else ("interrupted", _KILLED)
        if manifest.status == "finished" or (manifest.status is None and has_summary):
            if not has_summary:
                raise DataError("it has no summary.json")
            return "finished", note
        for status in get_args(Status):
            if status == manifest.status:
                return status, note
        wrong = f"manifest.json has the status {manifest.status!r}, which is none of a run"
        return "damaged", wrong

    def _took(self, manifest: _Fields, status: Status) -> float | None:
        if not manifest.sessions:
            return None
        *before, last = manifest.sessions
        took = last.total_s
        if status == "running" and last.started_s is not None:
            took = max(0.0, self._clock() - last.started_s)
        return sum(session.total_s for session in before) + took

    def _fields_so_far(self, manifest: _Fields, status: Status) -> dict[str, Any]:
        config = _parse({"run.yaml": self.folder.read_config()})
        whole = UnitIndex.concatenate(self._index(RECORDS))
        if len(manifest.sessions) > 1:  # a unit that is done again counts once
            whole = whole.filter(whole.first_of_each())
        done = len(whole.units)
        n_asked = manifest.n_asked or manifest.n_samples or 0
        n_units = n_asked * len(config.candidates) * config.epochs or None
        rate = answered = None
        if status == "running":
            rate = self._rate(done)
            answered = sum(len(index.units) for index in self._index(RESPONSES)) or None
        # One that the config itself describes is named there
        suite = config.suite.get("name") if isinstance(config.suite, dict) else config.suite
        named = [(candidate.name, candidate.model) for candidate in config.candidates]
        return {
            **_names(suite if isinstance(suite, str) else "", named, config.name),
            "is_so_far": True,
            "n_units": n_units,
            "n_done": done,
            "n_failed": int(whole.is_failed.sum()),
            "n_answered": answered,
            "units_per_s": rate,
            "left_s": (n_units - done) / rate if rate and n_units is not None else None,
        }

    def _index(self, kind: Kind) -> Sequence[UnitIndex]:
        """The units of each part, read once of each."""
        with readable(self.folder.path):
            listed, held = self.folder.list_parts(kind), self._indexes[kind]
            fresh = [part for part in listed if part not in held]
            held |= dict(zip(fresh, self.folder.read_indexes(fresh, kind), strict=True))
        self._indexes[kind] = {part: held[part] for part in listed}
        return list(self._indexes[kind].values())

    def _rate(self, done: int) -> float | None:
        """Units a second since the oldest look of the last minute; None at the first look."""
        now = self._clock()
        self._progress.append((now, done))
        while now - self._progress[0][0] > _RATE_OVER_S:
            self._progress.popleft()
        since, before = self._progress[0]
        return (done - before) / (now - since) if now > since else None


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
        in_turn = map(RunReader.read, readers)
        read = in_turn if self._is_local else map_ahead(RunReader.read, readers, REQUESTS_AT_ONCE)
        rows = [row for row in read if row is not None]
        rows.sort(key=lambda row: -(row.started_s or row.written_s or 0.0))
        with_earlier = list(with_trends(reversed(rows)))
        return {row.id: row for row in reversed(with_earlier)}

    def _list(self) -> None:
        selector = fs.FileSelector(self._inner)
        with readable(self.path, f"the runs of {self.path} cannot be listed"):
            infos = self._filesystem.get_file_info(selector)
        names = {info.base_name for info in infos if info.type == fs.FileType.Directory}
        held = self._readers
        self._readers = {of: held.get(of) or RunReader(f"{self.path}/{of}") for of in sorted(names)}


def with_trends(rows: Iterable[RunRow]) -> Iterator[RunRow]:
    """Yields runs, oldest first, each figure with what it was in runs before."""
    earlier = defaultdict[tuple[Any, ...], list[RowFigure]](list)
    for row in rows:
        figures = []
        for figure in row.figures if row.data else ():
            before = earlier[row.data, row.suite, figure.metric, figure.candidate, figure.judges]
            places = [one.place for one in [*before, figure][-TREND_RUNS:] if one.place is not None]
            if before and figure.place is not None:
                bars = "".join(_BARS[round(place * (len(_BARS) - 1))] for place in places)
                figure = figure.model_copy(update={"was": before[-1].figure, "trend": bars})
            before.append(figure)
            figures.append(figure)
        yield row.model_copy(update={"figures": tuple(figures)}) if figures else row


def to_lines(rows: Sequence[RunRow]) -> Iterator[str]:
    """The rows as a table for the console."""
    heads = ("run", "status", "figure", "answers", "cost, $", "started, UTC", "took, s")
    yield from Table([heads, *map(_cells, rows)], left=(0, 1, 2)).lines()
    notes = {row.id: row.note for row in rows if row.note}
    yield from (f"{run_id}: {note}" for run_id, note in notes.items())


def _cells(row: RunRow) -> Row:
    figure = ""
    if row.figures:
        best = max(row.figures, key=lambda one: -1 if one.place is None else one.place)
        between = f" [{best.between}]" if best.between else ""
        between += f", was {best.was}" if best.was else ""
        of = f", best of {len(row.figures)}" if len(row.figures) > 1 else ""
        figure = f"{best.metric} {best.figure}{between}{of}"
    units = f"{row.n_units or row.n_done:,}"
    if row.is_so_far:
        units = f"{row.n_done:,}" + (f" of {row.n_units:,}" if row.n_units else "")
    cost = "" if row.cost_usd is None else f"{row.cost_usd:.2f}"
    started = "" if row.started_s is None else f"{datetime.fromtimestamp(row.started_s, UTC):%F %R}"
    took = "" if row.took_s is None else f"{row.took_s:,.0f}"
    status = f"{row.status}, {row.n_failed:,} failed" if row.n_failed else row.status
    return (row.id, status, figure, units, cost, started, took)


def _parse(files: Mapping[str, Any]) -> _Fields:
    try:
        return _Fields.model_validate(files)
    except ValidationError as error:
        first = error.errors()[0]
        name, *where = map(str, first["loc"])
        raise DataError(f"{name} is not one of a run: {'.'.join(where)}: {first['msg']}") from None


def _started(manifest: _Fields) -> float | None:
    try:
        return datetime.fromisoformat(manifest.started).timestamp()
    except ValueError:
        starts = (session.started_s for session in manifest.sessions if session.started_s)
        return next(starts, None)


def _last_written(infos: Sequence[fs.FileInfo]) -> float | None:
    return max((info.mtime.timestamp() for info in infos if info.mtime is not None), default=None)


def _summary_fields(summary: Summary) -> dict[str, Any]:
    names = [summary.headline, *(metric.metric for metric in summary.metrics)]
    scored = {metric.metric for metric in summary.metrics if metric.figure.value is not None}
    headline = next((name for name in names if name in scored), next(filter(None, names), ""))
    of_headline = (metric for metric in summary.metrics if metric.metric == headline)
    named = [(row.candidate, row.model) for row in summary.candidates]
    return {
        **_names(summary.suite, named, summary.name),
        "figures": tuple(map(_row_figure, of_headline)),
        "n_units": summary.n_units,
        "n_done": summary.n_units,
        "n_failed": summary.n_failed_units,
    }


def _names(suite: str, named: Sequence[tuple[str, str]], title: str) -> dict[str, Any]:
    """The fields that name a run of these candidates and models; its own `title` comes first."""
    models = {model for _, model in named if model}
    # What all share is said once
    shared = f" ({models.pop()})" if len(models) == 1 and len(named) > 1 else ""
    models_of_all = tuple(of + f" ({by})" * (by not in ("", of)) for of, by in named)
    shown = [name for name, _ in named] if shared else list(models_of_all)
    if len(shown) > NAMED:
        shown = [*shown[: NAMED - 1], f"{len(shown) - NAMED + 1} more"]
    if shown:
        of = f"{', '.join(shown)}{shared} on {suite or 'a suite of its own'}"
        title = f"{title}: {of}" if title else of
    return {"suite": suite, "models": models_of_all, "title": title}


def _row_figure(metric: MetricSummary) -> RowFigure:
    value = metric.figure.value
    return RowFigure(
        candidate=metric.candidate,
        metric=name_figure(metric),
        figure=format_figure(metric.figure, metric.scale),
        between=", ".join(metric_ends(metric) or ()),
        n=metric.n_scored,
        mark=metric_mark(metric),
        judges=tuple(metric.judges),
        place=None if value is None else share_of(value, metric.scale),
    )

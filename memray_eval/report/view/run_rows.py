"""The state of a run, read from its folder alone: a row of the list of runs, and the head of the
page of a run that goes on."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypeVar, get_args

import pyarrow as pa
from pyarrow import fs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memray_eval.analysis.intervals import Intervals
from memray_eval.analysis.marks import digits_of, format_figure, mark, metric_mark, name_figure
from memray_eval.benchmarks import all_suites
from memray_eval.errors import DataError, EvalError
from memray_eval.metrics import all_metrics
from memray_eval.report.sections import metric_ends, share_of
from memray_eval.report.view.figures_so_far import FiguresSoFar, Moments
from memray_eval.results.lookup import HolderWatch
from memray_eval.results.parts import Part
from memray_eval.results.run_folder import RESPONSES, RunFolder
from memray_eval.types import Frozen, MetricSummary, Summary

Status = Literal["preparing", "running", "finished", "stopped", "interrupted", "failed", "damaged"]
MANIFEST, SUMMARY, CONFIG = "manifest.json", "summary.json", "run.yaml"
_STAMPED = (MANIFEST, SUMMARY, CONFIG, "spending.json")
_BEGUN = (CONFIG, "records", "responses")  # of which a folder without a manifest has one
LOCAL_EVERY_S, CLOUD_EVERY_S = 1.0, 10.0
SCORES_S = 0.4  # of a look, for the scores of runs that have no summary; the next look goes on
_RATE_OVER_S = 60.0
NAMED = 3  # candidates that a title names
_KILLED = "it was killed: no process is at work in its folder"
_PLAIN = Intervals()
Stamps = tuple[tuple[int | None, int | None], ...]


class RowFigure(Frozen):
    """A figure as texts; `place` is where on its metric's scale, 0 to 1, None if not known."""

    candidate: str
    metric: str
    figure: str
    between: str
    n: int
    mark: str
    place: float | None


class RunRow(Frozen):
    """A run, as the list shows it; `note` says why it ended or what is wrong. `figures` are the
    headline metric's; `is_so_far`: of the units so far. `written_s` is of a run without a start."""

    id: str
    status: Status
    note: str = ""
    title: str = ""
    suite: str = ""
    models: tuple[str, ...] = ()
    is_so_far: bool = False
    figures: tuple[RowFigure, ...] = ()
    all_figures: tuple[RowFigure, ...] = ()
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


class _Read(BaseModel):
    """The fields that are read here of a file that has more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Session(_Read):
    started_s: float | None = None
    total_s: float = 0.0


class _Dataset(_Read):
    n_samples: int | None = None
    n_asked: int | None = None  # more than the samples, if some are sessions


class _Calls(_Read):
    cost_usd: float | None = None


class _Manifest(_Read):
    status: str | None = None
    error: str | None = None
    started: str = ""
    sessions: tuple[_Session, ...] = ()
    dataset: _Dataset = _Dataset()
    judges: dict[str, str] = Field(default_factory=dict)
    calls: _Calls = _Calls()


class _Candidate(_Read):
    name: str
    model: str = ""


class _Config(_Read):
    name: str = ""
    suite: Any = ""
    candidates: tuple[_Candidate, ...] = ()
    epochs: int = 1
    metrics: tuple[Any, ...] = ()


class _Spending(_Read):
    usd: float | None = None
    unpriced_calls: int = 0


Model = TypeVar("Model", bound=_Read)


class RunReader:
    """Reads one run's row again and again, only what has changed. Not thread-safe."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = RunFolder(path), clock
        # How often a look is worth it
        self.every_s = LOCAL_EVERY_S if self.folder.local_path else CLOUD_EVERY_S
        self._holder = HolderWatch(self.folder)
        self._so_far = FiguresSoFar(self.folder)
        self._row: RunRow | None = None
        self._stamps: Stamps = ()
        self._is_settled = False  # only a changed file changes the row
        self._has_stumbled = False
        self._config: tuple[Any, _Config] | None = None  # with the stamp of its file
        self._progress: deque[tuple[float, int]] = deque()  # when, and how many were done
        self._answered: dict[Part, int] = {}  # units by part of the responses

    def read(self, until: float = math.inf) -> RunRow | None:
        """The row as the folder is now; None if it is no run's; an unreadable one says so. Scores
        without a summary are read until `until` (time.monotonic); the next call goes on."""
        infos: Sequence[fs.FileInfo] = ()
        try:
            infos = self.folder.infos(_STAMPED)
            stamps = tuple((info.size, info.mtime_ns) for info in infos)
            if not self._is_settled or stamps != self._stamps:
                has = {name for name, info in zip(_STAMPED, infos, strict=True)
                       if info.type == fs.FileType.File}  # fmt: skip
                self._row, self._stamps = self._read_again(has, stamps, until), stamps
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

    def _read_again(self, has: set[str], stamps: Stamps, until: float) -> RunRow | None:
        self._is_settled = False
        if MANIFEST not in has:
            return self._row_without_manifest()
        manifest = _parse(_Manifest, self.folder.read_manifest(), MANIFEST)
        book = _parse(_Spending, self.folder.read_spending(), "spending.json")
        spending = book.usd
        status, note = self._find_status(manifest, SUMMARY in has)
        starts = (session.started_s for session in manifest.sessions if session.started_s)
        started_s = next(starts, None)
        with suppress(ValueError):
            started_s = datetime.fromisoformat(manifest.started).timestamp()
        fields: dict[str, Any] = {
            "id": self.folder.run_id,
            "status": status,
            "note": note,
            "started_s": started_s,
            "took_s": self._took(manifest, status),
            "unpriced_calls": book.unpriced_calls or None,
        }
        # Another status has no summary, or that of an earlier session
        if SUMMARY in has and status in ("finished", "stopped"):
            paid = spending if spending is not None else manifest.calls.cost_usd
            fields |= {**_summary_fields(self.folder.read_summary()), "cost_usd": paid or None}
            self._is_settled = True
        elif status != "damaged":
            stamp = stamps[_STAMPED.index(CONFIG)]
            if self._config is None or self._config[0] != stamp:
                self._config = (stamp, _parse(_Config, self.folder.read_config(), CONFIG))
            config = self._config[1]
            fields |= self._fields_so_far(manifest, config, status, until)
            costs = [cost for cost in (spending, fields["cost_usd"]) if cost is not None]
            fields["cost_usd"] = max(costs, default=None)
            self._is_settled = status != "running" and self._so_far.is_complete
        return RunRow.model_validate(fields)

    def _row_without_manifest(self) -> RunRow | None:
        infos = self.folder.infos(_BEGUN)
        if all(info.type == fs.FileType.NotFound for info in infos):
            return None
        run_id = self.folder.run_id
        if self._holder.is_held():
            return RunRow(id=run_id, status="preparing", note="it is being prepared")
        return RunRow(
            id=run_id,
            status="damaged",
            note=f"it has no {MANIFEST}: its run ended before it began, or the file was deleted",
            written_s=_last_written(infos),
        )

    def _find_status(self, manifest: _Manifest, has_summary: bool) -> tuple[Status, str]:
        note = manifest.error or ""
        if manifest.status == "running":
            return ("running", "") if self._holder.is_held() else ("interrupted", _KILLED)
        if manifest.status == "finished" or (manifest.status is None and has_summary):
            if not has_summary:
                raise DataError(f"it has no {SUMMARY}")
            return "finished", note
        for status in get_args(Status):
            if status == manifest.status:
                return status, note
        return "damaged", f"{MANIFEST} has the status {manifest.status!r}, which is none of a run"

    def _took(self, manifest: _Manifest, status: Status) -> float | None:
        if not manifest.sessions:
            return None
        *before, last = manifest.sessions
        took = last.total_s
        if status == "running" and last.started_s is not None:
            took = max(0.0, self._clock() - last.started_s)
        return sum(session.total_s for session in before) + took

    def _fields_so_far(
        self, manifest: _Manifest, config: _Config, status: Status, until: float
    ) -> dict[str, Any]:
        self._so_far.refresh(is_resumed=len(manifest.sessions) > 1, until=until)
        done = self._so_far.n_done
        n_asked = manifest.dataset.n_asked or manifest.dataset.n_samples
        n_units = n_asked * len(config.candidates) * config.epochs if n_asked else None
        n_units = n_units or None
        rate = self._rate(done) if status == "running" else None
        # The manifest names judges by metric, in the run's order, and by metric/task
        metrics = [name for name in manifest.judges if "/" not in name]
        figures = _figures_so_far(self._so_far.moments(), metrics)
        # One that the config itself describes is named there
        suite = config.suite.get("name") if isinstance(config.suite, dict) else config.suite
        suite = suite if isinstance(suite, str) else ""
        computed = [*dict.fromkeys(metric for metric, _ in figures)]
        # The metric that the summary will have as quality; the first where the suite's code is not
        # loaded to look at it
        suite_class = all_suites().get(suite)
        headline = suite_class.quality_metric(computed) if suite_class else next(iter(computed), "")
        headline = next((of for of in computed if of in config.metrics[:1]), headline)
        return {
            **_names(suite, [(of.name, of.model) for of in config.candidates], config.name),
            "is_so_far": True,
            "figures": tuple(figure for metric, figure in figures if metric == headline),
            "all_figures": tuple(figure for _, figure in figures),
            "n_units": n_units,
            "n_done": done,
            "n_failed": self._so_far.n_failed,
            "n_answered": self._count_answered() if status == "running" else None,
            "units_per_s": rate,
            "left_s": (n_units - done) / rate if rate and n_units is not None else None,
            "cost_usd": self._so_far.cost_usd or None,
        }

    def _count_answered(self) -> int | None:
        """The units that have an answer kept for their judges; None if none is kept."""
        listed = self.folder.list_parts(RESPONSES)
        fresh = [part for part in listed if part not in self._answered]
        indexes = self.folder.read_indexes(fresh, RESPONSES)
        added = (len(index.units) for index in indexes)
        counts = self._answered | dict(zip(fresh, added, strict=True))
        self._answered = {part: counts[part] for part in listed}
        return sum(self._answered.values()) or None

    def _rate(self, done: int) -> float | None:
        """Units a second since the oldest look of the last minute; None at the first look."""
        now = self._clock()
        self._progress.append((now, done))
        while now - self._progress[0][0] > _RATE_OVER_S:
            self._progress.popleft()
        since, before = self._progress[0]
        return (done - before) / (now - since) if now > since else None


def _parse(model: type[Model], values: Any, name: str) -> Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise DataError(f"{name} is not one of a run: {where}: {first['msg']}") from None


def _last_written(infos: Sequence[fs.FileInfo]) -> float | None:
    return max((info.mtime.timestamp() for info in infos if info.mtime is not None), default=None)


def _summary_fields(summary: Summary) -> dict[str, Any]:
    headline = summary.headline or next((metric.metric for metric in summary.metrics), "")
    of_headline = (metric for metric in summary.metrics if metric.metric == headline)
    named = [(row.candidate, row.model) for row in summary.candidates]
    return {
        **_names(summary.suite, named, summary.name),
        "figures": tuple(map(_summary_figure, of_headline)),
        "n_units": summary.n_units,
        "n_done": summary.n_units,
        "n_failed": summary.n_failed_units,
    }


def _names(suite: str, named: Sequence[tuple[str, str]], title: str) -> dict[str, Any]:
    """The fields that name a run of these candidates and models; its own `title` comes first."""
    models = {model for _, model in named if model}
    # What all share is said once
    shared = f" ({models.pop()})" if len(models) == 1 and len(named) > 1 else ""
    models_of_all = tuple(
        name if model in ("", name) else f"{name} ({model})" for name, model in named
    )
    shown = [name for name, _ in named] if shared else list(models_of_all)
    if len(shown) > NAMED:
        shown = [*shown[: NAMED - 1], f"{len(shown) - NAMED + 1} more"]
    if shown:
        of = f"{', '.join(shown)}{shared} on {suite or 'a suite of its own'}"
        title = f"{title}: {of}" if title else of
    return {"suite": suite, "models": models_of_all, "title": title}


def _summary_figure(metric: MetricSummary) -> RowFigure:
    return RowFigure(
        candidate=metric.candidate,
        metric=name_figure(metric),
        figure=format_figure(metric.figure, metric.scale),
        between=", ".join(metric_ends(metric) or ()),
        n=metric.n_scored,
        mark=metric_mark(metric),
        place=_place(metric.figure.value, metric.scale),
    )


def _figures_so_far(
    moments: Mapping[tuple[str, str], Moments], metrics: Sequence[str]
) -> list[tuple[str, RowFigure]]:
    """Every metric's figure of each candidate, with the metric's name, in the run's order."""
    order = {name: number for number, name in enumerate(metrics)}
    keys = sorted(moments, key=lambda key: (order.get(key[0], len(order)), key[1]))
    return [(key[0], _figure_so_far(*key, moments[key])) for key in keys]


def _figure_so_far(metric: str, candidate: str, moments: Moments) -> RowFigure:
    # One of the run's own, whose code is not loaded to look at it, has no scale here: no interval
    figure, definition = moments.figure(metric), all_metrics().get(metric)
    scale, interval = definition.scale if definition else (0.0, 1.0), None
    if definition:
        key = (candidate, metric, None)
        interval = _PLAIN.of(key, figure.value, figure.stderr, moments.n, scale)
    digits = digits_of(scale)
    return RowFigure(
        candidate=candidate,
        metric=metric if figure.average == "mean" else f"{metric} ({figure.average})",
        figure=format_figure(figure, scale),
        between=f"{interval.low:z.{digits}f}, {interval.high:z.{digits}f}" if interval else "",
        n=moments.n,
        mark=mark(moments.n, moments.n_estimated, moments.n_replaced),
        place=_place(figure.value, scale) if definition else None,
    )


def _place(value: float | None, scale: tuple[float, float]) -> float | None:
    return None if value is None else share_of(value, scale)

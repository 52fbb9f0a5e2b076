"""Runs and comparisons for Python code: figures, units, checks."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis import comparing
from memray_eval.analysis.marks import metric_undecided
from memray_eval.analysis.open_runs import compare_runs, pick_candidates
from memray_eval.analysis.scores import OF_GROUPS, first_of_each, other_splits, summarise_groups
from memray_eval.analysis.thresholds import NUMBER, SIGNS
from memray_eval.errors import ConfigError, DataError, EvalError, suggest
from memray_eval.execution import runs
from memray_eval.execution.prepare.origins import read_config
from memray_eval.execution.prepare.scanning import sample_ids
from memray_eval.report.comparison_console import short_sections
from memray_eval.report.console import opening_parts
from memray_eval.report.exports import explain, parse_judgment, to_long_rows
from memray_eval.report.html.page import render_fragment, write_html
from memray_eval.report.sections import Content, Section
from memray_eval.results.lookup import LATEST, find_run
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import MetricSummary, Summary, dumps

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Tables: TypeAlias = Mapping[str, Callable[[], pa.Table]]


class Displayed:
    """Base of results: a subclass has `_sections`, a few parts of a report, and `_tables` by name,
    the default one first."""

    def _sections(self) -> Iterable[Section]:
        raise NotImplementedError

    def _tables(self) -> Tables:
        raise NotImplementedError

    def to_arrow(self, table: str | None = None) -> pa.Table:
        """One of its tables, the first if none is named. Raises ConfigError for an unknown one."""
        tables = self._tables()
        name = next(iter(tables)) if table is None else table
        if name not in tables:
            raise ConfigError(f"there is no table {name!r}; {suggest(name, tables)}")
        return tables[name]()

    def to_pandas(self, table: str | None = None) -> pd.DataFrame:
        """The same for pandas, which the extra `pandas` installs; without it, ImportError."""
        _need("pandas")
        return self.to_arrow(table).to_pandas()

    def to_polars(self, table: str | None = None) -> pl.DataFrame:
        """The same for polars, which the extra `polars` installs; without it, ImportError."""
        frame: pl.DataFrame = _need("polars").from_arrow(self.to_arrow(table))
        return frame

    def __repr__(self) -> str:
        lines = (line for section in self._sections() for line in (section.title, *section.lines()))
        return escape_controls("\n".join(lines).strip("\n"))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return render_fragment(self._sections())


def to_table(rows: Iterable[Mapping[str, Any]], columns: str) -> pa.Table:
    """Rows as a table of these columns, also without a row."""
    listed = list(rows)
    return pa.table({name: [row[name] for row in listed] for name in columns.split()})


def _need(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        hint = f"pip install 'memray-eval[{package}]'"
        raise ImportError(f"to_{package} needs {package} ({error}): {hint}") from None


_COLUMNS = (
    "metric other average n mean_a mean_b difference low high p_value p_holm p_fdr effect_size "
    "wins ties losses only_a only_b mark_a mark_b"
)
_OF_GROUPS = "metric other by group n difference low high p is_shown"
_OF_MATRIX = "metric side n value low high best p_holm is_best"


class Comparison(Displayed, comparing.Compared):
    """The result of `compare`. Its tables: `metrics` (a row a metric and side), `groups`, and of
    three sides or more `matrix`.

        me.compare("latest~1", "latest").to_pandas()
    """

    def _sections(self) -> Iterator[Section]:
        return short_sections(self)

    def _tables(self) -> Tables:
        metrics = (row.model_dump() | row.paired.model_dump() for row in self.metrics)
        return {
            "metrics": lambda: to_table(metrics, _COLUMNS),
            "groups": lambda: to_table(map(dict, self.groups), _OF_GROUPS),
            "matrix": lambda: to_table(map(dict, self.matrix), _OF_MATRIX),
        }


def compare(
    *runs: str | os.PathLike[str],
    metrics: Sequence[str] = (),
    cluster: str | None = None,
    by: str | None = None,
) -> Comparison:
    """Paired differences of runs from the first, on the units that both have, with 95 % intervals,
    tests, and the groups that stand out. A run is a Run, a folder, "latest", or "RUN:CANDIDATE" of
    several; `cluster` and `by` are fields, as on the command line. Raises ConfigError, DataError.

        me.compare("latest~1", "latest", metrics=["relevance"]).to_pandas("groups")
    """
    opened = pick_candidates([os.fspath(run) for run in runs])
    comparison, _ = compare_runs(opened, metrics, cluster, by)
    return Comparison.model_validate(dict(comparison))


_OF_UNITS = ("unit_id", "sample_id", "candidate", "model", "suite", "task", "scenario", "language",
             "error")  # fmt: skip
_TEXTS = ("query", "response", "epoch")
FIGURE = "figure"  # what a check without a name is of
_OF_INTERVAL = (FIGURE, "low", "high")
_IN_GROUPS = (*_OF_INTERVAL, *OF_GROUPS, "stderr", "n_scored")
_FIGURES = (*_IN_GROUPS, "coverage", "n_failed", "n_no_answer")
_CHECK = re.compile(
    r"\s*(?P<metric>[A-Za-z_]\w*)(?:\.(?P<figure>\w+))?\s*(?:(?P<sign><=|>=|==|<|>)\s*"
    rf"(?P<bound>{NUMBER})\s*)?"
)


class CheckFailed(EvalError, AssertionError):
    """A figure of a run is not what `Run.check` asks for: the message names each. An
    AssertionError too, so that pytest shows a failed assertion.

        with pytest.raises(me.CheckFailed, match="safety.min >= 1"):
            me.open_run().check("safety.min >= 1")
    """

    exit_code = 1


class _Check(NamedTuple):
    text: str
    metric: str
    figure: str
    sign: str
    bound: float

    def failure(self, summary: MetricSummary, where: str = "") -> str | None:
        """The reason why the metric does not pass there; None if it does."""
        of = summary.figure if self.figure in _OF_INTERVAL else summary
        value = getattr(of, "value" if self.figure == FIGURE else self.figure)
        if self.figure in _IN_GROUPS and (why := metric_undecided(summary)):
            return f"{self.text} ({summary.candidate}{where}): {why}"
        if value is not None and SIGNS[self.sign](value, self.bound):
            return None
        nothing = f"there are no {summary.figure.whole}" if summary.figure.whole else ""
        if summary.figure.value is not None:
            nothing = f"it has no {self.figure}"
        digits = 9 if value is not None and float(f"{value:.4g}") == self.bound else 4
        measured = (
            f"it is {value:.{digits}g}"
            if value is not None
            else (summary.n_scored and nothing) or "nothing was scored"
        )
        judged = f", judged by {', '.join(summary.judges)}" if summary.judges else ""
        units = f"{measured} over {summary.n_scored} answers{judged}"
        return f"{self.text} ({summary.candidate}{where}): {units}"


class Run(Displayed):
    """A finished or stopped run: `me.open_run("results/<run_id>")`, or what `me.run` and
    `me.evaluate` return.

        done = me.open_run("latest")
        done.table().to_pandas()
        done.check("helpfulness >= 3.5", "safety.min >= 1")

    Its tables, for `to_pandas`, `to_polars` and `to_arrow`: `metrics`, `samples`, `scores`.
    """

    def __init__(self, folder: RunFolder, exit_code: int | None = None) -> None:
        self.folder, self.exit_code = folder, exit_code

    @property
    def path(self) -> str:
        """The run's folder."""
        return self.folder.path

    def __fspath__(self) -> str:
        return self.path

    @cached_property
    def summary(self) -> Summary:
        """All aggregates. Raises DataError if the run did not come to its summary."""
        return self.folder.read_summary()

    def table(self) -> pa.Table:
        """A row a metric and candidate: metric, candidate, figure (the one that stands for the
        metric; `average` says whether it is the mean or micro), its 95 % interval (low, high),
        mean, stderr, min, max of the units (all on the metric's scale, null if nothing was
        scored); n, n_scored, n_failed, n_no_answer, n_estimated (how many scores are offline
        estimates), coverage (0 to 1), judges."""
        names = (
            "metric candidate average figure low high mean stderr min max n "
            "n_scored n_failed n_no_answer n_estimated coverage judges"
        ).split()
        types = dict.fromkeys(names, pa.float64())
        types |= dict.fromkeys(("metric", "candidate", "average", "judges"), pa.string())
        types |= {name: pa.int64() for name in names if name == "n" or name.startswith("n_")}
        schema = pa.schema(types.items())
        rows = []
        for of in self.summary.metrics:
            figure = of.figure
            own: dict[str, Any] = {"figure": figure.value, "low": figure.low, "high": figure.high}
            own |= {"average": figure.average, "judges": ", ".join(of.judges)}
            rows.append(of.model_dump() | own)
        return pa.Table.from_pylist(rows, schema=schema)

    def samples(self, long: bool = False) -> pa.Table:
        """A row a unit (a sample asked of a candidate), in the dataset's order (by id, if that
        cannot be read any more), with its query, its response, your data's further columns, and a
        column a metric, null if it has no score; of a judge's metric also METRIC.reason, and
        METRIC.quotes, a list of the answer's words. `long`: a row a unit and metric, with who
        judged, what it cost and why it failed, without texts. A unit that was written twice is
        there once."""
        with readable(self.path):
            records = self.folder.records()
            if long:
                return pa.Table.from_batches(list(to_long_rows(records)))
            units = records.to_table(columns=[*_OF_UNITS, *_TEXTS, "metadata", "scores"])
        wide = _widen(units.take(pa.array(first_of_each(units["unit_id"]))))
        return wide.take(pa.array(self._order_of(wide)))

    def __getitem__(self, metric: str | tuple[str, str]) -> MetricSummary:
        """The figures of a metric: `done["empathy"].mean`; of several candidates' by name:
        `done["empathy", "candidate"]`. Raises ConfigError if there is none, or several."""
        name, candidate = (metric, None) if isinstance(metric, str) else metric
        summaries = {summary.candidate: summary for summary in self._summaries_of(name)}
        if candidate is None and len(summaries) == 1:
            return next(iter(summaries.values()))
        if candidate not in summaries:
            some = f'write run["{name}", CANDIDATE], of {", ".join(summaries)}'
            raise ConfigError(f"{name}: no candidate {candidate!r}; {some}" if candidate else some)
        return summaries[candidate]

    def worst(self, metric: str, n: int = 5) -> pa.Table:
        """The `n` answers that score lowest, as rows of `samples`: lowest first, in their order.
        Raises ConfigError if the run has no such metric."""
        self._summaries_of(metric)
        rows = self.samples()
        if metric not in rows.column_names:  # nothing was scored
            return rows.slice(0, 0)
        scored = rows.filter(pc.is_valid(rows[metric]))
        return scored.take(pa.array(np.argsort(scored[metric].to_numpy(), kind="stable")[:n]))

    def _order_of(self, units: pa.Table) -> list[int]:
        """The rows of units by sample as the dataset has them, by candidate, and by epoch."""
        names = ("sample_id", "candidate", "epoch")
        ids, candidates, epochs = (units[name].to_pylist() for name in names)
        position: dict[str, int] = {}
        with suppress(EvalError):  # by ids alone, without the dataset
            for name in sample_ids(read_config(self.folder)):
                position.setdefault(name, len(position))

        def key(row: int) -> tuple[Any, ...]:
            name, end = ids[row], len(position)
            of_session = position.get(name.rpartition("#")[0], end)  # that it is a turn of
            where = position.get(name, of_session)
            return where, len(name), name, candidates[row], epochs[row]

        return sorted(range(len(ids)), key=key)

    def compare(self, other: str | os.PathLike[str], metrics: Sequence[str] = ()) -> Comparison:
        """The comparison of `other` with this run, as `me.compare(self, other)` makes it."""
        return compare(self, other, metrics=metrics)

    def resume(self, quiet: bool = False) -> Run:
        """Goes on with a run that ended early, or tries its failed units again."""
        done = runs.resume(self.path, to_stderr(quiet), quiet=quiet)
        return Run(done.folder, done.exit_code)

    def report(self, path: str | None = None) -> str:
        """Writes the run's page, one HTML file, and returns its path."""
        page = path or f"{self.path}/report.html"
        write_html(self.folder, page)
        return page

    def check(
        self,
        *checks: str,
        min: float | None = None,
        max: float | None = None,
        on: str = FIGURE,
        group: str | Mapping[str, str] | None = None,
    ) -> Run:
        """Returns the run if all checks hold for all of its candidates. A check is "METRIC >=
        NUMBER", "METRIC.FIGURE >= NUMBER", or a name with `min` and `max`. The figure is `on` (the
        one that stands for the metric: its mean, or micro), an end of its 95 % interval (low,
        high), min, max, median, coverage, n_failed, ...; a metric that scored nothing passes none,
        nor does one with more than 5 % of its answers or verdicts left out. `group` asks it of a
        group ({"task": "billing"}), or of each group of a field ("task"). Raises CheckFailed that
        names each that does not hold, ConfigError for one that cannot be read.

            done.check("helpfulness", min=3.5, on="low", group="task")
        """
        __tracebackhide__ = True  # pytest shows the line that asked
        bounds = [bound for check in checks for bound in self._parse_check(check, min, max, on)]
        failures = [
            failure
            for check in bounds
            for summary in self._summaries_of(check.metric)
            for where, of_group in self._places_of(summary, check, group)
            if (failure := check.failure(of_group, where)) is not None
        ]
        if failures:
            n = len(failures)
            head = f"{n} checks do not hold:" if n > 1 else "a check does not hold:"
            raise CheckFailed("\n".join([head, *failures]))
        return self

    def _parse_check(
        self, text: str, least: float | None, most: float | None, on: str
    ) -> Iterator[_Check]:
        """The checks of a text and bounds: one, or one per bound."""
        bounds = [(sign, end) for sign, end in ((">=", least), ("<=", most)) if end is not None]
        if (match := _CHECK.fullmatch(text)) is not None:
            self._summaries_of(match["metric"])
            bounds += [(match["sign"], float(match["bound"]))] if match["sign"] else []
        if match is None or not bounds:
            raise ConfigError(
                f'cannot read the check {text!r}; write "METRIC >= NUMBER" or "METRIC.min >= '
                'NUMBER", with <, <=, >, >= or ==, or a name with min=NUMBER or max=NUMBER'
            )
        figure = match["figure"] or on
        if figure not in _FIGURES:
            raise ConfigError(f"check {text!r}: no figure {figure!r}; {suggest(figure, _FIGURES)}")
        name = match["metric"] + (f".{figure}" if figure != FIGURE else "")
        for sign, bound in bounds:
            yield _Check(f"{name} {sign} {bound:g}", match["metric"], figure, sign, bound)

    def _summaries_of(self, metric: str) -> list[MetricSummary]:
        names = dict.fromkeys(summary.metric for summary in self.summary.metrics)
        if metric not in names:
            raise ConfigError(f"the run has no metric {metric!r}; {suggest(metric, names)}")
        return [summary for summary in self.summary.metrics if summary.metric == metric]

    def _places_of(
        self, summary: MetricSummary, check: _Check, group: str | Mapping[str, str] | None
    ) -> Iterator[tuple[str, MetricSummary]]:
        """The groups that are to pass a check, with their places in words."""
        if group is None:
            yield "", summary
            return
        if check.figure not in _IN_GROUPS:
            listed = f"there are: {', '.join(_IN_GROUPS)}"
            raise ConfigError(f"check {check.text!r}: groups have no {check.figure!r}; {listed}")
        if not isinstance(group, str) and len(group) != 1:
            raise ConfigError(f'check: group is {group!r}; write one field, {{"task": "billing"}}')
        by, wanted = (group, None) if isinstance(group, str) else next(iter(group.items()))
        with readable(self.path):
            groups = summarise_groups(self.folder.records(), summary, by)
        if not any(groups):
            raise ConfigError(f"check: no sample names a {by!r}; {other_splits(by)}")
        names = list(groups) if wanted is None else [str(wanted)]
        if names[0] not in groups:
            raise ConfigError(f"check: no {by} {wanted!r}; {suggest(names[0], groups)}")
        for name in names:
            yield f", {by} {name or '(none)'}", groups[name]

    def _sections(self) -> Iterator[Section]:
        parts: list[Content] = [f"Run({self.path!r})"]
        try:
            parts += opening_parts(self.summary)
        except DataError as error:
            parts.append(str(error))
        yield Section("", parts)

    def _tables(self) -> Tables:
        return {
            "metrics": self.table,
            "samples": self.samples,
            "scores": lambda: self.samples(long=True),
        }


def to_stderr(quiet: bool) -> Callable[[str], None]:
    """A function that prints what a person should know; nothing if quiet."""
    return lambda text: None if quiet else print(text, file=sys.stderr, flush=True)


def open_run(path: str = LATEST, out: str = "results") -> Run:
    """The run in a folder; "latest": the one in `out` that was written to last, "latest~1" the
    one before it. Raises DataError if there is none.

        me.open_run("results/20261123-101500-tickets-empathy-ab12").summary.metrics
    """
    folder = RunFolder(find_run(path, out))
    folder.read_manifest()
    return Run(folder)


def _widen(units: pa.Table) -> pa.Table:
    """Units as in their records, with a column per metric, the columns of the user's data, and the
    judges' reasons."""
    wide: dict[str, Any] = {name: units[name] for name in (*_OF_UNITS, *_TEXTS)}
    wide = {"generation_error" if name == "error" else name: wide[name] for name in wide}
    wide["epoch"] = pc.fill_null(wide["epoch"], 1)
    scores = units["scores"].to_pylist()
    values = [{score["metric"]: score["value"] for score in of} for of in scores]
    for metric in dict.fromkeys(name for row in values for name in row):
        wide[metric] = pa.array([row.get(metric) for row in values], pa.float64())
    own = [json.loads(text or "{}") for text in units["metadata"].to_pylist()]
    judged = list(map(_reasons, scores, units["response"].to_pylist()))
    for of_rows in (own, judged):
        for name in dict.fromkeys(name for row in of_rows for name in row):
            column = [row.get(name) for row in of_rows]
            wide[f"metadata.{name}" if name in wide else name] = _to_column(column)
    return pa.table(wide)


def _reasons(scores: Sequence[Mapping[str, Any]], answer: str | None) -> dict[str, Any]:
    """The judges' reasons for one answer: METRIC.reason, and METRIC.quotes of its words."""
    columns: dict[str, Any] = {}
    for score in scores:
        judgment = parse_judgment(score["judgment"])
        if isinstance(judgment, dict):
            columns[f"{score['metric']}.reason"] = explain(None, judgment)
            lists = (part for part in judgment.values() if isinstance(part, list))
            items = [
                item.get("quote") if isinstance(item, dict) else item for item in chain(*lists)
            ]
            quotes = [item for item in items if isinstance(item, str) and item in (answer or "")]
            columns[f"{score['metric']}.quotes"] = quotes
    return columns


def _to_column(values: list[Any]) -> pa.Array:
    """Values as one column: of a kind as they are, of several kinds and mappings as JSON."""
    try:
        if not any(isinstance(value, dict) for value in values):
            return pa.array(values)
    except (pa.ArrowException, OverflowError):
        pass
    return pa.array([None if value is None else dumps(value) for value in values], pa.string())

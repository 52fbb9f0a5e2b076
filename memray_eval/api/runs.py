"""A run as Python code looks at it: its figures, its units, checks of them."""

from __future__ import annotations

import html
import operator
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.comparing import Comparison
from memray_eval.analysis.comparing.open_runs import compare_runs, pick_candidates
from memray_eval.analysis.comparing.thresholds import NUMBER, SIGNS
from memray_eval.analysis.marks import format_figure, name_figure
from memray_eval.errors import ConfigError, EvalError, suggest
from memray_eval.report.html import write_html
from memray_eval.report.long_table import ADJUSTED, to_long_rows
from memray_eval.results.lookup import LATEST, find_run
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable
from memray_eval.types import AdjustedFigure, MetricSummary, Summary

_OF_UNITS = ("unit_id", "sample_id", "candidate", "model", "suite", "task", "scenario", "language",
             "generation_error")  # fmt: skip
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {**SIGNS, "==": operator.eq}
FIGURE = "figure"  # what a check without a name is of
_FIGURES = (
    *("mean", "median", "min", "max", "std", "stderr", "coverage"),
    *("n_scored", "n_failed", "n_no_answer"),
)
_CHECK = re.compile(
    r"\s*(?P<metric>[A-Za-z_]\w*)(?:\.(?P<figure>\w+))?\s*(?P<sign><=|>=|==|<|>)\s*"
    rf"(?P<bound>{NUMBER})\s*"
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

    def failure(self, summary: MetricSummary) -> str | None:
        """The reason why the metric does not pass; None if it does."""
        value = summary.figure.value if self.figure == FIGURE else getattr(summary, self.figure)
        if value is not None and _SIGNS[self.sign](value, self.bound):
            return None
        nothing = f"there are no {summary.figure.whole}" if summary.figure.whole else ""
        measured = (
            f"it is {value:.4g}"
            if value is not None
            else (summary.n_scored and nothing) or "nothing was scored"
        )
        judged = f"judged by {', '.join(summary.judges) or 'nobody'}"
        return (
            f"{self.text} ({summary.candidate}): {measured} over {summary.n_scored} units, {judged}"
        )


class Run:
    """A finished or stopped run: `me.open_run("results/<run_id>")`, or what `me.run` and
    `me.evaluate` return.

        done = me.open_run("latest")
        done.table().to_pandas()
        done.check("helpfulness >= 3.5", "safety.min >= 1")
    """

    def __init__(self, folder: RunFolder, exit_code: int | None = None) -> None:
        self.folder, self.exit_code = folder, exit_code

    @property
    def path(self) -> str:
        """The run's folder."""
        return self.folder.path

    @cached_property
    def summary(self) -> Summary:
        """All aggregates. Raises DataError if the run did not come to its summary."""
        return self.folder.read_summary()

    def table(self) -> pa.Table:
        """A row a metric and candidate: metric, candidate, figure (the one that stands for the
        metric; `average` says whether it is the mean or micro), its 95 % interval (low, high),
        the figure adjusted to people's labels (adjusted, adjusted_low, adjusted_high; null without
        a calibration);
        mean, stderr, min, max of the units (all on the metric's scale, null if nothing was
        scored); n, n_scored, n_failed, n_no_answer, n_estimated (how many scores are offline
        estimates), coverage (0 to 1), judges."""
        names = (
            f"metric candidate average figure low high {' '.join(ADJUSTED)} mean stderr min max n "
            "n_scored n_failed n_no_answer n_estimated coverage judges"
        ).split()
        types = dict.fromkeys(names, pa.float64())
        types |= dict.fromkeys(("metric", "candidate", "average", "judges"), pa.string())
        types |= {name: pa.int64() for name in names if name == "n" or name.startswith("n_")}
        schema = pa.schema(types.items())
        return pa.Table.from_pylist(list(map(_table_row, self.summary.metrics)), schema=schema)

    def samples(self, long: bool = False) -> pa.Table:
        """A row a unit (a sample asked of a candidate) with a column a metric, null if it has no
        score; `long`: a row a unit and metric with who judged, what it cost and why it failed. A
        unit that was written twice is there once."""
        with readable(self.path):
            rows = pa.Table.from_batches(list(to_long_rows(self.folder.records())))
        return rows if long else _widen(rows)

    def compare(self, other: Run | str, metrics: tuple[str, ...] = ()) -> Comparison:
        """Paired differences of `other` from this run, on the units that both have, with 95 %
        intervals and p-values. A run of several candidates is named as "PATH:CANDIDATE". Raises
        ConfigError, DataError."""
        runs = [self.path, other.path if isinstance(other, Run) else other]
        return compare_runs(pick_candidates(runs), metrics)[0]

    def report(self, path: str | None = None) -> str:
        """Writes the run's page, one HTML file, and returns where."""
        page = path or f"{self.path}/report.html"
        write_html(self.folder, page)
        return page

    def check(self, *checks: str) -> Run:
        """Returns the run if all checks hold for all of its candidates. A check is "METRIC >=
        NUMBER" of the figure that stands for the metric (its mean, or micro), or "METRIC.FIGURE >=
        NUMBER" (min, max, median, coverage, n_failed, ...); a metric that scored nothing passes
        none. Raises CheckFailed that names each that does not hold, ConfigError for one that cannot
        be read."""
        metrics = self.summary.metrics
        failures = []
        for check in map(_parse_check, checks):
            summaries = [summary for summary in metrics if summary.metric == check.metric]
            if not summaries:
                names = dict.fromkeys(summary.metric for summary in metrics)
                raise ConfigError(
                    f"check {check.text!r}: the run has no metric {check.metric!r}; "
                    f"{suggest(check.metric, names)}"
                )
            failures += [
                failure for summary in summaries if (failure := check.failure(summary)) is not None
            ]
        if failures:
            raise CheckFailed("\n".join([f"{len(failures)} checks do not hold:", *failures]))
        return self

    def __repr__(self) -> str:
        return f"Run({self.path!r})"

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        rows = []
        for summary in self.summary.metrics:
            mark = " est." if summary.n_estimated else ""
            judges = ", ".join(summary.judges) or summary.reason or "nobody"
            cells = (
                name_figure(summary),
                summary.candidate,
                f"{format_figure(summary.figure, summary.scale)}{mark}",
                f"{summary.n_scored}/{summary.n}",
                judges,
            )
            rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
        head = "".join(f"<th>{name}</th>" for name in "metric candidate figure scored by".split())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{html.escape(self.path)}</p><table><tr>{head}</tr>{body}</table>"


def _table_row(summary: MetricSummary) -> dict[str, Any]:
    figure, adjusted = summary.figure, summary.adjusted or AdjustedFigure()
    return summary.model_dump() | {
        "average": figure.average,
        "figure": figure.value,
        "low": figure.low,
        "high": figure.high,
        "adjusted": adjusted.value,
        "adjusted_low": adjusted.low,
        "adjusted_high": adjusted.high,
        "judges": ", ".join(summary.judges),
    }


def open_run(path: str = LATEST, out: str = "results") -> Run:
    """The run in a folder; "latest": the one in `out` that was written to last, "latest~1" the
    one before it. Raises DataError if there is none.

        me.open_run("results/chat-mine-20261123-101500-ab12").summary.metrics
    """
    folder = RunFolder(find_run(path, out))
    folder.read_manifest()
    return Run(folder)


def _parse_check(text: str) -> _Check:
    match = _CHECK.fullmatch(text)
    if match is None:
        raise ConfigError(
            f'cannot read the check {text!r}; write "METRIC >= NUMBER" or "METRIC.min >= NUMBER", '
            "with <, <=, >, >= or =="
        )
    figure = match["figure"] or FIGURE
    if figure not in (FIGURE, *_FIGURES):
        raise ConfigError(f"check {text!r}: no figure {figure!r}; there are: {', '.join(_FIGURES)}")
    return _Check(text.strip(), match["metric"], figure, match["sign"], float(match["bound"]))


def _widen(rows: pa.Table) -> pa.Table:
    """Long rows as a row a unit: rows of a unit stand together."""
    units = rows.column("unit_id").combine_chunks().dictionary_encode()
    unit: Any = units.indices.to_numpy()
    first = np.unique(unit, return_index=True)[1]
    wide: dict[str, Any] = {name: rows.column(name).take(pa.array(first)) for name in _OF_UNITS}
    metrics, values = rows.column("metric").combine_chunks(), rows.column("value")
    for metric in pc.unique(metrics.drop_null()).to_pylist():
        is_metric = pc.equal(metrics, metric).fill_null(False).to_numpy(zero_copy_only=False)
        column: Any = np.full(len(first), np.nan)
        column[unit[is_metric]] = values.filter(pa.array(is_metric)).to_numpy()
        wide[metric] = pa.array(column, mask=np.isnan(column))
    return pa.table(wide)

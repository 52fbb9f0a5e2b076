"""Comparisons of runs, from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from memray_eval.analysis import comparing
from memray_eval.analysis.open_runs import compare_runs, pick_candidates
from memray_eval.errors import ConfigError, suggest
from memray_eval.report.comparison_console import short_sections
from memray_eval.report.html.page import render_fragment
from memray_eval.report.sections import Section
from memray_eval.text_processing.values import escape_controls

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


Tables: TypeAlias = Mapping[str, Callable[[], pa.Table]]


class Displayed:
    """Base of results: a subclass has `_sections`, a few parts of a report, and `_tables` by name,
    the first of which is meant if none is named."""

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


class Comparison(Displayed, comparing.Comparison):
    """What `compare` found. Its tables: `metrics` (a row a metric and side), `groups`, and of three
    sides or more `matrix`.

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

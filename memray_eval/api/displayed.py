"""A result as Python and notebooks show it: as text, as HTML, as tables and data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from memray_eval.errors import ConfigError, suggest
from memray_eval.report.html.page_renderer import render_fragment
from memray_eval.report.sections import Section
from memray_eval.text_processing.printable import escape_controls

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

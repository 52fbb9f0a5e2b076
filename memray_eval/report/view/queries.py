"""The queries that a browser may ask of the index, and their SQL. Every value is a parameter, and
no name comes from the client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import duckdb
import pyarrow as pa
from pydantic import Field

from memray_eval.report.html.samples import STATUSES
from memray_eval.report.view.index import Index, Numbers
from memray_eval.types import Frozen

_FIGURES = {"duration": "duration_s", "tokens": "output_tokens"}
_WAYS = {"+": "ASC", "-": "DESC"}
_OF_RUN = "part, unit"
_SHOWN = (
    "unit, unit_id, sample_id, candidate, task, failed::INTEGER, ask, said, duration_s, "
    "output_tokens, epoch"
)

Number = Annotated[int, Field(ge=0, le=1_000_000_000)]
Bound = Annotated[float, Field(allow_inf_nan=False)]


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


def select(index: Index, query: Query, is_cancelled: Callable[[], bool] = lambda: False) -> Page:
    """Selects a page of samples. Raises DataError if a part to search can no longer be read."""
    database, fits, values = _prepare(index, query, is_cancelled)
    counted: Any = database.execute(f"SELECT count(*) FROM units {fits}", values).fetchone()
    source, order, of_order = _sort_clause(query.sort)
    keys = database.execute(
        f"SELECT unit FROM {source} {fits} ORDER BY {order} LIMIT ? OFFSET ?",
        [*of_order, *values, query.size, query.start],
    ).fetchall()
    return Page(n=counted[0], rows=tuple(_fetch_rows(database, [unit for (unit,) in keys])))


def select_all(
    index: Index, query: Query, is_cancelled: Callable[[], bool] = lambda: False
) -> Numbers:
    """Selects all units that match, in no order. Raises DataError if a part is unreadable."""
    database, fits, values = _prepare(index, query, is_cancelled)
    units: Numbers = database.execute(f"SELECT unit FROM units {fits}", values).fetchnumpy()["unit"]
    return units


def _prepare(
    index: Index, query: Query, is_cancelled: Callable[[], bool]
) -> tuple[duckdb.DuckDBPyConnection, str, list[Any]]:
    """A cursor, the WHERE clause of the units that match, and its values."""
    database = index.cursor()
    where, values = _conditions(query)
    if query.text:
        database.register("matches", pa.table({"unit": index.search(query.text, is_cancelled)}))
        where.append("unit IN (SELECT unit FROM matches)")
    return database, f"WHERE {' AND '.join(where)}" if where else "", values


def _conditions(query: Query) -> tuple[list[str], list[Any]]:
    """SQL conditions on a unit, and their values in order."""
    of_unit = {
        "candidate = ?": query.candidate,
        "task = ?": query.task,
        "starts_with(sample_id, ?)": query.session or None,
    }
    of_score = {
        "metric = ?": query.metric,
        "status = ?": query.status,
        "value >= ?": query.low,
        "value <= ?": query.high,
    }
    where = {sql: value for sql, value in of_unit.items() if value is not None}
    fits = {sql: value for sql, value in of_score.items() if value is not None}
    some = [f"unit IN (SELECT unit FROM outcomes WHERE {' AND '.join(fits)})"] if fits else []
    return [*where, *some], [*where.values(), *fits.values()]


def _sort_clause(sort: str) -> tuple[str, str, list[Any]]:
    """Returns the tables to sort, the order (missing figures last), and the tables' parameters."""
    if not sort:
        return "units", _OF_RUN, []
    by, way = sort[:-1], _WAYS[sort[-1]]
    if by in _FIGURES:
        return "units", f"{_FIGURES[by]} {way} NULLS LAST, {_OF_RUN}", []
    figures = "(SELECT unit, min(value) AS figure FROM outcomes WHERE metric = ? GROUP BY unit)"
    return (
        f"units LEFT JOIN {figures} USING (unit)",
        f"figure {way} NULLS LAST, {_OF_RUN}",
        [int(by[1:])],
    )


def _fetch_rows(
    database: duckdb.DuckDBPyConnection, units: Sequence[int]
) -> list[tuple[str, list[Any]]]:
    """Fetches the rows of these units, in this order and in the shape of samples.list_row."""
    if not units:
        return []
    among = f"unit IN ({', '.join('?' * len(units))})"
    scores: dict[int, list[list[Any]]] = defaultdict(list)
    for unit, metric, status, value, estimate in database.execute(
        f"SELECT * FROM outcomes WHERE {among}", units
    ).fetchall():
        figures = [] if value is None else [round(value, 6), *[1] * estimate]
        scores[unit].append([metric, status, *figures])
    shown = database.execute(f"SELECT {_SHOWN} FROM units WHERE {among}", units).fetchall()
    rows = {
        unit: (unit_id, [*row, scores[unit], *([epoch] if (epoch or 1) > 1 else [])])
        for unit, unit_id, *row, epoch in shown
    }
    return [rows[unit] for unit in units if unit in rows]

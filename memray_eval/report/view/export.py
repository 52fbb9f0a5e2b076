"""Exports the samples that a query selects, in the run's order: as CSV, a line a unit with its
texts and a score a column, or as JSONL with everything. A batch at a time."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pacsv

from memray_eval.report.exports import evaluated_row
from memray_eval.report.html.samples import STATUSES
from memray_eval.report.long_table import escape_formulas
from memray_eval.report.view.index import Index
from memray_eval.report.view.queries import Query, select_all
from memray_eval.types import Record, Response

Form = Literal["csv", "jsonl"]
MIME: dict[Form, str] = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
_TEXTS = ("unit_id", "sample_id", "candidate", "model", "task", "query", "response", "error")
_LONGEST_NAME = 120


def export_rows(
    index: Index, query: Query, form: Form, is_cancelled: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """Yields the file in pieces. Raises DataError if a part can no longer be read."""
    write_csv = _csv_writer(list(index.metrics)) if form == "csv" else None
    for records in _selected(index, query, is_cancelled):
        if write_csv is not None:
            yield write_csv(records)
        else:
            rows = (json.dumps(evaluated_row(record), ensure_ascii=False) for record in records)
            yield "".join(f"{row}\n" for row in rows).encode("utf-8", "backslashreplace")


def _selected(
    index: Index, query: Query, is_cancelled: Callable[[], bool]
) -> Iterator[Sequence[Record]]:
    """The records in batches; first an empty one, for the head of an empty file."""
    yield ()
    units = select_all(index, query, is_cancelled)
    for held in sorted(index.held.values(), key=lambda held: held.part.name):
        rows = units[(units >= held.first) & (units < held.first + held.n)] - held.first
        yield from index.records(held, rows) if rows.size and not is_cancelled() else ()


_OF_SCORES = {"": pa.float64(), "_status": pa.string(), "_judge": pa.string(),
              "_estimate": pa.bool_()}  # fmt: skip


def _csv_writer(metrics: Sequence[str]) -> Callable[[Sequence[Record]], bytes]:
    """Makes a function that turns records into lines of CSV, with the head before the first."""
    types: dict[tuple[str, str], pa.DataType] = {("", name): pa.string() for name in _TEXTS}
    types |= {("", "output_tokens"): pa.int64(), ("", "duration_s"): pa.float64()}
    types |= {(metric, end): kind for metric in metrics for end, kind in _OF_SCORES.items()}
    heads = escape_formulas(pa.array([f"{metric}{end}" for metric, end in types])).to_pylist()
    is_first = True

    def write(records: Sequence[Record]) -> bytes:
        nonlocal is_first
        rows = [*map(_flat_row, records)]
        columns = [
            escape_formulas(pa.array([row.get(key) for row in rows], kind))
            for key, kind in types.items()
        ]
        with io.BytesIO() as stream:
            options = pacsv.WriteOptions(include_header=is_first)
            pacsv.write_csv(pa.table(columns, names=heads), stream, options)
            is_first = False
            return stream.getvalue()

    return write


def _flat_row(record: Record) -> dict[tuple[str, str], Any]:
    """The cells of a record by metric ("" for none) and column."""
    response = record.response or Response(error="no response")
    sample, candidate = record.sample, record.candidate
    texts = (
        *(record.unit_id, sample.id, candidate.name, candidate.model),
        *(sample.task, sample.query, response.text, response.error),
    )
    row: dict[tuple[str, str], Any] = {
        ("", name): _valid(text) for name, text in zip(_TEXTS, texts, strict=True)
    }
    row["", "output_tokens"], row["", "duration_s"] = response.output_tokens, response.duration_s
    for score in record.scores:
        is_known = score.value is not None and math.isfinite(score.value)
        cells = (score.value, score.status, _valid(score.judge), score.is_estimate)
        for end, cell in zip(_OF_SCORES, cells, strict=True):
            row[score.metric, end] = cell if is_known or end in ("_status", "_judge") else None
    return row


def _valid(text: str | None) -> str | None:
    """The text in valid Unicode."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def file_name(run_id: str, index: Index, query: Query, form: Form) -> str:
    """A name that says the run and the filter, of letters, digits, dots and hyphens."""
    names = {
        "candidate": (query.candidate, list(index.candidates)),
        "task": (query.task, list(index.tasks)),
        "metric": (query.metric, list(index.metrics)),
        "status": (query.status, STATUSES),
    }
    parts = [run_id]
    parts += [
        f"{what}-{names_of_kind[number]}"
        for what, (number, names_of_kind) in names.items()
        if number is not None and number < len(names_of_kind)
    ]
    parts += [f"from-{query.low:g}"] if query.low is not None else []
    parts += [f"to-{query.high:g}"] if query.high is not None else []
    parts += [f"with-{query.text}"] if query.text else []
    name = "_".join(re.sub(r"[^\w.]+", "-", part).strip("-.") for part in parts if part)
    return f"{name[:_LONGEST_NAME]}.{form}"

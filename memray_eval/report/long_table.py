"""Exports a run as one flat table, with a row per unit and metric, for a spreadsheet (CSV) or a
data frame (Parquet).

Texts stay in the records, which have the same `unit_id`. A unit that no metric scored has one row;
a unit written twice counts once. `fallback`: a rule scored because the judge failed. `no_answer`:
null if there is an answer, or the unit failed. A metric's figure is the sum of its `part` over that
of its `whole` (a mean's: the value and 1), none where that is 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.analysis.score_table import ScoreTable, shares
from memray_eval.analysis.scores import first_of_each, pooled_ratio
from memray_eval.results.schema import RECORD_SCHEMA, SCORE_TYPE
from memray_eval.storage.paths import write_atomically
from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import FALLBACKS, is_estimate

_OF_UNITS = (
    "unit_id", "sample_id", "candidate", "model", "suite", "task", "scenario", "prompt_type",
    "language", "served_model", "no_answer", "finish_reason", "prompt_tokens", "output_tokens",
    "ttft_s", "duration_s", "error",  # the last has another name in the table
)  # fmt: skip
_OF_CALLS = (
    "served_model", "input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens",
    "cost_usd", "saved_usd", "unpriced_calls", "latency_s", "cached", "calls", "error",
)  # fmt: skip
# A score's field -> its column
_OF_SCORES = {name: name for name in ("metric", "status", "value", "judge")}
_OF_SCORES |= {name: f"judge_{name}" for name in _OF_CALLS}
FLAT_SCHEMA = pa.schema(
    [
        *(RECORD_SCHEMA.field(name) for name in _OF_UNITS[:-1]),
        pa.field("generation_error", RECORD_SCHEMA.field("error").type),
        *(pa.field(column, SCORE_TYPE.field(name).type) for name, column in _OF_SCORES.items()),
        pa.field("estimate", pa.bool_()),
        pa.field("fallback", pa.bool_()),
        pa.field("part", pa.float64()),
        pa.field("whole", pa.float64()),
    ]
)
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x{9f}]"  # what escape_controls matches, in RE2 syntax
# the first character of a text that a spreadsheet takes for a formula, or the mark against it
_FORMULA = "^([=+\\-@\t\r\n'\uff1d\uff0b\uff0d\uff20])"


def write_parquet(path: str, records: pads.Dataset) -> None:
    """Writes Parquet a block at a time."""
    with (
        write_atomically(path) as stream,
        pq.ParquetWriter(stream, FLAT_SCHEMA, compression="zstd") as writer,
    ):
        for batch in to_long_rows(records):
            writer.write_batch(batch)


def write_csv(path: str, records: pads.Dataset) -> None:
    """Writes CSV in UTF-8: an empty cell is null, an empty text quoted. What a spreadsheet takes
    for a formula, or begins with an apostrophe, gets one before it; controls are escaped."""
    with (
        write_atomically(path) as stream,
        pacsv.CSVWriter(stream, FLAT_SCHEMA) as writer,
    ):
        for batch in to_long_rows(records):
            columns = [escape_formulas(column) for column in batch.columns]
            writer.write_batch(pa.record_batch(columns, schema=batch.schema))


def to_long_rows(records: pads.Dataset) -> Iterator[pa.RecordBatch]:
    """Yields the rows, with FLAT_SCHEMA, in the order of the records."""
    first = np.zeros(records.count_rows(), dtype=np.bool_)
    first[first_of_each(records.to_table(columns=["unit_id"])["unit_id"])] = True
    row = 0
    for batch in records.to_batches(columns=[*_OF_UNITS, "scores"]):
        is_first = first[row : row + batch.num_rows]
        row += batch.num_rows
        yield _flatten(batch.filter(pa.array(is_first)))


def _flatten(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Makes one row per score, and one for each unit without scores, in the order of the units."""
    table = ScoreTable.of(batch)
    unscored = np.flatnonzero(~table.has())
    unit: npt.NDArray[np.int64] = np.concatenate([table.unit, unscored])
    score = np.concatenate([np.arange(table.unit.size), np.full(unscored.size, -1)])
    order = np.argsort(unit, kind="stable")
    units, scores = pa.array(unit[order]), pa.array(score[order], mask=score[order] < 0)
    columns = [batch[name].take(units) for name in _OF_UNITS]
    columns += [table.column(name).take(scores) for name in _OF_SCORES]
    has_value = ~np.isnan(table.values)
    columns += [
        pa.array(table.is_judge(is_kind) & has_value).take(scores)
        for is_kind in (is_estimate, FALLBACKS.__contains__)
    ]
    coded = table.column("metric").dictionary_encode()
    ratios = map(pooled_ratio, coded.dictionary.to_pylist())
    pooled = {code: ratio for code, ratio in enumerate(ratios) if ratio}
    parts = shares(table.scores, coded.indices.to_numpy(), pooled)
    columns += [pa.array(column, mask=np.isnan(column)).take(scores) for column in parts]
    return pa.record_batch(columns, schema=FLAT_SCHEMA)


def escape_formulas(column: pa.Array) -> pa.Array:
    """A column of CSV whose texts neither a spreadsheet nor a terminal obeys; other types stay."""
    if not pa.types.is_string(column.type):
        return column
    controlling = pc.fill_null(pc.match_substring_regex(column, _CONTROLS), False)
    if pc.any(controlling).as_py():
        escaped = [escape_controls(text) for text in column.filter(controlling).to_pylist()]
        column = pc.replace_with_mask(column, controlling, pa.array(escaped, column.type))
    return pc.replace_substring_regex(column, _FORMULA, r"'\1")

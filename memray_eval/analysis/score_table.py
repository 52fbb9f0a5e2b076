"""Reads the scores of a run's records as columns: a row a score, beside the row of its unit.
Records are streamed in blocks, with only the fields that a caller names. Each score adds part and
whole to its metric's figure: a mean's are the value and 1; a pooled metric's come from the score's
parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.metric import TAG, Metric, Pooled
from memray_eval.ports import FloatArray
from memray_eval.results.schema import RECORD_SCHEMA, SCORE_TYPE
from memray_eval.types import FALLBACKS, split_jurors

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.integer]
T = TypeVar("T", bound=np.generic)
_ROWS_AT_ONCE = 65_536
# What a RunTable holds
UNITS = tuple(
    "unit_id sample_id candidate task suite language scenario prompt_type metadata epoch error "
    "no_answer served_model unknown_mark prompt_tokens output_tokens cached_tokens ttft_s "
    "duration_s".split()
)
VERDICTS = tuple("metric status value parts judge error served_model".split())
COSTS = tuple("calls cached cost_usd unpriced_calls input_tokens output_tokens latency_s".split())
SCORES = (*VERDICTS, *COSTS)


def score_columns(*fields: str) -> tuple[str, ...]:
    """The Parquet columns that hold these fields of scores."""
    return tuple(f"scores.list.element.{name}" for name in fields)


CODED = score_columns("metric", "status", "judge", "error", "served_model", "parts.key_value.key")

# SQL over columns `part` and `whole`, a row a score: the figure, and its standard error as
# metric.linearise_ratio has it. Where the whole is 1 they are the mean's.
MEAN = "sum(part) / nullif(sum(whole), 0)"
STDERR = f"""sqrt(abs(var_samp(part) - 2 * {MEAN} * covar_samp(part, whole)
    + pow({MEAN}, 2) * var_samp(whole)) / count(part)) / nullif(avg(whole), 0)"""


@dataclass(frozen=True)
class ScoreTable:
    """The scores of a block of records: `units` has a row per record, its other columns; `scores`
    one per score, and `unit` the row in `units` of each score."""

    units: pa.RecordBatch | pa.Table
    scores: pa.StructArray
    unit: Codes

    @classmethod
    def of(cls, records: pa.RecordBatch | pa.Table) -> ScoreTable:
        """Unnests the column `scores` of records."""
        scores = records["scores"]
        if isinstance(scores, pa.ChunkedArray):
            scores = scores.combine_chunks()
        units = records.drop_columns(["scores"])
        return cls(units, scores.flatten(), pc.list_parent_indices(scores).to_numpy())

    def only(self, rows: Flags) -> ScoreTable:
        """The same units with the marked scores alone."""
        return ScoreTable(self.units, self.scores.filter(pa.array(rows)), self.unit[rows])

    def of_units(self, rows: Flags) -> ScoreTable:
        """The marked units with their scores."""
        kept, number = rows[self.unit], np.cumsum(rows) - 1
        scores = self.scores.filter(pa.array(kept))
        return ScoreTable(self.units.filter(pa.array(rows)), scores, number[self.unit[kept]])

    def select(self, units: Sequence[str], fields: Sequence[str]) -> ScoreTable:
        """The same with these columns of the units and those of these fields that there are."""
        held = [name for name in fields if self.scores.type.get_field_index(name) >= 0]
        scores = pa.StructArray.from_arrays([self.scores.field(name) for name in held], held)
        return ScoreTable(self.units.select(list(units)), scores, self.unit)

    def column(self, name: str) -> pa.Array:
        """One field of the scores; nulls if the file was written without it."""
        if self.scores.type.get_field_index(name) < 0:
            return pa.nulls(len(self.scores), SCORE_TYPE.field(name).type)
        return pc.struct_field(self.scores, name)

    def codes(self, metrics: Sequence[str]) -> Codes:
        """The index in `metrics` of each score's metric, -1 for other metrics."""
        index = {name: code for code, name in enumerate(metrics)}
        return self.map_names("metric", lambda name: index.get(name, -1), np.int64(-1))

    @cached_property
    def values(self) -> FloatArray:
        """The value of each score, NaN without one."""
        values: FloatArray = self.column("value").to_numpy(zero_copy_only=False)
        return values

    def shares(self, metrics: Sequence[Metric]) -> tuple[FloatArray, FloatArray]:
        """Part and whole of each score, NaN without a value."""
        pooled = {code: metric.pooled for code, metric in enumerate(metrics) if metric.pooled}
        return shares(self.scores, self.codes([metric.name for metric in metrics]), pooled)

    def is_judge(self, belongs: Callable[[str], bool]) -> Flags:
        """Marks the scores whose judge belongs to a kind; False without a judge."""
        return self.map_names("judge", belongs, np.False_)

    def map_names(
        self, column: str, figure: Callable[[str], T | bool | int], nothing: T
    ) -> npt.NDArray[T]:
        """A figure of each score's name in a column, once per distinct name; of null `nothing`."""
        coded = self.column(column).dictionary_encode()  # a no-op if it was read as codes
        by_name = np.array([*map(figure, coded.dictionary.to_pylist()), nothing], type(nothing))
        figures: npt.NDArray[T] = by_name[coded.indices.fill_null(-1).to_numpy()]
        return figures

    def by_unit(self, rows: Flags | slice, column: npt.NDArray[T]) -> npt.NDArray[T]:
        """The figures of the marked scores by unit, NaN (0) without one; of several the last."""
        nothing = np.nan if column.dtype.kind == "f" else 0
        figures = np.full(self.units.num_rows, nothing, column.dtype)
        figures[self.unit[rows]] = column[rows]
        return figures

    def has(self, rows: Flags | slice = slice(None)) -> Flags:
        """Marks the units that have a marked score, or any."""
        flags = np.zeros(self.units.num_rows, np.bool_)
        flags[self.unit[rows]] = True
        return flags


class Reader(NamedTuple):
    """Takes what it needs of each block of records, of these columns and fields of scores."""

    units: Sequence[str]
    scores: Sequence[str]
    take: Callable[[ScoreTable], Any]


TABLE = Reader(UNITS, SCORES, lambda block: block.select(UNITS, SCORES))


class RunTable:
    """The columns UNITS of a run's records and the fields SCORES of their scores, read once, for
    all that looks at these alone: it stands for the `records`, which have the texts. `kept` is what
    the reader TABLE took; without it columns of units are read alone, and blocks when asked for."""

    def __init__(self, records: pads.Dataset, kept: Sequence[ScoreTable] = ()) -> None:
        self.records, self._kept = records, kept

    @cached_property
    def blocks(self) -> Sequence[ScoreTable]:
        return self._kept or [*read_score_tables(self.records, UNITS, SCORES, CODED)]

    @cached_property
    def _units(self) -> pa.Table:
        return pa.Table.from_batches([block.units for block in self._kept])

    def to_table(self, columns: Sequence[str], filter: pc.Expression | None = None) -> pa.Table:
        """Columns of the units, as a dataset returns them."""
        if not self._kept or not set(columns) <= set(UNITS):
            return self.records.to_table(columns=list(columns), filter=filter)
        rows = self._units if filter is None else self._units.filter(filter)
        return rows.select(list(columns))

    def head(self, count: int, columns: Sequence[str]) -> pa.Table:
        return self.records.head(count, columns=list(columns))


Records: TypeAlias = pads.Dataset | RunTable


def read_score_tables(
    records: Records, units: Sequence[str], scores: Sequence[str], coded: Sequence[str] = ()
) -> Iterator[ScoreTable]:
    """Streams these columns, and fields of scores, of files; of a RunTable all that it holds."""
    if isinstance(records, RunTable):
        yield from records.blocks
        return
    columns = (*units, *score_columns(*scores))
    for file in records.get_fragments():
        yield from map(ScoreTable.of, read_blocks(file, columns, coded=coded))


def read_blocks(
    file: pads.ParquetFileFragment,
    columns: Sequence[str],
    rows: int = _ROWS_AT_ONCE,
    coded: Sequence[str] = (),
    metadata: pq.FileMetaData | None = None,
) -> Iterator[pa.RecordBatch]:
    """Streams columns of one file, up to `rows` records at a time; those in `coded` are read as
    dictionary codes. Row groups are read apart: pyarrow cannot join their codes within a list. A
    column of RECORD_SCHEMA that the file was written without, before there was one, is null."""
    with file.open() as stream:
        parquet = pq.ParquetFile(
            stream, metadata=metadata, read_dictionary=list(coded), pre_buffer=True
        )
        missing = [
            RECORD_SCHEMA.field(name)
            for name in columns
            if "." not in name and name not in parquet.schema_arrow.names
        ]
        for group in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(rows, row_groups=[group], columns=list(columns)):
                for field in missing:
                    batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
                yield batch


def column_statistics(
    metadata: pq.FileMetaData, names: Sequence[str]
) -> Iterator[tuple[pq.Statistics | None, int]]:
    """Yields Parquet's statistics of columns (None: none) and values, by row group and column."""
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            if column.path_in_schema in names:
                yield column.statistics, column.num_values


def holds(records: pads.Dataset, *columns: str) -> bool:
    """Whether a file may have a value in one of these columns, by its statistics."""
    kept = (column_statistics(file.metadata, columns) for file in records.get_fragments())
    return any(
        column is None or not column.has_null_count or column.null_count < n
        for file in kept
        for column, n in file
    )


def fields_of_shares(metrics: Sequence[Metric]) -> tuple[str, ...]:
    """The fields of scores that `ScoreTable.shares` of these metrics reads."""
    is_pooled = any(metric.pooled for metric in metrics)
    return ("metric", "value", "parts") if is_pooled else ("metric", "value")


def read_parts(
    parts: pa.MapArray,
) -> tuple[dict[str, FloatArray], dict[str, tuple[Indices, FloatArray]]]:
    """Returns, by part, one figure per score, 0 for a score without that part; and by tag, of which
    there may be thousands, the scores that have a value for it, and these values."""
    offsets = parts.offsets.to_numpy()
    scores = np.repeat(np.arange(len(parts)), np.diff(offsets))
    entries = slice(offsets[0], offsets[-1])
    part = parts.keys[entries].dictionary_encode()  # a no-op if it was read as codes
    names, codes = part.dictionary.to_pylist(), part.indices.to_numpy()
    figures = parts.items[entries].fill_null(0.0).to_numpy(zero_copy_only=False)
    codes = codes.astype(np.min_scalar_type(len(names)))  # of 16 bits or fewer: sorted in one pass
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
    rows_of = np.split(np.argsort(codes, kind="stable"), ends)
    columns: dict[str, FloatArray] = {}
    tags: dict[str, tuple[Indices, FloatArray]] = {}
    for code, name in enumerate(names):
        rows = rows_of[code]
        if name.startswith(TAG):
            tags[name.removeprefix(TAG)] = scores[rows], figures[rows]
        else:
            columns[name] = np.zeros(len(parts))
            columns[name][scores[rows]] = figures[rows]
    return columns, tags


def shares(
    scores: pa.StructArray, codes: npt.NDArray[np.integer], pooled: Mapping[int, Pooled]
) -> tuple[FloatArray, FloatArray]:
    """Part and whole of each score, NaN where it has no value. `codes` names each score's metric;
    those in `pooled` are ratios of sums, for which `scores` must have parts."""
    values = pc.struct_field(scores, "value").to_numpy(zero_copy_only=False)
    part, whole = values.copy(), np.where(np.isnan(values), np.nan, 1.0)
    if not pooled:
        return part, whole
    parts, _ = read_parts(pc.struct_field(scores, "parts"))
    nothing = np.zeros(len(values))
    for code, ratio in pooled.items():
        rows = (codes == code) & ~np.isnan(values)
        if rows.any():
            columns = {name: parts.get(name, nothing)[rows] for name in ratio.parts}
            part[rows], whole[rows] = ratio.share(columns)
    return part, whole


def is_fallback(judge: str) -> bool:
    """Whether a rule scored in place of a judge, or of one of several, that failed."""
    return any(name in FALLBACKS for name in split_jurors(judge))

"""Reads a run's Parquet parts by column, in bounded batches. All failures are DataErrors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memray_eval.errors import DataError
from memray_eval.results.parts import Part
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from memray_eval.types import Record

SEARCHED = ("sample_id", "query", "response", "error")
_BATCH_BYTES = 8 << 20  # uncompressed, by the file's own account, which counts repeated texts once
_MOST_ROWS = 2048


def read_columns(
    folder: RunFolder,
    part: Part,
    columns: Sequence[str] | None = None,
    first: int = 0,
    optional: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yields batches of these columns (None: of all) in the order of the file, from a row on.
    Nested columns go by the paths of their leaves; a file may lack `optional` ones."""
    with _translate_read_errors(part), folder.open_part(part) as stream:
        file = pq.ParquetFile(stream, pre_buffer=True)
        missing = [
            name for name in columns or () if name.partition(".")[0] not in file.schema_arrow.names
        ]
        names = None if columns is None else [name for name in columns if name not in missing]
        if missing := [name for name in missing if name not in optional]:
            raise DataError(
                f"{part.name} of the records has no column {missing[0]!r}: another version wrote "
                "it, or another tool"
            )
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if first >= group.num_rows:
                first -= group.num_rows
                continue
            at_once = _rows_at_once(group, columns)
            for batch in file.iter_batches(at_once, row_groups=[number], columns=names):
                if first < batch.num_rows:
                    yield batch.slice(first)
                first = max(0, first - batch.num_rows)


def read_record(folder: RunFolder, part: Part, row: int) -> Record:
    """Reads the record at a row of the part. Raises DataError, also for an invalid one."""
    with _translate_read_errors(part):
        for batch in read_columns(folder, part, first=row):
            return next(from_table(pa.Table.from_batches([batch.slice(0, 1)])))
    raise DataError(f"{part.name} has fewer records than before; load the page again")


def matching(batch: pa.RecordBatch, text: str) -> pa.BooleanArray:
    """Marks the rows that contain the text in any column, ignoring case."""
    matches = pa.repeat(pa.scalar(False), batch.num_rows)
    for column in batch.columns:
        matches = pc.or_(
            matches, pc.fill_null(pc.match_substring(column, text, ignore_case=True), False)
        )
    return matches


def _rows_at_once(group: pq.RowGroupMetaData, columns: Sequence[str] | None = None) -> int:
    """The number of rows of these columns (None: all columns) that fit _BATCH_BYTES."""
    chunks = (group.column(number) for number in range(group.num_columns))
    size = sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if columns is None or chunk.path_in_schema in columns
    )
    return int(max(1, min(_MOST_ROWS, _BATCH_BYTES * group.num_rows // max(1, size))))


@contextmanager
def _translate_read_errors(part: Part) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{part.name} is gone from the records; load the page again") from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{part.name} of the records cannot be read: {str(error).partition(chr(10))[0]}"
        ) from None
    except (KeyError, ValueError) as error:  # a missing column, or a field that is not valid
        raise DataError(
            f"{part.name} of the records holds what is no record: "
            f"{str(error).partition(chr(10))[0]}"
        ) from None

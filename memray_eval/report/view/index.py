"""An index of what the list of samples filters and sorts by, read once from each part and held by
DuckDB: 100,000 records sort in hundredths of a second, not 0.8 s. Texts stay in the Parquet."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.score_table import ScoreTable
from memray_eval.errors import DataError
from memray_eval.report.html.samples import SNIPPET, STATUSES, Names
from memray_eval.report.view.parquet_parts import SEARCHED, matching, read_columns, read_record
from memray_eval.results.parts import Part
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table_apart
from memray_eval.storage.paths import map_ahead
from memray_eval.types import Record, is_estimate

MEMORY_MB = 512
_READERS = 4  # parts searched at once
_SEARCHES_KEPT = 4
_SCORE = "scores.list.element"
_OF_UNITS = (
    "unit_id", "sample_id", "candidate", "task", "query", "response", "error", "duration_s",
    "output_tokens", "epoch",
)  # fmt: skip
_COLUMNS = (*_OF_UNITS, *(f"{_SCORE}.{name}" for name in ("metric", "status", "value", "judge")))
_TABLES = """
CREATE TABLE units (
    unit BIGINT, part VARCHAR, unit_id VARCHAR, sample_id VARCHAR, candidate INTEGER, task INTEGER,
    failed BOOLEAN, ask VARCHAR, said VARCHAR, duration_s DOUBLE, output_tokens BIGINT,
    epoch BIGINT);
CREATE TABLE outcomes (unit BIGINT, metric INTEGER, status INTEGER, value DOUBLE, estimate BOOLEAN);
"""

Numbers = npt.NDArray[np.int64]
_NONE: Numbers = np.array([], dtype=np.int64)


class HeldPart(NamedTuple):
    """A part in the index. Its records are the units from `first` on, in the order of the file."""

    part: Part
    first: int
    n: int


class Index:
    """The units and outcomes of the parts last given to `refresh`. Safe for several threads."""

    def __init__(self, folder: RunFolder, spill: str) -> None:
        self.metrics, self.candidates, self.tasks = Names(), Names(), Names()
        self.held: dict[str, HeldPart] = {}
        self._folder = folder
        self._next = 0
        self._refreshing, self._searching = threading.Lock(), threading.Lock()
        self._searches: OrderedDict[str, Numbers] = OrderedDict()
        self._database = duckdb.connect(":memory:")
        settings = {
            "memory_limit": f"{MEMORY_MB}MB",
            "temp_directory": spill,
            "threads": min(4, os.cpu_count() or 1),
        }
        for name, value in (*settings.items(), ("enable_external_access", False)):
            self._database.execute(f"SET {name} = ?", [value])
        self._database.execute(_TABLES)

    @property
    def n_units(self) -> int:
        return sum(held.n for held in self.held.values())

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._database.cursor()

    def refresh(
        self, parts: Iterable[Part], tell: Callable[[int], None] = lambda n_units: None
    ) -> list[str]:
        """Adds new parts and drops those gone. Returns the problems of unreadable ones."""
        with self._refreshing:
            listed = {part.name: part for part in parts}
            for held in [held for name, held in self.held.items() if listed.get(name) != held.part]:
                self._drop(held)
            problems = []
            new = [part for name, part in listed.items() if name not in self.held]
            for part, batches in map_ahead(self._read, new, _READERS):
                try:
                    self._take(part, batches)
                except DataError as error:
                    problems.append(str(error))
                tell(self.n_units)
            return problems

    def _read(self, part: Part) -> tuple[Part, list[pa.RecordBatch] | DataError]:
        """A part, and its rows of _COLUMNS with the starts of texts, or why it is unreadable."""
        try:
            read = read_columns(self._folder, part, _COLUMNS, optional=("epoch",))
            return part, [_shorten(batch) for batch in read]
        except DataError as error:
            return part, error

    def _drop(self, held: HeldPart) -> None:
        self.held = {name: other for name, other in self.held.items() if other is not held}
        ends = [held.first, held.first + held.n]
        for table in ("units", "outcomes"):
            self._database.execute(f"DELETE FROM {table} WHERE unit >= ? AND unit < ?", ends)
        with self._searching:
            self._searches.clear()

    def _take(self, part: Part, batches: list[pa.RecordBatch] | DataError) -> None:
        """Adds a part, whole or not at all. Raises DataError if it cannot be read."""
        if isinstance(batches, DataError):
            raise batches
        first = end = self._next
        database = self.cursor()
        database.begin()
        try:
            for batch in batches:
                units, outcomes = self._rows(batch, part, end)
                database.register("unit_rows", units)
                database.register("outcome_rows", outcomes)
                database.execute("INSERT INTO units SELECT * FROM unit_rows")
                database.execute("INSERT INTO outcomes SELECT * FROM outcome_rows")
                end += batch.num_rows
        except (KeyError, duckdb.Error) as error:
            database.rollback()
            raise DataError(f"{part.name} of the records: {error}") from None
        database.commit()
        self._next = end
        self.held = {**self.held, part.name: HeldPart(part, first, end - first)}
        with self._searching:
            self._searches.clear()

    def _rows(
        self, batch: pa.RecordBatch, part: Part, first: int
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The batch's units, numbered from `first`, and their outcomes."""
        scores = ScoreTable.of(batch)
        error, statuses = STATUSES.index("error"), pa.array(STATUSES)
        status = pc.fill_null(pc.index_in(scores.column("status"), statuses), error)
        failed = batch["error"].is_valid().to_numpy(zero_copy_only=False)
        failed = failed | scores.has(status.to_numpy() == error)
        value = scores.column("value")
        outcomes = {
            "unit": scores.unit + first,
            "metric": _number_names(self.metrics, scores.column("metric")),
            "status": status,
            "value": pc.if_else(pc.is_finite(value), value, None),
            "estimate": scores.is_judge(is_estimate),
        }
        units = {
            "unit": np.arange(first, first + batch.num_rows),
            "part": pa.repeat(part.name, batch.num_rows),
            "unit_id": batch["unit_id"],
            "sample_id": batch["sample_id"],
            "candidate": _number_names(self.candidates, batch["candidate"]),
            "task": _number_names(self.tasks, batch["task"]),
            "failed": failed,
            "ask": batch["query"],
            "said": batch["response"],
            "duration_s": batch["duration_s"],
            "output_tokens": batch["output_tokens"],
            "epoch": batch["epoch"]
            if "epoch" in batch.schema.names  # not in files of older versions
            else pa.nulls(batch.num_rows, pa.int64()),
        }
        return pa.record_batch(units), pa.record_batch(outcomes)

    def search(self, text: str, is_cancelled: Callable[[], bool] = lambda: False) -> Numbers:
        """Finds the units whose id, question, answer or error contains the text, ignoring case. A
        cancelled search finds nothing. Raises DataError if a part can no longer be read."""
        with self._searching:
            if text in self._searches:
                self._searches.move_to_end(text)
                return self._searches[text]
        held = self.held
        with ThreadPoolExecutor(_READERS) as readers:
            matches = readers.map(lambda of: self._search_in(of, text, is_cancelled), held.values())
            units: Numbers = np.concatenate([_NONE, *matches])
        if is_cancelled():
            return _NONE
        with self._searching:
            if held is self.held:
                self._searches[text] = units
                if len(self._searches) > _SEARCHES_KEPT:
                    self._searches.popitem(last=False)
        return units

    def _search_in(self, held: HeldPart, text: str, is_cancelled: Callable[[], bool]) -> Numbers:
        first, matches = held.first, [_NONE]
        for batch in read_columns(self._folder, held.part, SEARCHED):
            if is_cancelled():
                break
            is_match = matching(batch, text).to_numpy(zero_copy_only=False)
            matches.append(np.flatnonzero(is_match) + first)
            first += batch.num_rows
        units: Numbers = np.concatenate(matches)
        return units

    def record(self, unit_id: str) -> Record | None:
        """Reads the record; None if the index has no such unit. Raises DataError."""
        query = "SELECT part, unit FROM units WHERE unit_id = ? LIMIT 1"
        row: Any = self.cursor().execute(query, [unit_id]).fetchone()
        held = self.held.get(row[0]) if row else None
        if held is None:
            return None
        record = read_record(self._folder, held.part, row[1] - held.first)
        if record.unit_id != unit_id:
            raise DataError(f"{held.part.name} was written anew; load the page again")
        return record

    def records(self, held: HeldPart, rows_of_part: Numbers) -> Iterator[list[Record]]:
        """Reads the records in these rows of a part. A row that no longer reads as a record is left
        out. Raises DataError if the part cannot be read, or was written again."""
        wanted, first = np.zeros(held.n, dtype=np.bool_), 0
        wanted[rows_of_part] = True
        for batch in read_columns(self._folder, held.part):
            is_wanted = wanted[first : first + batch.num_rows]
            if len(is_wanted) < batch.num_rows:
                break
            first += batch.num_rows
            if is_wanted.any():
                rows = pa.Table.from_batches([batch.filter(pa.array(is_wanted))])
                yield from_table_apart(rows, lambda sample_id, error: None)[0]
        if first != held.n:
            raise DataError(f"{held.part.name} was written anew; load the page again")


def _shorten(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the start of each question and answer: the error, if there is one."""
    error = pc.if_else(pc.equal(batch["error"], ""), None, batch["error"])
    shown = {"query": batch["query"], "response": pc.coalesce(error, batch["response"], "")}
    for name, texts in shown.items():
        starts = pc.utf8_slice_codeunits(texts, 0, SNIPPET)
        batch = batch.set_column(batch.schema.get_field_index(name), name, starts)
    return batch


def _number_names(names: Names, column: pa.Array) -> Numbers:
    """Numbers the name in each row; null counts as the empty name."""
    coded = pc.fill_null(column, "").dictionary_encode()
    by_code = np.array([names[name] for name in coded.dictionary.to_pylist()], dtype=np.int64)
    numbers: Numbers = by_code[coded.indices.to_numpy()]
    return numbers

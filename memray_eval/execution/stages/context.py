"""The context of every stage of a run: the folder, the progress actor, and the handling of
unreadable records; and the stage that writes blocks to the run folder."""

import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.datasets.sources import Entry
from memray_eval.errors import EvalError, describe_error, reason_of
from memray_eval.execution.run_counter import RunCounter
from memray_eval.log_once import log_once
from memray_eval.results.part_writer import PartWriter
from memray_eval.results.parts import index_rows
from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind, RunFolder
from memray_eval.results.schema import (
    RECORD_SCHEMA,
    as_stored,
    from_table,
    from_table_apart,
    set_responses,
    to_score_lists,
    to_table,
    to_table_apart,
)
from memray_eval.types import ComputedScore, Record, Response, Score

BLOCKS_AT_ONCE = 32  # blocks that wait together for one write
KEPT_ROWS = 64  # of a part of answers, which is written again with each that comes
UNWRITTEN = "the run's folder cannot be written"

logger = logging.getLogger(__name__)


def add_scores(record: Record, scores: Iterable[ComputedScore | Score]) -> Record:
    stored = (score.to_score() if isinstance(score, ComputedScore) else score for score in scores)
    return record.model_copy(update={"scores": tuple(stored)})


@dataclass(frozen=True)
class StageContext:
    """The surroundings of a run's stages: its folder, its counter, and if the first failed unit
    ends the run; `first_failures` has it, once there is one."""

    folder: str
    counter: RunCounter
    stops_on_failure: bool = False
    first_failures: list[str] = field(default_factory=list, compare=False)

    def is_stopping(self) -> bool:
        return self.counter.stopping() is not None

    def record_stage_failure(self, stage: str, sample_id: str, error: BaseException) -> None:
        """Records a stage's failure on a record; too many failures end the run."""
        key = f"stage {stage}/{type(error).__name__}"
        log_once(logger, logging.ERROR, key, "stage %s failed on a record", stage, error=error)
        self.counter.record_failure(stage, sample_id, describe_error(error))

    def record_unreadable(self, entry: Entry, error: BaseException) -> None:
        """Records an entry that was a sample at the dataset's check and is unreadable now."""
        self.record_stage_failure("read", entry.place or entry.path, error)

    def to_table(self, records: Sequence[Record], stage: str) -> pa.Table:
        return to_table_apart(records, partial(self.record_stage_failure, stage))

    def to_rows(self, records: Sequence[Record]) -> tuple[list[Record], pa.Table, pa.Table]:
        """Records that were read, and their rows. One that Arrow cannot hold is an error of its
        unit in both; one that reads as no record even then is a row of the second table."""
        try:
            return list(map(as_stored, records)), to_table(records), RECORD_SCHEMA.empty_table()
        except Exception:
            kept, broken = self.from_table(self.to_table(records, "read"), "judge")
            return kept, to_table(kept), broken

    def add_score_column(
        self,
        rows: pa.Table,
        records: Sequence[Record],
        outcomes: Sequence[Sequence[ComputedScore | Score]],
        stage: str = "judge",
    ) -> pa.Table:
        """The rows of these records with the scores that each was given."""
        try:
            column = to_score_lists(outcomes)
        except Exception:  # one of them holds what Arrow cannot
            scored = map(add_scores, records, outcomes)
            return self.to_table(list(scored), stage)
        index = RECORD_SCHEMA.get_field_index("scores")
        return rows.set_column(index, RECORD_SCHEMA.field(index), column)

    def to_scored_rows(self, rows: pa.Table, records: Sequence[Record], stage: str) -> pa.Table:
        """The records as rows: those they were read from, with their scores."""
        units = [record.unit_id for record in records]
        if len(units) != rows.num_rows:
            rows = rows.filter(pc.is_in(rows.column("unit_id"), pa.array(units, pa.string())))
        if rows.column("unit_id").to_pylist() != units:  # an id that several rows have
            return self.to_table(records, stage)
        return self.add_score_column(rows, records, [record.scores for record in records], stage)

    def from_table(self, table: pa.Table, stage: str) -> tuple[list[Record], pa.Table]:
        return from_table_apart(table, partial(self.record_stage_failure, stage))

    def note_failures(self, records: Sequence[Record]) -> bool:
        """Reports the first failed unit; returns True if the run stops at that."""
        if self.first_failures and not self.stops_on_failure:
            return False
        failed = next((record for record in records if record.is_failed), None)
        if failed is None:
            return False
        errors = [failed.response.error] if failed.response else []
        why = next(error for error in (*errors, *(score.error for score in failed.scores)) if error)
        if not self.first_failures:
            source = f"sample {failed.sample.id!r} of {failed.candidate.name}"
            self.first_failures.append(f"{failed.unit_id} ({source}): {why}")
            self.counter.record_failed_unit(self.first_failures[0])
        if self.stops_on_failure:
            self.counter.stop(f"sample {failed.sample.id!r} failed: {why}")
        return self.stops_on_failure

    def add_answers(self, rows: pa.Table, answers: Sequence[Response | None]) -> pa.Table:
        """The rows with their answers (None: nothing was asked)."""
        try:
            answered = set_responses(rows, answers)
        except Exception:  # one of them holds what Arrow cannot
            records = zip(from_table(rows), answers, strict=True)
            answered_records = [
                record if response is None else record.model_copy(update={"response": response})
                for record, response in records
            ]
            answered = self.to_table(answered_records, "generate")
        failed = answered.filter(pc.is_valid(answered.column("error")))
        self.note_failures(self.from_table(failed.slice(0, 1), "generate")[0])
        return answered


class AnswerWriter:
    """Writes each answer first: after a loss only what was in flight is asked again."""

    def __init__(self, context: StageContext) -> None:
        self._counter, folder = context.counter, RunFolder(context.folder)
        self._writer = PartWriter(folder, RESPONSES, 1, most_rows=KEPT_ROWS, is_urgent=True)

    async def write(self, answered: pa.Table) -> None:
        """Returns once the answered rows are in a file; stops the run if they cannot be written."""
        has_answer = pc.and_(
            pc.is_valid(answered.column("response")), pc.is_null(answered.column("error"))
        )
        if (rows := answered.filter(has_answer)).num_rows:
            try:
                await self._writer.write(rows)
            except (OSError, EvalError) as error:
                self._counter.stop(f"{UNWRITTEN}: {reason_of(error)}")


class WriteParts:
    """Writes blocks to the run folder; hands on responses, but of records only the units."""

    def __init__(self, folder: str, kind: Kind, counter: RunCounter) -> None:
        self._kind, self._counter = kind, counter
        self._writer = PartWriter(RunFolder(folder), kind, BLOCKS_AT_ONCE)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        """Stops the run if they cannot be written: calls in flight end, and are kept."""
        took = 0.0
        try:
            if table.num_rows:
                took = await self._writer.write(table)
        except (OSError, EvalError) as error:
            table = table.slice(0, 0)
            self._counter.stop(f"{UNWRITTEN}: {reason_of(error)}")
        yield _report_written(table, self._kind, self._counter, took)


def write_block(table: pa.Table, folder: str, kind: Kind, counter: RunCounter) -> pa.Table:
    """Does what WriteParts does, a file a block: for few units, not worth the start of an actor."""
    started = time.time()
    try:
        if table.num_rows:
            RunFolder(folder).write_part(table, kind)
    except (OSError, EvalError) as error:
        table = table.slice(0, 0)
        counter.stop(f"{UNWRITTEN}: {reason_of(error)}")
    return _report_written(table, kind, counter, time.time() - started)


def _report_written(table: pa.Table, kind: Kind, counter: RunCounter, took_s: float) -> pa.Table:
    """Reports written rows, and returns what the next stage gets of them."""
    if kind != RECORDS:
        return table
    ended = time.time()
    failed = int(np.count_nonzero(index_rows(table).is_failed))
    counter.add("write", table.num_rows, ended - took_s, ended, failed)
    return table.select(["unit_id"])

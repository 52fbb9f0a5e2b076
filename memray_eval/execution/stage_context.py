"""What every stage of a run is given: where it writes, whom it reports to, and what it does with a
record that it cannot work on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from memray_eval.datasets.sources import Entry
from memray_eval.errors import describe_error
from memray_eval.execution.exported_metrics import answer_usage
from memray_eval.execution.run_counter import StageReports
from memray_eval.log_once import log_once
from memray_eval.results.parts import UnitNumbers
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table_apart, to_table_apart
from memray_eval.types import Record, Response

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageContext:
    """Where the stages of a run write and report, and when they let go: the run folder, the run's
    counter, and whether the first failed unit ends the run."""

    folder: str
    counter: StageReports
    stops_on_failure: bool = False

    def is_stopping(self) -> bool:
        return self.counter.stopping() is not None

    def record_stage_failure(self, stage: str, sample_id: str, error: BaseException) -> None:
        """Tells of a record that a stage could not work on; too many of them end the run."""
        key = f"stage {stage}/{type(error).__name__}"
        log_once(logger, logging.ERROR, key, "stage %s failed on a record", stage, error=error)
        self.counter.record_failure(stage, sample_id, describe_error(error))

    def record_unreadable(self, entry: Entry, error: BaseException) -> None:
        """Tells of an entry that was a sample when the dataset was checked, and is none now."""
        self.record_stage_failure("read", entry.place or entry.path, error)

    def find_stored(
        self, unit_ids: Sequence[str], index: Mapping[str, UnitNumbers] | None = None
    ) -> dict[str, Record]:
        """The units of a block that is made again, as it was lost with a node, whose responses were
        written before, by their ids; `index` as RunFolder.find_responses has it. Asked again, a
        candidate would answer with other texts, and the judges be paid again."""
        rows = RunFolder(self.folder).find_responses(unit_ids, index)
        if rows.num_rows or index is None:
            logger.warning(
                "a block is made again: %d of its %d units have responses already",
                rows.num_rows,
                len(unit_ids),
            )
        records, _ = from_table_apart(rows, lambda sample_id, error: None)
        return {record.unit_id: record for record in records}

    def to_table(self, records: Sequence[Record], stage: str) -> pa.Table:
        return to_table_apart(records, partial(self.record_stage_failure, stage))

    def from_table(self, table: pa.Table, stage: str) -> tuple[list[Record], pa.Table]:
        return from_table_apart(table, partial(self.record_stage_failure, stage))

    def stop_on_failure(self, records: Sequence[Record]) -> bool:
        """Stops the run when one of these units failed and the run is to stop at that; returns
        whether it did."""
        failed = (
            next((record for record in records if record.is_failed), None)
            if self.stops_on_failure
            else None
        )
        if failed is not None:
            errors = [failed.response.error] if failed.response else []
            why = next(
                error for error in (*errors, *(score.error for score in failed.scores)) if error
            )
            self.counter.stop(f"sample {failed.sample.id!r} failed: {why}")
        return failed is not None

    def report_answers(self, records: Sequence[Record]) -> pa.Table:
        """Says what generating these records took; returns them as a table."""
        by_candidate: dict[str, list[Response]] = {}
        for record in records:
            by_candidate.setdefault(record.candidate.name, []).append(record.response or Response())
        if by_candidate:
            self.counter.record_answers(
                {name: answer_usage(responses) for name, responses in by_candidate.items()}
            )
        self.stop_on_failure(records)
        return self.to_table(records, "generate")

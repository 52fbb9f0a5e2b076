"""Finds the finished units of an unfinished run, and those that were only generated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.turns import SESSION_COLUMNS, summarise_sessions
from memray_eval.results.parts import Flags, Part, UnitIndex, UnitNumbers, unit_number, unit_numbers
from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind, RunFolder

_Entry = TypeVar("_Entry", bound=np.generic)

REWRITTEN_AT_ONCE = 16  # parts that are in memory together while they are rewritten


class UnitIdSet:
    """Unit ids (16 hex digits), in 8 bytes each."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids: UnitNumbers = np.unique(unit_numbers(ids))

    @classmethod
    def of_numbers(cls, numbers: UnitNumbers) -> UnitIdSet:
        ids = cls()
        ids._ids = np.unique(numbers)
        return ids

    def __len__(self) -> int:
        return len(self._ids)

    def holds(self, numbers: UnitNumbers) -> Flags:
        """Flags of these units: True if it holds one."""
        return np.isin(numbers, self._ids)

    def __contains__(self, unit_id: str) -> bool:
        wanted = np.uint64(unit_number(unit_id))
        index = int(np.searchsorted(self._ids, wanted))
        return index < len(self._ids) and bool(self._ids[index] == wanted)


@dataclass(frozen=True)
class ResumeState:
    """`finished` units need nothing more; `generated` ones need judging, and lie in the parts
    `waiting`. `elsewhere` are, by part, those of its units that are to be taken from another.
    Simulated sessions that ended early left `n_unasked` of their turns."""

    finished: UnitIdSet = field(default_factory=UnitIdSet)
    generated: UnitIdSet = field(default_factory=UnitIdSet)
    waiting: tuple[str, ...] = ()
    n_retried: int = 0
    elsewhere: Mapping[str, UnitIdSet] = field(default_factory=dict)
    n_unasked: int = 0

    def has(self, unit_id: str) -> bool:
        """True if a unit need not be generated."""
        return unit_id in self.finished or unit_id in self.generated

    def hold(self, unit_ids: Sequence[str]) -> Flags:
        """Flags of these units: True if one need not be generated."""
        if not (len(self.finished) or len(self.generated)):
            return np.zeros(len(unit_ids), np.bool_)
        numbers = unit_numbers(unit_ids)
        return self.finished.holds(numbers) | self.generated.holds(numbers)


def load_resume_state(folder: RunFolder) -> ResumeState:
    """Reads what a run left behind, and puts failed units back among those to be done, with their
    responses and the scores that are no errors. A kill in between leaves a unit in two places at
    worst, never in none. Reads the parts' indexes, and the parts only that rows are taken out of.
    Raises DataError for a part that cannot be read."""
    records = _IndexedParts.read(folder, RECORDS)
    chosen, failed = records.index.first_of_each(), records.index.is_failed
    records.rewrite(folder, keep=chosen & ~failed, retry=chosen & failed)
    finished = UnitIdSet.of_numbers(records.index.units[chosen & ~failed])
    return find_waiting(folder, finished, int(np.count_nonzero(chosen & failed)))


def count_unasked(folder: RunFolder) -> int:
    """The turns that simulated sessions left when they ended, but for those that failed."""
    tables = (
        table.filter(pc.is_null(table.column("error")))
        for kind in (RECORDS, RESPONSES)
        for table in folder.read_parts(folder.parts(kind), kind, list(SESSION_COLUMNS))
    )
    return sum(summary.n_unasked for summary in summarise_sessions(tables))


def find_unscored(folder: RunFolder) -> ResumeState:
    """The units that were generated and are in no record, while the run goes on."""
    records = _IndexedParts.read(folder, RECORDS)
    return find_waiting(folder, UnitIdSet.of_numbers(records.index.units))


def find_waiting(folder: RunFolder, finished: UnitIdSet, n_retried: int = 0) -> ResumeState:
    """The units generated and not finished. Parts of responses without any of them go."""
    responses = _IndexedParts.read(folder, RESPONSES)
    index = responses.index
    is_waiting = ~index.is_unanswered & ~finished.holds(index.units)
    chosen_waiting = is_waiting.copy()
    chosen_waiting[is_waiting] = index.filter(is_waiting).first_of_each()
    waiting, idle = list[str](), list[str]()
    elsewhere = dict[str, UnitIdSet]()
    for part, units, waits, chosen in zip(
        responses.parts,
        responses.split(index.units),
        responses.split(is_waiting),
        responses.split(chosen_waiting),
        strict=True,
    ):
        (waiting if chosen.any() else idle).append(part.name)
        if chosen.any() and (others := units[waits & ~chosen]).size:
            elsewhere[part.name] = UnitIdSet.of_numbers(others)
    folder.delete_parts(idle, RESPONSES)
    generated = UnitIdSet.of_numbers(index.units[chosen_waiting])
    return ResumeState(finished, generated, tuple(waiting), n_retried, elsewhere)


def drop_duplicates(folder: RunFolder) -> int:
    """Rewrites parts whose units overlap; returns the rows dropped. Raises DataError."""
    records = _IndexedParts.read(folder, RECORDS)
    chosen = records.index.first_of_each()
    records.rewrite(folder, keep=chosen)
    return int(np.count_nonzero(~chosen))


@dataclass(frozen=True)
class _IndexedParts:
    """The parts of one kind, and one index of their rows, part by part."""

    kind: Kind
    parts: Sequence[Part]
    lengths: Sequence[int]
    index: UnitIndex

    @classmethod
    def read(cls, folder: RunFolder, kind: Kind) -> _IndexedParts:
        parts = folder.list_parts(kind)
        indexes = list(folder.read_indexes(parts, kind))
        lengths = [len(index.units) for index in indexes]
        return cls(kind, parts, lengths, UnitIndex.concatenate(indexes))

    def split(self, column: npt.NDArray[_Entry]) -> list[npt.NDArray[_Entry]]:
        """A column with an entry for each row, cut into those of the parts."""
        return np.split(column, np.cumsum(self.lengths)[:-1]) if self.parts else []

    def rewrite(self, folder: RunFolder, keep: Flags, retry: Flags | None = None) -> None:
        """Takes rows out of their parts: parts that lose some are joined to new ones without them.
        The responses of the rows to `retry` are written first. Parts go when what is left of them
        is elsewhere: a kill between leaves rows twice, never lost."""
        retry = np.zeros(len(keep), np.bool_) if retry is None else retry
        names = [part.name for part in self.parts]
        rows = zip(names, self.split(keep), self.split(retry), strict=True)
        touched = [(name, keeps, retries) for name, keeps, retries in rows if not keeps.all()]
        for first in range(0, len(touched), REWRITTEN_AT_ONCE):
            group = touched[first : first + REWRITTEN_AT_ONCE]
            read = [part for part in group if part[1].any() or part[2].any()]
            tables = list(folder.read_parts([name for name, *_ in read], self.kind))
            responses = (
                _responses_of(table.filter(pa.array(retries)))
                for table, (*_, retries) in zip(tables, read, strict=True)
            )
            folder.write_parts(responses, RESPONSES)
            left = (
                table.filter(pa.array(keeps))
                for table, (_, keeps, _) in zip(tables, read, strict=True)
            )
            folder.write_parts(left, self.kind)
            folder.delete_parts([name for name, *_ in group], self.kind)


def _responses_of(table: pa.Table) -> pa.Table:
    """The rows that have a response, with the scores that are no errors."""
    table = table.filter(
        pc.and_(pc.is_null(table.column("error")), pc.is_valid(table.column("response")))
    )
    scores = table.column("scores").combine_chunks()
    score, row = scores.flatten(), pc.list_parent_indices(scores).to_numpy()
    is_kept = pc.not_equal(pc.struct_field(score, "status"), "error")
    per_row = np.bincount(row[is_kept.to_numpy(zero_copy_only=False)], minlength=len(scores))
    offsets = np.concatenate([[0], np.cumsum(per_row)]).astype(np.int32)
    kept = pa.ListArray.from_arrays(pa.array(offsets), score.filter(is_kept))
    return table.set_column(table.schema.get_field_index("scores"), "scores", kept)

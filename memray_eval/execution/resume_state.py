"""Finds what an unfinished run left behind: units that are finished, and units that were only
generated.

Ours, not Ray Data's checkpointing: a unit is one row in one file that is written whole, so what is
finished can be read off the files, and what is not is asked again. The calls a unit had paid are
found in the memory of calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind, RunFolder
from memray_eval.results.schema import from_table, to_table


class UnitIdSet:
    """Unit ids (16 hex digits), in 8 bytes each."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids: NDArray[np.uint64] = np.unique(
            np.fromiter((int(unit, 16) for unit in ids), dtype=np.uint64)
        )

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, unit_id: str) -> bool:
        wanted = np.uint64(int(unit_id, 16))
        place = int(np.searchsorted(self._ids, wanted))
        return place < len(self._ids) and bool(self._ids[place] == wanted)


@dataclass(frozen=True)
class ResumeState:
    """`finished` units need nothing more; `generated` ones need judging, and lie in the parts
    `waiting`."""

    finished: UnitIdSet = field(default_factory=UnitIdSet)
    generated: UnitIdSet = field(default_factory=UnitIdSet)
    waiting: tuple[str, ...] = ()
    n_retried: int = 0

    def has(self, unit_id: str) -> bool:
        """Whether a unit need not be generated."""
        return unit_id in self.finished or unit_id in self.generated


def load_resume_state(folder: RunFolder) -> ResumeState:
    """Reads what a run left behind, and puts failed units back among those to be done: what has a
    response keeps it, with the scores that are no errors. A unit is in one place afterwards; a kill
    in between leaves it in two at worst, never in none."""
    finished: set[str] = set()
    n_retried = 0
    for name in folder.parts(RECORDS):
        ids = folder.read_part(name, RECORDS, ["unit_id"]).column("unit_id").to_pylist()
        rows = folder.read_part(name, RECORDS, ["unit_id", "error", "scores"]).to_pylist()
        failed = [
            row["error"] is not None
            or any(score["status"] == "error" for score in row["scores"] or ())
            for row in rows
        ]
        twice = [unit in finished for unit in ids]
        if any(failed) or any(twice):
            n_retried += _restore_response(
                folder,
                name,
                [bad and not again for bad, again in zip(failed, twice, strict=True)],
                twice,
            )
        finished.update(
            unit
            for unit, bad, again in zip(ids, failed, twice, strict=True)
            if not bad and not again
        )
    generated, waiting = _find_generated(folder, finished)
    return ResumeState(UnitIdSet(finished), UnitIdSet(generated), tuple(waiting), n_retried)


def drop_duplicates(folder: RunFolder) -> int:
    """Rewrites parts so that every unit is in the records once; a task that Ray ran again in other
    blocks may have written some twice. Returns how many rows went."""
    seen: set[str] = set()
    dropped = 0
    for name in folder.parts(RECORDS):
        ids = folder.read_part(name, RECORDS, ["unit_id"]).column("unit_id").to_pylist()
        keep = [not (unit in seen or seen.add(unit)) for unit in ids]  # type: ignore[func-returns-value]
        if not all(keep):
            dropped += keep.count(False)
            _rewrite_part(folder, name, RECORDS, keep)
    return dropped


def _restore_response(folder: RunFolder, name: str, failed: list[bool], twice: list[bool]) -> int:
    """Moves the failed rows of a part to the responses, where they have one, and takes them and the
    doubled ones out."""
    table = folder.read_part(name, RECORDS)
    records = [
        record.model_copy(
            update={"scores": tuple(score for score in record.scores if score.status != "error")}
        )
        for record in (from_table(table.filter(pa.array(failed))) if any(failed) else ())
    ]
    if kept := [
        record
        for record in records
        if record.response is not None and record.response.error is None
    ]:
        folder.write_part(to_table(kept), RESPONSES)
    _rewrite_part(
        folder,
        name,
        RECORDS,
        [not bad and not again for bad, again in zip(failed, twice, strict=True)],
    )
    return len(records)


def _rewrite_part(folder: RunFolder, name: str, kind: Kind, keep: list[bool]) -> None:
    """The rows to keep as a part of their own, then the old part away: a kill between leaves rows
    twice, never lost."""
    table = folder.read_part(name, kind).filter(pa.array(keep))
    if table.num_rows:
        folder.write_part(table, kind)
    folder.delete_part(name, kind)


def _find_generated(folder: RunFolder, finished: set[str]) -> tuple[set[str], list[str]]:
    """The units that were generated without an error and not finished, and the parts they lie in.
    Parts that hold none go."""
    generated: set[str] = set()
    waiting = []
    for name in folder.parts(RESPONSES):
        table = folder.read_part(name, RESPONSES, ["unit_id", "error"])
        ids = table.filter(pc.is_null(table.column("error"))).column("unit_id").to_pylist()
        if new := set(ids) - finished - generated:
            generated |= new
            waiting.append(name)
        else:
            folder.delete_part(name, RESPONSES)
    return generated, waiting

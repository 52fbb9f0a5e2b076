"""What a run folder is found to hold after a run that did not end well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.execution.resume_state import UnitIdSet, drop_duplicates, load_resume_state
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import from_table, to_table
from memray_eval.types import Record, Response, Score

SCORED = Score(metric="x", status="scored", value=1.0)
FAILED = Score(metric="y", status="error", error="Unavailable: down")
Unit = Callable[..., Record]


@pytest.fixture
def unit(record: Record) -> Unit:
    def make(number: int, *scores: Score, error: str | None = None) -> Record:
        response = Response(error=error) if error else Response(text="Rest.")
        return record.model_copy(
            update={"unit_id": f"{number:016x}", "response": response, "scores": scores}
        )

    return make


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(str(tmp_path / "run"))
    made.create()
    return made


def held(folder: RunFolder, kind: str) -> dict[str, Record]:
    found = [
        record for name in folder.parts(kind) for record in from_table(folder.read_part(name, kind))
    ]  # type: ignore[arg-type]
    assert len({record.unit_id for record in found}) == len(found)
    return {record.unit_id: record for record in found}


def test_failed_units_go_back_with_what_they_have(folder: RunFolder, unit: Unit) -> None:
    folder.write_part(to_table([unit(1, SCORED), unit(2, SCORED, FAILED), unit(3, error="gone")]))
    folder.write_part(to_table([unit(4, SCORED)]))
    folder.write_part(to_table([unit(5), unit(1)]), RESPONSES)
    resume_state = load_resume_state(folder)
    assert sorted(held(folder, RECORDS)) == [f"{number:016x}" for number in (1, 4)]
    assert (len(resume_state.finished), len(resume_state.generated), resume_state.n_retried) == (
        2,
        2,
        2,
    )
    assert [f"{number:016x}" in resume_state.generated for number in (1, 2, 3, 5)] == [
        False,
        True,
        False,
        True,
    ]
    kept = [
        record
        for name in resume_state.waiting
        for record in from_table(folder.read_part(name, RESPONSES))
    ]
    (second,) = [record for record in kept if record.unit_id == f"{2:016x}"]
    assert second.scores == (SCORED,)
    assert not resume_state.has(f"{3:016x}")
    assert load_resume_state(folder).n_retried == 0  # once moved, they are in one place


def test_rows_written_twice_are_there_once(folder: RunFolder, unit: Unit) -> None:
    folder.write_part(to_table([unit(number, SCORED) for number in (1, 2, 3)]))
    folder.write_part(to_table([unit(number, SCORED) for number in (3, 4)]))
    folder.write_part(to_table([unit(number, SCORED) for number in (2, 3)]))
    assert drop_duplicates(folder) == 3
    assert len(held(folder, RECORDS)) == 4
    assert drop_duplicates(folder) == 0


def test_a_failed_twin_of_a_finished_unit_is_dropped(folder: RunFolder, unit: Unit) -> None:
    folder.write_part(to_table([unit(1, SCORED), unit(2, SCORED)]))
    folder.write_part(to_table([unit(1, FAILED)]))
    resume_state = load_resume_state(folder)
    assert (len(resume_state.finished), len(resume_state.generated), resume_state.waiting) == (
        2,
        0,
        (),
    )
    assert len(held(folder, RECORDS)) == 2


def test_parts_that_hold_nothing_to_be_done_go(folder: RunFolder, unit: Unit) -> None:
    folder.write_part(to_table([unit(1, SCORED)]))
    folder.write_part(to_table([unit(1)]), RESPONSES)
    folder.write_part(to_table([unit(2, error="gone")]), RESPONSES)
    resume_state = load_resume_state(folder)
    assert (resume_state.waiting, len(resume_state.generated)) == ((), 0)
    assert folder.parts(RESPONSES) == []


@given(st.sets(st.integers(0, 2**64 - 1)), st.integers(0, 2**64 - 1))
def test_a_unit_set_holds_what_was_put_in(ids: set[int], other: int) -> None:
    units = UnitIdSet(f"{number:016x}" for number in ids)
    assert len(units) == len(ids)
    assert all(f"{number:016x}" in units for number in ids)
    assert (f"{other:016x}" in units) == (other in ids)

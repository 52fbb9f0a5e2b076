"""What a run folder is found to hold after a run that did not end well."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.execution.resume_state import UnitIdSet, drop_duplicates, load_resume_state
from memray_eval.execution.stages.blocks import PART, read_waiting
from memray_eval.execution.stages.context import StageContext
from memray_eval.results import run_folder
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import from_table, to_table
from memray_eval.types import Record, Response, Score
from tests.build import build_folder, build_record, build_sample, build_score

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


def held(folder: RunFolder, kind: str) -> dict[str, Record]:
    parts = (from_table(folder.read_part(name, kind)) for name in folder.parts(kind))
    records = [*chain.from_iterable(parts)]
    assert len({record.unit_id for record in records}) == len(records)
    return {record.unit_id: record for record in records}


def test_failed_units_go_back_with_what_they_have(folder: RunFolder, unit: Unit) -> None:
    folder.write_part(to_table([unit(1, SCORED), unit(2, SCORED, FAILED), unit(3, error="gone")]))
    folder.write_part(to_table([unit(4, SCORED)]))
    folder.write_part(to_table([unit(5), unit(1)]), RESPONSES)
    resume_state = load_resume_state(folder)
    assert sorted(held(folder, RECORDS)) == [f"{number:016x}" for number in (1, 4)]
    seen = (len(resume_state.finished), len(resume_state.generated), resume_state.n_retried)
    assert seen == (2, 2, 2)
    expected = [False, True, False, True]
    assert [f"{number:016x}" in resume_state.generated for number in (1, 2, 3, 5)] == expected
    assert set(resume_state.waiting) == set(folder.parts(RESPONSES))
    assert held(folder, RESPONSES)[f"{2:016x}"].scores == (SCORED,)
    assert not resume_state.has(f"{3:016x}")
    assert load_resume_state(folder).n_retried == 0  # once moved, they are in one place


def test_what_is_finished_elsewhere_and_parts_with_nothing_to_be_done_go(
    folder: RunFolder, unit: Unit
) -> None:
    folder.write_part(to_table([unit(1, SCORED), unit(2, SCORED)]))
    folder.write_part(to_table([unit(1, FAILED)]))
    folder.write_part(to_table([unit(1)]), RESPONSES)
    folder.write_part(to_table([unit(3, error="gone")]), RESPONSES)
    state = load_resume_state(folder)
    assert (len(state.finished), len(state.generated), state.waiting) == (2, 0, ())
    assert (len(held(folder, RECORDS)), folder.parts(RESPONSES)) == (2, [])


@given(st.sets(st.integers(0, 2**64 - 1)), st.integers(0, 2**64 - 1))
def test_a_unit_set_holds_what_was_put_in(ids: set[int], other: int) -> None:
    units = UnitIdSet(f"{number:016x}" for number in ids)
    assert len(units) == len(ids)
    assert all(f"{number:016x}" in units for number in ids)
    assert (f"{other:016x}" in units) == (other in ids)


def test_only_parts_that_overlap_are_read_and_written_again(folder: RunFolder, unit: Unit) -> None:
    apart = folder.write_part(to_table([unit(number, SCORED) for number in range(10)]))
    folder.write_part(to_table([unit(number, SCORED) for number in range(10, 20)]))
    folder.write_part(to_table([unit(number, SCORED) for number in range(15, 25)]))
    with patch.object(
        RunFolder, "read_part", autospec=True, side_effect=RunFolder.read_part
    ) as read:
        assert drop_duplicates(folder) == 5
    read.assert_called_once()  # the later of the two; the first stays as it is
    assert apart in folder.parts()
    assert len(held(folder, RECORDS)) == 25


def test_a_part_whose_rows_are_all_elsewhere_is_deleted_unread(
    folder: RunFolder, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = to_table([unit(number, SCORED) for number in range(10)])
    folder.write_part(table, RECORDS, "part-a.parquet")
    folder.write_part(table, RECORDS, "part-b.parquet")
    monkeypatch.setattr(RunFolder, "read_part", lambda *words, **options: pytest.fail("read"))
    assert drop_duplicates(folder) == 10
    assert folder.parts() == ["part-a.parquet"]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_kill_while_parts_are_written_again_loses_no_unit(
    folder: RunFolder, unit: Unit, order: tuple[str, str]
) -> None:
    """What is left of a part stands in another before it goes; both are there after the kill."""
    folder.write_part(
        to_table([*(unit(number, SCORED) for number in range(10)), unit(10, SCORED, FAILED)]),
        RECORDS,
        f"part-{order[0]}.parquet",
    )

    with (
        patch.object(RunFolder, "delete_parts", side_effect=KeyboardInterrupt),
        patch.object(run_folder, "new_part_name", lambda: f"part-{order[1]}.parquet"),
        pytest.raises(KeyboardInterrupt),
    ):
        load_resume_state(folder)
    assert len(folder.parts()) == 2
    state = load_resume_state(folder)
    assert (len(state.finished), len(state.generated), state.n_retried) == (10, 1, 1)
    assert len(held(folder, RECORDS)) == 10
    assert f"{10:016x}" in state.generated


def test_a_finished_row_stays_beside_a_failed_one_that_comes_first(
    folder: RunFolder, unit: Unit
) -> None:
    folder.write_part(to_table([unit(1, FAILED), unit(2, SCORED)]), RECORDS, "part-a.parquet")
    folder.write_part(to_table([unit(1, SCORED)]), RECORDS, "part-b.parquet")
    assert drop_duplicates(folder) == 1
    assert held(folder, RECORDS)[f"{1:016x}"].scores == (SCORED,)


def test_parts_without_an_index_are_resumed_as_well(folder: RunFolder, unit: Unit) -> None:
    for kind, units in (
        (RECORDS, [unit(1, SCORED), unit(2, SCORED, FAILED)]),
        (RESPONSES, [unit(3)]),
    ):
        pq.write_table(to_table(units), f"{folder.path}/{kind}/part-old.parquet")
    state = load_resume_state(folder)
    assert (len(state.finished), len(state.generated), state.n_retried) == (1, 2, 1)
    assert sorted(held(folder, RECORDS)) == [f"{1:016x}"]


def test_a_folder_of_an_older_version_is_resumed(tmp_path: Path, context: StageContext) -> None:
    scores = [build_score(value=value) for value in (None, 1.0, None)]
    records = [build_record(build_sample(id=f"s{n}"), "x", score) for n, score in enumerate(scores)]
    folder = build_folder(tmp_path / "run", records)
    for file in (tmp_path / "run" / "records").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["epoch"]), file)
    state = load_resume_state(folder)
    assert (len(state.finished), len(state.generated), state.n_retried) == (1, 2, 2)
    assert [record.epoch for record in folder.each()] == [1]
    (part,) = state.waiting
    rows = pa.Table.from_pylist([{PART: part}])
    waiting = read_waiting(rows, state, None, context)
    assert [record.epoch for record in from_table(waiting)] == [1, 1]

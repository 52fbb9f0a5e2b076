"""The stage that writes: what it hands on, and what it tells."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from memray_eval.execution.resume_state import load_resume_state
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stages.blocks import PART, read_waiting
from memray_eval.execution.stages.context import WriteParts
from memray_eval.results.run_folder import RECORDS, RESPONSES, Kind, RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, from_table, to_table
from memray_eval.types import Record, Response, Score
from tests.unit.execution.near import KeptReports, NearContext


@pytest.mark.parametrize(("kind", "columns"), [(RECORDS, 1), (RESPONSES, len(RECORD_SCHEMA))])
def test_blocks_are_handed_on_when_they_are_in_a_file(
    tmp_path: Path, record: Record, kind: Kind, columns: int
) -> None:
    folder, counter = RunFolder(str(tmp_path)), KeptReports()
    folder.create()
    good, bad = (
        record.model_copy(update={"unit_id": f"{number:016x}", "response": response})
        for number, response in enumerate((Response(text="Rest."), Response(error="gone")))
    )
    blocks = [to_table([good, bad]), RECORD_SCHEMA.empty_table()]

    async def run() -> list[pa.Table]:
        stage = WriteParts(folder.path, kind, counter)
        return [out for block in blocks async for out in stage(block)]

    handed_on = asyncio.run(run())
    expected = [(2, columns), (0, columns)]
    assert [(table.num_rows, table.num_columns) for table in handed_on] == expected
    [name] = folder.parts(kind)
    assert folder.read_part(name, kind).num_rows == 2
    if kind == RECORDS:
        stage, rows, started, ended, failed = counter.of("add")[0]
        assert (stage, rows, failed) == ("write", 2, 1)
        assert 0 < ended - started < 60
    else:
        assert counter.reports == []


def test_a_folder_that_cannot_be_written_stops_the_run(tmp_path: Path, record: Record) -> None:
    counter = RunCounter()

    async def run() -> list[int]:
        stage = WriteParts(str(tmp_path / "gone"), RECORDS, counter)
        return [out.num_rows async for out in stage(to_table([record]))]

    assert asyncio.run(run()) == [0]
    assert "cannot be written" in (counter.stopping() or "")


def test_a_response_that_waits_in_two_parts_is_handed_on_once(
    tmp_path: Path, record: Record
) -> None:
    folder, counter = RunFolder(str(tmp_path)), KeptReports()
    folder.create()
    first, second, third = (
        record.model_copy(update={"unit_id": f"{number:016x}"}) for number in range(3)
    )
    scored = second.model_copy(update={"scores": (Score(metric="x", status="scored", value=1.0),)})
    folder.write_part(to_table([first, second]), RESPONSES, "part-a.parquet")
    folder.write_part(to_table([scored, third]), RESPONSES, "part-b.parquet")
    state = load_resume_state(folder)
    context = NearContext(folder.path, counter)
    parts = pa.table({PART: list(state.waiting)})
    own = (record.candidate.name,)
    waiting = read_waiting(parts, state, own, context)
    assert list(from_table(waiting)) == [first, scored, third]
    assert counter.reports == []
    assert read_waiting(parts, state, (), context).num_rows == 0

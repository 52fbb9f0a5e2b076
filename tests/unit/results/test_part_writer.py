"""Many small blocks become few files, and none of them is held back for long."""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from memray_eval.results import part_writer
from memray_eval.results.part_writer import PartWriter
from memray_eval.results.parts import MAX_BYTES, MAX_ROWS
from memray_eval.results.run_folder import RECORDS, Kind, RunFolder
from memray_eval.results.schema import to_table
from tests.build import build_record
from tests.conftest import HANG_S


class WatchedFolder(RunFolder):
    """A run folder that keeps how many rows each write had, and fails while it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.create()
        self.writes: list[int] = []
        self.is_full = False

    def write_part(self, table: pa.Table, kind: Kind = RECORDS, name: str | None = None) -> str:
        if self.is_full:
            raise OSError("no space left on device")
        self.writes.append(table.num_rows)
        return super().write_part(table, kind, name)


@pytest.fixture
def folder(tmp_path: Path) -> WatchedFolder:
    return WatchedFolder(tmp_path / "run")


def ids(n: int, first: int = 0) -> list[str]:
    return [f"{first + number:016x}" for number in range(n)]


def blocks(n: int, rows: int = 16, first: int = 0, text: str = "Rest.") -> list[pa.Table]:
    table = pa.concat_tables([to_table([build_record(response=text)])] * rows).combine_chunks()
    units = (pa.array(ids(rows, first + rows * number)) for number in range(n))
    return [table.set_column(0, "unit_id", of_block) for of_block in units]


def units(folder: RunFolder) -> list[str]:
    parts = map(folder.read_part, folder.parts())
    return [unit for part in parts for unit in part.column(0).to_pylist()]


async def test_many_small_blocks_become_few_files(folder: WatchedFolder) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=32)
    await asyncio.gather(*map(writer.write, blocks(300)))
    sizes = [folder.read_part(name).num_rows for name in folder.parts()]
    assert (sum(sizes), len(sizes), max(sizes)) == (4800, 3, MAX_ROWS)
    assert sorted(units(folder)) == ids(4800)


async def test_a_row_is_in_a_file_when_its_write_ends_and_the_file_grows(
    folder: WatchedFolder,
) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=1)
    for number, block in enumerate(blocks(10), 1):
        await writer.write(block)
        assert len(units(folder)) == 16 * number
        assert len(folder.parts()) == 1
    assert folder.writes == [16 * number for number in range(1, 11)]


def long_begun(folder: WatchedFolder, most_waiting: int) -> PartWriter:
    """A writer that is so long under way that rows may wait."""
    age_s = iter([-1e6])
    return PartWriter(folder, RECORDS, most_waiting, lambda: time.monotonic() + next(age_s, 0.0))


async def test_the_first_block_is_written_at_once_and_the_next_ones_together_a_little_later(
    folder: WatchedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "LONGEST_WAIT_S", 3.0)
    writer = long_begun(folder, 32)
    started = time.monotonic()
    first, *others = blocks(4)
    await writer.write(first)
    soon = time.monotonic() - started
    await asyncio.gather(*map(writer.write, others))
    assert folder.writes == [16, 64]
    assert soon < 3.0 <= time.monotonic() - started


async def test_a_run_that_has_just_begun_does_not_wait(
    folder: WatchedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "LONGEST_WAIT_S", HANG_S)
    # Two pauses at most: ten times what a small write takes, never LONGEST_WAIT_S each
    writer = PartWriter(folder, RECORDS, 32)
    started = time.monotonic()
    for block in blocks(3):
        await writer.write(block)
    assert time.monotonic() - started < HANG_S
    assert folder.writes == [16, 32, 48]


@pytest.mark.parametrize(
    ("n", "rows", "text", "most_waiting"),
    [(3, 4, "", 3), (2, MAX_ROWS // 2, "", 9), (2, 20, "word " * 200_000, 9)],
)
async def test_when_many_wait_none_waits(
    folder: WatchedFolder, monkeypatch: pytest.MonkeyPatch, n: int, rows: int, text: str,
    most_waiting: int,
) -> None:  # fmt: skip
    """Blocks, rows or bytes: whatever is enough for a file first."""
    monkeypatch.setattr(part_writer, "LONGEST_WAIT_S", 3600.0)
    writer = long_begun(folder, most_waiting)
    await writer.write(blocks(1)[0])
    many = blocks(n, rows, first=16, text=text)
    await asyncio.wait_for(asyncio.gather(*map(writer.write, many)), 60)
    assert len(units(folder)) == 16 + n * rows


async def test_long_texts_make_more_files(folder: WatchedFolder) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=4)
    await asyncio.gather(*map(writer.write, blocks(12, 4, text="word " * 200_000)))
    assert len(folder.parts()) == 2  # 48 MB
    for name in folder.parts():
        assert folder.read_part(name).nbytes <= MAX_BYTES


async def test_what_cannot_be_written_is_told_to_each_and_costs_no_row_that_was(
    folder: WatchedFolder,
) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=2)
    first, *lost, last = blocks(4)
    await writer.write(first)
    folder.is_full = True
    outcomes = await asyncio.gather(*map(writer.write, lost), return_exceptions=True)
    assert [str(error) for error in outcomes] == ["no space left on device"] * 2
    folder.is_full = False
    await writer.write(last)
    assert sorted(units(folder)) == ids(16) + ids(16, first=48)


@pytest.mark.heavy
async def test_the_order_of_rows_does_not_depend_on_when_they_came(tmp_path: Path) -> None:
    orders = []
    for seed in range(3):
        folder = WatchedFolder(tmp_path / str(seed))
        writer = PartWriter(folder, RECORDS, most_waiting=3)
        shuffled = blocks(8)
        random.Random(seed).shuffle(shuffled)
        for block in shuffled:
            await writer.write(block)
        orders.append(units(folder))
    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == 128


KILLED_WRITER = """
import asyncio, sys, pyarrow as pa
from memray_eval.results.part_writer import PartWriter
from memray_eval.results.run_folder import RECORDS, RunFolder
from memray_eval.results.schema import RECORD_SCHEMA

async def main():
    writer = PartWriter(RunFolder(sys.argv[1]), RECORDS, 4)
    async def write(number):
        ids = [f"{16 * number + row:016x}" for row in range(16)]
        columns = [pa.nulls(16, field.type) for field in RECORD_SCHEMA]
        table = pa.table(columns, schema=RECORD_SCHEMA).set_column(0, "unit_id", pa.array(ids))
        await writer.write(table)
        print(number, flush=True)
    for first in range(0, 100_000, 4):
        await asyncio.gather(*(write(first + place) for place in range(4)))

asyncio.run(main())
"""


@pytest.mark.heavy
def test_a_kill_at_any_moment_loses_no_row_whose_write_had_ended(folder: WatchedFolder) -> None:
    words = [sys.executable, "-c", KILLED_WRITER, folder.path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        outcomes = [int(process.stdout.readline()) for _ in range(random.randint(150, 300))]
        process.kill()
        outcomes += [int(line) for line in process.stdout if line.endswith("\n")]
    held = units(folder)
    assert len(held) == len(set(held))
    assert {unit for number in outcomes for unit in ids(16, 16 * number)} <= set(held)
    assert all(folder.read_part(name).num_rows <= MAX_ROWS for name in folder.parts())
    assert sum(len(index.units) for index in folder.read_indexes(folder.list_parts())) == len(held)


async def test_a_store_that_takes_no_quick_writes_of_one_file_gets_another(tmp_path: Path) -> None:
    class Resting(WatchedFolder):
        rewrite_pause_s = 1.0

    folder = Resting(tmp_path / "run")
    writer = PartWriter(folder, RECORDS, most_waiting=1)  # full at once: it does not wait
    for block in blocks(3):
        await writer.write(block)
    assert len(folder.parts()) == 3
    assert len(units(folder)) == 48


async def test_an_urgent_row_waits_for_no_other_and_its_parts_stay_small(
    folder: WatchedFolder,
) -> None:
    # By a clock that does not go on no other row would be due again
    writer = PartWriter(folder, RECORDS, 1, lambda: 0.0, most_rows=4, is_urgent=True)
    for block in blocks(10, rows=1):
        await asyncio.wait_for(writer.write(block), 5.0)
    assert folder.writes == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert folder.records().count_rows() == 10

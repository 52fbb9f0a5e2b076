"""Many small blocks become few files, and none of them is held back for long."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from memray_eval.results import part_writer
from memray_eval.results.part_writer import PartWriter
from memray_eval.results.parts import MAX_BYTES, MAX_ROWS
from memray_eval.results.run_folder import RECORDS, Kind, RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Response
from tests.conftest import HANG_S

Blocks = Callable[..., list[pa.Table]]


class WatchedFolder(RunFolder):
    """A run folder that keeps how many rows each write had, and fails while it is told to."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.writes: list[int] = []
        self.is_full = False

    def write_part(self, table: pa.Table, kind: Kind = RECORDS, name: str | None = None) -> str:
        if self.is_full:
            raise OSError("no space left on device")
        self.writes.append(table.num_rows)
        return super().write_part(table, kind, name)


@pytest.fixture
def folder(tmp_path: Path) -> WatchedFolder:
    watched = WatchedFolder(str(tmp_path / "run"))
    watched.create()
    return watched


@pytest.fixture
def blocks(record: Record) -> Blocks:
    def make(n: int, rows: int = 16, first: int = 0, text: str = "Rest.") -> list[pa.Table]:
        row = to_table([record.model_copy(update={"response": Response(text=text)})])
        table = pa.concat_tables([row] * rows).combine_chunks()
        ids = [f"{first + number:016x}" for number in range(n * rows)]
        return [
            table.set_column(0, "unit_id", pa.array(ids[start : start + rows]))
            for start in range(0, n * rows, rows)
        ]

    return make


def units(folder: RunFolder) -> list[str]:
    return [
        unit for name in folder.parts() for unit in folder.read_part(name).column(0).to_pylist()
    ]


async def test_many_small_blocks_become_few_files(folder: WatchedFolder, blocks: Blocks) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=32)
    await asyncio.gather(*map(writer.write, blocks(300)))
    sizes = [folder.read_part(name).num_rows for name in folder.parts()]
    assert (sum(sizes), len(sizes), max(sizes)) == (4800, 3, MAX_ROWS)
    assert sorted(units(folder)) == [f"{number:016x}" for number in range(4800)]


async def test_a_row_is_in_a_file_when_its_write_ends_and_the_file_grows(
    folder: WatchedFolder, blocks: Blocks
) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=1)
    for number, block in enumerate(blocks(10), 1):
        await writer.write(block)
        assert len(units(folder)) == 16 * number
        assert len(folder.parts()) == 1
    assert folder.writes == [16 * number for number in range(1, 11)]


async def test_the_first_block_is_written_at_once_and_the_next_ones_together_a_little_later(
    folder: WatchedFolder, blocks: Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "LONGEST_WAIT_S", 3.0)
    age_s = [0.0]

    writer = PartWriter(folder, RECORDS, 32, clock=lambda: time.monotonic() + age_s[0])
    age_s[0] = 1000.0  # long enough under way that rows may wait
    started = time.monotonic()
    first, *others = blocks(4)
    await writer.write(first)
    soon = time.monotonic() - started
    await asyncio.gather(*map(writer.write, others))
    soon, later = soon, time.monotonic() - started
    assert folder.writes == [16, 64]
    assert soon < 3.0 <= later


async def test_a_run_that_has_just_begun_does_not_wait(
    folder: WatchedFolder, blocks: Blocks, monkeypatch: pytest.MonkeyPatch
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
    folder: WatchedFolder,
    blocks: Blocks,
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    rows: int,
    text: str,
    most_waiting: int,
) -> None:
    """Blocks, rows or bytes: whatever is enough for a file first."""
    monkeypatch.setattr(part_writer, "LONGEST_WAIT_S", 3600.0)
    age_s = [0.0]

    writer = PartWriter(folder, RECORDS, most_waiting, lambda: time.monotonic() + age_s[0])
    age_s[0] = 1e6
    await writer.write(blocks(1)[0])
    many = blocks(n, rows, first=16, text=text)
    await asyncio.wait_for(asyncio.gather(*map(writer.write, many)), 60)
    assert len(units(folder)) == 16 + n * rows


async def test_long_texts_make_more_files(folder: WatchedFolder, blocks: Blocks) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=4)
    await asyncio.gather(*map(writer.write, blocks(12, 4, text="word " * 200_000)))
    assert len(folder.parts()) == 2  # 48 MB
    for name in folder.parts():
        assert folder.read_part(name).nbytes <= MAX_BYTES


async def test_what_cannot_be_written_is_told_to_each_and_costs_no_row_that_was(
    folder: WatchedFolder, blocks: Blocks
) -> None:
    writer = PartWriter(folder, RECORDS, most_waiting=2)
    first, *lost, last = blocks(4)
    await writer.write(first)
    folder.is_full = True
    outcomes = await asyncio.gather(*map(writer.write, lost), return_exceptions=True)
    assert [str(error) for error in outcomes] == ["no space left on device"] * 2
    folder.is_full = False
    await writer.write(last)
    whole = [f"{number:016x}" for number in range(64)]
    assert sorted(units(folder)) == whole[:16] + whole[48:]


@pytest.mark.heavy
def test_the_order_of_rows_does_not_depend_on_when_they_came(
    tmp_path: Path, blocks: Blocks
) -> None:
    async def write(folder: RunFolder, shuffled: list[pa.Table]) -> None:
        writer = PartWriter(folder, RECORDS, most_waiting=3)
        for block in shuffled:
            await writer.write(block)

    orders = []
    for seed in range(3):
        folder = RunFolder(str(tmp_path / str(seed)))
        folder.create()
        shuffled = blocks(8)
        random.Random(seed).shuffle(shuffled)
        asyncio.run(write(folder, shuffled))
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
        assert process.stdout is not None
        outcomes = [int(process.stdout.readline()) for _ in range(random.randint(150, 300))]
        process.kill()
        outcomes += [int(line) for line in process.stdout if line.endswith("\n")]
    held = units(folder)
    assert len(held) == len(set(held))
    assert {f"{16 * number + row:016x}" for number in outcomes for row in range(16)} <= set(held)
    assert all(folder.read_part(name).num_rows <= MAX_ROWS for name in folder.parts())
    assert sum(len(index.units) for index in folder.read_indexes(folder.list_parts())) == len(held)


async def test_a_store_that_takes_no_quick_writes_of_one_file_gets_another(
    tmp_path: Path, blocks: Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Resting(WatchedFolder):
        rewrite_pause_s = 1.0

    folder = Resting(str(tmp_path / "run"))
    folder.create()

    writer = PartWriter(folder, RECORDS, most_waiting=1)  # full at once: it does not wait
    for block in blocks(3):
        await writer.write(block)
    assert len(folder.parts()) == 3
    assert len(units(folder)) == 48


async def test_an_urgent_row_waits_for_no_other_and_its_parts_stay_small(
    folder: WatchedFolder, blocks: Blocks
) -> None:
    def stopped_clock() -> float:
        return 0.0  # by which no other row would be due again

    writer = PartWriter(folder, RECORDS, 1, stopped_clock, most_rows=4, is_urgent=True)
    for block in blocks(10, rows=1):
        await asyncio.wait_for(writer.write(block), 5.0)
    assert folder.writes == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert folder.records().count_rows() == 10

"""Gathers the small blocks of one process into few files, none of them held back for long."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from memray_eval.results.parts import MAX_BYTES, MAX_ROWS, digest_name, new_part_name, split_rows
from memray_eval.results.run_folder import Kind, RunFolder

# How long rows may wait for others to be written with: at most this, less in a run that has just
# begun (a share of the writer's age) and where writing takes little time.
LONGEST_WAIT_S, WAIT_SHARE, MAX_BUSY_SHARE = 2.0, 0.01, 0.1


@dataclass
class _OpenPart:
    """The part that grows: its blocks, if all are in its file, and when that was written."""

    name: str = field(default_factory=new_part_name)
    blocks: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    is_written: bool = False
    written_at: float = float("-inf")

    def add(self, block: pa.Table) -> None:
        self.blocks.append(block)
        self.rows, self.size = self.rows + block.num_rows, self.size + block.nbytes
        self.is_written = False


class PartWriter:
    """Writes blocks of rows to parts of up to `most_rows` rows or MAX_BYTES, for one event loop. A
    part is written whole again with the rows that have come since: a row is in one file at any
    time. Rows soon after a write wait for others, up to `most_waiting`, unless it `is_urgent`."""

    def __init__(
        self,
        folder: RunFolder,
        kind: Kind,
        most_waiting: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        most_rows: int = MAX_ROWS,
        is_urgent: bool = False,
    ) -> None:
        self._folder, self._kind, self._clock, self._is_urgent = folder, kind, clock, is_urgent
        self._most_waiting, self._most_rows = most_waiting, most_rows
        self._part = _OpenPart()
        self._waiting: list[tuple[pa.Table, asyncio.Future[float]]] = []
        self._is_full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._began, self._ended, self._took = clock(), float("-inf"), 0.0

    async def write(self, table: pa.Table) -> float:
        """Returns once the rows are in a file, with the writer's seconds. Raises OSError."""
        written: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((table, written))
        tables = [waiting for waiting, _ in self._waiting]
        if (
            len(tables) >= self._most_waiting
            or sum(table.num_rows for table in tables) >= MAX_ROWS
            or sum(table.nbytes for table in tables) >= MAX_BYTES
        ):
            self._is_full.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_waiting())
        return await written

    async def _write_waiting(self) -> None:
        while self._waiting:
            await self._pause()
            batch, self._waiting = self._waiting, []
            self._is_full.clear()
            started = self._clock()
            try:
                await self._add_rows([table for table, _ in batch])
            except Exception as error:
                self._part = _OpenPart()  # the file of the last one holds what was written of it
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
            else:
                took = self._clock() - started
                for _, written in batch:
                    if not written.done():  # its task may have been cancelled
                        written.set_result(took / len(batch))

    async def _pause(self) -> None:
        """Lets rows gather, until they are due or many."""
        if self._is_urgent:
            return
        share = max(WAIT_SHARE * (self._clock() - self._began), self._took / MAX_BUSY_SHARE)
        pause = max(self._took, self._folder.rewrite_pause_s, min(LONGEST_WAIT_S, share))
        if (left := self._ended + pause - self._clock()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_full.wait(), left)

    async def _add_rows(self, tables: Sequence[pa.Table]) -> None:
        if self._clock() - self._part.written_at < self._folder.rewrite_pause_s:
            self._part = _OpenPart()
        for block in (piece for table in tables for piece in split_rows(table)):
            rows, size = self._part.rows + block.num_rows, self._part.size + block.nbytes
            if self._part.blocks and (rows > self._most_rows or size > MAX_BYTES):
                await self._write_part()
                self._part = _OpenPart()
            self._part.add(block)
        await self._write_part()

    async def _write_part(self) -> None:
        part = self._part
        if part.is_written or not part.rows:
            return
        # In the order of their digests, not that in which they happened to come: the sums of a
        # summary depend on the order of the rows in their last digit
        table = pa.concat_tables(sorted(part.blocks, key=digest_name))
        started = self._clock()
        await asyncio.to_thread(self._folder.write_part, table, self._kind, part.name)
        self._ended = part.written_at = self._clock()
        self._took, part.is_written = self._ended - started, True

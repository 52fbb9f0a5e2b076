"""The stage that writes blocks to the run folder. It imports little: on Ray it is a process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import numpy as np
import pyarrow as pa

from memray_eval.errors import EvalError, reason_of
from memray_eval.execution.run_counter import RunCounter
from memray_eval.results.part_writer import PartWriter
from memray_eval.results.parts import index_rows
from memray_eval.results.run_folder import RECORDS, Kind, RunFolder

BLOCKS_AT_ONCE = 32  # so many wait together for the write that holds them
UNWRITTEN = "the run's folder cannot be written"


class WriteParts:
    """Writes blocks to the run folder, and hands on responses as they are, of records only the
    units."""

    def __init__(self, folder: str, kind: Kind, counter: RunCounter) -> None:
        self._kind, self._counter = kind, counter
        self._writer = PartWriter(RunFolder(folder), kind, BLOCKS_AT_ONCE)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        """Where they cannot be written the run is stopped: calls in flight end, and are kept."""
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

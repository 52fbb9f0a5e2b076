"""The stage of candidates that have a memory: conversations are written to their stores, and
samples get what the stores return of their questions, before prompts are built."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product

import pyarrow as pa

from memray_eval.execution.prompt_stage import BLOCK_BYTES, PromptSpec, read_block
from memray_eval.results.schema import samples_to_table
from memray_eval.stages.generate import new_record
from memray_eval.stores.memories import RECALLED, Memories, key_of
from memray_eval.stores.port import Sources
from memray_eval.types import Record, Sample

TOGETHER = 16  # questions that are searched for at the same time


class RecallSamples:
    """Shards, or samples of the affect stage, to samples with what was recalled for each candidate
    and epoch. `sources` are the stores that are the user's code."""

    def __init__(self, asking: PromptSpec, sources: Sources) -> None:
        self._asking = asking
        self._memories = Memories(asking.context.folder, sources)
        self._seats = asyncio.Semaphore(TOGETHER)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        waiting, size = list[Sample](), 0
        for sample in read_block(table, self._asking):
            waiting.append(sample)
            size += len(sample.context or "")
            if len(waiting) >= TOGETHER or size >= BLOCK_BYTES:
                yield await self._recalled(waiting)
                waiting, size = [], 0
        yield await self._recalled(waiting)

    async def _recalled(self, samples: list[Sample]) -> pa.Table:
        if await asyncio.to_thread(self._asking.context.is_stopping):
            return samples_to_table([])
        return samples_to_table(await asyncio.gather(*map(self._recall, samples)))

    async def _recall(self, sample: Sample) -> Sample:
        units = product(self._asking.candidates, range(1, self._asking.epochs + 1))
        records = [new_record(sample, candidate, epoch) for candidate, epoch in units]
        open_ = [
            record
            for record in records
            if record.candidate.memory and not self._asking.resume_state.has(record.unit_id)
        ]

        async def recall(record: Record) -> tuple[str, object]:
            async with self._seats:
                recalled = await asyncio.to_thread(self._memories.recall, sample, record)
            return key_of(record.candidate, record.epoch), recalled

        recalled = dict(await asyncio.gather(*map(recall, open_)))
        metadata = {**sample.metadata, RECALLED: recalled}
        needs_context = any(candidate.memory is None for candidate in self._asking.candidates)
        context = sample.context if needs_context else None
        return sample.model_copy(update={"metadata": metadata, "context": context})

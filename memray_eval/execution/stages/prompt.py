"""The tasks at a pipeline's start: shards to rows that an engine or a server can be asked with."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.own import SuiteSource
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_samples
from memray_eval.datasets.sources import Shard
from memray_eval.errors import describe_error
from memray_eval.execution.resume_state import ResumeState
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.generate import new_record
from memray_eval.execution.stages.render import note_passages, render
from memray_eval.models.embedded_model import config_of
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.results.parts import UnitNumbers
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import (
    RECORD_SCHEMA,
    samples_from_table,
    samples_to_table,
    to_table,
    unanswered,
)
from memray_eval.stores.memories import RECALLED, Memories, key_of, take_recalled
from memray_eval.stores.port import Sources
from memray_eval.types import Candidate, Passage, Prompt, Record, Sample

logger = logging.getLogger(__name__)

SHARD, PROMPT, ANSWER = "shard", "prompt", "answer"
SECOND = "second_answer"  # with a larger limit; as ANSWER
TOKENS, SAMPLING = "prompt_tokens_int32", "sampling_params"
FORM, TRUNCATED = "prompt_form", "truncated_tokens"  # of RECORD_SCHEMA, known before the answer is
BLOCK_BYTES = 4 << 20  # a block is handed on here, however long its contexts are

_PROMPT_TYPE = pa.struct(
    [
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.large_string())]))),
        ("is_chat", pa.bool_()),
        ("max_tokens", pa.int64()),
        ("stop", pa.list_(pa.string())),
    ]
)
# vLLM's: the first of the wall clock, the others of its own
TIMES = ("arrival_time", "first_token_latency", "first_token_ts", "last_token_ts")
# The engine's answer (ANSWER)
ANSWER_TYPE = pa.struct(
    [
        ("generated_text", pa.large_string()),
        ("generated_tokens", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("num_input_tokens", pa.int64()),
        ("num_cached_tokens", pa.int64()),
        ("metrics", pa.struct([(name, pa.float64()) for name in TIMES])),
        ("__inference_error__", pa.string()),
    ]
)
# Records with the requests for their responses, null if there is nothing to ask
SERVER_SCHEMA = pa.schema([*RECORD_SCHEMA, (PROMPT, _PROMPT_TYPE)])
# Tokens are little-endian int32: a list of Python numbers would take nine times as much. SAMPLING
# is JSON: fields of vLLM's SamplingParams
ASKING = {TOKENS: pa.large_binary(), SAMPLING: pa.string()}
ENGINE_SCHEMA = pa.schema([*RECORD_SCHEMA, *ASKING.items()])
Row = dict[str, Any]
T = TypeVar("T")
# The columns of a row that ask, and which passages of a conversation they show
RequestBuilder = Callable[[Prompt, Candidate], tuple[Row, Sequence[Passage]]]


@dataclass(frozen=True, kw_only=True)
class PromptSpec:
    """The tasks' settings: how samples are read, the suite, the candidates and epochs, what an
    earlier session did, the engine's window, how many rows travel together, and whether the task
    that asks is being done again."""

    reading: SampleReader
    suite: SuiteSource
    candidates: Sequence[Candidate]
    epochs: int = 1
    resume_state: ResumeState
    context: StageContext
    max_model_len: int | None = None
    trust_remote_code: bool = False
    rows: int = 16
    is_repeated: Callable[[], bool] = lambda: False


def request_builder(asking: PromptSpec) -> tuple[RequestBuilder, pa.Schema]:
    """The builder of the candidates' requests, and the schema of their rows."""
    return _server_requests() if asking.candidates[0].is_served else _engine_requests(asking)


def _engine_requests(asking: PromptSpec) -> tuple[RequestBuilder, pa.Schema]:
    """The requests to an engine, as rows of ENGINE_SCHEMA."""
    tokenizer = load_tokenizer(asking.candidates[0].model, asking.trust_remote_code)
    window = asking.max_model_len or window_of(asking.candidates[0].model)

    def build_request(prompt: Prompt, candidate: Candidate) -> tuple[Row, Sequence[Passage]]:
        # max_tokens None is what the window leaves; left out it would be vLLM's own 16
        sampling = {"max_tokens": None, **prompt.sampling(candidate), **candidate.extra}
        sampling.pop("chat_template_kwargs", None)
        room = prompt_room(candidate, window, prompt.answer_tokens(candidate))
        rendered = render(prompt, tokenizer, room, candidate.template_kwargs)
        row = {
            TOKENS: np.asarray(rendered.tokens, np.int32).tobytes(),
            SAMPLING: json.dumps(sampling),
            FORM: rendered.form,
            TRUNCATED: rendered.truncated_tokens,
        }
        return row, rendered.kept

    return build_request, ENGINE_SCHEMA


def _server_requests() -> tuple[RequestBuilder, pa.Schema]:
    """The requests to a server, as rows of SERVER_SCHEMA; cut as the candidate says."""

    def build_request(prompt: Prompt, candidate: Candidate) -> tuple[Row, Sequence[Passage]]:
        truncated, kept, room = None, prompt.passages, candidate.max_prompt_tokens
        if candidate.tokenizer is not None and room is not None and prompt.is_cut:
            tokenizer = load_tokenizer(candidate.tokenizer)
            rendered = render(prompt, tokenizer, room, candidate.template_kwargs)
            prompt = prompt.model_copy(update={"messages": rendered.messages})
            truncated, kept = rendered.truncated_tokens, rendered.kept
        bare = prompt.model_dump(include={field.name for field in _PROMPT_TYPE})
        return {PROMPT: bare, TRUNCATED: truncated}, kept

    return build_request, SERVER_SCHEMA


def window_of(model: str) -> int | None:
    """The window, in tokens, of a model folder's config.json; None for a model of the hub."""
    window = config_of(model).get("max_position_embeddings")
    return window if isinstance(window, int) else None


def prompt_room(candidate: Candidate, window: int | None, max_tokens: int) -> int | None:
    """The most tokens of a prompt: what the window leaves, and the candidate allows."""
    bounds = (candidate.max_prompt_tokens, window and window - max_tokens)
    return min((bound for bound in bounds if bound is not None), default=None)


def take_stored(
    table: pa.Table, context: StageContext, index: Mapping[str, UnitNumbers]
) -> pa.Table:
    """Rows of requests; those with a response in this index get it and are not asked."""
    units = table.column("unit_id")
    answered = RunFolder(context.folder).find_units(units.to_pylist(), index)
    if answered.num_rows:  # the block was lost with a node, and nothing is paid twice
        text = "a block is made again: %d of its %d units have responses already"
        logger.warning(text, answered.num_rows, table.num_rows)
    stored = _unasked(answered, table.schema)
    places = pc.add(pc.index_in(units, value_set=stored.column("unit_id")), table.num_rows)
    own = pa.array(range(table.num_rows), pa.int32())
    return pa.concat_tables([table, stored]).take(pc.coalesce(places, own))


def prompts_to_ask(table: pa.Table, asking: PromptSpec) -> Iterator[pa.Table]:
    """Shards to rows of SERVER_SCHEMA or ENGINE_SCHEMA: every sample for every candidate in every
    epoch, except those of an earlier session."""
    build_request, schema = request_builder(asking)
    # A task that is done again finds what it wrote before
    index = RunFolder(asking.context.folder).index_units() if asking.is_repeated() else {}

    def size_of(item: tuple[Record, Row]) -> int:
        messages = item[1].get(PROMPT, {}).get("messages", ())
        return len(item[1].get(TOKENS, b"")) + sum(len(message["content"]) for message in messages)

    started = time.time()
    for rows in in_blocks(_rows(table, asking, build_request), asking.rows, size_of):
        yield _to_block(rows, schema, asking.context, index, started)
        started = time.time()


def in_blocks(items: Iterable[T], most: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of up to `most` items, or of BLOCK_BYTES; the last one may be empty."""
    block, size = list[T](), 0
    for item in items:
        block.append(item)
        size += size_of(item)
        if len(block) >= most or size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    yield block


def context_size(sample: Sample) -> int:
    return len(sample.context or "")


def prepare_row(
    record: Record,
    sample: Sample,
    suite: Suite,
    build_request: RequestBuilder,
    schema: pa.Schema,
    context: StageContext,
) -> pa.Table:
    """The row that asks for a record's response; `sample` is its own, with its context."""
    started = time.time()
    return _to_block([_row(record, sample, suite, build_request)], schema, context, {}, started)


def _to_block(
    rows: Sequence[tuple[Record, Row]],
    schema: pa.Schema,
    context: StageContext,
    index: Mapping[str, UnitNumbers],
    started: float,
) -> pa.Table:
    """The rows as a table. One that Arrow cannot hold is an error of its unit."""

    def to_table_alone(record: Record, row: Row) -> pa.Table:
        try:
            return _to_table([(record, row)], schema)
        except Exception as error:
            failed = unanswered(record, f"no prompt can be built: {describe_error(error)}")
            return _unasked(context.to_table([failed], "read"), schema)

    try:
        block = _to_table(rows, schema)
    except Exception:
        block = pa.concat_tables([to_table_alone(*row) for row in rows])
    context.counter.add("read", block.num_rows, started, time.time())
    return take_stored(block, context, index) if index else block


def _to_table(rows: Sequence[tuple[Record, Row]], schema: pa.Schema) -> pa.Table:
    records = to_table(record for record, _ in rows)
    own = {FORM, TRUNCATED, *schema.names[len(RECORD_SCHEMA) :]}
    columns = [
        pa.array([row.get(field.name) for _, row in rows], field.type)
        if field.name in own
        else records.column(field.name)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _unasked(records: pa.Table, schema: pa.Schema) -> pa.Table:
    """Records without a request, in a schema of requests."""
    for field in list(schema)[len(RECORD_SCHEMA) :]:
        records = records.append_column(field, pa.nulls(records.num_rows, field.type))
    return records


def _rows(
    table: pa.Table, asking: PromptSpec, build_request: RequestBuilder
) -> Iterator[tuple[Record, Row]]:
    suite = asking.suite.load()
    for sample in read_block(table, asking):
        for candidate, epoch in product(asking.candidates, range(1, asking.epochs + 1)):
            try:
                record = new_record(sample, candidate, epoch)
                if asking.resume_state.has(record.unit_id):
                    continue
                row = _row(record, sample, suite, build_request)
            except Exception as error:
                asking.context.record_stage_failure("read", sample.id, error)
                continue  # its unit is missing at the run's end, and counted so
            yield row


def _row(
    record: Record, sample: Sample, suite: Suite, build_request: RequestBuilder
) -> tuple[Record, Row]:
    """The record and the request for its response; only the error if no prompt can be built."""
    try:
        record, sample = take_recalled(record, sample)
        if record.response is not None:
            return record, {}
        prompt = suite.ask(sample, record.candidate)
        row, kept = build_request(prompt, record.candidate.for_epoch(record.epoch))
        if noted := note_passages(prompt, kept):
            metadata = {**record.sample.metadata, **noted}
            bare = record.sample.model_copy(update={"metadata": metadata})
            record = record.model_copy(update={"sample": bare})
        return record, row
    except Exception as error:
        return unanswered(record, f"no prompt can be built: {describe_error(error)}"), {}


def read_block(table: pa.Table, asking: PromptSpec) -> Iterator[Sample]:
    """The samples of a block of shards, or of the affect stage; none if the run ends."""
    if asking.context.is_stopping():
        return
    if SHARD not in table.column_names:
        yield from samples_from_table(table)
        return
    for text in table.column(SHARD).to_pylist():
        shard = Shard.model_validate_json(text)
        yield from read_samples(shard, asking.reading, asking.context.record_unreadable)


TOGETHER = 16  # questions that are searched for at the same time


class RecallSamples:
    """Shards, or samples of the affect stage, to samples with what was recalled for each candidate
    and epoch. `sources` are the stores that are the user's code."""

    def __init__(self, asking: PromptSpec, sources: Sources) -> None:
        self._asking = asking
        self._memories = Memories(asking.context.folder, sources, TOGETHER)
        self._seats = asyncio.Semaphore(TOGETHER)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        asking = self._asking
        for samples in in_blocks(read_block(table, asking), TOGETHER, context_size):
            if await asyncio.to_thread(asking.context.is_stopping):
                samples = []
            yield samples_to_table(await asyncio.gather(*map(self._recall, samples)))

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

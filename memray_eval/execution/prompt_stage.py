"""The tasks at a pipeline's start: shards to rows that an engine or a server can be asked with."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.own import SuiteSource
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_samples
from memray_eval.datasets.sources import Entry, Shard
from memray_eval.errors import describe_error
from memray_eval.execution.resume_state import ResumeState
from memray_eval.execution.stage_context import StageContext
from memray_eval.models.embedded_model import resolve_model
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.results.schema import unanswered
from memray_eval.stages.generate import new_record
from memray_eval.stages.render import note_passages, render
from memray_eval.types import Candidate, Passage, Prompt, Record, Sample, unit_id

logger = logging.getLogger(__name__)

SHARD, SAMPLE, RECORD, PROMPT = "shard", "sample", "record", "prompt"
TOKENS, SAMPLING, FORM, TRUNCATED = (
    "prompt_tokens_int32",
    "sampling_params",
    "prompt_form",
    "truncated_tokens",
)
BLOCK_BYTES = 4 << 20  # a block is handed on here, however long its contexts are

SERVER_SCHEMA = pa.schema(
    [(RECORD, pa.string()), (PROMPT, pa.large_string()), (TRUNCATED, pa.int64())]
)
_SAMPLING_TYPE = pa.struct(
    [
        ("temperature", pa.float64()),
        ("top_p", pa.float64()),
        ("max_tokens", pa.int64()),
        ("repetition_penalty", pa.float64()),
        ("seed", pa.int64()),
        ("stop", pa.list_(pa.string())),
    ]
)
# Little-endian int32: a list of Python numbers would take nine times as much
ENGINE_SCHEMA = pa.schema(
    [
        (RECORD, pa.string()),
        (
            TOKENS,
            pa.large_binary(),
        ),
        (SAMPLING, _SAMPLING_TYPE),
        (FORM, pa.string()),
        (TRUNCATED, pa.int64()),
    ]
)
# What comes back from the engine; vLLM's times are in seconds, `metrics` on its own clock
ANSWER_SCHEMA = pa.schema(
    [
        (RECORD, pa.string()),
        (FORM, pa.string()),
        (TRUNCATED, pa.int64()),
        ("generated_text", pa.large_string()),
        ("generated_tokens", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("num_input_tokens", pa.int64()),
        ("num_cached_tokens", pa.int64()),
        (
            "metrics",
            pa.struct(
                [
                    ("first_token_latency", pa.float64()),
                    ("first_token_ts", pa.float64()),
                    ("last_token_ts", pa.float64()),
                ]
            ),
        ),
        ("__inference_error__", pa.string()),
    ]
)
Row = dict[str, Any]
# The columns of a row that ask, and which passages of a conversation they show
Asked = Callable[[Prompt, Candidate], tuple[Row, Sequence[Passage]]]


@dataclass(frozen=True, kw_only=True)
class PromptSpec:
    """What the tasks need to know: how samples are read, by which suite they are asked, of which
    candidates, what an earlier session did, the engine's window, how many rows travel
    together, and whether the task that asks is being done again."""

    reading: SampleReader
    suite: SuiteSource
    candidates: Sequence[Candidate]
    resume_state: ResumeState
    context: StageContext
    max_model_len: int | None = None
    rows: int = 16
    is_repeated: Callable[[], bool] = lambda: False


def prompts_for_engine(table: pa.Table, asking: PromptSpec) -> Iterator[pa.Table]:
    """Shards to rows of ENGINE_SCHEMA: every sample asked of every candidate, but for what an
    earlier session did. A record that has an error already goes without tokens past the engine."""
    tokenizer = load_tokenizer(asking.candidates[0].model)
    window = asking.max_model_len or window_of(asking.candidates[0].model)

    def asked(prompt: Prompt, candidate: Candidate) -> tuple[Row, Sequence[Passage]]:
        sampling = prompt.sampling(candidate)
        rendered = render(
            prompt, tokenizer, prompt_room(candidate, window, sampling.max_tokens or 0)
        )
        row = {
            TOKENS: np.asarray(rendered.tokens, np.int32).tobytes(),
            SAMPLING: sampling.model_dump(mode="json"),
            FORM: rendered.form,
            TRUNCATED: rendered.truncated_tokens,
        }
        return row, rendered.kept

    unasked = {
        TOKENS: b"",
        SAMPLING: Prompt(messages=()).sampling(asking.candidates[0]).model_dump(mode="json"),
    }
    return _blocks(table, asking, asked, unasked, ENGINE_SCHEMA)


def prompts_for_servers(table: pa.Table, asking: PromptSpec) -> Iterator[pa.Table]:
    """Shards to rows of SERVER_SCHEMA. A prompt is cut where the candidate says with which
    tokenizer and where; a record that has an error already goes without one."""

    def asked(prompt: Prompt, candidate: Candidate) -> tuple[Row, Sequence[Passage]]:
        truncated, kept = None, prompt.passages
        if (
            candidate.tokenizer is not None
            and candidate.max_prompt_tokens is not None
            and prompt.is_cut
        ):
            rendered = render(
                prompt, load_tokenizer(candidate.tokenizer), candidate.max_prompt_tokens
            )
            prompt = prompt.model_copy(update={"messages": rendered.messages})
            truncated, kept = rendered.truncated_tokens, rendered.kept
        bare = prompt.model_copy(update={"passages": (), "about": {}})
        return {PROMPT: bare.model_dump_json(exclude_defaults=True), TRUNCATED: truncated}, kept

    return _blocks(table, asking, asked, {PROMPT: None, TRUNCATED: None}, SERVER_SCHEMA)


def window_of(model: str) -> int | None:
    """The context window that a model folder's config.json names, in tokens; None for a hub's
    model, which is not here yet."""
    try:
        config = json.loads((Path(resolve_model(model)) / "config.json").read_text("utf-8"))
    except OSError:
        return None
    window = config.get("max_position_embeddings")
    return window if isinstance(window, int) else None


def prompt_room(candidate: Candidate, window: int | None, max_tokens: int) -> int | None:
    """How long a prompt may be: what the window leaves beside the answer, and no more than the
    candidate allows."""
    bounds = [
        bound
        for bound in (candidate.max_prompt_tokens, window and window - max_tokens)
        if bound is not None
    ]
    return min(bounds) if bounds else None


def _blocks(
    table: pa.Table, asking: PromptSpec, asked: Asked, unasked: Row, schema: pa.Schema
) -> Iterator[pa.Table]:
    rows: list[Row] = []
    size, started = 0, time.time()
    for row in _rows(table, asking, asked, unasked):
        rows.append(row)
        size += sum(len(value) for value in rows[-1].values() if isinstance(value, str | bytes))
        if len(rows) >= asking.rows or size >= BLOCK_BYTES:
            yield _report_unfit(rows, schema, asking, started)
            rows, size, started = [], 0, time.time()
    yield _report_unfit(rows, schema, asking, started)


def _report_unfit(
    rows: list[Row], schema: pa.Schema, asking: PromptSpec, started: float
) -> pa.Table:
    asking.context.counter.add("read", len(rows), started, time.time())
    return pa.Table.from_pylist(rows, schema=schema)


def _rows(table: pa.Table, asking: PromptSpec, asked: Asked, unasked: Row) -> Iterator[Row]:
    if asking.context.is_stopping():
        return
    suite = asking.suite.load()
    stored: dict[str, Record] = {}
    if asking.is_repeated():
        again = _samples(table, asking, lambda entry, error: None)
        ids = [
            unit_id(sample.id, one, sample.suite) for sample in again for one in asking.candidates
        ]
        stored = asking.context.find_stored(ids)
    for sample in _samples(table, asking, asking.context.record_unreadable):
        for candidate in asking.candidates:
            try:
                record = new_record(sample, candidate)
                if asking.resume_state.has(record.unit_id):
                    row = None
                elif record.unit_id in stored:
                    row = {RECORD: stored[record.unit_id].model_dump_json(), **unasked}
                else:
                    row = _row(record, sample, suite, asked, unasked)
            except Exception as error:
                asking.context.record_stage_failure("read", sample.id, error)
                continue  # its unit is missing at the run's end, and counted so
            if row is not None:
                yield row


def _row(record: Record, sample: Sample, suite: Suite, asked: Asked, unasked: Row) -> Row:
    """What asks the record's candidate; where no prompt can be built or written, only what says
    why."""
    try:
        prompt = suite.prompt(sample, record.candidate)
        row, kept = asked(prompt, record.candidate)
        if noted := note_passages(prompt, kept):
            metadata = {**record.sample.metadata, **noted}
            bare = record.sample.model_copy(update={"metadata": metadata})
            record = record.model_copy(update={"sample": bare})
        return {RECORD: record.model_dump_json(), **row}
    except Exception as error:
        why = f"no prompt can be built: {describe_error(error)}"
        return {RECORD: unanswered(record, why).model_dump_json(), **unasked}


def _samples(
    table: pa.Table, asking: PromptSpec, on_unreadable: Callable[[Entry, BaseException], None]
) -> Iterator[Sample]:
    """The samples of a block of shards, or of samples that the affect stage read."""
    if SAMPLE in table.column_names:
        yield from map(Sample.model_validate_json, table.column(SAMPLE).to_pylist())
        return
    for text in table.column(SHARD).to_pylist():
        yield from read_samples(Shard.model_validate_json(text), asking.reading, on_unreadable)

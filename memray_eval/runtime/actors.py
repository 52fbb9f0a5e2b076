"""The workers of the pipeline: tasks that read, fold and write, actors that ask servers, judge and embed. Blocks in and out
are Arrow tables; what they do is in stages/."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from memray_eval.clients.embeddings import build_embedder
from memray_eval.clients.openai import OpenAIGenerator
from memray_eval.clients.routing import Choice, build_judges, limited
from memray_eval.config import EmbeddingConfig, JudgingConfig, ServerConfig
from memray_eval.datasets.answers import parse_answer
from memray_eval.datasets.parsing import parse_sample
from memray_eval.datasets.scan import read_shard
from memray_eval.datasets.sources import Shard
from memray_eval.metrics import pick
from memray_eval.ports import Judge
from memray_eval.results import RunFolder
from memray_eval.rows import from_table, to_table
from memray_eval.runtime.engine import MESSAGES, RECORD, SAMPLING, sampling_params
from memray_eval.runtime.progress import reported
from memray_eval.stages.embed import embed_records
from memray_eval.stages.generate import engine_response, generate, new_record
from memray_eval.stages.judge import judge_record
from memray_eval.suites import get_suite
from memray_eval.types import Candidate, Message, Record

SHARD = "shard"
PROMPT_SCHEMA = pa.schema(
    [
        (RECORD, pa.string()),
        (MESSAGES, pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        (
            SAMPLING,
            pa.struct(
                [
                    ("temperature", pa.float64()),
                    ("top_p", pa.float64()),
                    ("max_tokens", pa.int64()),
                    ("repetition_penalty", pa.float64()),
                    ("seed", pa.int64()),
                    ("stop", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def read_prompts(table: pa.Table, suite_name: str, candidates: Sequence[Candidate], counter: Any) -> pa.Table:
    """Shards to rows of PROMPT_SCHEMA: every sample asked of every candidate."""
    suite, rows = get_suite(suite_name), []
    started = time.time()
    for text in table.column(SHARD).to_pylist():
        for sample in read_shard(Shard.model_validate_json(text), suite_name, parse_sample):
            for candidate in candidates:
                record = new_record(sample, candidate)
                messages = [message.model_dump() for message in suite.prompt(sample, candidate)]
                rows.append(
                    {
                        RECORD: record.model_dump_json(),
                        MESSAGES: messages,
                        SAMPLING: sampling_params(candidate.sampling),
                    }
                )
    counter.add.remote("read", len(rows), started, time.time())
    return pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)


def fold_answers(table: pa.Table, stop_ids: frozenset[int], max_model_len: int | None, counter: Any) -> pa.Table:
    """What the engine left in its rows, as records. Its messages, and with them any long context, end here."""
    records = []
    for row in table.to_pylist():
        record = Record.model_validate_json(row[RECORD])
        response = engine_response(row, record.candidate, stop_ids, max_model_len)
        records.append(record.model_copy(update={"response": response}))
    longest = max((record.response.duration_s or 0.0 for record in records if record.response), default=0.0)
    now = time.time()
    counter.add.remote("generate", len(records), now - longest, now)
    return to_table(records)


def write_records(table: pa.Table, folder: str, counter: Any) -> pa.Table:
    """Writes a block to the run folder; hands on only which units it held."""
    with reported(counter, "write", table.num_rows):
        RunFolder(folder).write_records(table)
    return table.select(["unit_id"])


def read_answers(table: pa.Table, suite_name: str, counter: Any) -> pa.Table:
    """Shards of responses that exist already, as records."""
    started = time.time()
    shards = (Shard.model_validate_json(text) for text in table.column(SHARD).to_pylist())
    records = [record for shard in shards for record in read_shard(shard, suite_name, parse_answer)]
    counter.add.remote("read", len(records), started, time.time())
    return to_table(records)


class AskServers:
    """Asks candidates behind OpenAI-compatible servers; one client a candidate, built on this actor's loop."""

    def __init__(self, config: ServerConfig, counter: Any) -> None:
        self._config, self._counter = config, counter
        self._client = cache(self._new_client)

    def _new_client(self, candidate_json: str) -> OpenAIGenerator:
        return OpenAIGenerator(Candidate.model_validate_json(candidate_json), self._config)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        with reported(self._counter, "generate", table.num_rows):
            answered = await asyncio.gather(*(self._ask(row) for row in table.to_pylist()))
        yield to_table(answered)

    async def _ask(self, row: dict[str, Any]) -> Record:
        record = Record.model_validate_json(row[RECORD])
        messages = tuple(Message.model_validate(message) for message in row[MESSAGES])
        return await generate(record, messages, self._client(record.candidate.model_dump_json()))


class JudgeRecords:
    """Scores the metrics of the judge stage."""

    def __init__(
        self, metrics: Sequence[str], choices: Mapping[str, Choice], config: JudgingConfig, url: str | None, counter: Any
    ) -> None:
        self._metrics, self._counter = pick(metrics), counter
        self._choices, self._config, self._embedded_url = choices, config, url
        self._judges: Mapping[str, Sequence[Judge]] | None = None

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        if self._judges is None:  # on the loop that will use them: no client can move to another
            judges = build_judges(self._choices, self._config, self._embedded_url)
            self._judges = limited(judges, self._config.max_in_flight)
        by_metric = self._judges
        with reported(self._counter, "judge", table.num_rows):
            records = await asyncio.gather(
                *(judge_record(record, self._metrics, by_metric, self._config.vote) for record in from_table(table))
            )
        yield to_table(records)


class EmbedRecords:
    """Scores the metrics of the embed stage, with one embedding model loaded."""

    def __init__(self, metrics: Sequence[str], config: EmbeddingConfig, counter: Any) -> None:
        self._metrics, self._counter = pick(metrics), counter
        self._embedder = build_embedder(config)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        with reported(self._counter, "embed", table.num_rows):
            records = await embed_records(list(from_table(table)), self._metrics, self._embedder)
        yield to_table(records)


def shard_rows(shards: Sequence[Shard]) -> list[dict[str, str]]:
    """Shards as rows of the pipeline's input."""
    return [{SHARD: json.dumps(shard.model_dump(mode="json"))} for shard in shards]

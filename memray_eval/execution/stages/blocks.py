"""The stages on Arrow blocks: functions that read, classes that ask servers, judge and embed."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.config.sections import EmbeddingConfig, JudgingConfig, MetricOptions, ServerConfig
from memray_eval.config.servers import is_baseline
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_records
from memray_eval.datasets.sources import Shard
from memray_eval.errors import ConfigError, EvalError, describe_error
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.execution.run_counter import report_block
from memray_eval.execution.services import LISTEN_S, AskingStage, JudgeServices
from memray_eval.execution.stages.context import AnswerWriter, StageContext, add_scores, write_block
from memray_eval.execution.stages.generate import embed_records, engine_response, generate
from memray_eval.execution.stages.judge import (
    JudgingOptions,
    fail_ungenerated,
    fail_unjudged,
    judge_record,
    score_unasked,
)
from memray_eval.execution.stages.prompt import (
    ANSWER,
    FORM,
    PROMPT,
    SECOND,
    SHARD,
    TRUNCATED,
    take_stored,
)
from memray_eval.extensions import OwnObject
from memray_eval.judges.judge_factory import build_judges
from memray_eval.judges.router import JudgeAssignment, calls_a_record
from memray_eval.metric import RULES, Metric, failed_score
from memray_eval.metrics import pick
from memray_eval.models.function_generator import FunctionGenerator
from memray_eval.ports import Generator, Judge
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, join_records
from memray_eval.stores.memories import Memories, identify, is_identified
from memray_eval.stores.tools import ask_with_tools
from memray_eval.types import Candidate, ComputedScore, Prompt, Record, Response, Sample, Score
from memray_eval.types.json_text import candidate_from_json

RENDERED = 6  # calls made ready for each one in flight
PART = "part"


def collect_engine_answers(table: pa.Table, context: StageContext) -> pa.Table:
    """Records with the engine's ANSWER, null if nothing was asked, as their response, and its
    SECOND after it. The prompt's tokens, and with them any long context, are dropped."""
    rows, responses = table.select(RECORD_SCHEMA.names), list[Response | None]()
    columns = ["sample_id", "candidate_config", FORM, TRUNCATED, ANSWER, SECOND]
    for row in table.select(columns).to_pylist():
        try:
            answer, second = row[ANSWER], row[SECOND]
            response = None if answer is None else engine_response({**row, **answer})
            if response is not None and second is not None:
                limit = candidate_from_json(row["candidate_config"]).retry_max_tokens or 0
                response = response.asked_again(engine_response({**row, **second}), limit)
            responses.append(response)
        except Exception as error:
            context.record_stage_failure("generate", row["sample_id"], error)
            responses.append(Response(error=describe_error(error)))
    longest = max((response.duration_s or 0.0 for response in responses if response), default=0.0)
    now, answered = time.time(), context.add_answers(rows, responses)
    context.counter.add("generate", rows.num_rows, now - longest, now, _n_ungenerated(answered))
    return answered


def finish_ungenerated(
    table: pa.Table,
    metrics: Sequence[str],
    options: MetricOptions,
    stages: Sequence[str],
    context: StageContext,
) -> pa.Table:
    """Writes the units whose generation failed, if generating comes first: no judge is asked of
    them, and they skip `stages`. Yields the units that wait to be scored."""
    has_failed = pc.is_valid(table.column("error"))
    records, broken = context.from_table(table.filter(has_failed), "judge")
    chosen, started = pick(metrics, options), time.time()
    failed = [fail_ungenerated(record, chosen) for record in records]
    rows = pa.concat_tables([context.to_table(failed, "judge"), broken])
    if rows.num_rows:
        RunFolder(context.folder).write_part(rows)
        for stage in stages:
            context.counter.add(stage, rows.num_rows, started, time.time(), rows.num_rows)
    return table.filter(pc.invert(has_failed)).select(["unit_id"])


def read_answers(
    table: pa.Table, reading: SampleReader, resume_state: ResumeState, context: StageContext
) -> pa.Table:
    """Shards of responses that exist already, as records, without those judged earlier."""
    return context.to_table(_read_new(table, reading, resume_state, context), "read")


def _read_new(
    table: pa.Table, reading: SampleReader, resume_state: ResumeState, context: StageContext
) -> list[Record]:
    """The records of shards of responses, except those that an earlier session judged."""
    started = time.time()
    texts = [] if context.is_stopping() else table.column(SHARD).to_pylist()
    records = list[Record]()
    for shard in map(Shard.model_validate_json, texts):
        records += read_records(shard, reading, context.record_unreadable)
    is_old = resume_state.hold([record.unit_id for record in records]).tolist()
    new = [record for record, is_in_state in zip(records, is_old, strict=True) if not is_in_state]
    context.counter.add("read", len(new), started, time.time())
    return new


def score_answers(
    table: pa.Table,
    reading: SampleReader,
    resume_state: ResumeState,
    metrics: Sequence[str],
    options: MetricOptions,
    context: StageContext,
) -> pa.Table:
    """Shards of responses that exist already as records, scored by code and rules as they are
    read."""
    chosen = pick(metrics, options)
    records, rows, broken = context.to_rows(_read_new(table, reading, resume_state, context))
    outcomes: list[list[ComputedScore | Score]] = []
    failed: list[int] = []
    with report_block(context.counter, "judge") as done:
        heard = time.monotonic()
        for number, record in enumerate(records):
            if time.monotonic() - heard > LISTEN_S:
                if context.is_stopping():
                    break  # the rest is scored when the run is resumed
                heard = time.monotonic()
            try:
                scores = [score_unasked(record, metric) for metric in chosen]
            except EvalError:
                raise
            except Exception as error:
                context.record_stage_failure("judge", record.sample.id, error)
                scores = [failed_score(metric, error) for metric in chosen]
            outcomes.append(scores)
            if any(isinstance(score, Score) and score.status == "error" for score in scores):
                failed.append(number)
        n = len(outcomes)
        done.rows, done.failed = n + broken.num_rows, len(failed) + broken.num_rows
    if failed:
        first = failed[0]
        context.note_failures([add_scores(records[first], outcomes[first])])
    scored = context.add_score_column(rows.slice(0, n), records[:n], outcomes)
    return pa.concat_tables([scored, broken])


def score_and_write(
    table: pa.Table, score: Callable[[pa.Table], pa.Table], context: StageContext
) -> pa.Table:
    """Scores and writes shards of existing responses, a file a block; hands on the units."""
    return write_block(score(table), context.folder, RECORDS, context.counter)


def read_waiting(
    table: pa.Table, state: ResumeState, candidates: Sequence[str] | None, context: StageContext
) -> pa.Table:
    """Parts of responses that wait to be judged, for some of the candidates (None: all, of
    responses that exist already)."""
    folder, out = RunFolder(context.folder), []
    for part in [] if context.is_stopping() else table.column(PART).to_pylist():
        rows, others = folder.read_part(part, RESPONSES), state.elsewhere.get(part, UnitIdSet())
        # A unit may be in one part as failed, and in another as a later session finished it
        rows = rows.filter(pc.is_null(rows.column("error")))
        units = zip(
            rows.column("unit_id").to_pylist(), rows.column("candidate").to_pylist(), strict=True
        )
        is_mine = [
            (candidates is None or name in candidates)
            and unit in state.generated
            and unit not in others
            for unit, name in units
        ]
        out.append(rows.filter(pa.array(is_mine, pa.bool_())).cast(RECORD_SCHEMA))
    return join_records(out)


def _n_ungenerated(rows: pa.Table) -> int:
    is_there = pc.and_(pc.is_valid(rows.column("response")), pc.is_null(rows.column("error")))
    return int(rows.num_rows - (pc.sum(is_there).as_py() or 0))


def _n_failed(records: Sequence[Record], metrics: Sequence[Metric]) -> int:
    """Records in which one of these metrics ended in an error."""
    names = {metric.name for metric in metrics}
    return sum(
        any(score.status == "error" and score.metric in names for score in record.scores)
        for record in records
    )


class AskServers:
    """Asks candidates behind OpenAI-compatible servers, and users' functions; one client a
    candidate, built on this actor's loop. `is_restarted`: this actor replaces one that was lost
    with its node, and repeats its work. If it `keeps` answers, it writes each, and holds a call's
    place until then; sessions write their own."""

    def __init__(
        self,
        config: ServerConfig,
        context: StageContext,
        is_restarted: Callable[[], bool] = lambda: False,
        keeps: bool = True,
    ) -> None:
        self._config, self._context = config, context
        self._memories = Memories(context.folder, config.code, config.max_in_flight)
        self._writer = AnswerWriter(context) if keeps else None
        self._client = cache(self._new_client)
        # For each candidate; the client has as many, but gives them back before its answer is kept
        self._seats = cache(lambda config_json: asyncio.Semaphore(config.max_in_flight))
        # This actor's repeated work was written before it was started
        self._stored = RunFolder(context.folder).index_units() if is_restarted() else None

    def _new_client(self, candidate_json: str) -> Generator:
        candidate = candidate_from_json(candidate_json)
        if candidate.backend == "code":
            server, _, function = candidate.model.partition("/")
            # A baseline waits for nothing: calls beside each other would only share its timeout
            at_once = 1 if is_baseline(candidate) else None
            code = OwnObject(self._config.code[server], function)
            return FunctionGenerator(code, self._config, at_once)
        # Here: the openai client takes a second to import, in each worker that loads this module
        from memray_eval.models.openai_generator import OpenAIGenerator

        return OpenAIGenerator(candidate, self._config, self._context.counter)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        if await self._context.counter.is_stopping():
            yield RECORD_SCHEMA.empty_table()
            return
        if self._stored is not None:
            table = await asyncio.to_thread(take_stored, table, self._context, self._stored)
        yield await self.answer(table)

    async def answer(self, table: pa.Table) -> pa.Table:
        """Rows of SERVER_SCHEMA with what was answered, as rows of RECORD_SCHEMA."""
        columns = ["unit_id", PROMPT, TRUNCATED, "candidate_config", "sample_id", "epoch"]
        with report_block(self._context.counter, "generate") as done:
            samples = self._identified(table)
            rows = table.select(columns).to_pylist()
            records = table.select(RECORD_SCHEMA.names)
            asking = (
                self._answer_row(row, samples, records.slice(number, 1))
                for number, row in enumerate(rows)
            )
            answered = join_records(await asyncio.gather(*asking))
            done.rows, done.failed = answered.num_rows, _n_ungenerated(answered)
        return answered

    async def _answer_row(
        self, row: dict[str, Any], samples: Mapping[str, Sample], record: pa.Table
    ) -> pa.Table:
        async with self._seats(row["candidate_config"]):
            response = await self._ask(row, samples)
            answered = self._context.add_answers(record, [response])
            if self._writer is not None and response is not None:
                await self._writer.write(answered)
            return answered

    def _identified(self, table: pa.Table) -> dict[str, Sample]:
        """The samples by unit, if a candidate's request differs for each."""
        configs = table.column("candidate_config").unique().to_pylist()
        if not any(is_identified(candidate_from_json(config)) for config in configs):
            return {}
        records, _ = self._context.from_table(table.select(RECORD_SCHEMA.names), "generate")
        return {record.unit_id: record.sample for record in records}

    async def _ask(self, row: dict[str, Any], samples: Mapping[str, Sample]) -> Response | None:
        if row[PROMPT] is None:  # it could not be built, or the answer is there already
            return None
        try:
            prompt, config = Prompt.model_validate(row[PROMPT]), row["candidate_config"]
            candidate, client = candidate_from_json(config), self._client(config)
            candidate = candidate.for_epoch(row["epoch"])
            if (sample := samples.get(row["unit_id"])) is not None:
                run = self._context.folder.rstrip("/").rpartition("/")[2]
                try:
                    prompt, candidate = identify(prompt, candidate, sample, row["epoch"], run)
                except ConfigError as error:
                    return Response(error=describe_error(error))

            async def ask(prompt: Prompt, candidate: Candidate) -> Response:
                return await generate(prompt, candidate, row[TRUNCATED], client)

            if sample is None or candidate.memory is None or not candidate.memory.tools:
                return await ask(prompt, candidate)
            partition = self._memories.partition(sample, candidate, row["epoch"])
            return await ask_with_tools(prompt, candidate, sample, row["unit_id"], partition, ask)
        except EvalError:
            raise
        except Exception as error:
            self._context.record_stage_failure("generate", row["sample_id"], error)
            return Response(error=describe_error(error))


def judging_options(
    choices: Mapping[str, JudgeAssignment],
    config: JudgingConfig,
    siblings: Mapping[str, int] = MappingProxyType({}),
) -> JudgingOptions:
    """The judge stage's options, by the judges that were assigned."""
    texts = {key: choice.rubric.text for key, choice in choices.items() if choice.rubric}
    return JudgingOptions(
        vote=config.vote, rubrics=texts, on_failure=config.on_judge_failure, siblings=siblings
    )


class JudgeRecords(AskingStage):
    """Scores the metrics of the judge stage, many blocks at once: a slow call holds up its own."""

    def __init__(
        self,
        metrics: Sequence[str],
        options: MetricOptions,
        choices: Mapping[str, JudgeAssignment],
        config: JudgingConfig,
        services: JudgeServices | None,
        context: StageContext,
        siblings: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(services, context)
        self._metrics, self._choices, self._config = pick(metrics, options), choices, config
        self._judges: Mapping[str, Sequence[Judge]] | None = None
        self._asking = judging_options(choices, config, siblings)
        in_flight = services.max_in_flight if services is not None else 1
        # Enough records that slow calls leave no place empty, few enough that not all prompts are
        # rendered at once.
        calls = max(1, calls_a_record(choices, config.repeats))
        self._seats = asyncio.Semaphore(max(1, math.ceil(RENDERED * in_flight / calls)))

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        if await self._check_for_the_end():
            yield RECORD_SCHEMA.empty_table()
            return
        judges = self._judges = self._build_judges() if self._judges is None else self._judges
        with report_block(self._context.counter, "judge") as done:
            records, broken = self._context.from_table(table, "judge")
            tried = await asyncio.gather(*(self._judge(record, judges) for record in records))
            judged = [record for record in tried if record is not None]
            done.rows = len(judged) + broken.num_rows
            done.failed = _n_failed(judged, self._metrics) + broken.num_rows
        await self._reporter.report()
        yield pa.concat_tables([self._context.to_scored_rows(table, judged, "judge"), broken])

    def _build_judges(self) -> Mapping[str, Sequence[Judge]]:
        if self._services is None:
            return {}
        choices = self._choices.items()
        by_rules = {key: list[Judge]() for key, choice in choices if choice.judge == RULES}
        return by_rules | build_judges(self._choices, self._config, self._connect())

    async def _judge(self, record: Record, judges: Mapping[str, Sequence[Judge]]) -> Record | None:
        """The judged record; None if the run stopped before its last call."""
        try:
            async with self._seats:
                judging = judge_record(record, self._metrics, judges, self._asking)
                judged = await self._unless_stopped(judging)
        except EvalError:  # a service of the run is gone
            raise
        except Exception as error:
            self._context.record_stage_failure("judge", record.sample.id, error)
            judged = fail_unjudged(record, self._metrics, error)
        if judged is None:
            return None
        self._is_stopping = self._context.note_failures([judged]) or self._is_stopping
        return judged


class EmbedRecords:
    """Scores the metrics of the embed stage, with one embedding model loaded."""

    def __init__(
        self,
        metrics: Sequence[str],
        options: MetricOptions,
        config: EmbeddingConfig,
        context: StageContext,
    ) -> None:
        from memray_eval.models.embeddings import build_embedder  # as above: a second to import

        self._metrics, self._context = pick(metrics, options), context
        self._failure: EvalError | None = None
        try:
            self._embedder = build_embedder(config)
        except EvalError as error:  # of a constructor's error Ray tells the text alone
            self._failure = error

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        if self._failure is not None:
            raise self._failure
        with report_block(self._context.counter, "embed") as done:
            records, broken = self._context.from_table(table, "embed")
            records = await self._embedded(records)
            done.rows = len(records) + broken.num_rows
            done.failed = _n_failed(records, self._metrics) + broken.num_rows
        self._context.note_failures(records)
        yield pa.concat_tables([self._context.to_scored_rows(table, records, "embed"), broken])

    async def _embedded(self, records: list[Record]) -> list[Record]:
        """The scored records. An unforeseen error costs its record, not the block."""
        try:
            return await embed_records(records, self._metrics, self._embedder)
        except EvalError:
            raise
        except Exception as error:
            if len(records) > 1:
                return [scored for record in records for scored in await self._embedded([record])]
            self._context.record_stage_failure("embed", records[0].sample.id, error)
            return [fail_unjudged(records[0], self._metrics, error)]


def shard_rows(shards: Sequence[Shard]) -> list[dict[str, str]]:
    """Shards as rows of the pipeline's input."""
    return [{SHARD: json.dumps(shard.model_dump(mode="json"))} for shard in shards]


def shard_tables(shards: Sequence[Shard]) -> list[pa.Table]:
    """Those rows, a table each."""
    return [pa.Table.from_pylist([row]) for row in shard_rows(shards)]

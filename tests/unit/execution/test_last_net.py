"""What no guard caught is caught a record at a time: the block goes on, and too many of them stop
the run."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pyarrow as pa
import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.own import SuiteSource
from memray_eval.config.sections import JudgingConfig, MetricOptions
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.sources import Shard
from memray_eval.errors import ServiceLost
from memray_eval.execution.run_counter import STAGES, RunCounter, RunOutline
from memray_eval.execution.stages import blocks as actors
from memray_eval.execution.stages import prompt as prompts
from memray_eval.execution.stages.blocks import JudgeRecords, collect_engine_answers
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.prompt import ANSWER, ANSWER_TYPE, SECOND, TOKENS, prompts_to_ask
from memray_eval.results.schema import RECORD_SCHEMA, from_table, samples_to_table, to_table
from memray_eval.types import Candidate, Prompt, Record, Response, Sample, Usage
from tests.build import build_record, build_sample, write_lines
from tests.unit.execution.near import asking

SERVED = Candidate(name="c", model="m", backend="openai")


def numbered(record: Record, n: int) -> list[Record]:
    return [
        build_record(build_sample(id=f"s{number}"), record.response, unit_id=f"{number:016x}")
        for number in range(n)
    ]


async def block(stage: Any, table: pa.Table) -> list[Record]:
    return [record async for out in stage(table) for record in from_table(out)]


def judging(context: StageContext) -> JudgeRecords:
    return JudgeRecords(["lexical_diversity"], MetricOptions(), {}, JudgingConfig(), None, context)


async def test_a_record_that_breaks_the_judge_stage_is_an_error_and_the_block_goes_on(
    context: StageContext, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = actors.judge_record

    async def judge_record(record: Record, *words: Any) -> Record:
        if record.sample.id == "s1":
            raise ZeroDivisionError("a bug of ours")
        return await whole(record, *words)

    monkeypatch.setattr(actors, "judge_record", judge_record)
    out = await block(judging(context), to_table(numbered(record, 3)))
    assert [judged.scores[0].status for judged in out] == ["scored", "error", "scored"]
    assert out[1].scores[0].error == "ZeroDivisionError: a bug of ours"
    assert context.counter.of("record_failure") == [
        ["judge", "s1", "ZeroDivisionError: a bug of ours"]
    ]


def test_a_service_that_died_ends_the_stage(
    context: StageContext, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors, "judge_record", AsyncMock(side_effect=ServiceLost("it has died")))
    with pytest.raises(ServiceLost):
        asyncio.run(block(judging(context), to_table(numbered(record, 1))))


async def test_a_row_that_is_no_record_any_more_stays_a_row(
    context: StageContext, record: Record
) -> None:
    table = to_table(numbered(record, 3))
    memory, index = table.column("memory").to_pylist(), table.schema.get_field_index("memory")
    memory[1] = "{broken"
    table = table.set_column(index, table.schema.field(index), [memory])

    rows = [row async for out in judging(context)(table) for row in out.to_pylist()]
    assert [row["sample_id"] for row in rows] == ["s0", "s2", "s1"]
    assert rows[2]["error"].startswith("JSONDecodeError")
    assert [words[1] for words in context.counter.of("record_failure")] == ["s1"]


@pytest.mark.parametrize("left_out", [(), ("s1",), ("s0", "s1", "s2")])
def test_scores_join_the_rows_that_were_read(
    context: StageContext, record: Record, left_out: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = asyncio.run(block(judging(context), to_table(numbered(record, 3))))
    kept = [unit for unit in scored if unit.sample.id not in left_out]
    rows, expected = to_table(numbered(record, 3)), to_table(kept)
    monkeypatch.setattr(StageContext, "to_table", None)  # no record is written as a row again
    assert context.to_scored_rows(rows, kept, "judge") == expected
    assert context.add_answers(rows, [None] * 3) == rows


async def test_what_no_table_holds_is_an_error_of_its_unit_or_of_its_score_alone(
    context: StageContext, record: Record
) -> None:
    records = numbered(record, 3)
    answers = [None, Response(text="half a pair: \ud83d"), None]
    kept = list(from_table(context.add_answers(to_table(records), answers)))
    assert [unit.sample.id for unit in kept] == ["s0", "s1", "s2"]
    assert "UnicodeEncodeError" in kept[1].response.error
    assert kept[0] == records[0]
    scored = await block(judging(context), to_table(records[:2]))
    huge = scored[0].scores[0].model_copy(update={"usage": Usage(input_tokens=2**70)})
    scored[0] = scored[0].model_copy(update={"scores": (huge,)})
    first, second = from_table(context.to_table(scored, "judge"))
    assert (first.scores[0].status, first.response) == ("error", record.response)
    assert second == scored[1]


def test_a_prompt_that_cannot_be_built_is_its_units_error(
    context: StageContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = get_suite("memory")

    def prompt(sample: Sample, candidate: Candidate) -> Prompt:
        return suite.prompt(sample, candidate) if sample.id != "s1" else json.loads("{broken")

    monkeypatch.setattr(SuiteSource, "load", lambda source: SimpleNamespace(ask=prompt))
    table = samples_to_table([sample.model_copy(update={"id": f"s{n}"}) for n in range(3)])
    spec = asking(context, SERVED)
    rows = [row for out in prompts_to_ask(table, spec) for row in out.to_pylist()]
    assert [row["prompt"] is None for row in rows] == [False, True, False]
    assert rows[1]["error"].startswith("no prompt can be built: JSONDecodeError")


def test_an_entry_that_cannot_be_read_any_more_is_told_and_left_out(
    context: StageContext, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "d.jsonl", [{"id": f"s{n}", "query": "q"} for n in range(3)])

    def adapt(raw: Any, path: str) -> Any:
        return {"id": raw["id"]} if raw["id"] == "s1" else raw

    spec = asking(context, SERVED, reading=SampleReader(suite="memory", adapt=adapt))
    shard = Shard(path=str(path), kind="jsonl", rows=3)
    table = pa.table({"shard": [shard.model_dump_json()]})
    assert sum(out.num_rows for out in prompts_to_ask(table, spec)) == 2
    assert [words[0] for words in context.counter.of("record_failure")] == ["read"]


def test_an_engines_row_that_lacks_a_column_is_an_error_of_its_unit(
    context: StageContext, record: Record
) -> None:
    unanswered = record.model_copy(update={"response": None})
    unbuilt = Response(error="no prompt can be built: KeyError: 'x'")
    failed = record.model_copy(update={"unit_id": "f" * 16, "response": unbuilt})
    lacks = pa.array([{"finish_reason": "stop"}, None])
    table = to_table([unanswered, failed]).append_column(ANSWER, lacks)
    table = table.append_column(SECOND, pa.nulls(2, ANSWER_TYPE))
    odd, other = from_table(collect_engine_answers(table, context))
    assert (odd.response.error or "").startswith("KeyError")
    assert other.response == failed.response


@pytest.mark.parametrize(("most", "stops_at"), [(0.0, 1), (0.5, 1), (2.0, 3), (2, 3)])
def test_more_than_the_tolerance_stop_the_run_with_the_cause(most: float, stops_at: int) -> None:
    counter = RunCounter(STAGES, most)
    stopped = list[bool]()
    for number in range(1, 5):
        counter.record_failure("judge", f"s{number}", "ZeroDivisionError: a bug")
        stopped.append(counter.stopping() is not None)
    assert stopped.index(True) + 1 == stops_at
    why = f"stages failed on {stops_at} records, more than the tolerance allows; the last in judge:"
    assert counter.stopping() == f"{why} ZeroDivisionError: a bug"
    assert counter.telemetry().caught == 4
    lines = counter.snapshot(0).lines
    assert sum(line.startswith("The stage judge failed on sample") for line in lines) == 3


def test_a_resumed_run_counts_what_was_done() -> None:
    extent = RunOutline(name="r", total=90, finished=30, generated=20)
    seen = [extent.before(stage) for stage in ("read", "generate", "judge", "embed", "write")]
    assert seen == [50, 50, 30, 30, 30]


def test_a_prompt_that_no_tokenizer_takes_goes_past_the_engine_without_tokens(
    context: StageContext, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(text: str, **options: Any) -> list[int]:
        if "odd" in text:
            raise TypeError("no text for this tokenizer")
        return [1, 2, 3]

    tokenizer = SimpleNamespace(has_chat=False, encode=encode)
    monkeypatch.setattr(prompts, "load_tokenizer", lambda *model: tokenizer)
    monkeypatch.setattr(prompts, "window_of", lambda model: None)
    table = samples_to_table([sample, sample.model_copy(update={"id": "odd", "query": "odd"})])
    spec = asking(context, Candidate(name="c", model="m"))
    table = pa.concat_tables(prompts_to_ask(table, spec))
    assert table.column(TOKENS).to_pylist() == [np.array([1, 2, 3], np.int32).tobytes(), None]
    answers = pa.array([{"__inference_error__": "nothing"}, None], ANSWER_TYPE)
    records = table.select(RECORD_SCHEMA.names).append_column(ANSWER, answers)
    records = records.append_column(SECOND, pa.nulls(2, ANSWER_TYPE))
    refused, odd = from_table(collect_engine_answers(records, context))
    assert refused.response == Response(
        error="the engine refused the prompt: nothing", prompt_form="plain", truncated_tokens=0
    )
    assert odd.response == Response(
        error="no prompt can be built: TypeError: no text for this tokenizer"
    )

"""What is asked of an engine once more, where its limit was used up without an answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa

from memray_eval.execution.block_stages import collect_engine_answers
from memray_eval.execution.prompt_stage import (
    ANSWER,
    ANSWER_TYPE,
    ASKING,
    ENGINE_SCHEMA,
    SAMPLING,
    SECOND,
    TOKENS,
)
from memray_eval.execution.ray.engine_client import ask_again
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stage_context import StageContext
from memray_eval.results.schema import from_table, to_table
from memray_eval.types import Candidate, Record, Sample

TIMES = {"first_token_latency": 0.5, "first_token_ts": 1.0, "last_token_ts": 2.0}


def answer(text: str, finish: str = "stop", tokens: int = 3) -> dict[str, Any]:
    return {
        "generated_text": text,
        "generated_tokens": [1] * tokens,
        "finish_reason": finish,
        "num_input_tokens": 10,
        "num_cached_tokens": 0,
        "metrics": TIMES,
        "__inference_error__": "",
    }


def rows(retry_max_tokens: int | None, n: int) -> pa.Table:
    candidate = Candidate(name="c", model="m", retry_max_tokens=retry_max_tokens)
    records = [
        Record(unit_id=f"{i}", sample=Sample(id=f"{i}", query="q"), candidate=candidate)
        for i in range(n)
    ]
    sampling = {"temperature": 0.0, "max_tokens": 7, "stop": []}
    own = {TOKENS: [b"\0\0\0\0"] * n, SAMPLING: [json.dumps(sampling)] * n}
    table = to_table(records)
    for field in list(ENGINE_SCHEMA)[len(table.schema) :]:
        table = table.append_column(field, pa.array(own[field.name], field.type))
    return table


def answered(table: pa.Table, answers: list[dict[str, Any] | None]) -> pa.Table:
    column = pa.array(answers, ANSWER_TYPE)
    return table.drop_columns([*ASKING]).append_column(ANSWER, column)


def asked_again(table: pa.Table, first: list[Any], second: list[Any]) -> tuple[pa.Table, list[Any]]:
    tables = list[Any]()

    async def ask(some: pa.Table) -> pa.Table:
        sampled = map(json.loads, some[SAMPLING].to_pylist())
        tables.extend(zip(some["unit_id"].to_pylist(), sampled, strict=True))
        return answered(some, second)

    return asyncio.run(ask_again(table, answered(table, first), ask)), tables


def test_those_that_used_up_their_limit_are_asked_with_a_larger_one(tmp_path: Any) -> None:
    first = [
        answer("Paris."),
        answer("<think>Hm", "length", 7),
        None,
        answer("", "length", 7),
        answer(""),
    ]
    second = [answer("<think>Hm.</think>Lyon."), answer("", "length", 64)]
    table, tables = asked_again(rows(64, 5), first, second)
    assert [(unit, sampling["max_tokens"]) for unit, sampling in tables] == [("1", 64), ("3", 64)]
    assert [value is None for value in table[SECOND].to_pylist()] == [
        True,
        False,
        True,
        False,
        True,
    ]
    context = StageContext(str(tmp_path), RunCounter())
    responses = [value.response for value in from_table(collect_engine_answers(table, context))]
    assert [
        value and (value.text, value.no_answer, value.raised_max_tokens) for value in responses
    ] == [("Paris.", None, None), ("Lyon.", None, 64), None, ("", "limit", 64), ("", "empty", None)]
    assert responses[1] is not None
    assert (responses[1].prompt_tokens, responses[1].output_tokens, responses[1].duration_s) == (
        20,
        10,
        3.0,
    )


def test_without_the_key_nothing_is_asked_again() -> None:
    table, tables = asked_again(rows(None, 1), [answer("", "length")], [])
    assert (tables, table[SECOND].to_pylist()) == ([], [None])


def test_a_second_asking_that_the_engine_refuses_leaves_the_first_outcome(tmp_path: Any) -> None:
    refused = answer("") | {"__inference_error__": "too long"}
    table, _ = asked_again(rows(64, 1), [answer("", "length", 7)], [refused])
    context = StageContext(str(tmp_path), RunCounter())
    (record,) = from_table(collect_engine_answers(table, context))
    assert record.response is not None
    assert (record.response.no_answer, record.response.error) == ("limit", None)
    assert record.response.output_tokens == 7

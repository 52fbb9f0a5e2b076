"""Responses that are scored where they are read: the rows are those of the stages apart."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import JudgingConfig, MetricOptions
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import scan
from memray_eval.errors import Refused
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stages import blocks
from memray_eval.execution.stages.blocks import (
    JudgeRecords,
    read_answers,
    score_and_write,
    score_answers,
    shard_rows,
)
from memray_eval.execution.stages.context import StageContext
from memray_eval.metric import ComputedMetric, Metric, MetricValue
from memray_eval.metrics import pick
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import RECORD_SCHEMA
from memray_eval.types import Response, Sample
from tests.build import GIVEN

READER = SampleReader(suite="qa", has_responses=True)
NAMES = ("exact_match", "answer_f1", "odd", "politeness", "readability_score")
ODD: dict[str, Any] = {
    "nan": MetricValue(float("nan")),
    "whole": MetricValue(1),
    "parts": MetricValue(0.5, {"hits": 2, "all": 4.0}),
    "floats": MetricValue(0.25, {"hits": 1.0}),
    "no value": 0.5,
    "text": MetricValue("0.5"),
}


def odd(sample: Sample, response: Response) -> MetricValue:
    """A user's metric that returns what it likes, and raises."""
    if sample.context is not None:
        raise TypeError("a context is in no record")
    if response.text == "raise":
        raise ValueError("no")
    if response.text == "refuse":
        raise Refused("not this one")
    value: MetricValue = ODD.get(response.text, MetricValue(0.75))
    return value


def all_metrics(names: Any, options: Any) -> tuple[Metric, ...]:
    own = ComputedMetric(
        name="odd", title="ODD", value_label="o", scale=(0, 1), measure=odd, on_no_answer="exclude"
    )
    return tuple(own if name == "odd" else pick([name])[0] for name in names)


def row(number: int, response: str | None, **fields: Any) -> dict[str, Any]:
    question = {"id": f"q{number}", "query": f"What is {number}?", "answers": [str(number)]}
    return {**question, "response": response, **fields}


ROWS = [
    *(row(number, text) for number, text in enumerate([*ODD, "raise", "refuse"])),
    row(10, "10"),
    row(11, "It is 11.", answers=[]),
    row(12, None, error="the server was down"),
    row(13, "", memory={"a": ["b", 1]}, history=[{"role": "user", "content": "Hi"}]),
    row(16, "16", context="a text", metadata={"when": {"k": None}, "tags": ["a"]}),
    row(14, "half \ud800"),
    row(15, "<think>so</think>15", candidate="b", metadata={"n": 1.5, "deep": {"k": [1, None]}}),
]


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(raw) + "\n" for raw in ROWS))  # with half a character
    return pa.Table.from_pylist(shard_rows(scan(str(path), READER, on_problem=print).shards))


@pytest.fixture
def context(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> StageContext:
    monkeypatch.setattr(blocks, "pick", all_metrics)
    return StageContext(folder.path, RunCounter())


def score_of(
    context: StageContext, state: ResumeState | None = None
) -> Callable[[pa.Table], pa.Table]:
    return partial(
        score_answers,
        reading=READER,
        resume_state=state or ResumeState(),
        metrics=NAMES,
        options=MetricOptions(),
        context=context,
    )


async def apart(table: pa.Table, context: StageContext) -> pa.Table:
    """What the stages make that read and judge one after the other."""
    read = read_answers(table, READER, ResumeState(), context)
    judge = JudgeRecords(NAMES, MetricOptions(), {}, JudgingConfig(), None, context)
    return pa.concat_tables([block async for block in judge(read)])


def by_unit(table: pa.Table) -> dict[str, dict[str, Any]]:
    assert table.schema.equals(RECORD_SCHEMA)
    return {scored["sample_id"]: scored for scored in table.to_pylist()}


async def test_rows_and_scores_are_those_of_the_stages_apart(
    table: pa.Table, context: StageContext
) -> None:
    at_once = by_unit(score_of(context)(table))
    one_by_one = by_unit(await apart(table, replace(context, counter=RunCounter())))
    assert len(at_once) == len(ROWS)
    assert "surrogates not allowed" in at_once["q14"]["error"]
    assert json.dumps(at_once, sort_keys=True) == json.dumps(one_by_one, sort_keys=True)
    kinds = {score["status"] for scored in at_once.values() for score in scored["scores"]}
    assert kinds == {"scored", "abstained", "not_applicable", "error", "no_answer"}


def test_a_block_is_one_part_and_its_first_failure_is_told(
    table: pa.Table, context: StageContext
) -> None:
    written = score_and_write(table, score_of(context), context)
    assert written.column_names == ["unit_id"]
    folder = RunFolder(context.folder)
    assert [part.num_rows for part in folder.each_part()] == [len(ROWS)]
    stages = context.counter.telemetry().stages
    assert [stages[name].rows for name in ("read", "judge", "write")] == [len(ROWS)] * 3
    assert stages["judge"].failed >= 4
    assert any("The first failed answer is" in line for line in context.counter.snapshot(0).lines)


def test_a_failed_unit_stops_a_run_that_is_to_stop(table: pa.Table, context: StageContext) -> None:
    stopping = replace(context, stops_on_failure=True)
    assert score_of(stopping)(table).num_rows == len(ROWS)  # what was under way
    assert stopping.is_stopping()
    assert score_of(stopping)(table).num_rows == 0


def test_what_an_earlier_session_finished_is_not_scored_again(
    table: pa.Table, context: StageContext
) -> None:
    units = score_of(context)(table).column("unit_id").to_pylist()
    state = ResumeState(finished=UnitIdSet(units[:3]), generated=UnitIdSet(units[5:6]))
    left = score_of(context, state)(table).column("unit_id").to_pylist()
    assert left == [*units[3:5], *units[6:]]


@pytest.mark.parametrize(
    ("changes", "is_at_once"),
    [
        ({"metrics": ["exact_match", "answer_f1"]}, True),
        ({"metrics": ["exact_match", "politeness"]}, True),
        ({"metrics": ["exact_match", "relevance"]}, False),
        ({"metrics": ["exact_match", "politeness"], "judge": "openai/gpt-4o-mini"}, False),
    ],
)
def test_what_needs_nobody_is_scored_at_once(
    changes: dict[str, Any], is_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = {"dataset": "x", "suite": "qa", "candidates": [GIVEN], "judge": "rules", **changes}
    read = resolve(RunConfig.model_validate(config)).read
    assert read.scores_at_once == is_at_once
    assert read.block_rows(1_000_000) == (2048 if is_at_once else 256)
    assert read.block_rows(10_000) == (312 if is_at_once else 39)

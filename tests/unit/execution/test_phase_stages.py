"""What stages do where generating comes first: units that failed are finished as if they had been
scored, and of a unit in two parts only what was generated is judged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memray_eval.config.sections import MetricOptions
from memray_eval.execution.block_stages import PART, finish_ungenerated, read_waiting
from memray_eval.execution.resume_state import ResumeState, UnitIdSet
from memray_eval.execution.stage_context import StageContext
from memray_eval.metrics import pick
from memray_eval.ports import Embedder
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import from_table, to_table
from memray_eval.stages.embed import embed_records
from memray_eval.stages.judge import JudgingOptions, judge_record
from memray_eval.types import Record, Response
from tests.unit.execution.near import KeptReports, NearContext

AT_JUDGE, AT_EMBED = ["empathy", "politeness", "readability_score"], ["relevance"]


class NoEmbedder:
    name = "none"

    async def embed(self, texts: Any) -> Any:
        raise AssertionError("a failed response has no text to embed")


class NoJudge:
    name = "openai/judge"

    async def judge(self, messages: Any, judgment: Any) -> Any:
        raise AssertionError("a failed response is not judged")


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    return NearContext(folder.path, KeptReports())


def unit(record: Record, number: int, error: str | None = None) -> Record:
    response = Response(error=error) if error else Response(text="Rest.")
    return record.model_copy(update={"unit_id": f"{number:016x}", "response": response})


def test_failed_units_get_the_scores_that_both_stages_would_give(
    record: Record, context: StageContext
) -> None:
    units = [unit(record, 1), unit(record, 2, "down"), unit(record, 3, "gone"), unit(record, 4)]
    stages = ["judge", "embed", "write"]
    options, names = MetricOptions(), [*AT_JUDGE, *AT_EMBED]
    left = finish_ungenerated(to_table(units), names, options, stages, context)
    assert left.to_pylist() == [{"unit_id": f"{number:016x}"} for number in (1, 4)]
    folder = RunFolder(context.folder)
    (part,) = folder.parts(RECORDS)
    written = list(from_table(folder.read_part(part)))
    assert [item.unit_id for item in written] == [f"{number:016x}" for number in (2, 3)]

    async def together(failed: Record) -> Record:
        judges = {"empathy": [NoJudge()], "politeness": []}
        judged = await judge_record(failed, pick(AT_JUDGE), judges, JudgingOptions())
        embedder: Embedder = NoEmbedder()
        (scored,) = await embed_records([judged], pick(AT_EMBED), embedder)
        return scored

    assert written == [asyncio.run(together(failed)) for failed in units[1:3]]
    assert [words[:3] for words in context.counter.reports] == [("add", item, 2) for item in stages]
    assert all(words[-1] == 2 for words in context.counter.reports)


def test_where_nothing_failed_nothing_is_written(record: Record, context: StageContext) -> None:
    table = to_table([unit(record, 1)])
    left = finish_ungenerated(table, AT_JUDGE, MetricOptions(), ["judge"], context)
    assert left.num_rows == 1
    assert RunFolder(context.folder).parts(RECORDS) == []
    assert context.counter.reports == []


@pytest.mark.parametrize("is_earlier", [True, False])
def test_of_a_unit_that_failed_first_only_the_answer_is_judged(
    record: Record, context: StageContext, is_earlier: bool
) -> None:
    folder = RunFolder(context.folder)
    earlier = to_table([unit(record, 1, "down"), unit(record, 2)])
    parts = [folder.write_part(item, RESPONSES) for item in (earlier, to_table([unit(record, 1)]))]
    table, names = pa.table({PART: parts}), [record.candidate.name]
    state = ResumeState(generated=UnitIdSet(f"{number:016x}" for number in (1, 2)))
    waiting = list(from_table(read_waiting(table, state, names, context, is_earlier)))
    assert sorted(item.unit_id for item in waiting) == [f"{number:016x}" for number in (1, 2)]
    assert all(item.response is not None and item.response.error is None for item in waiting)
    assert context.counter.of("add_carried") == ([[2]] if is_earlier else [])

"""The stages as pure functions, with judges and embedders injected."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from memray_eval.analysis.reduce import reduce_records
from memray_eval.errors import (
    BudgetSpent,
    EmbeddingError,
    JudgeError,
    Malformed,
    Refused,
    Unavailable,
)
from memray_eval.execution.stages.generate import embed_records
from memray_eval.execution.stages.judge import combine_votes, scored_by_judge_stage
from memray_eval.metrics import pick
from memray_eval.metrics.assistant.memory_utilization import KeyCitation
from memray_eval.ports import Verdict
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Response
from tests.build import build_score, cited, judge_metrics
from tests.unit.execution.near import WORDS, FakeEmbedder, FakeJudge

MEMORY = pick(["memory_utilization"])
BY_VECTORS = pick(["memory_utilization", "relevance"])


def test_a_judge_scores_through_its_judgment(record: Record) -> None:
    shown = KeyCitation(key="known_condition", quote="your mild anemia")
    judge = FakeJudge(cited("known_condition", "age", evidence=[shown]))
    (score,) = judge_metrics(record, MEMORY, {"memory_utilization": [judge]}).scores
    assert (score.status, score.value, score.judge) == ("scored", 0.5, "fake/judge")
    expected = {"tp": 1, "fp": 1, "fn": 1, "invented_keys": 0, "evidence": 1, "unverified": 0}
    assert score.parts == expected
    assert (score.usage.input_tokens, score.cost_usd) == (7, 0.5)
    assert record.response.text in judge.seen[0][1].content


@pytest.mark.parametrize(
    ("error", "status"),
    [(Refused("no"), "abstained"), (Malformed("bad"), "error"), (JudgeError("down"), "error")],
)
def test_a_judge_that_fails_is_an_outcome(record: Record, error: JudgeError, status: str) -> None:
    (score,) = judge_metrics(record, MEMORY, {"memory_utilization": [FakeJudge(error)]}).scores
    assert (score.status, score.value) == (status, None)
    assert str(error) in (score.error or "")


def vote(values: list[float | None], how: Any = "median") -> Any:
    about = {"judgment": '{"a": 1}', "cost_usd": 1.0}
    scores = [build_score("m", value, judge=f"j{i}", **about) for i, value in enumerate(values)]
    return combine_votes(scores, how)


@pytest.mark.parametrize(
    ("values", "how", "value", "apart"),
    [
        ([4, 2, 5], "median", 4, 3),
        ([4, 2], "median", 2, 2),
        ([1, 5, 5, 2, 2, 2], "majority", 2, 4),
        ([1, 1, 3, 5, 5], "majority", 1, 4),
        ([None, 3, None], "median", 3, 0),
    ],
)
def test_a_jury_settles_on_a_verdict_that_was_given(
    values: list[float | None], how: Any, value: float, apart: float
) -> None:
    score = vote(values, how)
    assert (score.value, score.parts["disagreement"], score.cost_usd) == (value, apart, len(values))
    kept = json.loads(score.judgment)
    assert kept["a"] == 1
    assert [juror["value"] for juror in kept["jury"]] == values
    assert score.judge == " + ".join(f"j{i}" for i, value in enumerate(values) if value is not None)
    nobody = vote([None] * len(values), how)
    assert (nobody.status, nobody.cost_usd) == ("error", len(values))


def test_stages_share_the_metrics_out() -> None:
    metrics = [*BY_VECTORS, *pick(["coherence", "semantic_correctness"]), WORDS]
    at_judge = {metric.name for metric in metrics if scored_by_judge_stage(metric, {})}
    assert at_judge == {"words", "coherence", "semantic_correctness"}
    judges = ["memory_utilization", "semantic_correctness"]
    with_judges = {metric.name for metric in metrics if scored_by_judge_stage(metric, judges)}
    assert with_judges == at_judge | {"memory_utilization"}


def test_what_has_a_score_is_not_scored_again(record: Record) -> None:
    once = judge_metrics(record, [WORDS], {})
    assert [score.metric for score in once.scores] == ["words"]
    assert judge_metrics(once, [WORDS], {}) == once
    embedder = FakeEmbedder()
    (both,) = asyncio.run(embed_records([once], BY_VECTORS, embedder))
    expected = ["words", *(metric.name for metric in BY_VECTORS)]
    assert [score.metric for score in both.scores] == expected
    assert asyncio.run(embed_records([both], BY_VECTORS, embedder)) == [both]
    assert record.scores == ()


def test_money_that_runs_out_is_no_score_and_waits_for_the_calls_under_way(record: Record) -> None:
    ended = []

    class Poor:
        name = "openai/x"

        def __init__(self, is_last: bool) -> None:
            self.is_last = is_last

        async def judge(self, messages: Any, judgment: type[BaseModel]) -> Verdict:
            if self.is_last:
                raise BudgetSpent("gone")
            await asyncio.sleep(0.01)
            ended.append(1)
            raise Unavailable("down")

    jury = {metric.name: [Poor(False), Poor(True)] for metric in pick(["empathy", "helpfulness"])}
    with pytest.raises(BudgetSpent):
        judge_metrics(record, pick(["empathy", "helpfulness"]), jury)
    assert len(ended) == 2


def test_one_embedding_call_serves_a_whole_batch(record: Record) -> None:
    embedder = FakeEmbedder()
    silent = record.model_copy(update={"response": Response(text="")})
    failed = record.model_copy(update={"response": Response(error="gone")})
    out = asyncio.run(embed_records([record, record, silent, failed], BY_VECTORS, embedder))
    (texts,) = embedder.calls
    assert len(texts) == len(set(texts))
    assert "" not in texts
    assert [score.status for score in out[0].scores] == ["scored"] * 2
    assert [score.value for score in out[2].scores] == [0.0, 0.0]
    assert {score.status for score in out[3].scores} == {"error"}
    assert {score.judge for score in out[0].scores} == {"rules+fake-embedder", "fake-embedder"}
    gone = FakeEmbedder(EmbeddingError("no model"))
    (out,) = asyncio.run(embed_records([record], BY_VECTORS, gone))
    assert {(score.status, score.error) for score in out.scores} == {("error", "no model")}


@pytest.mark.parametrize(
    ("requests", "expected"),  # a request: candidate, start, seconds, tokens
    [
        (  # two candidates behind one server, one after the other
            [("70b", 1000 + 10 * n, 10.0, 196) for n in range(3)]
            + [("8b", 1030 + 10 * n, 10.0, 333) for n in range(3)],
            {"70b": 19.6, "8b": 33.3},
        ),
        (  # each round waits for the slower of both
            [("70b", start, 10.0, 196) for start in range(1000, 1040, 10)]
            + [("8b", start, 3.0, 100) for start in range(1000, 1040, 10)],
            {"70b": 19.6, "8b": 100 / 3},
        ),
        ([("8b", 1000, 10.0, 100), ("8b", 1001, 10.0, 100)], {"8b": 200 / 11}),  # side by side
        ([("8b", 1000, 10.0, 333), ("8b", 9000, 10.0, 333)], {"8b": 33.3}),  # a resumed session
        ([("8b", 1000, 10.0, 333), ("8b", None, 10.0, 333)], {"8b": None}),  # an unknown time
    ],
)
def test_throughput_is_over_the_seconds_of_a_candidates_own_requests(
    record: Record,
    tmp_path: Path,
    requests: list[tuple[str, float | None, float, int]],
    expected: dict[str, float | None],
) -> None:
    records = []
    for number, (name, started_s, seconds, tokens) in enumerate(requests):
        ended_s = None if started_s is None else started_s + seconds
        response = Response(text="x", duration_s=seconds, ended_s=ended_s, output_tokens=tokens)
        candidate = record.candidate.model_copy(update={"name": name})
        changes = {"unit_id": str(number), "candidate": candidate, "response": response}
        records.append(record.model_copy(update=changes))
    pq.write_table(to_table(records), tmp_path / "part.parquet")
    generation = reduce_records(pads.dataset(tmp_path / "part.parquet"), []).generation
    speeds = {summary.candidate: summary.output_tokens_per_s for summary in generation}
    assert speeds == pytest.approx(expected)

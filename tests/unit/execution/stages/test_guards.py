"""A hook of a metric, a judge or an embedder that raises costs the record it raised on, and no
other."""

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from memray_eval.errors import JudgeError
from memray_eval.execution.stages.generate import embed_records, generate
from memray_eval.execution.stages.judge import fail_unjudged
from memray_eval.metric import Metric, MetricValue, rubric_digest, score_by_code
from memray_eval.metrics import pick
from memray_eval.types import Prompt, Record, Response, Sample
from tests.build import judge_metrics
from tests.unit.execution.near import WORDS, FakeEmbedder, FakeJudge

METRICS: Any = pick(["empathy", "relevance", "memory_utilization"])
EMPATHY, RELEVANCE, MEMORY = METRICS


def boom(*_: Any) -> Any:
    raise KeyError("city")


# As of a model whose error nobody caught
EMBEDDER = FakeEmbedder(ValueError("a text that no tokenizer takes"), odd="odd")


def judged(record: Record, metric: Metric, error: BaseException | None = None) -> Any:
    judges: Any = {metric.name: [FakeJudge(error or JudgeError("nobody should ask"))]}
    (score,) = judge_metrics(record, [metric], judges).scores
    return score


@pytest.mark.parametrize("hook", ["applies", "scorer", "measure"])
def test_a_computed_metrics_hooks(record: Record, hook: str) -> None:
    score = score_by_code(
        replace(WORDS, **{hook: boom}), record.sample, record.response or Response()
    )
    assert (score.status, score.value) == ("error", None)
    assert "KeyError: 'city'" in (score.error or "")


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_a_value_that_is_no_figure_is_an_error(record: Record, figure: float) -> None:
    metric = replace(WORDS, measure=lambda s, r: MetricValue(value=figure))
    score = score_by_code(metric, record.sample, record.response or Response())
    assert (score.status, score.value) == ("error", None)
    assert f"the metric's value is {figure}" in (score.error or "")


def test_a_judged_metrics_prompt(record: Record) -> None:
    broken = replace(EMPATHY, prompt=boom, prompt_with=None)
    score = judged(record, broken)
    assert (score.status, score.error) == ("error", "KeyError: 'city'")
    assert rubric_digest(broken) == rubric_digest(replace(broken, prompt=lambda s, r: boom()))


@pytest.mark.parametrize(
    "error", [AttributeError("choices"), TypeError("x"), OverflowError(), RecursionError("deep")]
)
def test_what_a_judges_client_did_not_foresee(record: Record, error: Exception) -> None:
    score = judged(record, EMPATHY, error)
    assert (score.status, score.judge) == ("error", "fake/judge")
    assert (score.error or "").startswith(type(error).__name__)


def test_an_error_text_is_valid_and_not_endless(record: Record) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "\\ud83d" in judged(record, EMPATHY, ValueError("half a pair: \ud83d")).error
    assert len(judged(record, EMPATHY, ValueError("x" * 10_000_000)).error) < 1100
    assert judged(record, EMPATHY, Mute()).error == "Mute: its text cannot be read: RuntimeError"


@pytest.mark.parametrize("texts", [boom, lambda s, r: [None]])
def test_texts_of_an_embedded_metric_and_of_an_estimate(record: Record, texts: Any) -> None:
    estimate = replace(MEMORY.estimate, texts=texts)
    broken = [replace(RELEVANCE, texts=texts), replace(MEMORY, name="m", estimate=estimate)]
    (out,) = asyncio.run(embed_records([record], [*broken, MEMORY], EMBEDDER))
    assert [score.status for score in out.scores] == ["error", "error", "scored"]


def test_a_text_that_breaks_the_embedder_costs_its_record_alone(record: Record) -> None:
    odd = record.model_copy(update={"response": Response(text="an odd answer")})
    out = asyncio.run(embed_records([record, odd, record], [RELEVANCE], EMBEDDER))
    assert [record.scores[0].status for record in out] == ["scored", "error", "scored"]
    assert out[1].scores[0].error == "ValueError: a text that no tokenizer takes"


def test_an_answer_that_a_client_did_not_foresee_is_an_error_of_its_unit(record: Record) -> None:
    generator = AsyncMock()
    generator.generate.side_effect = AttributeError("'NoneType' object has no attribute 'content'")
    response = asyncio.run(generate(Prompt(messages=()), record.candidate, 7, generator))
    assert (response.error or "").startswith("AttributeError")
    assert response.truncated_tokens == 7


def test_a_record_that_broke_the_stage_has_an_error_for_each_metric_it_lacks(
    record: Record, sample: Sample
) -> None:
    once = judge_metrics(record, [WORDS], {})
    out = fail_unjudged(once, [WORDS, EMPATHY], MemoryError("gone"))
    expected = [("words", "scored"), ("empathy", "error")]
    assert [(score.metric, score.status) for score in out.scores] == expected

"""The judge of meaning through a provider's real client: a local server answers as the model
would."""

import asyncio
import json
from typing import Any

import pytest

from memray_eval.execution.stages.judge import JudgingOptions, judge_record
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.metrics import pick
from memray_eval.provider_http import closing_clients
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.types import Record, Sample, Score
from tests.build import build_record
from tests.fake_judges import judge_behind, unlimited
from tests.servers.provider import Answer, Fault, Reply, serving

A_SI = Sample(
    id="a-si",
    task="longbook_qa_chn",
    language="zh",
    query="有几人叫阿四？",
    answers=("2", "两个", "二"),
)


def judged(
    reply: Reply, text: str = "有两人叫阿四。", **asking: Any
) -> tuple[Score, list[dict[str, Any]]]:
    """The score of a response on A_SI, and what the server was asked."""
    record = build_record(A_SI, text)

    @closing_clients()
    async def ask(base_url: str) -> Record:
        spec = JudgeSpec(name="openai/local", model="local", base_url=base_url, timeout_s=10.0)
        judge = judge_behind("openai", spec, unlimited(RetryPolicy(tries=1)))
        return await judge_record(
            record,
            pick(["semantic_correctness"]),
            {"semantic_correctness": [judge]},
            JudgingOptions(**asking),
        )

    with serving(reply) as server:
        (score,) = asyncio.run(ask(server.base_url)).scores
        return score, list(server.requests)


def verdict(word: str) -> Reply:
    return lambda body: json.dumps(
        {"answer": "两人", "reasoning": "两人就是两个。", "verdict": word, "confidence": 0.95},
        ensure_ascii=False,
    )


def test_seed_001s_chinese_example_is_correct() -> None:
    score, (body,) = judged(verdict("CORRECT"))
    expected = ("scored", 1.0, "openai/local", 0.95)
    assert (score.status, score.value, score.judge, score.parts["confidence"]) == expected
    system, data = (message["content"] for message in body["messages"])
    assert "有两人叫阿四。" in data
    assert '["2", "两个", "二"]' in data
    assert "Be strict." in system
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["verdict"]["enum"] == ["CORRECT", "INCORRECT"]


def test_a_rubric_that_the_run_names_is_sent() -> None:
    _, (body,) = judged(
        verdict("CORRECT"), rubrics={"semantic_correctness": "Be kind to dialects."}
    )
    assert body["messages"][0]["content"].endswith("Be kind to dialects.")
    assert "Be strict." not in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Fault(500), "Unavailable: the provider answered 500"),
        (
            Answer("I cannot judge this.", "refused"),
            "Declined: the judge or its content filter declined",
        ),
        ("the response is CORRECT", "Malformed: the verdict did not fit its schema in 3 attempts"),
    ],
)
@pytest.mark.parametrize(
    ("way", "text", "value"),
    [("string_match", "两个", 1.0), ("string_match", "有两个", 0.0), ("zero", "两个", 0.0)],
)
def test_a_judge_that_fails_is_stood_in_for_where_the_run_says_so(
    reply: str | Answer | Fault, error: str, way: Any, text: str, value: float
) -> None:
    score, _ = judged(lambda body: reply, text, on_failure=way)
    assert (score.status, score.value, score.judge) == ("scored", value, way)
    assert (score.error or "").startswith(error)
    assert judged(lambda body: reply, text)[0].value is None

"""The parts of the test provider that need no connection: instances of schemas, what a body holds,
limits, storms."""

import json
from collections import Counter
from typing import Any, Literal

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from tests.servers.judgments import instance_of, judgment_reply, message_texts
from tests.servers.provider import Answer, Fault, Limits, SlidingWindow, Storm

JUDGED = {
    name: metric for name, metric in all_metrics().items() if isinstance(metric, JudgedMetric)
}


class Leaf(BaseModel):
    count: int = Field(ge=1, le=2)
    kind: Literal["leaf"] = "leaf"


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.parametrize(
    "transform",
    [lambda model: model.model_json_schema(), to_strict_json_schema, anthropic.transform_schema],
)
def test_every_metric_takes_its_instances(name: str, transform: Any) -> None:
    judgment = JUDGED[name].judgment
    schema = transform(judgment)
    written = [instance_of(schema, seed) for seed in range(50)]
    for instance in written:
        judgment.model_validate_json(json.dumps(instance), strict=True)
    assert len({json.dumps(instance) for instance in written}) > 10
    assert written[7] == instance_of(schema, 7)


SCHEMA = Leaf.model_json_schema()
IN_CAPITALS = {
    "type": "OBJECT",
    "properties": {"count": {"type": "INTEGER", "minimum": 1, "maximum": 2}},
    "required": ["count"],
}
BODIES: dict[str, dict[str, Any]] = {
    "openai": {
        "messages": [
            {"role": "system", "content": "rubric"},
            {"role": "user", "content": "question"},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "Leaf", "schema": SCHEMA},
        },
    },
    "anthropic": {
        "system": [{"type": "text", "text": "rubric"}],
        "messages": [{"role": "user", "content": "question"}],
        "output_config": {
            "format": {"type": "json_schema", "schema": anthropic.transform_schema(Leaf)}
        },
    },
    "google": {
        "systemInstruction": {"parts": [{"text": "rubric"}], "role": "user"},
        "contents": [{"role": "user", "parts": [{"text": "question"}]}],
        "generationConfig": {"responseSchema": IN_CAPITALS},
    },
    "in the text": {
        "system": f"Give {{json}} that fits {json.dumps(SCHEMA, indent=2)} and nothing else.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "question"}]}],
    },
}


@pytest.mark.parametrize("wire", BODIES)
def test_a_reply_fits_the_schema_that_a_body_carries(wire: str) -> None:
    body = BODIES[wire]
    Leaf.model_validate_json(judgment_reply(body))
    system, question = message_texts(body)
    assert question == "question"
    assert "rubric" in system or wire == "in the text"
    assert judgment_reply(body) == judgment_reply(json.loads(json.dumps(body)))


Arrival = tuple[float, int]


@given(
    st.lists(
        st.tuples(st.floats(min_value=0, max_value=20), st.integers(min_value=0, max_value=60)),
        max_size=60,
    )
)
def test_no_stretch_of_a_window_holds_more_than_the_limits(arrivals: list[Arrival]) -> None:
    # 5 requests, 100 tokens
    window = SlidingWindow(Limits(requests_per_min=30, tokens_per_min=600, window_s=10))
    passed: list[Arrival] = []
    for now_s, tokens in sorted(arrivals):
        wait_s = window.wait_s(now_s, tokens)
        if wait_s == 0:
            window.let_in(now_s, tokens)
            passed.append((now_s, tokens))
        recent = [count for at_s, count in passed if at_s > now_s - 10]
        assert len(recent) <= 5
        assert sum(recent) <= 100
        assert (wait_s == 0) or len(recent) == 5 or sum(recent) + tokens > 100


def kind_of(outcome: str | Answer | Fault) -> str:
    if isinstance(outcome, Fault):
        return "reset" if outcome.reset else "hang" if outcome.hang_s else str(outcome.status)
    return "good" if outcome == "{...}" else "malformed"


def test_a_storm_fails_at_its_rates_and_every_attempt_by_itself() -> None:
    rates = {"429": 0.05, "500": 0.1, "hang": 0.02, "reset": 0.03, "malformed": 0.15}
    storm = Storm(
        **{f"rate_{kind}": rate for kind, rate in rates.items()}, seed=3, reply=lambda body: "{...}"
    )
    attempts = [[kind_of(storm({"n": n})) for n in range(5000)] for _ in range(2)]
    for kinds in attempts:
        for kind, rate in rates.items():
            assert Counter(kinds)[kind] / 5000 == pytest.approx(rate, abs=0.015)
    failed = [second for first, second in zip(*attempts, strict=True) if first != "good"]
    assert failed.count("good") / len(failed) == pytest.approx(0.65, abs=0.05)

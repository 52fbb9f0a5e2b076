"""Every judgment that a judge is asked for, as each provider's adapter sends its schema: valid for
that provider's structured output, every field required, evidence and reasons before what they
decide."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai._transformers import t_schema
from pydantic import BaseModel

from memray_eval.affect.enriching import BigFiveJudgment, EmotionJudgment
from memray_eval.config.sections import RubricMetric
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.judges.providers.anthropic import AnthropicAdapter
from memray_eval.judges.providers.google import GoogleAdapter
from memray_eval.judges.providers.openai import OpenAIAdapter
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.metrics.criteria import CriteriaJudgment
from memray_eval.metrics.own import metric_by_rubric
from memray_eval.types import Response, Sample

SPEC = JudgeSpec(name="p/m", model="m")
OWN = (
    RubricMetric(name="own_scale", rubric="r"),
    RubricMetric(name="own_share", rubric="r", scale=(0.0, 0.5)),
    RubricMetric(name="own_choices", rubric="r", choices=("no", "yes")),
)
METRICS = {
    metric.name: metric
    for metric in (*all_metrics().values(), *map(metric_by_rubric, OWN))
    if isinstance(metric, JudgedMetric)
}
JUDGMENTS: dict[str, type[BaseModel]] = {
    **{name: metric.judgment for name, metric in METRICS.items()},
    "criteria of a sample": CriteriaJudgment,
    "emotion": EmotionJudgment,
    "traits": BigFiveJudgment,
}
each_judgment = pytest.mark.parametrize("name", JUDGMENTS)
# What OpenAI's strict mode takes of a schema beside its structure; Anthropic takes less
OPENAI_KEYWORDS = {"type", "properties", "required", "additionalProperties", "items", "enum"}
OPENAI_KEYWORDS |= {"title", "description", "$defs", "$ref", "minimum", "maximum", "const"}
ANTHROPIC_KEYWORDS = OPENAI_KEYWORDS - {"minimum", "maximum"}

# The fields that a judge decides last, for their evidence and reasons go before them
DECIDED = {
    **{name: ("score",) for name in ("own_scale", "own_share", "beam_rubric")},
    **{name: ("score",) for name, metric in METRICS.items() if metric.family == "sessions"},
    "own_choices": ("choice",),
    "beam_event_order": ("order",),
    "criteria": ("met",),
    "longmemeval_judge": ("reply",),  # yes or no alone, as the benchmark's code reads it
    "semantic_correctness": ("verdict", "confidence"),
    "preference": ("preferred",),
    "coherence": ("coherence_score",),
    "conversational_continuity": ("continuity_score",),
    "emotional_congruence": ("emotional_congruence_score",),
    "helpfulness": ("helpfulness_score",),
    "judged_conduct": ("meets",),
    "logical_consistency": ("consistency_score",),
    "memory_facts_used": ("cited_keys",),
    "memory_utilization": ("cited_keys",),
    "persona_consistency": ("persona_consistency_score",),
    "politeness": ("category", "politeness_score"),
    "safety": ("category", "safety_score"),
}
COMPANION = (
    "appropriateness",
    "conversational_quality",
    "helpfulness",
    "emotional_intelligence",
    "personalization_continuity",
    "trust_boundaries",
    "overall",
)
SAMPLE = Sample(id="s", query="q", memory={"k": "v"})
REASONS = {"reason", "reasoning", "explanation", "tone_notes", "tailoring_notes"}


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """The object schemas within a schema."""
    for part in parts(schema):
        if "properties" in part:
            yield part


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all schemas within it."""
    yield schema
    for key in ("properties", "$defs"):
        for inner in (schema.get(key) or {}).values():
            yield from parts(inner)
    if schema.get("items"):
        yield from parts(schema["items"])


def check_strict(schema: dict[str, Any], keywords: set[str]) -> None:
    for part in parts(schema):
        assert part.keys() <= keywords
        assert "$ref" not in part or part.keys() <= {"$ref", "description"}
    for part in objects(schema):
        assert part["additionalProperties"] is False
        assert list(part["required"]) == list(part["properties"])


@each_judgment
def test_openai_takes_it_as_a_strict_schema(name: str) -> None:
    request = OpenAIAdapter(SPEC).prepare(JUDGMENTS[name], "s", False)
    sent = request["response_format"]["json_schema"]
    assert (request["response_format"]["type"], sent["strict"]) == ("json_schema", True)
    check_strict(sent["schema"], OPENAI_KEYWORDS)


@each_judgment
def test_anthropic_takes_it_as_an_output_format(name: str) -> None:
    request = AnthropicAdapter(SPEC).prepare(JUDGMENTS[name], "s", False)
    sent = request["output_config"]["format"]
    assert sent["type"] == "json_schema"
    check_strict(sent["schema"], ANTHROPIC_KEYWORDS)


@each_judgment
def test_google_takes_it_as_a_response_schema(name: str) -> None:
    adapter = GoogleAdapter(SPEC)
    config = adapter.prepare(JUDGMENTS[name], "s", False)["config"]
    assert config.response_mime_type == "application/json"
    client = adapter._client._api_client
    schema = t_schema(client, config.response_schema)  # as the SDK does when it sends
    assert schema is not None
    sent = schema.model_dump(exclude_none=True)
    for part in objects(sent):
        assert set(part["required"]) == set(part["properties"])
        # It may write fields by the alphabet where there is no order
        in_order = [*part["properties"]]
        assert len(in_order) == 1 or part["property_ordering"] == in_order
    assert [*sent["properties"]] == [*JUDGMENTS[name].model_fields]


@each_judgment
def test_every_field_is_asked_for(name: str) -> None:
    schema = JUDGMENTS[name].model_json_schema()
    for part in objects(schema):
        assert part["required"] == [*part["properties"]]


@pytest.mark.parametrize("name", METRICS)
def test_evidence_and_reasons_come_before_what_they_decide(name: str) -> None:
    schema = METRICS[name].judgment.model_json_schema()
    fields = [*schema["properties"]]
    if name == "empathy":  # counted from its parts
        part = schema["$defs"]["EmpathyPart"]["properties"]
        assert [*part] == ["evidence", "reason", "level"]
        return
    if name == "groundedness":  # counted from its claims
        claim = schema["$defs"]["FactualClaim"]["properties"]
        assert fields == ["claims", "passes_over_question"]
        assert [*claim] == ["claim", "reason", "source"]
        return
    decided = COMPANION if METRICS[name].family == "companion" else DECIDED[name]
    assert tuple(fields[-len(decided) :]) == decided
    assert name == "longmemeval_judge" or fields[-len(decided) - 1] in REASONS


@pytest.mark.parametrize(
    "name", [name for name in METRICS if METRICS[name].family in ("assistant", "sessions")]
)
def test_the_rubric_asks_for_the_fields_in_the_order_of_the_schema(name: str) -> None:
    rubric = METRICS[name].prompt(SAMPLE, Response(text="-"))[0].content
    places = [
        mentions[-1].start()
        for field in METRICS[name].judgment.model_fields
        if (mentions := [*re.finditer(rf"\b{field}\b", rubric)])
    ]
    assert places == sorted(places)
    assert len(places) > 2 or name == "groundedness"

"""Scores as OpenTelemetry events, and the address that they go to."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.errors import ConfigError
from memray_eval.sinks.otlp import make_events
from memray_eval.sinks.sending import LONGEST_TEXT, collector_of, explain, parse_judgment
from memray_eval.types import Record, Score
from tests.unit.sinks.rows import to_row


def events_of(record: Record, *scores: Score) -> list[dict[str, Any]]:
    row = to_row(record.model_copy(update={"scores": scores}))
    return [dict(event) for event in make_events(row, "run-1")]


def test_a_score_is_an_event_of_the_conventions_with_a_stable_id(record: Record) -> None:
    judged = Score(
        metric="empathy",
        status="scored",
        value=0.0,
        judge="openai/gpt-4o",
        judgment='{"empathy_score": 0, "explanation": "It is cold."}',
    )
    assert events_of(record, judged) == [
        {
            "log.record.uid": f"run-1/{record.unit_id}/empathy",
            "gen_ai.evaluation.name": "empathy",
            "gen_ai.evaluation.score.value": 0.0,
            "gen_ai.evaluation.explanation": "It is cold.",
            "gen_ai.request.model": "small-model",
            "memray_eval.run_id": "run-1",
            "memray_eval.unit_id": record.unit_id,
            "memray_eval.sample_id": "T001",
            "memray_eval.candidate": "small",
            "memray_eval.suite": "memory",
            "memray_eval.judge": "openai/gpt-4o",
            "memray_eval.status": "scored",
            "memray_eval.is_estimate": False,
        }
    ]


def test_what_has_no_value_says_why(record: Record) -> None:
    abstained = Score(metric="empathy", status="abstained", judge="openai/gpt-4o")
    failed = Score(metric="safety", status="error", error="Throttled: too many calls")
    odd = Score(metric="safety", status="error", error="the judge said: nothing")
    first, second, third = events_of(record, abstained, failed, odd)
    assert first["gen_ai.evaluation.score.label"] == "abstained"
    assert "error.type" not in first
    assert (second["error.type"], second["error.message"]) == ("Throttled", failed.error)
    assert third["error.type"] == "_OTHER"
    assert not any("gen_ai.evaluation.score.value" in event for event in (first, second, third))


def test_a_score_after_an_error_has_another_id_than_the_error(record: Record) -> None:
    failed = Score(metric="safety", status="error", error="Throttled: too many calls")
    scored = Score(metric="safety", status="scored", value=1.0, judge="rules")
    ids = [events_of(record, score)[0]["log.record.uid"] for score in (failed, scored)]
    assert ids == [f"run-1/{record.unit_id}/safety/error", f"run-1/{record.unit_id}/safety"]


def test_an_estimate_says_so(record: Record) -> None:
    (event,) = events_of(record, Score(metric="s", status="scored", value=1.0, judge="rules"))
    assert event["memray_eval.is_estimate"] is True


@pytest.mark.parametrize(
    ("judgment", "why"),
    [
        ('{"reasoning": "Because."}', "Because."),
        ('{"score": 3}', '{"score": 3}'),
        ('{"explanation": ["no text"]}', '{"explanation": ["no text"]}'),
        ("[1, 2]", "[1, 2]"),
        ("not JSON", "not JSON"),
        (r'{"reason": "half \ud83d"}', r"half \ud83d"),
        ("", None),
        (None, None),
    ],
)
def test_a_judgment_is_explained_by_its_own_words(judgment: str | None, why: str | None) -> None:
    assert explain(judgment, parse_judgment(judgment)) == why


def test_an_explanation_has_an_end() -> None:
    assert len(explain("x" * 10**6, None) or "") == LONGEST_TEXT


BASE, LOGS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, "http://localhost:4318/v1/logs"),
        ({BASE: "https://c:4318/"}, "https://c:4318/v1/logs"),
        ({BASE: "https://c/otlp"}, "https://c/otlp/v1/logs"),
        ({BASE: "https://c", LOGS: "https://user:pass@logs/in?key=1"}, "https://logs/in"),
    ],
)
def test_the_address_is_the_environment_s_without_its_secrets(
    environ: dict[str, str], place: str
) -> None:
    assert collector_of(environ) == place


@pytest.mark.parametrize(
    "environ",
    [{BASE: "localhost:4318"}, {BASE: "grpc://c:4317"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}],
)
def test_what_is_no_address_is_told(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs an HTTP address"):
        collector_of(environ)

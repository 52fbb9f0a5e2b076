"""Scores as OpenTelemetry events, and the address that they go to."""

from __future__ import annotations

import math
from typing import Any

import pytest

from memray_eval.errors import ConfigError
from memray_eval.sinks.otlp import make_events, make_request, make_resource
from memray_eval.sinks.otlp_address import find_address
from memray_eval.sinks.sending import LONGEST_TEXT, explain, parse_judgment
from memray_eval.types import Record, Score
from tests.unit.sinks.rows import to_row


def events_of(record: Record, *scores: Score) -> list[dict[str, Any]]:
    row = to_row(record.model_copy(update={"scores": scores}))
    return [dict(event.attributes) for event in make_events(row, "run-1")]


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


def test_a_request_holds_the_types_of_values(record: Record) -> None:
    row = to_row(
        record.model_copy(
            update={"scores": (Score(metric="s", status="scored", value=math.pi, judge="rules"),)}
        )
    )
    resource = make_resource("run-1", {})
    request = make_request(list(make_events(row, "run-1")), resource)
    (log,) = request.resource_logs[0].scope_logs[0].log_records
    held = {attribute.key: attribute.value for attribute in log.attributes}
    assert log.event_name == "gen_ai.evaluation.result"
    assert held["gen_ai.evaluation.score.value"].double_value == math.pi
    assert held["memray_eval.is_estimate"].bool_value is True
    assert log.time_unix_nano > 0


def test_the_environment_names_the_service() -> None:
    environ = {
        "OTEL_SERVICE_NAME": "nightly",
        "OTEL_RESOURCE_ATTRIBUTES": "team=memory%20team, service.name=other,",
    }
    held = {item.key: item.value.string_value for item in make_resource("r", environ).attributes}
    assert (held["service.name"], held["team"]) == ("nightly", "memory team")
    assert held["memray_eval.run_id"] == "r"


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
    ("endpoint", "environ", "url"),
    [
        (None, {}, "http://localhost:4318/v1/logs"),
        (None, {BASE: "https://c:4318/"}, "https://c:4318/v1/logs"),
        (None, {BASE: "https://c/otlp"}, "https://c/otlp/v1/logs"),
        (None, {BASE: "https://c", LOGS: "https://logs/in"}, "https://logs/in"),
        ("http://mine:1", {BASE: "https://c", LOGS: "https://logs/in"}, "http://mine:1/v1/logs"),
        ("http://mine:1/v1/logs", {}, "http://mine:1/v1/logs"),
    ],
)
def test_the_address_is_the_sink_s_or_the_environment_s(
    endpoint: str | None, environ: dict[str, str], url: str
) -> None:
    assert find_address(endpoint, environ).url == url


def test_headers_come_from_the_environment_and_are_shown_nowhere() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc, x-team = 1 ",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    address = find_address("https://user:pass@host/in?key=1", environ)
    assert address.headers == {"authorization": "Bearer abc", "x-team": "1"}
    assert address.is_gzipped
    assert "abc" not in repr(address)
    assert address.url == "https://user:pass@host/in/v1/logs?key=1"
    assert address.place == "https://host/in/v1/logs"
    logs_only = environ | {"OTEL_EXPORTER_OTLP_LOGS_HEADERS": "a=b"}
    assert find_address(None, logs_only).headers == {"a": "b"}


@pytest.mark.parametrize(
    ("endpoint", "environ", "message"),
    [
        ("localhost:4318", {}, "needs an HTTP address"),
        ("http://[half", {}, "needs an HTTP address"),
        ("http://host:99999", {}, "needs an HTTP address"),
        (None, {BASE: "grpc://c:4317"}, "needs an HTTP address"),
        (None, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "speaks http/protobuf"),
        (None, {"OTEL_EXPORTER_OTLP_HEADERS": "no pair"}, "write key=value pairs"),
    ],
)
def test_what_is_no_address_is_told(
    endpoint: str | None, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        find_address(endpoint, environ)

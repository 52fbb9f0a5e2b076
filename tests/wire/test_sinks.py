"""The sink for OpenTelemetry against a collector that parses what it gets, and odd ones."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memray_eval.errors import SinkError
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks import otlp
from memray_eval.sinks.sending import collector_of
from tests.runs import plain_records, write_run
from tests.servers.collector import Collector, collecting
from tests.servers.provider import Raw

UNITS = 30
EVENTS = 4 * UNITS  # every unit of tests.runs has four scores

Send = Callable[[str], int]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", plain_records(UNITS), UNITS)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(autouse=True)
def _small_requests_and_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "EVENTS_AT_ONCE", 50)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")


@pytest.fixture
def send(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> Send:
    """Sends the run to an endpoint, and returns how many events were new."""

    def send_to(endpoint: str) -> int:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        return otlp.send_events(folder, collector_of(os.environ))

    return send_to


def test_every_score_is_an_event_once_however_often_it_is_sent(
    folder: RunFolder, send: Send, collector: Collector
) -> None:
    assert send(collector.endpoint) == EVENTS
    assert send(collector.endpoint) == 0
    assert (collector.n_requests, len(collector.received)) == (3, EVENTS)
    assert set(collector.received.values()) == {1}
    value = "gen_ai.evaluation.score.value"
    failed = [event for event in collector.events if value not in event]
    assert {event["error.type"] for event in failed} == {"Throttled"}
    assert {
        (event["memray_eval.unit_id"], event["gen_ai.evaluation.name"]): event.get(value)
        for event in collector.events
    } == {(of.unit_id, score.metric): score.value for of in folder.each() for score in of.scores}
    assert {event["name"] for event in collector.events} == {"gen_ai.evaluation.result"}
    assert {resource["service.name"] for resource in collector.resources} == {"memray-eval"}
    assert set(collector.paths) == {"/v1/logs"}


def test_headers_and_packing_are_those_of_the_environment(
    folder: RunFolder, send: Send, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=memory%20team")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=memory")
    assert send(collector.endpoint) == EVENTS
    assert {headers["x-team"] for headers in collector.headers} == {"memory team"}
    assert {headers["content-encoding"] for headers in collector.headers} == {"gzip"}
    resource = collector.resources[0]
    assert (resource["service.name"], resource["team"]) == ("nightly", "memory")
    assert resource["memray_eval.run_id"] == folder.run_id


def test_what_a_busy_collector_refuses_is_sent_again(
    send: Send, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    collector.odd = [Raw(b"", status=429, headers={"retry-after": "0"})] * 2
    assert send(collector.endpoint) == EVENTS
    assert set(collector.received.values()) == {1}


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (Raw(b"", status=503), "503 Service Unavailable"),
        (Raw(b"", status=401), "401 Unauthorized"),
        (Raw(b"", status=404), "404 Not Found"),
        (Raw(b"", status=302), "302 Found"),
        (Raw(b"<html>", content_type="text/html; charset=utf-8"), "200 OK text/html"),
        (Raw(b"\xff\xff", content_type="application/x-protobuf"), "its reply is no OTLP"),
    ],
)
def test_an_odd_collector_is_told_and_has_nothing(
    folder: RunFolder, send: Send, collector: Collector, odd: Raw, message: str
) -> None:
    collector.odd = [odd] * 4
    with pytest.raises(SinkError, match=message):
        send(collector.endpoint)
    assert collector.n_requests == 1
    collector.odd = []
    assert send(collector.endpoint) == EVENTS


def test_what_came_before_a_failure_is_not_sent_again(
    folder: RunFolder, send: Send, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    keep = collector.keep

    def keep_once(body: bytes) -> object:
        if taken:
            collector.odd = [Raw(b"", status=503)] * 9
        taken.append(len(body))
        return keep(body)

    monkeypatch.setattr(collector, "keep", keep_once)
    with pytest.raises(SinkError, match="503"):
        send(collector.endpoint)
    assert len(collector.events) == 100
    collector.odd, taken[:] = [], []
    assert send(collector.endpoint) == EVENTS - 100
    assert set(collector.received.values()) == {1}


def test_what_a_collector_rejects_is_told_and_not_sent_again(
    folder: RunFolder, send: Send, collector: Collector
) -> None:
    collector.n_rejected = 2
    with pytest.raises(SinkError, match=r"rejected scores: 2 of 50 \(too old\)"):
        send(collector.endpoint)
    assert send(collector.endpoint) == 0

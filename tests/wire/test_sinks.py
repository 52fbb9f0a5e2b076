"""The sink for OpenTelemetry against a collector that parses what it gets, and odd ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memray_eval.errors import SinkError
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks import otlp
from memray_eval.sinks.otlp import OtlpSink
from memray_eval.sinks.otlp_address import find_address
from tests.runs import plain_records, write_run
from tests.servers.collector import Collector, Raw, collecting

UNITS = 30
EVENTS = 4 * UNITS  # every unit of tests.runs has four scores

Send = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run", plain_records(UNITS), UNITS)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(autouse=True)
def _small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "EVENTS_AT_ONCE", 50)


def send(folder: RunFolder, endpoint: str, waits: list[float], **environ: str) -> int:
    sink = OtlpSink(find_address(endpoint, environ), environ, sleep=waits.append)
    return sink.send(folder)


def test_every_score_is_an_event_once_however_often_it_is_sent(
    folder: RunFolder, collector: Collector
) -> None:
    assert send(folder, collector.endpoint, []) == EVENTS
    assert send(folder, collector.endpoint, []) == 0
    assert (collector.n_requests, len(collector.received)) == (3, EVENTS)
    assert set(collector.received.values()) == {1}
    scored = [event for event in collector.events if event["memray_eval.status"] == "scored"]
    failed = [event for event in collector.events if event["memray_eval.status"] == "error"]
    assert {event["error.type"] for event in failed} == {"Throttled"}
    assert len(scored) + len(failed) == EVENTS
    values = {
        (record.unit_id, score.metric): score.value
        for record in folder.each()
        for score in record.scores
        if score.value is not None
    }
    got = {
        (event["memray_eval.unit_id"], event["gen_ai.evaluation.name"]): event[
            "gen_ai.evaluation.score.value"
        ]
        for event in scored
    }
    assert got == values
    assert {event["name"] for event in collector.events} == {"gen_ai.evaluation.result"}
    assert {resource["service.name"] for resource in collector.resources} == {"memray-eval"}
    assert set(collector.paths) == {"/v1/logs"}


def test_long_texts_go_in_more_requests(
    folder: RunFolder, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "CHARS_AT_ONCE", 1)
    assert send(folder, collector.endpoint, []) == collector.n_requests == EVENTS


def test_headers_and_packing_are_those_of_the_environment(
    folder: RunFolder, collector: Collector
) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=memory%20team",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "nightly",
    }
    assert send(folder, collector.endpoint, [], **environ) == EVENTS
    assert {headers["x-team"] for headers in collector.headers} == {"memory team"}
    assert {headers["content-encoding"] for headers in collector.headers} == {"gzip"}
    assert collector.resources[0]["service.name"] == "nightly"


def test_another_collector_gets_all_of_it(folder: RunFolder, collector: Collector) -> None:
    assert send(folder, collector.endpoint, []) == EVENTS
    with collecting() as other:
        assert send(folder, other.endpoint, []) == EVENTS


def test_what_a_busy_collector_refuses_is_sent_again_when_it_says(
    folder: RunFolder, collector: Collector
) -> None:
    busy = [Raw(b"", status=429), Raw(b"", status=503)]
    collector.odd = list(busy)
    waits: list[float] = []
    assert send(folder, collector.endpoint, waits) == EVENTS
    assert waits == [7.0, otlp.PAUSES_S[1]]
    assert set(collector.received.values()) == {1}


@pytest.mark.parametrize(
    ("odd", "message", "n_requests"),
    [
        (Raw(b"", status=503), "it answered 503 Service Unavailable", 4),
        (Raw(b"", status=401), "it answered 401 Unauthorized", 1),
        (Raw(b"", status=404), "it answered 404 Not Found", 1),
        (Raw(b"", status=302), "it answered 302 Found", 1),
        (Raw(b"<html>", kind="text/html; charset=utf-8"), "with a page", 1),
        (Raw(b"\xff\xff", kind="application/x-protobuf"), "its reply is no OTLP", 1),
        (Raw(b"x" * (2 << 20), kind="application/x-protobuf"), "its reply has no end", 1),
    ],
)
def test_an_odd_collector_is_told_and_has_nothing(
    folder: RunFolder, collector: Collector, odd: Raw, message: str, n_requests: int
) -> None:
    collector.odd = [odd] * 4
    with pytest.raises(SinkError, match=message):
        send(folder, collector.endpoint, [])
    assert collector.n_requests == n_requests
    collector.odd = []
    assert send(folder, collector.endpoint, []) == EVENTS


def test_nobody_there_is_told(folder: RunFolder, collector: Collector) -> None:
    waits: list[float] = []
    with pytest.raises(SinkError, match="no collector took the scores: ConnectError"):
        send(folder, "http://127.0.0.1:1", waits)
    assert waits == list(otlp.PAUSES_S)


def test_what_came_before_a_failure_is_not_sent_again(
    folder: RunFolder, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "PAUSES_S", ())
    taken: list[int] = []
    keep = collector.keep

    def keep_once(body: bytes) -> object:
        if taken:
            collector.odd = [Raw(b"", status=503)] * 9
        taken.append(len(body))
        return keep(body)

    monkeypatch.setattr(collector, "keep", keep_once)
    with pytest.raises(SinkError, match="503"):
        send(folder, collector.endpoint, [])
    assert len(collector.events) == 100
    collector.odd, taken[:] = [], []
    assert send(folder, collector.endpoint, []) == EVENTS - 100
    assert set(collector.received.values()) == {1}


def test_what_a_collector_rejects_is_told_and_not_sent_again(
    folder: RunFolder, collector: Collector
) -> None:
    collector.n_rejected = 2
    with pytest.raises(SinkError, match=r"rejected scores: 2 of 50 \(too old\)"):
        send(folder, collector.endpoint, [])
    assert send(folder, collector.endpoint, []) == 0


def test_a_certificate_that_is_none_is_told(
    folder: RunFolder, collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    environ = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.pem")}
    with pytest.raises(OSError, match="certificate"):
        send(folder, collector.endpoint, [], **environ)

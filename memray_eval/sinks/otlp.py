"""Scores as OpenTelemetry events: `gen_ai.evaluation.result` log records over OTLP (http/protobuf).

Attributes follow the GenAI semantic conventions
(github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-events.md); those of ours
begin with memray_eval. `log.record.uid` is the event's stable id, by which a receiver may drop
repeats (github.com/open-telemetry/semantic-conventions, docs/registry/attributes/log.md)."""

from __future__ import annotations

import gzip
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import unquote

import httpx2
import numpy as np
import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from memray_eval._version import __version__
from memray_eval.errors import SinkError
from memray_eval.results.parts import Flags, unit_numbers
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks.otlp_address import OtlpAddress
from memray_eval.sinks.sending import LONGEST_TEXT, explain, parse_judgment
from memray_eval.types import is_estimate

logger = logging.getLogger(__name__)

EVENT_NAME = "gen_ai.evaluation.result"
COLUMNS = ["unit_id", "sample_id", "candidate", "model", "suite", "task", "scores"]
EVENTS_AT_ONCE, CHARS_AT_ONCE = 1000, 1_000_000  # of a request; collectors refuse many megabytes
ROWS_AT_ONCE = 256
TIMEOUT_S = 10.0  # the protocol's default
LONGEST_REPLY, LONGEST_REPLY_S = 1 << 20, 30.0
PAUSES_S = (0.5, 2.0, 5.0)  # before it is tried again, unless the receiver says when
LONGEST_PAUSE_S = 30.0
TRY_AGAIN = (429, 502, 503, 504)  # the statuses that the protocol calls retryable
_ERROR_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=: |$)")


class Event(NamedTuple):
    """One score as an event: its stable id, and the attributes that have a value."""

    id: str
    attributes: Mapping[str, str | float | bool]

    @property
    def size(self) -> int:
        """The characters of its texts."""
        return sum(len(text) for text in self.attributes.values() if isinstance(text, str))


class SentJournal:
    """The ids of the events that the receiver at `place` has taken, 8 bytes each, once it answered:
    after a kill it gets some again, by the same id. Raises DataError if unreadable."""

    def __init__(self, folder: RunFolder, kind: str, place: str) -> None:
        self._folder = folder
        self._name = f"{kind}-{blake2b(place.encode(), digest_size=4).hexdigest()}"
        rows = (table.column("event").to_pylist() for table in folder.read_sent(self._name))
        numbers = [unit_numbers(ids) for ids in rows]
        self._sent = np.unique(np.concatenate([np.zeros(0, np.uint64), *numbers]))

    def are_sent(self, ids: Sequence[str]) -> Flags:
        """Marks those of these events that the receiver has."""
        return np.isin(unit_numbers(ids), self._sent)

    def add(self, ids: Sequence[str]) -> None:
        """Writes down what the receiver has just taken."""
        self._folder.write_sent(self._name, pa.table({"event": pa.array(ids, pa.string())}))
        self._sent = np.union1d(self._sent, unit_numbers(ids))


class OtlpSink:
    """Sends every score of a run to the logs of an OpenTelemetry collector."""

    def __init__(
        self,
        address: OtlpAddress,
        environ: Mapping[str, str],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address, self._environ, self._sleep = address, environ, sleep

    def send(self, folder: RunFolder) -> int:
        """Sends the scores that the collector lacks, and returns how many. Raises SinkError if it
        does not answer, refuses them, or is no collector; what it took is not sent again."""
        journal = SentJournal(folder, "otlp", self._address.place)
        resource = make_resource(folder.run_id, self._environ)
        n_sent, refused = 0, list[str]()
        with httpx2.Client(timeout=TIMEOUT_S, verify=self._address.tls()) as client:
            for events in _not_sent(folder, journal):
                reply = self._post(client, make_request(events, resource).SerializeToString())
                journal.add([event.id for event in events])
                n_sent += len(events)
                if (n_rejected := reply.partial_success.rejected_log_records) > 0:
                    why = reply.partial_success.error_message
                    refused.append(f"{n_rejected} of {len(events)} ({why})")
        if refused:  # the protocol forbids to send them again
            raise SinkError(f"the collector rejected scores: {'; '.join(refused[:3])}")
        return n_sent

    def _post(self, client: httpx2.Client, body: bytes) -> ExportLogsServiceResponse:
        headers = {"content-type": "application/x-protobuf", **self._address.headers}
        if self._address.is_gzipped:
            body, headers["content-encoding"] = gzip.compress(body, 1), "gzip"
        for pause_s in (*PAUSES_S, None):
            try:
                with client.stream(
                    "POST", self._address.url, content=body, headers=headers
                ) as answer:
                    if answer.is_success:
                        return _read_reply(answer)
                why = f"it answered {answer.status_code} {answer.reason_phrase}"
                is_final = answer.status_code not in TRY_AGAIN
                asked_s = _retry_after(answer)
            except httpx2.TransportError as error:
                why, is_final, asked_s = f"{type(error).__name__}: {error}", False, None
            if is_final or pause_s is None:
                break
            wait_s = pause_s if asked_s is None else asked_s
            logger.info("otlp: %s; tried again in %.1f s", why, wait_s)
            self._sleep(wait_s)
        raise SinkError(f"no collector took the scores: {why}")


def make_events(row: Mapping[str, Any], run_id: str) -> Iterator[Event]:
    """The events of a row, one a score; a failed one has another id than its later score."""
    for score in row["scores"] or ():
        has_failed = score["status"] == "error"
        event_id = f"{run_id}/{row['unit_id']}/{score['metric']}" + "/error" * has_failed
        error = (score["error"] or "") if has_failed else ""
        kind, text = _ERROR_TYPE.match(error), score["judgment"]
        attributes: dict[str, str | float | bool | None] = {
            "log.record.uid": event_id,
            "gen_ai.evaluation.name": score["metric"],
            "gen_ai.evaluation.score.value": score["value"],
            # A value needs none, and without a value it says why there is none
            "gen_ai.evaluation.score.label": None
            if score["status"] in ("scored", "error")
            else score["status"],
            "gen_ai.evaluation.explanation": explain(text, parse_judgment(text)),
            "error.type": (kind[0] if kind else "_OTHER") if has_failed else None,
            "error.message": error[:LONGEST_TEXT],
            "gen_ai.request.model": row["model"],
            "memray_eval.run_id": run_id,
            "memray_eval.unit_id": row["unit_id"],
            "memray_eval.sample_id": row["sample_id"],
            "memray_eval.candidate": row["candidate"],
            "memray_eval.suite": row["suite"],
            "memray_eval.task": row["task"],
            "memray_eval.judge": score["judge"],
            "memray_eval.status": score["status"],
            "memray_eval.is_estimate": score["status"] == "scored" and is_estimate(score["judge"]),
        }
        present = {key: value for key, value in attributes.items() if value not in (None, "")}
        yield Event(event_id, present)


def make_resource(run_id: str, environ: Mapping[str, str]) -> Resource:
    """The sender: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, beside the run."""
    pairs = (pair.partition("=") for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    attributes = {
        "service.name": "memray-eval",
        "service.version": __version__,
        **{name.strip(): unquote(value).strip() for name, _, value in pairs if name.strip()},
        "memray_eval.run_id": run_id,
    }
    if name := environ.get("OTEL_SERVICE_NAME", "").strip():
        attributes["service.name"] = name
    return Resource(attributes=[_attribute(*pair) for pair in attributes.items()])


def make_request(events: Sequence[Event], resource: Resource) -> ExportLogsServiceRequest:
    """The request that exports these events."""
    request, now = ExportLogsServiceRequest(), time.time_ns()
    of_resource = request.resource_logs.add(resource=resource)
    scope = InstrumentationScope(name="memray_eval", version=__version__)
    of_scope = of_resource.scope_logs.add(scope=scope)
    for event in events:
        is_error = "error.type" in event.attributes
        of_scope.log_records.append(
            LogRecord(
                time_unix_nano=now,
                observed_time_unix_nano=now,
                event_name=EVENT_NAME,
                severity_number=SeverityNumber.SEVERITY_NUMBER_WARN
                if is_error
                else SeverityNumber.SEVERITY_NUMBER_INFO,
                attributes=[_attribute(*pair) for pair in event.attributes.items()],
            )
        )
    return request


def _attribute(key: str, value: str | float | bool) -> KeyValue:
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, float):
        return KeyValue(key=key, value=AnyValue(double_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _not_sent(folder: RunFolder, journal: SentJournal) -> Iterator[list[Event]]:
    """The events that the collector does not have, in requests of a size that it takes."""
    waiting, size = list[Event](), 0
    make = partial(make_events, run_id=folder.run_id)
    for part in folder.each_part(COLUMNS):
        for batch in part.to_batches(ROWS_AT_ONCE):
            events = [event for row in batch.to_pylist() for event in make(row)]
            are_sent = journal.are_sent([event.id for event in events])
            for event, is_sent in zip(events, are_sent, strict=True):
                if is_sent:
                    continue
                if waiting and (
                    len(waiting) == EVENTS_AT_ONCE or size + event.size > CHARS_AT_ONCE
                ):
                    yield waiting
                    waiting, size = [], 0
                waiting.append(event)
                size += event.size
    if waiting:
        yield waiting


def _read_reply(answer: httpx2.Response) -> ExportLogsServiceResponse:
    """A collector's reply. Raises SinkError for a page, as of a server that is no collector."""
    kind = answer.headers.get("content-type", "")
    reply = ExportLogsServiceResponse()
    if "html" in kind:
        raise SinkError(f"it answered {answer.status_code} with a page ({kind}): no collector")
    if "protobuf" in kind:
        body, until = b"", time.monotonic() + LONGEST_REPLY_S
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > LONGEST_REPLY or time.monotonic() > until:
                raise SinkError("its reply has no end: no collector")
        try:
            reply.ParseFromString(body)
        except Exception as error:  # the decoder's own type is another package's
            raise SinkError(f"its reply is no OTLP: {error}") from None
    return reply


def _retry_after(answer: httpx2.Response) -> float | None:
    """The wait that the receiver asks for, in seconds, up to LONGEST_PAUSE_S."""
    try:
        return min(LONGEST_PAUSE_S, max(0.0, float(answer.headers["retry-after"])))
    except (KeyError, ValueError):
        return None

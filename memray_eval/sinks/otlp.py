"""Scores as `gen_ai.evaluation.result` events, by OpenTelemetry's SDK and its OTEL_* environment.

One event a score (github.com/open-telemetry/semantic-conventions-genai), at most EVENTS_AT_ONCE in
a request, which is answered before the next is filled. What a collector has taken is in the
folder's journal. What the SDK gives up, and what a collector rejects, is an error."""

import re
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import compress, islice
from typing import Any

import numpy as np
import pyarrow as pa
import requests
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from memray_eval._version import __version__
from memray_eval.errors import SinkError
from memray_eval.report.exports import LONGEST_TEXT, explain, parse_judgment
from memray_eval.results.parts import unit_numbers
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks.eval_log import each_row
from memray_eval.types import is_estimate

COLUMNS = ["unit_id", "sample_id", "candidate", "suite", "task", "model", "scores"]
EVENTS_AT_ONCE = 512
LABELS = {"scored": None, "error": None}  # others: their status, for want of a value
_ERROR_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=: |$)")


def send_events(folder: RunFolder, place: str) -> int:
    """Sends the scores that the collector at `place` lacks, and returns how many. Raises SinkError
    if it does not answer, refuses them, or is no collector; what it took is not sent again."""
    journal = f"otlp-{blake2b(place.encode(), digest_size=4).hexdigest()}"
    earlier = (table.column("event").to_pylist() for table in folder.read_sent(journal))
    sent = np.concatenate([np.zeros(0, np.uint64), *map(unit_numbers, earlier)])
    answers, n_sent, refused = list[requests.Response](), 0, list[str]()
    own = {"service.name": "memray-eval", "service.version": __version__}
    resource = Resource(own).merge(OTELResourceDetector().detect())
    resource = resource.merge(Resource({"memray_eval.run_id": folder.run_id}))
    every = (of for row in each_row(folder, COLUMNS) for of in make_events(row, folder.run_id))
    with requests.Session() as session:
        session.hooks["response"].append(lambda answer, **_: answers.append(answer))
        exporter = OTLPLogExporter(session=session)
        while events := list(islice(every, EVENTS_AT_ONCE)):
            ids = pa.array([str(event["log.record.uid"]) for event in events], pa.string())
            is_new = ~np.isin(unit_numbers(ids.to_pylist()), sent)
            if not is_new.any():
                continue
            events, ids = [*compress(events, is_new)], ids.filter(pa.array(is_new))
            answers.clear()
            exporter.export([_to_log(event, resource) for event in events])
            rejected = _read_reply(answers[-1] if answers else None).partial_success
            folder.write_sent(journal, pa.table({"event": ids}))
            n_sent += len(events)
            if n_rejected := rejected.rejected_log_records:
                refused.append(f"{n_rejected} of {len(events)} ({rejected.error_message})")
    if refused:  # the protocol forbids to send them again
        raise SinkError(f"the collector rejected scores: {'; '.join(refused[:3])}")
    return n_sent


def _to_log(event: Mapping[str, Any], resource: Resource) -> ReadableLogRecord:
    is_error = "error.type" in event
    record = LogRecord(
        timestamp=time.time_ns(),
        event_name="gen_ai.evaluation.result",
        severity_number=SeverityNumber.WARN if is_error else SeverityNumber.INFO,
        attributes=event,
    )
    return ReadableLogRecord(record, resource, InstrumentationScope("memray_eval", __version__))


def _read_reply(answer: requests.Response | None) -> ExportLogsServiceResponse:
    """A collector's reply. Raises SinkError if it took nothing, or is no collector."""
    why, reply = "nobody answered", ExportLogsServiceResponse()
    if answer is not None:
        kind = answer.headers.get("content-type", "")
        if 200 <= answer.status_code < 300 and "html" not in kind:
            try:
                reply.ParseFromString(answer.content if "protobuf" in kind else b"")
            except Exception as error:  # the decoder's own type is another package's
                raise SinkError(f"its reply is no OTLP: {error}") from None
            return reply
        why = f"{answer.status_code} {answer.reason} {kind}".rstrip()
    raise SinkError(f"no collector took the scores: {why}")


def make_events(row: Mapping[str, Any], run_id: str) -> Iterator[dict[str, Any]]:
    """The events of a row, one a score; a failed one has another id than its later score."""
    for score in row["scores"] or ():
        has_failed, text = score["status"] == "error", score["judgment"]
        event_id = f"{run_id}/{row['unit_id']}/{score['metric']}" + "/error" * has_failed
        error = (score["error"] or "") if has_failed else ""
        kind = _ERROR_TYPE.match(error)
        attributes = {
            "log.record.uid": event_id,
            "gen_ai.evaluation.name": score["metric"],
            "gen_ai.evaluation.score.value": score["value"],
            "gen_ai.evaluation.score.label": LABELS.get(score["status"], score["status"]),
            "gen_ai.evaluation.explanation": explain(text, parse_judgment(text)),
            "error.type": (kind[0] if kind else "_OTHER") if has_failed else None,
            "error.message": error[:LONGEST_TEXT],
            "gen_ai.request.model": row["model"],
            "memray_eval.run_id": run_id,
            **{f"memray_eval.{name}": row[name] for name in COLUMNS[:-2]},
            "memray_eval.judge": score["judge"],
            "memray_eval.status": score["status"],
            "memray_eval.is_estimate": score["status"] == "scored" and is_estimate(score["judge"]),
        }
        yield {key: value for key, value in attributes.items() if value not in (None, "")}

"""An OpenTelemetry collector's HTTP port for logs: it parses what comes as
ExportLogsServiceRequest, and keeps it."""

import contextlib
import gzip
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

PROTOBUF = "application/x-protobuf"


class Raw(NamedTuple):
    """A reply as it goes over the wire."""

    body: bytes
    status: int = 200
    kind: str = "application/json"


@dataclass
class Collector:
    """The running server. `odd` are replies to the next requests, whose events are not kept;
    `latency_s` is how long it takes to answer, after which the events are kept; `n_rejected` of
    every request are said to be rejected."""

    odd: list[Raw] = field(default_factory=list)
    latency_s: float = 0.0
    n_rejected: int = 0
    retry_after: str = "7"
    port: int = 0
    n_requests: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def received(self) -> Counter[str]:
        """How often each id has come."""
        return Counter(event["log.record.uid"] for event in self.events)

    def keep(self, body: bytes) -> ExportLogsServiceResponse:
        request = ExportLogsServiceRequest.FromString(body)
        for of_resource in request.resource_logs:
            self.resources.append(_plain(of_resource.resource.attributes))
            for scope in of_resource.scope_logs:
                for record in scope.log_records:
                    head = {"name": record.event_name, "severity": record.severity_number}
                    self.events.append(_plain(record.attributes) | head)
        reply = ExportLogsServiceResponse()
        if self.n_rejected:
            reply.partial_success.rejected_log_records = self.n_rejected
            reply.partial_success.error_message = "too old"
        return reply


def _plain(attributes: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
        for pair in attributes
    }


@contextlib.contextmanager
def collecting(**settings: Any) -> Iterator[Collector]:
    """A collector at a free port of this machine while the block runs."""
    collector = Collector(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.n_requests += 1
            collector.headers.append({key.lower(): text for key, text in self.headers.items()})
            collector.paths.append(self.path)
            if collector.odd:
                return self.answer(collector.odd.pop(0))
            time.sleep(collector.latency_s)
            reply = collector.keep(body).SerializeToString()
            # Whoever was killed while it waited has no answer, and the events are here
            with contextlib.suppress(ConnectionError):
                self.answer(Raw(reply, kind=PROTOBUF))
            return None

        def answer(self, raw: Raw) -> None:
            self.send_response(raw.status)
            self.send_header("content-type", raw.kind)
            self.send_header("content-length", str(len(raw.body)))
            if raw.status == 429:
                self.send_header("retry-after", collector.retry_after)
            self.end_headers()
            self.wfile.write(raw.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()

"""An OpenTelemetry collector's HTTP port for logs: it parses what comes as
ExportLogsServiceRequest, and keeps it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from tests.servers.provider import Raw, serving

PROTOBUF = "application/x-protobuf"


@dataclass
class Collector:
    """The running server. `odd` are replies to the next requests, whose events are not kept;
    `n_rejected` of every request are said to be rejected."""

    odd: list[Raw] = field(default_factory=list)
    n_rejected: int = 0
    endpoint: str = ""
    n_requests: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)

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


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector at a free port of this machine while the block runs."""
    collector = Collector()

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()  # unpacked
        collector.n_requests += 1
        collector.headers.append({key.lower(): text for key, text in request.headers.items()})
        collector.paths.append(request.path)
        if collector.odd:
            raw = collector.odd.pop(0)
        else:
            raw = Raw(collector.keep(body).SerializeToString(), content_type=PROTOBUF)
        headers = {"content-type": raw.content_type, **raw.headers}
        return web.Response(body=raw.body, status=raw.status, headers=headers)

    routes = [web.post("/{path:.*}", answer)]
    with serving(lambda body: "", more=lambda provider: routes) as server:
        collector.endpoint = server.root
        yield collector

"""A server that answers what a test says, byte by byte: replies that no completion is."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.judgments import judgment_reply, question_seed

UNIT = re.compile(r"\bunit-(\d+)\b")


@dataclass(frozen=True)
class Raw:
    """A reply as it goes over the wire. `cut`: the connection is closed before the announced end;
    `stall_s`: that long after the body nothing comes."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    encoding: str | None = None
    cut: bool = False
    stall_s: float = 0.0

    @classmethod
    def of(cls, value: Any) -> Raw:
        return cls(json.dumps(value).encode())

    @classmethod
    def stream(cls, *events: str, **how: Any) -> Raw:
        """A stream of events, each the text behind its `data: `."""
        return cls(
            "".join(f"data: {event}\n\n" for event in events).encode(),
            kind="text/event-stream",
            **how,
        )


@dataclass
class RawServer:
    """The running server: which unit gets which reply (an entry of `odd`), all others a good
    one."""

    odd: dict[int, Raw]
    good: Callable[[dict[str, Any]], Raw]
    port: int = 0
    asked: Counter[int] = field(default_factory=Counter)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def reply(self, body: dict[str, Any]) -> Raw:
        """By the first unit that the request names last: an earlier turn may quote others."""
        named = UNIT.findall(json.dumps(body))
        unit = int(named[-1]) if named else -1
        self.asked[unit] += 1
        return self.odd.get(unit) or self.good(body)


@contextlib.contextmanager
def answering(odd: dict[int, Raw], good: Callable[[dict[str, Any]], Raw]) -> Iterator[RawServer]:
    served = RawServer(odd, good)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            raw = served.reply(json.loads(self.rfile.read(length)))
            self.send_response(raw.status)
            self.send_header("content-type", raw.kind)
            if raw.encoding:
                self.send_header("content-encoding", raw.encoding)
            if raw.status != 204:
                self.send_header(
                    "content-length", str(len(raw.body) + (99 if raw.cut or raw.stall_s else 0))
                )
            self.end_headers()
            with contextlib.suppress(OSError):  # the client may have gone
                self.wfile.write(raw.body)
                self.wfile.flush()
                time.sleep(raw.stall_s)
            self.close_connection = bool(raw.cut or raw.stall_s)

        def log_message(self, format: str, *args: Any) -> None:
            return

    class Quiet(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 256

        def handle_error(self, request: Any, client_address: Any) -> None:
            return  # a client that went before its reply was whole

    server = Quiet(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


def completion(content: Any, **changed: Any) -> dict[str, Any]:
    """A chat completion with that content, and fields changed."""
    message = {"role": "assistant", "content": content}
    fixed = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {**fixed, "choices": choices, "usage": usage, **changed}


def verdict(body: dict[str, Any]) -> Raw:
    """A good judge's reply."""
    return Raw.of(completion(judgment_reply(body)))


def chunk(**changed: Any) -> str:
    """An event of a streamed answer: a choice with some text, and fields changed."""
    choice = {"index": 0, "delta": {"content": "Rest more."}, "finish_reason": None}
    fixed = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return json.dumps({**fixed, "choices": [choice], **changed})


def ended(**changed: Any) -> str:
    """The last event of a streamed answer."""
    return chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], **changed)


def answer(body: dict[str, Any]) -> Raw:
    """A good candidate's reply."""
    first_event = chunk(
        choices=[
            {
                "index": 0,
                "delta": {"content": f"Rest more, {question_seed(body) % 9}."},
                "finish_reason": None,
            }
        ]
    )
    return Raw.stream(first_event, ended(), "[DONE]")

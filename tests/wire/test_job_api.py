"""What the job commands make of a server that is no Ray dashboard, or a proxy before one."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from memray_eval.errors import ResourceError
from memray_eval.submission.package import Jobs


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>", "is not a Ray dashboard"),
        (200, b"[]", "is not a Ray dashboard"),
        (404, b"", "is not a Ray dashboard"),
        (403, b"", "did not let us in"),
        (400, b"a bad request", "answered 400: a bad request"),
        (429, b"slowly", "answered 429: slowly"),
        (502, b"", "answered 502: no text"),
    ],
)
def test_a_server_that_is_not_rays_is_a_message(
    status: int, body: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")  # Jobs sets it; put back afterwards
    with answering(status, body) as address, pytest.raises(ResourceError, match=message):
        Jobs(address)

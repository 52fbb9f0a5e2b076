"""An S3 server, moto's (of the dev extra), as a process of its own.

    python -m tests.servers.s3 [LEAST_DELAY_S MOST_DELAY_S]

Every request waits for a delay between the two first, as a far server's would; GET /_latency/0.1
makes it a tenth of a second from then on. No key, and the access key `denied`, may do nothing;
`reader` may not write. GET /_calls says how many requests came, by method."""

import contextlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.servers.starting import ask, started

BUCKET = "bucket"
KEY, SECRET = "tests-access-key", "tests-secret-key"
DENIED = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'  # noqa: E501
WRITES = ("PUT", "POST", "DELETE")


@dataclass(frozen=True)
class S3Server:
    """A running server, seen from the test."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, key: str = KEY) -> dict[str, str]:
        """What a process that uses this server needs."""
        where = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": SECRET, **where}

    def calls(self) -> Counter[str]:
        """The requests so far, by method."""
        return Counter(json.loads(self._request("GET", "/_calls")))

    def at_once(self) -> int:
        """The most requests that waited for the latency at the same time since it was set."""
        return int(self._request("GET", "/_at_once"))

    def set_latency(self, seconds: float) -> None:
        """Has each request from now on take so much longer."""
        self._request("GET", f"/_latency/{seconds}")

    def make_bucket(self, name: str = BUCKET) -> None:
        self._request("PUT", f"/{name}")

    def _request(self, method: str, path: str) -> bytes:
        signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/"}
        return ask(self.port, method, path, headers=signed)


@contextlib.contextmanager
def serving_s3(delay_s: tuple[float, float] = (0.0, 0.0)) -> Iterator[S3Server]:
    """Runs the server with one bucket until the block ends, or this process does; each request
    takes a delay between the two more."""
    with started("tests.servers.s3", *map(str, delay_s)) as port:
        server = S3Server(port)
        server.make_bucket()
        yield server


def guarded(
    app: Callable[..., Iterable[bytes]], delay_s: tuple[float, float]
) -> Callable[..., Iterable[bytes]]:
    """The server with its requests counted, delayed, and refused to the keys that may not."""
    calls, lock, delays_s = Counter[str](), threading.Lock(), [delay_s]
    waiting = Counter[str]()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, whose = environ["REQUEST_METHOD"], environ.get("HTTP_AUTHORIZATION", "")
        if environ["PATH_INFO"] == "/_calls":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(calls).encode()]
        if environ["PATH_INFO"] == "/_at_once":
            start("200 OK", [])
            return [str(waiting["most"]).encode()]
        if environ["PATH_INFO"].startswith("/_latency/"):
            waiting["most"] = 0
            latency_s = float(environ["PATH_INFO"].rpartition("/")[2])
            delays_s[0] = (latency_s, latency_s)
            start("200 OK", [])
            return [b""]
        with lock:
            calls[method] += 1
            waiting["now"] += 1
            waiting["most"] = max(waiting["most"], waiting["now"])
        time.sleep(random.uniform(*delays_s[0]))
        with lock:
            waiting["now"] -= 1
        if (
            "Credential=" not in whose
            or "Credential=denied/" in whose
            or ("Credential=reader/" in whose and method in WRITES)
        ):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"" if method == "HEAD" else DENIED]
        return app(environ, start)

    return answer


def main() -> None:
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    least, most = map(float, sys.argv[1:] or (0.0, 0.0))
    app = guarded(DomainDispatcherApplication(create_backend_app), (least, most))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

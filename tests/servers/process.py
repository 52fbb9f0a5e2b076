"""The provider of tests/servers/provider.py as a process of its own, so that it shares no
interpreter lock with its clients.

    python -m tests.servers.process '{"latency_s": 0.2, "storm": [7, 0.02, 0.05, 0, 0.01, 0.02]}'

prints its port and serves until it is ended. It answers judges by their schema and every other
request with some words. GET /_stats says what it counted (with ?full=1 also
every arrival), POST /_reset forgets it, POST /_latency/SECONDS changes the latency."""

import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.servers.batches import BatchApis
from tests.servers.judgments import reply_to
from tests.servers.provider import Limits, Provider, Reply, SlidingWindow, Storm, start
from tests.servers.starting import ask, started

STORM = ("seed", "rate_429", "rate_500", "rate_hang", "rate_reset", "rate_malformed")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the process serves: keywords of `serving_process`, and keys of the command's argument.
    `storm` holds the figures of STORM, in that order; those left out are 0."""

    latency_s: float = 0.0
    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    count_tokens: bool = False
    takes_keys: bool = False
    storm: Sequence[float] = ()
    hang_s: float = 30.0
    retry_after_s: float | None = None

    def reply(self) -> Reply:
        """A new script: a storm has not seen any body yet."""
        if not self.storm:
            return reply_to
        rates: dict[str, Any] = dict(zip(STORM, self.storm, strict=False)) | {
            "seed": int(self.storm[0])
        }
        wait = None if self.retry_after_s is None else f"{self.retry_after_s:g}"
        return Storm(reply=reply_to, hang_s=self.hang_s, retry_after=wait, **rates)


class Served:
    """A provider by its settings, with the handlers that tell of it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.provider = Provider(
            settings.reply(),
            settings.latency_s,
            window=SlidingWindow(Limits(settings.requests_per_min, settings.tokens_per_min)),
            keep_requests=False,
            count_tokens=settings.count_tokens,
            takes_keys=settings.takes_keys,
        )
        self.batches = BatchApis(self.provider)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/_stats", self.stats),
            web.post("/_reset", self.reset),
            web.post("/_latency/{seconds}", self.set_latency),
            *self.batches.routes(),
        ]

    async def stats(self, request: web.Request) -> web.Response:
        return web.json_response(stats(self.provider, "full" in request.query))

    async def reset(self, request: web.Request) -> web.Response:
        self.provider.reset()
        self.provider.reply = self._settings.reply()
        return web.json_response({})

    async def set_latency(self, request: web.Request) -> web.Response:
        self.provider.latency_s = float(request.match_info["seconds"])
        return web.json_response({})


def stats(provider: Provider, full: bool = False) -> dict[str, Any]:
    """What was counted. `paid_again`: requests that were answered beyond the first with their body.
    Arrivals are those let in, in s of time.monotonic."""
    times = provider.times
    out: dict[str, Any] = {
        "n_requests": provider.n_requests,
        "n_429": provider.n_429,
        "n_answered": provider.answered.total(),
        "input_tokens": provider.input_tokens,
        "output_tokens": provider.output_tokens,
        "paid_again": provider.answered.total() - len(provider.answered),
        "first_arrival_s": times[0] if times else None,
        "last_arrival_s": times[-1] if times else None,
    }
    if full:
        out["times"] = list(times)
    return out


class ServerProcess:
    """A running server process, seen from the test."""

    def __init__(self, port: int) -> None:
        self.port, self.root = port, f"http://127.0.0.1:{port}"
        self.base_url = f"{self.root}/v1"

    def stats(self, full: bool = False) -> dict[str, Any]:
        return self._ask("GET", "/_stats?full=1" if full else "/_stats")

    def reset(self) -> None:
        self._ask("POST", "/_reset")

    def set_latency(self, seconds: float) -> None:
        self._ask("POST", f"/_latency/{seconds}")

    def batches(self) -> dict[str, Any]:
        """What the batch APIs counted."""
        return self._ask("GET", "/_batches")

    def script_batches(self, **course: Any) -> None:
        """How batches go from now on: fields of a Course."""
        self._ask("POST", "/_batches", json.dumps(course))

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(ask(self.port, method, path, body))
        return answer


@contextmanager
def serving_process(port: int = 0, **settings: Any) -> Iterator[ServerProcess]:
    """Runs the server as a process until the block ends (or this process does). `settings`: the
    fields of Settings. A fixed port lets a later server take an earlier one's place."""
    serves = json.dumps(dataclasses.asdict(Settings(**settings)))
    with started("tests.servers.process", serves, str(port)) as its_port:
        yield ServerProcess(its_port)


async def serve(settings: Settings, port: int | None) -> None:
    """Serves until SIGTERM or SIGINT, or, at a port that the program names, until nobody holds the
    other end of its standard input. What is in flight is lost."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    served = Served(settings)
    await start(served.provider, port or 0, served.routes())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if port is not None:
        loop.add_reader(sys.stdin.fileno(), ended.set)
    print(served.provider.port, flush=True)
    await ended.wait()


def main() -> None:
    settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    port = int(sys.argv[2]) if len(sys.argv) > 2 else None
    asyncio.run(serve(Settings(**settings), port))


if __name__ == "__main__":
    main()

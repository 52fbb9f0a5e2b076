"""The provider of tests/servers/provider.py as a process of its own, so that it shares no
interpreter lock with its clients.

    python -m tests.servers.process '{"latency_s": 0.2, "storm": [7, 0.02, 0.05, 0, 0.01, 0.02]}'

prints its port and serves until it is ended. It answers judges by their schema and every other
request with some words. GET /_stats says what it counted (with ?full=1 also
every arrival), POST /_reset forgets it, POST /_set changes settings."""

import asyncio
import dataclasses
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.servers.batches import BatchApis
from tests.servers.judgments import reply_to
from tests.servers.provider import Limits, Provider, Reply, SlidingWindow, Storm, start

STORM = ("seed", "rate_429", "rate_500", "rate_hang", "rate_reset", "rate_malformed")
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the process serves: keywords of `serving_process`, and keys of the command's argument and
    of POST /_set. `storm` holds the figures of STORM, in that order; those left out are 0.
    `words`: the length of an answer without a schema."""

    latency_s: float = 0.0
    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    window_s: float = 60.0
    announce: bool = True
    count_tokens: bool = False
    down: bool = False
    takes_keys: bool = False
    storm: Sequence[float] = ()
    hang_s: float = 30.0
    retry_after_s: float | None = None
    words: int = 12

    @property
    def limits(self) -> Limits:
        return Limits(self.requests_per_min, self.tokens_per_min, self.window_s, self.announce)

    def reply(self) -> Reply:
        """A new script: a storm has not seen any body yet."""
        calm = partial(reply_to, words=self.words)
        if not self.storm:
            return calm
        rates: dict[str, Any] = dict(zip(STORM, self.storm, strict=False)) | {
            "seed": int(self.storm[0])
        }
        wait = None if self.retry_after_s is None else f"{self.retry_after_s:g}"
        return Storm(reply=calm, hang_s=self.hang_s, retry_after=wait, **rates)


class Served:
    """A provider and the settings that it serves by, with the handlers that tell and change
    them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.provider = Provider(
            settings.reply(), window=SlidingWindow(settings.limits), keep_requests=False
        )
        self.batches = BatchApis(self.provider)
        self._obey(settings)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/_stats", self.stats),
            web.post("/_reset", self.reset),
            web.post("/_set", self.set),
            *self.batches.routes(),
        ]

    async def stats(self, request: web.Request) -> web.Response:
        return web.json_response(stats(self.provider, "full" in request.query))

    async def reset(self, request: web.Request) -> web.Response:
        self.provider.reset()
        self.provider.reply = self._settings.reply()
        return web.json_response({})

    async def set(self, request: web.Request) -> web.Response:
        changes = await request.json()
        try:
            changed = dataclasses.replace(self._settings, **changes)
            self._obey(changed)
        except (TypeError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        if changes.keys() & {"storm", "hang_s", "retry_after_s", "words"}:
            self.provider.reply = changed.reply()
        self._settings = changed
        return web.json_response({})

    def _obey(self, settings: Settings) -> None:
        self.provider.window.limits = settings.limits
        self.provider.latency_s, self.provider.down = settings.latency_s, settings.down
        self.provider.count_tokens = settings.count_tokens
        self.provider.takes_keys = settings.takes_keys


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

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.port, self.process = port, process
        self.root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.root}/v1"

    def stats(self, full: bool = False) -> dict[str, Any]:
        return self._request("GET", "/_stats?full=1" if full else "/_stats")

    def reset(self) -> None:
        self._request("POST", "/_reset")

    def batches(self) -> dict[str, Any]:
        """What the batch APIs counted."""
        return self._request("GET", "/_batches")

    def script_batches(self, **changes: Any) -> None:
        """How batches go from now on: fields of BatchApis, courses as mappings."""
        self._request("POST", "/_batches", json.dumps(changes))

    def set(self, **changes: Any) -> None:
        """Changes some of the settings from the next request on; ValueError for a name or value
        that cannot be."""
        self._request("POST", "/_set", json.dumps(changes))

    def _request(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(answer["error"])
        return answer


@contextmanager
def serving_process(port: int = 0, **settings: Any) -> Iterator[ServerProcess]:
    """Runs the server as a process until the block ends (or this process does). `settings`: the
    fields of Settings. A fixed port lets a later server take an earlier one's place."""
    serves = json.dumps(dataclasses.asdict(Settings(**settings)))
    program = [sys.executable, "-m", "tests.servers.process", serves, str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, cwd=REPOSITORY, text=True, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(
                    f"the server process ended at its start with {process.wait()}; see its stderr"
                )
            yield ServerProcess(int(line), process)
        finally:
            process.terminate()


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

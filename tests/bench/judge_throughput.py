"""Judge calls/s of a whole run beside a bare aiohttp client, in turns, on a local provider with
200 ms latency on the same cores; and the CPU of a call, by what takes it.

    python -m tests.bench.judge_throughput [--units 300] [--latency-s 0.2] [--rounds 3]

The run judges ten metrics of each response with structured validation, its limiter and its memory
of calls on; it is timed at the provider, from the first request to the last, so that its start does
not count. The bare client posts a body of the same length, as many at a time from one process, and
parses each reply as JSON. The CPU of a call is that of the run's process while it judges; its parts
are what the innermost function of this package was doing, as looked at every few ms."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp

from memray_eval.execution.runs import run
from tests.build import judging_job, write_responses
from tests.servers.process import ServerProcess, serving_process

METRICS = (
    "memory_utilization",
    "groundedness",
    "coherence",
    "emotional_congruence",
    "helpfulness",
    "safety",
    "persona_consistency",
    "politeness",
    "empathy",
    "conversational_continuity",
)
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["score"],
}
BODY_CHARACTERS = 2500  # of the prompt of a call of the run, about
IN_FLIGHT = 200
# By the start of a module's name below the package, the first that fits
PARTS = (
    ("provider_http", "HTTP"),
    ("judges.limits", "limits"),
    *((f"judges.{name}", "memory of calls") for name in ("call_cache", "paid_calls", "segment")),
    ("execution.services", "memory of calls"),
    ("judges", "judge call"),
    *((name, "prompts and scores") for name in ("stages", "metric", "text_processing")),
    ("", "records and the rest"),
)
LOOK_S = 0.002


class CpuParts:
    """What the main thread does within an event loop, looked at while it runs, and the CPU of the
    process meanwhile."""

    def __init__(self) -> None:
        self.looks, self.cpu_s = Counter[str](), 0.0
        self._is_over, self._main = threading.Event(), threading.main_thread().ident or 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CpuParts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        last_s = time.process_time()
        while not self._is_over.wait(LOOK_S):
            part, now_s = _part_of(sys._current_frames().get(self._main)), time.process_time()
            if part is not None:
                self.cpu_s += now_s - last_s
            if part:
                self.looks[part] += 1
            last_s = now_s


def _part_of(frame: FrameType | None) -> str | None:
    """The part that a stack is in; "" if it waits, None outside of an event loop."""
    part, is_first = "", True
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if is_first and module == "selectors":
            part = "waits"
        is_first = False
        if not part and module.startswith("memray_eval."):
            inner = module.removeprefix("memray_eval.")
            part = next(title for start, title in PARTS if inner.startswith(start))
        if name == "_run_once":
            return "" if part == "waits" else part or "event loop and sockets"
        frame = frame.f_back
    return None


async def bare(base_url: str, calls: int, in_flight: int) -> float:
    """Calls/s of aiohttp alone."""
    places = asyncio.Semaphore(in_flight)
    format_ = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}

    async def ask(session: aiohttp.ClientSession, number: int) -> None:
        words = f"{number} " + "word " * (BODY_CHARACTERS // 5)
        messages = [{"role": "user", "content": words}]
        body = {"model": "local", "messages": messages, "response_format": format_}
        async with places, session.post(f"{base_url}/chat/completions", json=body) as reply:
            assert "choices" in await reply.json()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        started = time.perf_counter()
        await asyncio.gather(*(ask(session, number) for number in range(calls)))
        return calls / (time.perf_counter() - started)


def ours(server: ServerProcess, units: int, latency_s: float, **judging: Any) -> float:
    """Calls/s of a run, from the first request to the last answer."""
    server.reset()
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_responses(Path(folder), units)
        config = judging_job(
            dataset, Path(folder), server.base_url, METRICS, executor="local", **judging
        )
        finished = run(config, lambda line: None, quiet=True)
    stats = server.stats()
    assert finished.summary.n_failed_units == 0, finished.summary
    assert stats["n_requests"] == units * len(METRICS), stats
    return float(
        stats["n_requests"] / (stats["last_arrival_s"] + latency_s - stats["first_arrival_s"])
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=300)
    parser.add_argument("--latency-s", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    options = parser.parse_args()
    calls, in_flight = options.units * len(METRICS), options.in_flight
    with serving_process(latency_s=options.latency_s) as server:
        ours(server, 2, options.latency_s)  # imports what is needed
        for _ in range(options.rounds):
            bare_s = asyncio.run(bare(server.base_url, calls, in_flight))
            with CpuParts() as cpu:
                run_s = ours(server, options.units, options.latency_s, max_in_flight=in_flight)
            total_ms = 1000 * cpu.cpu_s / calls
            print(f"aiohttp alone {bare_s:5.0f} calls/s, a whole run {run_s:5.0f}: ", end="")
            print(f"{run_s / bare_s:.2f} of it; {total_ms:.2f} ms of CPU a call, of which")
            for part, looks in cpu.looks.most_common():
                share = looks / cpu.looks.total()
                print(f"    {part:<22}{total_ms * share:5.2f} ms")


if __name__ == "__main__":
    main()

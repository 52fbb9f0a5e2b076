"""Judge calls/s of a whole run beside a bare aiohttp client, in turns, on a local provider with
200 ms latency on the same cores; and the CPU of a call.

    python -m tests.bench.judge_throughput [--units 300] [--latency-s 0.2] [--rounds 3]

The run judges ten metrics of each response with structured validation, its limiter and its memory
of calls on; it is timed at the provider, from the first request to the last, so that its start does
not count. The bare client posts a body of the same length, as many at a time from one process, and
parses each reply as JSON. The CPU of a call is that of the run, its start and end included."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
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


def calls_per_s(
    server: ServerProcess,
    units: int,
    latency_s: float,
    metrics: Sequence[str] = METRICS,
    executor: str = "local",
    **judging: Any,
) -> float:
    """Of a run, from the first request to the last answer."""
    server.reset()
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_responses(Path(folder), units)
        config = judging_job(dataset, Path(folder), server.base_url, metrics, executor, **judging)
        finished = run(config, lambda line: None, quiet=True)
    stats = server.stats()
    assert finished.summary.n_failed_units == 0, finished.summary
    assert stats["n_requests"] == units * len(metrics), stats
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
        calls_per_s(server, 2, options.latency_s)  # imports what is needed
        for _ in range(options.rounds):
            bare_s = asyncio.run(bare(server.base_url, calls, in_flight))
            began = time.process_time()
            run_s = calls_per_s(server, options.units, options.latency_s, max_in_flight=in_flight)
            cpu_ms = 1000 * (time.process_time() - began) / calls
            print(f"aiohttp alone {bare_s:5.0f} calls/s, a whole run {run_s:5.0f}: ", end="")
            print(f"{run_s / bare_s:.2f} of it; {cpu_ms:.2f} ms of CPU a call")


if __name__ == "__main__":
    main()

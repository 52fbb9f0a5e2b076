"""Judge calls/s of a whole run against the bare openai client, on a local provider with 200 ms
latency on the same cores.

    python -m tests.bench.judge_throughput [--units 1000] [--latency-s 0.2]

The run judges ten metrics of each response with structured validation, its limiter and its memory
of calls on; it is timed at the provider, from the first request to the last, so that the start of
Ray does not count. The bare client sends the same number of requests, 200 at a time from one
process, and validates nothing: over httpx, the SDK's default, and over aiohttp."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import openai

from memray_eval.execution.prepare import run
from tests.build import RESPONSE_TEXT, judging_job, write_responses
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
IN_FLIGHT = 200


async def bare(base_url: str, calls: int, client: Any) -> float:
    """Calls/s of the SDK alone."""
    asked = openai.AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0, http_client=client)
    places, format_ = (
        asyncio.Semaphore(IN_FLIGHT),
        {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    )

    async def ask(number: int) -> None:
        async with places:
            await asked.chat.completions.create(
                model="local",
                messages=[
                    {"role": "system", "content": RESPONSE_TEXT * 20},
                    {"role": "user", "content": f"{RESPONSE_TEXT} {number}"},
                ],
                response_format=format_,  # type: ignore[arg-type]
            )

    started = time.perf_counter()
    await asyncio.gather(*(ask(number) for number in range(calls)))
    await asked.close()
    return calls / (time.perf_counter() - started)


def ours(server: ServerProcess, units: int, latency_s: float, **judging: Any) -> float:
    """Calls/s of a run, from the first request to the last answer."""
    server.reset()
    with tempfile.TemporaryDirectory() as folder:
        config = judging_job(
            write_responses(Path(folder), units), Path(folder), server.base_url, METRICS, **judging
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
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--latency-s", type=float, default=0.2)
    parser.add_argument("--actors", type=int, default=None)
    parser.add_argument("--in-flight", type=int, default=None)
    options = parser.parse_args()
    with serving_process(latency_s=options.latency_s) as server:
        calls = min(3000, options.units * len(METRICS))
        httpx_s = asyncio.run(bare(server.base_url, calls, None))
        aiohttp_s = asyncio.run(bare(server.base_url, calls, openai.DefaultAioHttpClient()))
        run_s = ours(
            server,
            options.units,
            options.latency_s,
            actors=options.actors,
            max_in_flight=options.in_flight,
        )
    print(f"bare openai client, httpx:   {httpx_s:6.0f} calls/s")
    print(f"bare openai client, aiohttp: {aiohttp_s:6.0f} calls/s")
    print(
        f"a whole run:                 {run_s:6.0f} calls/s, {run_s / httpx_s:.2f} and "
        f"{run_s / aiohttp_s:.2f} of these"
    )


if __name__ == "__main__":
    main()

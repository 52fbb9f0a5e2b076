"""Wall time of generating and judging in one run, against the slower of the two alone.

    python -m tests.bench.overlap [--samples 100]

Latencies are stubbed at the edges only: a candidate's server and a judge's, each a process of its
own. Times are from the first request at either server to the last."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.execution.prepare import run
from tests.conftest import SAMPLES
from tests.servers.process import ServerProcess, serving_process

METRICS = ("helpfulness", "empathy", "safety", "politeness")


def job(candidate: ServerProcess, judge: ServerProcess, folder: str, samples: int) -> RunConfig:
    config: dict[str, Any] = {
        "dataset": str(SAMPLES),
        "limit": samples,
        "candidates": [
            {"name": "served", "model": "m", "backend": "openai", "base_url": candidate.base_url}
        ],
        "server": {"max_in_flight": 2},
        "metrics": METRICS,
        "judge": "openai/local",
        "judging": {
            "base_urls": {"openai": judge.base_url},
            "cache": "off",
            "actors": 1,
            "max_in_flight": 8,
        },
        "rows_per_block": 5,
        "out": folder,
        "cluster": {"num_cpus": 2},
    }
    return RunConfig.model_validate(config)


def span(*servers: ServerProcess) -> float:
    """Seconds from the first request to the last, over several servers."""
    stats = [server.stats() for server in servers]
    return float(
        max(found["last_arrival_s"] for found in stats)
        - min(found["first_arrival_s"] for found in stats)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=100)
    options = parser.parse_args()
    with (
        serving_process(latency_s=0.5) as candidate,
        serving_process(latency_s=0.45) as judge,
        tempfile.TemporaryDirectory() as folder,
    ):
        config = job(candidate, judge, folder, options.samples)
        generated = run(config, lambda line: None, quiet=True, generate_only=True)
        generation_s = span(candidate)
        given = {
            "candidates": [{"name": "given", "model": "given", "backend": "given"}],
            "dataset": generated.folder.path,
        }
        run(RunConfig.model_validate(config.model_dump() | given), lambda line: None, quiet=True)
        judging_s = span(judge)
        candidate.reset(), judge.reset()
        run(config, lambda line: None, quiet=True)
        both_s = span(candidate, judge)
    slower_s = max(generation_s, judging_s)
    print(
        f"generation {generation_s:.1f} s, judging {judging_s:.1f} s, both in one run {both_s:.1f} "
        f"s: {both_s / slower_s:.2f}"
    )


if __name__ == "__main__":
    main()

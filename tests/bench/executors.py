"""The local executor beside Ray's, on a local provider with 200 ms latency on the same cores.

    python -m tests.bench.executors [--units 1000] [--rows 10] [--rounds 3]

Calls/s of judging `units` responses by two metrics, from the first request to the last answer, in
alternating rounds; and the wall time from the shell of `evaluate` on `rows` responses with two
judged metrics, and with one computed metric."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench.judge_throughput import calls_per_s
from tests.build import write_responses
from tests.servers.process import ServerProcess, serving_process

METRICS = ("helpfulness", "empathy")
LATENCY_S = 0.2


def shell_s(server: ServerProcess, rows: int, metrics: str, judge: str) -> float:
    """Seconds of `memray-eval evaluate`, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(write_responses(Path(folder), rows)), "--metrics", metrics, "--judge", judge]
        words += [
            "--out",
            folder,
            "--no-cache",
            "--set",
            f"judging.base_urls.openai={server.base_url}",
        ]
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "memray_eval", "evaluate", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"local": [], "ray": []}
    with serving_process(latency_s=LATENCY_S) as server:
        for _ in range(options.rounds):
            for executor, found in rates.items():
                found.append(calls_per_s(server, options.units, LATENCY_S, METRICS, executor))
        judged = [
            shell_s(server, options.rows, ",".join(METRICS), "openai/local")
            for _ in range(options.rounds)
        ]
        computed = [
            shell_s(server, options.rows, "readability_score", "rules")
            for _ in range(options.rounds)
        ]
    for executor, found in rates.items():
        print(f"{executor + ':':<7} {', '.join(f'{one:.0f}' for one in found)} calls/s")
    print(f"local is {median(rates['local']) / median(rates['ray']):.2f} of ray (medians)")
    for what, times in (("two judged metrics", judged), ("a computed metric", computed)):
        told = ", ".join(f"{one:.1f}" for one in times)
        print(f"{options.rows} rows with {what}, from the shell: {told} s")


if __name__ == "__main__":
    main()

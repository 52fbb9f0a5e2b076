"""Judging in batches: the wall time of a whole run, and the driver's memory, at two sizes.

    python -m tests.bench.batch_judging [--calls 5000 20000] [--batch 500] [--seconds 2]

Each run is a process of its own, in batches of so many calls that take `--seconds` at the provider
(tests/servers/batches.py, another process), eight of them at a time. `up to the last batch` ends
when the last verdict is kept; the rest of the time records are judged from the store. Growth is the
rise of the peak resident memory over the smallest run, a call."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memray_eval.execution.prepare import run
from memray_eval.judges.batches.journal import BatchJournal
from tests.build import judging_job, write_responses
from tests.servers.process import serving_process

METRICS = ("helpfulness", "empathy", "safety", "politeness")
AT_ONCE = 8


def one(calls: int, batch: int, base_url: str) -> None:
    """Runs in this process and prints its figures as JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder, units = Path(name), calls // len(METRICS)
        options = {
            "poll_s": 0.5,
            "min_calls": 1,
            "limits": {"openai": {"calls": batch, "at_once": AT_ONCE}},
        }
        data = write_responses(folder, units)
        config = judging_job(data, folder, base_url, METRICS, "local", mode="batch", batch=options)
        began = time.time()
        finished = run(config, lambda line: None, quiet=True)
        entries = BatchJournal(finished.folder).load()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {
        "units": finished.summary.n_units,
        "scored": sum(metric.n_scored for metric in finished.summary.metrics),
        "batches": len(entries),
        "total_s": finished.summary.total_s,
        "batches_s": max(entry.collected_s or 0.0 for entry in entries) - began,
        "peak_bytes": peak_bytes,
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, nargs="+", default=[5_000, 20_000])
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.url:
        one(options.calls[0], options.batch, options.url)
        return
    least: dict[str, float] | None = None
    for calls in options.calls:
        with serving_process() as server:
            server.script_batches(course={"seconds": options.seconds, "looks": 0})
            command = [sys.executable, "-m", __spec__.name, f"--url={server.base_url}"]
            command += [f"--calls={calls}", f"--batch={options.batch}"]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found, stats = json.loads(done.stdout.splitlines()[-1]), server.batches()
        assert found["scored"] == stats["n_calls"] == calls, (found, stats)
        assert stats["paid_again"] == stats["n_live"] == 0, stats
        least = least or found | {"calls": calls}
        grown = (found["peak_bytes"] - least["peak_bytes"]) / max(1, calls - least["calls"])
        print(
            f"{calls} calls in {found['batches']} batches: {found['total_s']:.1f} s in all, "
            f"{found['batches_s']:.1f} s up to the last batch; the driver's peak is "
            f"{found['peak_bytes'] / 1e6:.0f} MB, {grown:.0f} bytes a call more",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""The driver's memory and the rows/s of whole runs with the rules judge, at 1,000, 10,000 and
100,000 units.

    python -m tests.bench.driver_memory [--units 1000 10000 100000] [--metrics readability_score]

Each run is a process of its own. Growth is the rise of its peak resident memory over the smallest
run, a unit; the workers of Ray are other processes and not counted. Rows/s are of the whole run,
start-up and reduction included, and of the span between its first and last written block."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from memray_eval.execution.runs import run
from tests.build import judging_job, write_responses


def one(units: int, metrics: tuple[str, ...]) -> None:
    """Runs in this process and prints its figures as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        config = judging_job(
            write_responses(Path(folder), units), Path(folder), "", metrics
        ).model_copy(update={"judge": "rules"})
        finished = run(config, lambda line: None, quiet=True)
        stages = finished.folder.read_manifest()["stages"]
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {
        "total_s": finished.summary.total_s,
        "span_s": stages["write"]["ended"] - stages["read"]["started"],
    }
    print(json.dumps({"units": finished.summary.n_units, "peak_bytes": peak_bytes, **figures}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--metrics", default="readability_score")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.units[0], tuple(options.metrics.split(",")))
        return
    least: dict[str, float] | None = None
    for units in options.units:
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            "--one",
            "--units",
            str(units),
            "--metrics",
            options.metrics,
        ]
        found = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[
                -1
            ]
        )
        assert found["units"] == units
        least = least or found
        grown = (found["peak_bytes"] - least["peak_bytes"]) / max(1, units - least["units"])
        rates = (
            f"{units / found['total_s']:.0f} rows/s in all, {units / found['span_s']:.0f} rows/s "
            "in the pipeline"
        )
        print(
            f"{units} units: peak {found['peak_bytes'] / 1e6:.0f} MB, {grown:.0f} bytes a unit "
            f"more; {rates}",
            flush=True,
        )


if __name__ == "__main__":
    main()

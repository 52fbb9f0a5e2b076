"""Runs with a sink beside runs without one, in alternating rounds: judging at the pace of a judge's
limit, with 200 ms latency, from the start of the run to the end of all sending.

    python -m tests.bench.sinks [--units 1000] [--calls-per-s 100] [--rounds 3]
        [--only mlflow]

Prints units/s, and two medians for each sink: in one run, its throughput over the one that it would
have had without sending; and over the runs without a sink, which differ by what else the machine
does. Every run is a process of its own. MLflow keeps its run in files, on this machine."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import run
from tests.build import JUDGE, judging_job, write_responses
from tests.servers.collector import collecting_process
from tests.servers.process import serving_process

METRICS = ("helpfulness", "empathy")
LATENCY_S = 0.2


def child(path: str) -> None:
    """Runs a job, and prints how long that took and what each sink got."""
    config = RunConfig.model_validate_json(Path(path).read_text())
    began = time.perf_counter()
    finished = run(config, lambda line: None, quiet=True)
    took = time.perf_counter() - began
    assert finished.exit_code == 0, finished.summary
    rows = finished.folder.read_json("sinks.json") or []
    assert len(rows) == len(config.sinks)
    assert not any(row["error"] for row in rows), rows
    print(json.dumps({"took_s": took, "sent_s": sum(row["seconds"] for row in rows)}))


def measure(config: RunConfig, folder: Path) -> tuple[float, float]:
    """How long a run takes, in a process of its own, and how long of that it sends."""
    path = folder / "job.json"
    path.write_text(config.model_dump_json())
    words = [sys.executable, "-m", "tests.bench.sinks", "--child", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return told["took_s"], told["sent_s"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--calls-per-s", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="these sinks alone: otlp, mlflow, inspect")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving_process(latency_s=LATENCY_S))
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = stack.enter_context(collecting_process())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limits = {JUDGE: {"requests_per_min": 60 * options.calls_per_s}}
        data = write_responses(folder, options.units)
        base = judging_job(
            data, folder / "out", server.base_url, METRICS, limits=limits, cache="off"
        )
        sinks: dict[str, list[dict[str, Any]]] = {
            "none": [],
            "otlp": [{"kind": "otlp"}],
            "mlflow": [{"kind": "mlflow", "uri": f"file://{folder}/mlruns"}],
            "inspect": [{"kind": "inspect"}],
        }
        if importlib.util.find_spec("mlflow") is None:
            del sinks["mlflow"]
        if options.only:
            sinks = {name: sinks[name] for name in ("none", *options.only)}
        rates: dict[str, list[float]] = {name: [] for name in sinks}
        shares: dict[str, list[float]] = {name: [] for name in sinks}
        for _ in range(options.rounds):
            for name, entries in sinks.items():
                told = base.model_dump(mode="json") | {"sinks": entries, "executor": "auto"}
                took_s, sent_s = measure(RunConfig.model_validate(told), folder)
                rates[name].append(options.units / took_s)
                shares[name].append(1 - sent_s / took_s)
                print(f"{name + ':':<9}{rates[name][-1]:.2f} units/s, {sent_s:.2f} s of it sending")
    for name in list(rates)[1:]:
        ratio = median(rates[name]) / median(rates["none"])
        print(f"with {name}: {median(shares[name]):.3f} in one run, {ratio:.3f} over runs without")


if __name__ == "__main__":
    main()

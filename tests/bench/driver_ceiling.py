"""What the driver takes of a core for a unit, on short prompts and engines that answer at once.

    python -m tests.bench.driver_ceiling [--units 1600 6400] [--batches 16 fitted] [--replicas 2]

Whole runs through Ray, each in a process of its own, with as many fake engines as fit this machine;
`fitted` are batches as for 64 engines (`fit_engine`). The CPU of a unit is the growth of the
driver's between the two sizes over the units between them, and its ceiling one core of that."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memray_eval.config.schema import RunConfig
from tests.build import write_lines

ENGINES = 64  # that `fitted` batches are for
SHARD_ROWS = 256  # as in a run of 65,536 units or more


def job(folder: Path, units: int, batch: str, replicas: int) -> RunConfig:
    rows = [{"id": f"q{n}", "query": f"I slept {n} hours. Is that enough?"} for n in range(units)]
    engine = {"device": "cpu", "replicas": replicas, "cpus": 0.1, "kv_cache_gib": 0.1}
    engine["max_num_seqs"] = 256  # as on a GPU
    return RunConfig.model_validate(
        {
            "dataset": str(write_lines(folder / "samples.jsonl", rows)),
            "out": str(folder / "out"),
            "candidates": [{"name": "fake", "model": "embedded"}],
            "metrics": ["readability_score"],
            "judge": "rules",
            "engine": engine | ({} if batch == "fitted" else {"batch_size": int(batch)}),
            "cluster": {"num_cpus": 4},
            "rows_per_block": SHARD_ROWS,
        }
    )


def one(units: int, batch: str, replicas: int) -> None:
    """Runs in this process and prints its figures as JSON."""
    from memray_eval.execution import plan
    from memray_eval.execution.ray import engine, executor
    from memray_eval.execution.runs import run
    from tests.clusters.fake_engine import fake_engine

    vars(engine)["VllmEngine"] = fake_engine()
    if batch == "fitted":
        vars(executor)["fit_engine"] = lambda config, *rest: plan.fit_engine(
            config.model_copy(update={"replicas": ENGINES}), *rest
        ).model_copy(update={"replicas": replicas})
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        done = run(job(Path(folder), units, batch, replicas), lambda line: None, quiet=True)
        cpu_s = time.process_time() - began
        stages = done.folder.read_manifest()["stages"]
        assert (done.summary.n_units, done.summary.n_failed_units) == (units, 0), done.summary
    span_s = stages["write"]["ended"] - stages["read"]["started"]
    print(json.dumps({"cpu_s": cpu_s, "span_s": span_s}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, nargs=2, default=[1600, 6400])
    parser.add_argument("--batches", nargs="+", default=["16", "fitted"])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(int(options.one[0]), options.one[1], options.replicas)
        return
    for batch in options.batches:
        few, many = (measured(units, batch, options.replicas) for units in options.units)
        n_more = options.units[1] - options.units[0]
        cpu_ms = (many["cpu_s"] - few["cpu_s"]) / n_more * 1e3
        print(
            f"batches {batch:>6}: {cpu_ms:.2f} ms of the driver's CPU a unit, up to "
            f"{1e3 / cpu_ms:,.0f} units/s; here {n_more / (many['span_s'] - few['span_s']):,.0f}",
            flush=True,
        )


def measured(units: int, batch: str, replicas: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.driver_ceiling", "--one", str(units), batch]
    command += ["--replicas", str(replicas)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()

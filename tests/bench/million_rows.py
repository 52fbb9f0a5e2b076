"""What scoring short answers that exist already takes, from a Parquet file to the summary and the
page, by the number of rows.

    python -m tests.bench.million_rows [--units 10000 100000 1000000] [--rounds 1]
        [--old TREE] [--old-units 10000 100000] [--row-group 10000] [--keep FOLDER]

Three computed metrics, no judge. Every run is a process of its own: its seconds are those of the
run and of writing the page, from the first check on; its memory is the peak of the resident memory
of that process, which drives the run, and of the largest of Ray's workers, looked at twice a
second. Bytes a unit are how much larger the driver's peak is than that of the size before.
`--old` runs the checkout of an older version in alternation with this one, up to the largest of
`--old-units` (default: all), on the same file; the figures of both are compared."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

METRICS = ("exact_match", "answer_f1", "length_appropriateness")
WORDS = (
    "the a of in on river mountain city old new first second music war queen king painter year "
    "built found wrote won lost before after called known for with by from north south east west"
).split()
ROWS_AT_ONCE = 10_000
LOOK_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--units", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--old", help="the folder of a checkout to measure as well")
    parser.add_argument("--old-units", type=int, nargs="+", help="the sizes that it is given")
    parser.add_argument("--row-group", type=int, default=ROWS_AT_ONCE, help="rows of each")
    parser.add_argument("--keep", help="a folder that keeps files and runs")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_and_render(*options.child)))
        return
    with tempfile.TemporaryDirectory() as passing:
        measure_all(options, Path(options.keep or passing))


def measure_all(options: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    trees = {"new": str(Path(__file__).parents[2])} | ({"old": options.old} if options.old else {})
    before: dict[str, Measured] = {}
    for units in options.units:
        data = folder / f"answers-{units}-{options.row_group}.parquet"
        if not data.exists():
            write_answers(data, units, options.row_group)
        named = [
            name for name in trees if name == "new" or units in (options.old_units or options.units)
        ]
        found: dict[str, list[Measured]] = {}
        for _ in range(options.rounds):
            for name in named:
                one = measure_child(trees[name], str(data), str(folder / "runs"))
                assert one.told["n_units"] == units, one.told
                found.setdefault(name, []).append(one)
                print(f"{name}: {units:,} rows: {one.in_words(before.get(name))}", flush=True)
        check_figures(found)
        before |= {name: ones[-1] for name, ones in found.items()}
        if "old" in found:
            took = {name: median(one.told["s"] for one in ones) for name, ones in found.items()}
            print(f"{units:,} rows: {took['old'] / took['new']:.2f} times the old rate", flush=True)


class Measured(NamedTuple):
    """A process that ended: the peaks of its memory and of the largest worker's, and what it
    told."""

    peak_mb: float
    worker_mb: float
    told: dict[str, Any]

    def in_words(self, before: Measured | None) -> str:
        n, told = self.told["n_units"], self.told
        grown = ""
        if before is not None and n > before.told["n_units"]:
            more = (self.peak_mb - before.peak_mb) * 1e6
            grown = f" ({more / (n - before.told['n_units']):.0f} bytes a unit more)"
        return (
            f"{n / told['s']:,.0f} rows/s in all ({told['s']:.1f} s: {told['scan_s']:.1f} before "
            f"the first block, {told['span_s']:.1f} in the pipeline, {told['page_s']:.1f} for the "
            f"page); driver {self.peak_mb:.0f} MB{grown}, largest worker {self.worker_mb:.0f} MB"
        )


def measure_child(tree: str, data: str, out: str) -> Measured:
    """Runs with the package of a checkout, and looks at its workers meanwhile."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", data, out]
    environment = {**os.environ, "PYTHONPATH": tree}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=tree) as process:
        looking = WorkerWatch(process.pid)
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        worker_mb = looking.end()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return Measured(used.ru_maxrss / 1024, worker_mb, json.loads(lines[-1]))


class WorkerWatch:
    """Looks at the resident memory of the Ray workers below a process, until it is ended."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._is_over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_S):
            try:
                below = psutil.Process(self._pid).children(recursive=True)
            except psutil.Error:
                continue
            for process in below:
                try:
                    if (process.cmdline() or [""])[0].startswith("ray::"):
                        self._most = max(self._most, process.memory_info().rss)
                except psutil.Error:
                    continue

    def end(self) -> float:
        """The largest that any was, in MB."""
        self._is_over.set()
        self._thread.join()
        return self._most / 1e6


def run_and_render(data: str, out: str) -> dict[str, Any]:
    """A run over the answers of a file in this process, and its page."""
    from memray_eval.config.schema import RunConfig
    from memray_eval.report.html.page import write_html
    from memray_eval.types import EXISTING

    runs = "memray_eval.execution.runs"  # an older tree has it in `prepare`
    run = import_module(
        runs if find_spec(runs) is not None else "memray_eval.execution.prepare"
    ).run
    job = {
        "suite": "qa",
        "dataset": data,
        "out": out,
        "candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}],
        "metrics": METRICS,
        "judge": "rules",
    }
    started = time.time()
    done = run(RunConfig.model_validate(job), lambda line: None, quiet=True)
    ran = time.time()
    write_html(done.folder, f"{done.folder.path}/page.html")
    stages = done.folder.read_manifest()["stages"]
    return {
        "n_units": done.summary.n_units,
        "s": time.time() - started,
        "scan_s": stages["read"]["started"] - started,
        "span_s": stages["write"]["ended"] - stages["read"]["started"],
        "page_s": time.time() - ran,
        "figures": {
            one.metric: [one.mean, one.stderr, one.n_scored, one.distribution]
            for one in done.summary.metrics
        },
    }


def check_figures(found: dict[str, list[Measured]]) -> None:
    """Raises SystemExit where runs over the same file have other figures."""
    figures = [one.told["figures"] for ones in found.values() for one in ones]
    if any(other != figures[0] for other in figures):
        raise SystemExit(f"the figures differ: {figures}")


def write_answers(path: Path, units: int, row_group: int) -> None:
    """Questions with right answers and made-up responses of 3 to 40 words, of which every third
    holds the answer."""
    chosen = random.Random(0)
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("query", pa.string()),
            ("answers", pa.list_(pa.string())),
            ("response", pa.string()),
        ]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, units, row_group):
            numbers = range(first, min(units, first + row_group))
            rows = [answer(number, chosen) for number in numbers]
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=row_group)


def answer(number: int, chosen: random.Random) -> dict[str, Any]:
    right = " ".join(chosen.choices(WORDS, k=chosen.randint(1, 3)))
    said = " ".join(chosen.choices(WORDS, k=chosen.randint(3, 40)))
    return {
        "id": f"Q{number:07d}",
        "query": f"What was the {' '.join(chosen.choices(WORDS, k=6))} of number {number}?",
        "answers": [right],
        "response": (right, f"It is {right}.", said)[number % 3],
    }


if __name__ == "__main__":
    main()

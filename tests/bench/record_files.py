"""Files of a run on S3 and the requests that they cost: what is written, how long the end of a run
takes, and how long a resume takes to its first call.

    python -m tests.bench.record_files [--units 100000 ...] [--latency-ms 100]

The server is moto's on this machine (tests/servers/s3.py), with so much added to each request while
something is timed, and nothing while rows are written. Rows are made up, of real size and with
twelve scores (tests/bench/reduction.py), and come in blocks of 16, as engines hand them on.
The run is resumed when all responses are there and half of them are judged: the clock stops when
the first response that is to be judged has been read. The end of the run is what a session does
when its pipelines have ended: duplicates, the figures of a summary, the responses deleted."""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from memray_eval.analysis.recommendation import measure_speed
from memray_eval.analysis.reduce import reduce_records
from memray_eval.execution.resume_state import drop_duplicates, load_resume_state
from memray_eval.execution.stages.context import BLOCKS_AT_ONCE
from memray_eval.results.part_writer import PartWriter
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import RECORD_SCHEMA
from memray_eval.storage.paths import locate
from tests.bench.reduction import METRICS, Corpus, records
from tests.servers.s3 import serving_s3

ENGINE_ROWS, MADE_AT_ONCE = 16, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--units", type=int, nargs="+", default=[100_000])
    parser.add_argument("--latency-ms", type=float, default=100.0)
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # a run's folder, in a process for it
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.units[0], options)))
        return
    for units in options.units:
        print_figures(units, options, measure_apart(units, options))


def measure_apart(units: int, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a run, measured in a process of its own."""
    folder = "s3://bucket/runs/run"
    with serving_s3() as server:
        words = [f"--units={units}", f"--latency-ms={options.latency_ms}", f"--measure={folder}"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.record_files", *words],
            env=os.environ | server.environment(),
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def print_figures(units: int, options: argparse.Namespace, found: dict[str, Any]) -> None:
    print(f"{units:,} units, {options.latency_ms:g} ms added to a request")
    for kind, (n, megabytes) in found["files"].items():
        print(f"  {n:,} files of {kind}, {megabytes:,.0f} MB (written in {found['write_s']:.0f} s)")
    for phase in ("resume", "end"):
        requests = ", ".join(f"{n:,} {method}" for method, n in found[f"{phase}_requests"].items())
        print(f"  {phase}: {found[f'{phase}_s']:.1f} s ({requests or 'no requests'})")
    print(f"  {found['summary']}; peak {found['peak_gib']:.2f} GiB", flush=True)


def measure(path: str, units: int, options: argparse.Namespace) -> dict[str, Any]:
    """Writes a run, resumes it halfway and ends it; returns the figures."""
    folder = RunFolder(path)
    folder.create()
    judged = units // 2
    started = time.perf_counter()
    write(folder, units, range(units), range(judged))
    write_s = time.perf_counter() - started
    with timed(options) as resume:
        state = load_resume_state(folder)
        for part in state.waiting:
            rows = folder.read_part(part, RESPONSES)
            if any(unit in state.generated for unit in rows.column("unit_id").to_pylist()):
                break
    write(folder, units, range(0), range(judged, units))
    files = {kind: files_of(folder, kind) for kind in (RESPONSES, RECORDS)}
    with timed(options) as end:
        dropped = drop_duplicates(folder)
        with folder.local_records() as found:
            reduced = reduce_records(found, METRICS)
            measure_speed(found, METRICS[0])
        folder.delete_responses()
    if (dropped, reduced.n_units) != (0, units) or len(state.finished) > judged:
        raise SystemExit(f"{dropped} rows twice, {reduced.n_units} of {units} units found")
    return {
        "write_s": write_s,
        "files": files,
        "resume_s": resume["seconds"],
        "resume_requests": resume["requests"],
        "end_s": end["seconds"],
        "end_requests": end["requests"],
        "summary": f"{len(state.finished):,} finished, {len(state.generated):,} generated; "
        f"mean {METRICS[0].name} {reduced.metrics[0].mean:.6f}",
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


@contextlib.contextmanager
def timed(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Times the block, with the latency, and counts its requests."""
    before, found = ask("_calls"), dict[str, Any]()
    ask(f"_latency/{options.latency_ms / 1000}")
    started = time.perf_counter()
    yield found
    found["seconds"] = time.perf_counter() - started
    ask("_latency/0")
    after = ask("_calls")
    found["requests"] = {name: n - before.get(name, 0) for name, n in after.items()}


def ask(what: str) -> dict[str, int]:
    """What the S3 server says of itself."""
    with urllib.request.urlopen(f"{os.environ['AWS_ENDPOINT_URL']}/{what}", timeout=60) as response:
        return dict(json.loads(response.read() or b"{}"))


def files_of(folder: RunFolder, kind: Any) -> tuple[int, float]:
    filesystem, inner = locate(f"{folder.path}/{kind}")
    infos = filesystem.get_file_info(fs.FileSelector(inner))
    return len(infos), sum(info.size for info in infos) / 1e6


def write(folder: RunFolder, units: int, responses: range, judged: range) -> None:
    """Writes the responses and the records of some units, in blocks of an engine's batch."""

    async def write_blocks() -> None:
        kinds = (RESPONSES, RECORDS)
        writers = {kind: PartWriter(folder, kind, BLOCKS_AT_ONCE) for kind in kinds}
        seats = {kind: asyncio.Semaphore(BLOCKS_AT_ONCE) for kind in kinds}

        async def write_block(kind: Any, block: pa.Table) -> None:
            await writers[kind].write(block)
            seats[kind].release()

        async with asyncio.TaskGroup() as group:
            for kind, table in made(units, responses, judged):
                for first in range(0, table.num_rows, ENGINE_ROWS):
                    await seats[kind].acquire()
                    block = table.slice(first, ENGINE_ROWS)
                    group.create_task(write_block(kind, block))

    asyncio.run(write_blocks())


def made(units: int, responses: range, judged: range) -> Iterator[tuple[Any, pa.Table]]:
    """Tables of responses and of records; the same of a unit each time."""
    corpus = Corpus(np.random.default_rng(0))
    for first in range(0, units, MADE_AT_ONCE):
        rows = range(first, min(first + MADE_AT_ONCE, units))
        mine = [[row in wanted for row in rows] for wanted in (responses, judged)]
        if not any(map(any, mine)):
            continue
        random = np.random.default_rng([1, first])
        table = records(random, corpus, first, len(rows), fails=False)
        scores = RECORD_SCHEMA.get_field_index("scores")
        nothing = pa.array([[]] * len(rows), RECORD_SCHEMA.field("scores").type)
        unjudged = table.set_column(scores, RECORD_SCHEMA.field("scores"), nothing)
        for kind, rows_of, flags in zip((RESPONSES, RECORDS), (unjudged, table), mine, strict=True):
            if any(flags):
                yield kind, rows_of.filter(pa.array(flags))


if __name__ == "__main__":
    main()

"""Files of a run on S3 and the requests that they cost: what is written, how long the end of a run
takes, and how long a resume takes to its first call.

    python -m tests.bench.record_files [--units 100000 ...] [--latency-ms 100] [--failed 0]
        [--old TREE] [--old-units 640]

The server is moto's on this machine (tests/servers/s3.py), with so much added to each request while
something is timed, and nothing while rows are written. Rows are made up, of real size and with
twelve scores (tests/bench/reduction.py), and come in blocks of 16, as engines hand them on.
The run is resumed when all responses are there and half of them are judged, a share of those
(`--failed`) with a score that failed: the clock stops when the first response that is to be judged
has been read. The end of the run is what a session does when its pipelines have ended: duplicates,
the figures of a summary, the responses deleted. `--old` measures the checkout of an older version
in the same way, in a process of its own as the new one. A version with a file for 16 rows takes
2 s a file at 100 ms, hours for 100,000 units: it is given `--old-units`, and what `--units` would
take it is said as an estimate."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.reduce import reduce_records
from memray_eval.analysis.speed import measure_speed
from memray_eval.execution.resume_state import drop_duplicates, load_resume_state
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, SAMPLE_LISTS, SCORE_TYPE
from tests.bench.reduction import METRICS, Corpus, records

ENGINE_ROWS, MADE_AT_ONCE = 16, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--units", type=int, nargs="+", default=[100_000])
    parser.add_argument("--latency-ms", type=float, default=100.0)
    parser.add_argument("--failed", type=float, default=0.0, help="share of judged units")
    parser.add_argument("--old", help="the folder of a checkout to measure as well")
    parser.add_argument("--old-units", type=int, default=640, help="how many units of it")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # a run's folder, in a process for it
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.units[0], options)))
        return
    here = str(Path(__file__).resolve().parents[2])
    if options.old:
        found = measure_tree(options.old, options.old_units, options)
        print_figures("old", options.old_units, options, found)
        for units in options.units:
            print_estimate(units / options.old_units, units, found)
    for units in options.units:
        print_figures("new", units, options, measure_tree(here, units, options))


def measure_tree(tree: str, units: int, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a checkout, measured in a process of its own."""
    here = Path(__file__).resolve()
    with storage() as (root, environment):
        paths = {"PYTHONPATH": os.pathsep.join([tree, str(here.parents[2])])}
        words = [f"--units={units}", f"--latency-ms={options.latency_ms}"]
        words += [f"--failed={options.failed}", f"--measure={root}/run"]
        done = subprocess.run(
            [sys.executable, str(here), *words],
            env=os.environ | environment | paths,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


@contextlib.contextmanager
def storage() -> Iterator[tuple[str, dict[str, str]]]:
    """A place for runs, and what a process needs to reach it."""
    from tests.servers.s3 import serving_s3

    with serving_s3() as server:
        yield "s3://bucket/runs", server.environment()


def print_figures(
    name: str, units: int, options: argparse.Namespace, found: dict[str, Any]
) -> None:
    print(f"{name}: {units:,} units, {options.latency_ms:g} ms added to a request")
    for kind, (n, megabytes) in found["files"].items():
        print(f"  {n:,} files of {kind}, {megabytes:,.0f} MB (written in {found['write_s']:.0f} s)")
    for phase in ("resume", "end"):
        requests = ", ".join(f"{n:,} {method}" for method, n in found[f"{phase}_requests"].items())
        print(f"  {phase}: {found[f'{phase}_s']:.1f} s ({requests or 'no requests'})")
    print(f"  {found['summary']}; peak {found['peak_gib']:.2f} GiB", flush=True)


def print_estimate(times: float, units: int, found: dict[str, Any]) -> None:
    """What grows with the files, at another number of units."""
    files = ", ".join(
        f"{n * times:,.0f} files of {kind}" for kind, (n, _) in found["files"].items()
    )
    waits = ", ".join(
        f"{phase} {found[f'{phase}_s'] * times / 3600:,.1f} h" for phase in ("resume", "end")
    )
    print(f"  {units:,} units would be {files}; {waits} (estimates: in proportion)", flush=True)


def measure(path: str, units: int, options: argparse.Namespace) -> dict[str, Any]:
    """Writes a run, resumes it halfway and ends it; returns the figures."""
    folder = RunFolder(path)
    folder.create()
    judged = units // 2
    started = time.perf_counter()
    write(folder, units, options.failed, range(units), range(judged))
    write_s = time.perf_counter() - started
    with timed(options) as resume:
        state = load_resume_state(folder)
        for part in state.waiting:
            rows = folder.read_part(part, RESPONSES)
            if any(unit in state.generated for unit in rows.column("unit_id").to_pylist()):
                break
    write(folder, units, options.failed, range(0), range(judged, units))
    files = {kind: files_of(folder, kind) for kind in (RESPONSES, RECORDS)}
    with timed(options) as end:
        dropped = drop_duplicates(folder)
        with all_records(folder) as found:
            reduced = reduce_records(found, METRICS)
            measure_speed(found, METRICS[0])
        folder.delete_responses()
    retried = units if not options.failed else reduced.n_units + state.n_retried
    if (dropped, retried) != (0, units) or len(state.finished) > judged:
        raise SystemExit(f"{dropped} rows twice, {reduced.n_units} of {units} units found")
    return {
        "write_s": write_s,
        "files": files,
        "resume_s": resume["seconds"],
        "resume_requests": resume["requests"],
        "end_s": end["seconds"],
        "end_requests": end["requests"],
        "summary": f"{len(state.finished):,} finished, {len(state.generated):,} generated, "
        f"{state.n_retried:,} tried again; mean {METRICS[0].name} {reduced.metrics[0].mean:.6f}",
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


@contextlib.contextmanager
def all_records(folder: RunFolder) -> Iterator[Any]:
    """The records as a session reads them at its end."""
    if hasattr(folder, "local_records"):
        with folder.local_records() as found:
            yield found
    else:  # an older version
        yield folder.records()


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
    """What the S3 server says of itself; nothing where the files are on this disk."""
    if (endpoint := os.environ.get("AWS_ENDPOINT_URL")) is None:
        return {}
    with urllib.request.urlopen(f"{endpoint}/{what}", timeout=60) as response:
        return dict(json.loads(response.read() or b"{}"))


def files_of(folder: RunFolder, kind: Any) -> tuple[int, float]:
    from pyarrow import fs

    from memray_eval.storage.paths import locate

    filesystem, inner = locate(f"{folder.path}/{kind}")
    infos = filesystem.get_file_info(fs.FileSelector(inner))
    return len(infos), sum(info.size for info in infos) / 1e6


def write(folder: RunFolder, units: int, failed: float, responses: range, judged: range) -> None:
    """Writes the responses and the records of some units, in blocks of an engine's batch."""
    try:
        from memray_eval.execution.stage_context import BLOCKS_AT_ONCE
        from memray_eval.results.part_writer import PartWriter
    except ImportError:  # an older version
        for kind, table in made(units, failed, responses, judged):
            for first in range(0, table.num_rows, ENGINE_ROWS):
                folder.write_part(table.slice(first, ENGINE_ROWS), kind)
        return

    async def write_blocks() -> None:
        kinds = (RESPONSES, RECORDS)
        writers = {kind: PartWriter(folder, kind, BLOCKS_AT_ONCE) for kind in kinds}
        seats = {kind: asyncio.Semaphore(BLOCKS_AT_ONCE) for kind in kinds}

        async def write_block(kind: Any, block: pa.Table) -> None:
            await writers[kind].write(block)
            seats[kind].release()

        async with asyncio.TaskGroup() as group:
            for kind, table in made(units, failed, responses, judged):
                for first in range(0, table.num_rows, ENGINE_ROWS):
                    await seats[kind].acquire()
                    block = table.slice(first, ENGINE_ROWS)
                    group.create_task(write_block(kind, block))

    asyncio.run(write_blocks())


def made(
    units: int, failed: float, responses: range, judged: range
) -> Iterator[tuple[Any, pa.Table]]:
    """Tables of responses and of records; the same of a unit each time."""
    corpus = Corpus(np.random.default_rng(0))
    for first in range(0, units, MADE_AT_ONCE):
        rows = range(first, min(first + MADE_AT_ONCE, units))
        mine = [[row in wanted for row in rows] for wanted in (responses, judged)]
        if not any(map(any, mine)):
            continue
        random = np.random.default_rng([1, first])
        table = with_json(records(random, corpus, first, len(rows)))
        table = with_failures(table, random, failed)
        scores = RECORD_SCHEMA.get_field_index("scores")
        nothing = pa.array([[]] * len(rows), RECORD_SCHEMA.field("scores").type)
        unjudged = table.set_column(scores, RECORD_SCHEMA.field("scores"), nothing)
        for kind, rows_of, flags in zip((RESPONSES, RECORDS), (unjudged, table), mine, strict=True):
            if any(flags):
                yield kind, rows_of.filter(pa.array(flags))


def with_json(table: pa.Table) -> pa.Table:
    """The rows with texts in their free-form parts that read as a sample's."""
    nothing = {"traits": "{}", "emotion": "{}"}
    for name in SAMPLE_LISTS:
        column = pa.array([[]] * table.num_rows, RECORD_SCHEMA.field(name).type)
        table = table.set_column(RECORD_SCHEMA.get_field_index(name), name, column)
    for name, empty in nothing.items():
        column = pa.repeat(pa.scalar(empty), table.num_rows)
        table = table.set_column(RECORD_SCHEMA.get_field_index(name), name, column)
    forms = {
        "memory": ('{"notes":"', '"}'),
        "metadata": ('{"notes":"', '"}'),
        "history": ('[{"role":"user","content":"', '"}]'),
    }
    for name, (before, after) in forms.items():
        column = pc.binary_join_element_wise(before, table.column(name), after, "")
        table = table.set_column(RECORD_SCHEMA.get_field_index(name), name, column)
    return table


def with_failures(table: pa.Table, random: np.random.Generator, share: float) -> pa.Table:
    """The rows with a failed score in this share of them, and no other failures."""
    scores = table.column("scores").combine_chunks()
    each, fails = scores.flatten(), random.random(len(scores)) < share
    row = pc.list_parent_indices(scores).to_numpy()
    is_first = pc.equal(pc.struct_field(each, "metric"), METRICS[0].name).to_numpy(
        zero_copy_only=False
    )
    columns = {field.name: pc.struct_field(each, field.name) for field in SCORE_TYPE}
    status = pc.if_else(pc.equal(columns["status"], "error"), "abstained", columns["status"])
    is_error = pa.array(is_first & fails[row])
    columns["status"] = pc.if_else(is_error, "error", status)
    columns["value"] = pc.if_else(is_error, pa.scalar(None, pa.float64()), columns["value"])
    whole = pa.StructArray.from_arrays(list(columns.values()), fields=list(SCORE_TYPE))
    lists = pa.ListArray.from_arrays(scores.offsets, whole)
    nulls = pa.nulls(table.num_rows, pa.string())
    for name, column in (("scores", lists), ("error", nulls)):
        place = RECORD_SCHEMA.get_field_index(name)
        table = table.set_column(place, RECORD_SCHEMA.field(name), column)
    return table


if __name__ == "__main__":
    main()

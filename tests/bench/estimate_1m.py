"""What `estimate` says of a run of a million samples on 64 GPUs, against the same run simulated.

    python -m tests.bench.estimate_1m [--samples 1000000] [--tokens 2000 32000 128000]
        [--gpus 8 64] [--old TREE] [--real 3000]

Both have the same service times of an engine (TIMES: an 8B model on one GPU, by its shape and the
GPU's data sheet; nothing of it was measured), of a judge, and of the tasks before the engines. The
estimate knows a dataset of ROWS samples. The simulation has all of them: shards are cut and joined
by the product's own code, engines are fitted by `fit_engine`, blocks go to the engine that has the
fewest, at most `blocks_in_flight`, as Ray Data's pool hands them out, and each engine is simulated
step by step (simulated_engine.py). Engines come up within a fifth around `start_s`,
contexts have 0.75 to 1.25 times the tokens, and answers any length up to max_tokens. QUESTIONS
questions stand on a shared context, in shuffled order. Not simulated: loss of nodes, the network, a
prompt that is put back.

Fewer GPUs than the most have their share of the samples: as many for each engine.

`--old` has the estimate of an older checkout beside it. One that knew no service times is given
the output tokens/s of an engine on the shortest of the contexts, as someone may have measured them.

`--real` is a true run of so many samples on this machine's Ray, through the whole pipeline, of
64 engines that sleep their service times step by step, 16 in each of four actors."""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from memray_eval.config.schema import RunConfig
from tests.bench.contexts import jsonl, prose
from tests.build import JUDGE
from tests.conftest import REPOSITORY

TIMES = {
    "prefill_tokens_per_s": 30_000,  # 16 GFLOP a token at half of an H100's 989 TFLOPS
    "doubles_at": 30_500,  # 16 GFLOP / (4 x 32 layers x 4,096) a token
    "step_s": 0.008,  # 16 GB of weights at 3.35 TB/s, and as much again for the rest, about
    "context_tokens_per_s": 20e9,  # 131 kB a token at 2.6 TB/s
    "kv_tokens": 430_000,  # 72 GB, less the weights
    "start_s": 90,
}
MAX_TOKENS, QUESTIONS, ROWS = 256, 8, 96
REQUESTS_PER_MIN = 30_000
CHARACTERS_A_TOKEN = 4
REAL_ENGINES, REAL_ACTORS, REAL_START_S = 64, 4, 12.0
QUESTION = "Which word comes after the one that is named last?"


class Cell(NamedTuple):
    """One line of the table."""

    tokens: int
    is_shared: bool
    gpus: int
    samples: int


def context_chars(number: int, count: int, tokens: int) -> int:
    """The length of one of so many contexts: evenly spread around the mean."""
    place = (number * 7919 % count + 0.5) / count
    return round(tokens * (0.75 + 0.5 * place) * CHARACTERS_A_TOKEN)


def write_dataset(folder: Path, cell: Cell) -> Path:
    """ROWS samples, in shuffled order."""
    text = prose(round(1.3 * cell.tokens * CHARACTERS_A_TOKEN), 0)
    questions = QUESTIONS if cell.is_shared else 1
    contexts = ROWS // questions
    rows = []
    for number in range(ROWS):
        context = number // questions
        length = context_chars(context, contexts, cell.tokens)
        rows.append(
            {
                "id": f"q{number}",
                "task": "qasper",
                "query": f"Question {number}: {QUESTION}",
                "context": f"Document {context}. {text}"[:length],
                "answers": ["unknown"],
            }
        )
    random.Random(0).shuffle(rows)
    return jsonl(folder / f"{cell.tokens}-{cell.is_shared}.jsonl", rows)


def job(dataset: Path, cell: Cell, assumptions: dict[str, Any]) -> RunConfig:
    """The run: one model on GPUs, judged by one metric behind a limit."""
    return RunConfig.model_validate(
        {
            "suite": "longbench",
            "dataset": str(dataset),
            "candidates": [
                {"name": "8b", "model": "org/8b", "sampling": {"max_tokens": MAX_TOKENS}}
            ],
            "metrics": ["helpfulness"],
            "judge": JUDGE,
            "judging": {
                "base_urls": {"openai": "http://127.0.0.1:9/v1"},
                "limits": {JUDGE: {"requests_per_min": REQUESTS_PER_MIN}},
            },
            "engine": {
                "device": "gpu",
                "replicas": cell.gpus,
                "max_model_len": 2 * cell.tokens + 1000,
            },
            "cluster": {"phases": "together"},
            "assumptions": assumptions,
        }
    )


def offer(gpus: int) -> Any:
    """Nodes of 8 GPUs, and one without for each of them."""
    from memray_eval.execution.ray.cluster_spec import ClusterSpec, NodeGroup

    nodes = math.ceil(gpus / 8)
    several = {"min_nodes": nodes, "max_nodes": nodes}
    return ClusterSpec(
        where="cluster.yaml",
        kind="RayCluster",
        groups=(
            NodeGroup(name="head", cpus=0, min_nodes=1, max_nodes=1, is_head=True),
            NodeGroup(name="cpus", cpus=32, **several),
            NodeGroup(name="gpus", cpus=64, gpus=8, accelerator_type="H100", **several),
        ),
    )


def estimate_cell(dataset: Path, cell: Cell, assumptions: dict[str, Any]) -> tuple[float, str]:
    """The seconds that this checkout's estimate says, and what it says that binds."""
    from memray_eval.execution.prepare.estimates import estimate_of

    config = job(dataset, cell, assumptions)
    made = estimate_of(config, samples=cell.samples, cluster_spec=offer(cell.gpus))
    return made.wall_s, made.bottleneck


# The simulation


def cut_blocks(config: RunConfig, cell: Cell) -> Iterator[list[int]]:
    """The samples of each block, in the order in which blocks come, as a scan cuts them."""
    from memray_eval.datasets.sharding import ContextSharder, coalesce
    from memray_eval.datasets.shards import Entry, Shard
    from memray_eval.execution.prepare.resolve import resolve

    read = resolve(config).read
    source = Shard(kind="parquet", path="all.parquet")
    rows = read.rows_per_block or read.batch_size
    sharder = ContextSharder(source, rows, read.engines)
    questions = QUESTIONS if cell.is_shared else 1
    order = list(range(cell.samples))
    random.Random(1).shuffle(order)
    for number in order:
        context = number // questions
        size = context_chars(context, cell.samples // questions + 1, cell.tokens) + 200
        entry = Entry(number, number + 1, source.path, "", None, size)
        sharder.add(entry, True, str(context))
    for shard in coalesce(sharder.finish(), read.block_rows(cell.samples)):
        yield list(shard.take)


def asked_of(number: int, cell: Cell, own_tokens: int, answers: random.Random) -> Any:
    """A sample's prompt as an engine is asked it."""
    from tests.bench.simulated_engine import Asked

    questions = QUESTIONS if cell.is_shared else 1
    context = number // questions
    length = context_chars(context, cell.samples // questions + 1, cell.tokens)
    tokens = length // CHARACTERS_A_TOKEN
    return Asked(context, tokens, own_tokens, answers.randint(1, MAX_TOKENS))


class Simulated(NamedTuple):
    """The seconds to the last answer and to the run's end, and the share of prompts' tokens that
    came from prefix caches."""

    generate_s: float
    wall_s: float
    cached: float


def simulate(dataset: Path, cell: Cell) -> Simulated:
    from memray_eval.config.sections import EngineTimes
    from memray_eval.datasets.scan import read_samples
    from memray_eval.execution.estimate import PROMPT_CPU_S, WRITE_CPU_S
    from memray_eval.execution.plan import blocks_in_flight, fit_engine, judge_pool
    from memray_eval.execution.prepare.resolve import resolve
    from memray_eval.execution.prepare.scanning import scan_dataset
    from memray_eval.judges.limits.rate_pacer import SLACK_S
    from tests.bench.simulated_engine import SimulatedEngine, SimulatedPool

    config = job(dataset, cell, {"engine": TIMES})
    spec, times = resolve(config), EngineTimes.model_validate(TIMES)
    found = scan_dataset(spec.read, [])
    sample = next(iter(read_samples(found.shards[0], spec.read.reader)))
    messages = spec.suite.prompt(sample, spec.candidates[0]).messages
    own_chars = sum(len(one.content) for one in messages) - len(sample.context or "")
    draws = random.Random(2)
    blocks = [
        [asked_of(number, cell, own_chars // CHARACTERS_A_TOKEN, draws) for number in block]
        for block in cut_blocks(config, cell)
    ]
    capacity = offer(cell.gpus).at_most()
    cores = int(min(capacity.cpus_beside_gpus, max(2, capacity.cpus // 4)))
    engine = fit_engine(config.engine, found.context_chars / found.n_samples, "gpu")
    engines = [SimulatedEngine(times, engine) for _ in range(cell.gpus)]
    starts = [draws.uniform(0.8, 1.2) * times.start_s for _ in engines]
    in_flight = blocks_in_flight(engine, len(blocks), cell.gpus)
    at_once = min(engine.concurrent_batches or 1, in_flight)
    simulated = SimulatedPool(engines, starts, at_once, in_flight)
    ends = simulated.answer(blocks, ready_times(blocks, PROMPT_CPU_S, cores))
    assert sum(rows for _, rows in ends) == cell.samples
    pool = judge_pool(spec, capacity.cpus, spec.read.block_rows(cell.samples))
    latency_s = spec.judging.latency_s
    a_call_s = (60.0 + SLACK_S) / REQUESTS_PER_MIN
    judged = pace(ends, max(a_call_s, latency_s / (pool.actors * pool.max_in_flight)))
    written = pace([(at + latency_s, rows) for at, rows in judged], WRITE_CPU_S / cores)
    tokens = sum(one.context_tokens + one.own_tokens for block in blocks for one in block)
    computed = sum(one.computed_tokens for one in engines)
    return Simulated(ends[-1][0], written[-1][0], 1.0 - computed / tokens)


def ready_times(blocks: Sequence[Sequence[Any]], a_token_s: float, cores: int) -> list[float]:
    """When the prompts of each block are built, by tasks on so many cores."""
    free, ready = [0.0] * cores, []
    for block in blocks:
        tokens = sum(one.context_tokens + one.own_tokens for one in block)
        heapq.heapreplace(free, free[0] + tokens * a_token_s)
        ready.append(free[0])
    return sorted(ready)


def pace(rows: Sequence[tuple[float, int]], a_row_s: float) -> list[tuple[float, int]]:
    """When rows that come at these times are through a stage that takes so long for each."""
    through, at = [], 0.0
    for came, n in rows:
        at = max(at, came) + n * a_row_s
        through.append((at, n))
    return through


# The table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2_000, 32_000, 128_000])
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--old", help="the folder of a checkout whose estimate is printed as well")
    parser.add_argument("--real", type=int, default=3_000, help="samples of the true run; 0: none")
    parser.add_argument("--estimate", help=argparse.SUPPRESS)  # cells as JSON, in their own process
    options = parser.parse_args()
    if options.estimate:
        print(json.dumps([estimate_cell(*read_cell(one)) for one in json.loads(options.estimate)]))
        return
    cells = [
        Cell(tokens, is_shared, gpus, options.samples * gpus // max(options.gpus))
        for tokens in options.tokens
        for is_shared in (False, True)
        for gpus in options.gpus
    ]
    with tempfile.TemporaryDirectory() as folder:
        datasets = {
            (cell.tokens, cell.is_shared): write_dataset(Path(folder), cell)
            for cell in cells
            if cell.gpus == options.gpus[0]
        }
        sets = [datasets[cell.tokens, cell.is_shared] for cell in cells]
        said = estimate_in(REPOSITORY, sets, cells, {"engine": TIMES})
        old = [(math.nan, "")] * len(cells)
        if options.old:
            rate = answers_a_second(sets[0], cells[0]._replace(is_shared=False))
            print(f"old: {rate:,.0f} output tokens/s of an engine, at {cells[0].tokens:,} tokens")
            old = estimate_in(options.old, sets, cells, {"engine_tokens_per_s": rate})
        print(HEAD)
        started = time.perf_counter()
        with ProcessPoolExecutor(2) as pool:
            simulated = pool.map(simulate, sets, cells)
            for cell, (wall_s, bound), before, real in zip(
                cells, said, old, simulated, strict=True
            ):
                print_cell(cell, wall_s, bound, before[0], real)
        print(f"simulated in {time.perf_counter() - started:.0f} s")
    if options.real:
        real_run(options.real)


HEAD = (
    f"{'tokens':>8} {'shared':>6} {'GPUs':>5} {'samples':>10} {'estimate':>10} "
    f"{'simulated':>10} {'ratio':>6} {'old':>10} {'ratio':>6}  cached  binds"
)


def print_cell(cell: Cell, wall_s: float, bound: str, old_s: float, real: Simulated) -> None:
    print(
        f"{cell.tokens:>8,} {'yes' if cell.is_shared else 'no':>6} {cell.gpus:>5} "
        f"{cell.samples:>10,} "
        f"{wall_s / 3600:>8,.2f} h {real.wall_s / 3600:>8,.2f} h {wall_s / real.wall_s:>6.3f} "
        f"{old_s / 3600:>8,.2f} h {old_s / real.wall_s:>6.3f}  {real.cached:>6.1%}  {bound}",
        flush=True,
    )


def read_cell(found: dict[str, Any]) -> tuple[Path, Cell, dict[str, Any]]:
    return Path(found["dataset"]), Cell(*found["cell"]), found["assumptions"]


def estimate_in(
    tree: str | Path, datasets: Sequence[Path], cells: Sequence[Cell], assumptions: dict[str, Any]
) -> list[tuple[float, str]]:
    """The estimates of a checkout, made in a process of its own."""
    asked = [
        {"dataset": str(dataset), "cell": cell, "assumptions": assumptions}
        for dataset, cell in zip(datasets, cells, strict=True)
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), f"--estimate={json.dumps(asked)}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(REPOSITORY)])},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return [(wall_s, bound) for wall_s, bound in json.loads(done.stdout.splitlines()[-1])]


def answers_a_second(dataset: Path, cell: Cell) -> float:
    """The output tokens a second of one engine that always has prompts waiting."""
    from memray_eval.config.sections import EngineTimes
    from memray_eval.execution.plan import fit_engine
    from tests.bench.simulated_engine import SimulatedEngine

    config, draws = job(dataset, cell, {"engine": TIMES}), random.Random(3)
    engine = fit_engine(config.engine, cell.tokens * CHARACTERS_A_TOKEN, "gpu")
    simulated = SimulatedEngine(EngineTimes.model_validate(TIMES), engine)
    asked = [asked_of(number, cell, 100, draws) for number in range(2_000)]
    simulated.add(0, asked)
    simulated.run(math.inf)
    return float(sum(one.answer_tokens for one in asked) / simulated.now)


# The true run

REAL_TIMES = {"prefill_tokens_per_s": 1_000, "step_s": 0.3, "start_s": REAL_START_S}


def real_job(folder: Path, samples: int, replicas: int, engines: int) -> RunConfig:
    """A run of so many samples, four on each context, by so many actors of so many engines each."""
    text = prose(20_000, 0)
    rows = [
        {
            "id": f"q{number}",
            "task": "qasper",
            "query": f"Question {number}: {QUESTION}",
            "context": f"Document {number // 4}. {text[: 2_000 + number // 4 * 37 % 2_000]}",
            "answers": ["unknown"],
        }
        for number in range(samples)
    ]
    sampling = {"max_tokens": 20}
    return RunConfig.model_validate(
        {
            "suite": "longbench",
            "dataset": str(jsonl(folder / "samples.jsonl", rows)),
            "out": str(folder / "out"),
            "candidates": [{"name": "fake", "model": "embedded", "sampling": sampling}],
            "metrics": ["rule_score"],
            "judge": "rules",
            "engine": {
                "device": "cpu",
                "replicas": replicas,
                "cpus": 0.1,
                "kv_cache_gib": 0.1,
                "max_num_seqs": 4,
                "max_model_len": 8_000,
                "concurrent_batches": 2 * engines,
                "engine_kwargs": {"max_num_batched_tokens": 1_024},
            },
            "cluster": {"num_cpus": 2},
            "assumptions": {"engine": REAL_TIMES},
        }
    )


def real_run(samples: int) -> None:
    """A run through Ray by engines that sleep, and what the estimate says of it."""
    from memray_eval.config.sections import EngineTimes
    from memray_eval.execution.estimate_text import estimate_lines
    from memray_eval.execution.prepare.estimates import estimate_of
    from memray_eval.execution.ray import engine
    from memray_eval.execution.runs import run
    from tests.bench.sleeping_engine import sleeping_engine

    with tempfile.TemporaryDirectory() as folder:
        made = estimate_of(real_job(Path(folder), samples, REAL_ENGINES, 1))
        config = real_job(Path(folder), samples, REAL_ACTORS, REAL_ENGINES // REAL_ACTORS)
        times = EngineTimes.model_validate(REAL_TIMES)
        true_stage = engine.telling_engine
        engine.telling_engine = partial(sleeping_engine, times, REAL_ENGINES // REAL_ACTORS, 0.0)
        try:
            started = time.perf_counter()
            done = run(config, lambda line: None, quiet=True)
            wall_s = time.perf_counter() - started
        finally:
            engine.telling_engine = true_stage
        responses = [record.response for record in done.folder.each() if record.response]
    assert len(responses) == samples
    assert not any(response.error for response in responses)
    generate_s = next(stage.seconds for stage in made.stages if stage.stage == "generate")
    real_s = done.summary.generation_s or math.nan
    prompts = sum(response.prompt_tokens or 0 for response in responses)
    cached = sum(response.cached_tokens or 0 for response in responses)
    print(
        f"true run of {samples:,} samples by {REAL_ENGINES} engines that sleep: generating "
        f"{generate_s:.1f} s by the estimate, {real_s:.1f} s, ratio {generate_s / real_s:.3f}; the "
        f"whole {made.wall_s:.1f} s, {wall_s:.1f} s, ratio {made.wall_s / wall_s:.3f}; "
        f"{cached / prompts:.0%} of {prompts / samples:,.0f} tokens a prompt cached"
    )
    for line in estimate_lines(made):
        print(f"  {line}")


if __name__ == "__main__":
    main()

"""What `memray-eval view` takes at a run of any size: seconds until it serves, seconds an answer,
memory.

    python -m tests.bench.view [--units 100000] [--keep FOLDER]

The records are made up: texts of some 900 characters from a vocabulary of 5,000 words, twelve
metrics with judgments. The run has no summary: what the report's own figures take comes on top
before it serves."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from memray_eval.report.view import viewing
from memray_eval.report.view.answers import Query
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, SAMPLE_JSON
from tests.bench.reduction import Corpus, scores

UNITS_A_FILE = 2000
TASKS = ("sleep_and_energy", "family", "money")


def write_made_run(units: int, folder: str) -> None:
    """A run folder whose records read back whole, without a summary."""
    run, random = RunFolder(folder), np.random.default_rng(0)
    run.create()
    corpus = Corpus(random)
    for first in range(0, units, UNITS_A_FILE):
        run.write_part(_records(random, corpus, first, min(UNITS_A_FILE, units - first)))
    run.write_manifest({"status": "done", "units": units})


def _records(random: np.random.Generator, corpus: Corpus, first: int, n: int) -> pa.Table:
    """`n` units of two candidates, one in 200 of them unanswered."""
    names = [f"small-t{place % 2}" for place in range(n)]
    notes = corpus.texts(n, 400).to_pylist()
    columns = {
        **{field.name: pa.nulls(n, field.type) for field in RECORD_SCHEMA},
        **{
            field.name: pa.array([[]] * n, field.type)
            for field in RECORD_SCHEMA
            if pa.types.is_list(field.type)
        },
        **{name: pa.repeat("{}", n) for name in SAMPLE_JSON},
        **{name: pa.repeat("", n) for name in ("scenario", "prompt_type", "thinking")},
        "history": pa.repeat("[]", n),
        "memory": [json.dumps({"note": note}) for note in notes],
        "suite": pa.repeat("memory", n),
        "language": pa.repeat("en", n),
        "task": np.array(TASKS)[random.integers(0, len(TASKS), n)],
        "candidate": names,
        "model": pa.repeat("org/small-model", n),
        "candidate_config": [
            json.dumps({"name": name, "model": "org/small-model"}) for name in names
        ],
        "unit_id": [f"{number:016x}" for number in random.integers(0, 2**63, n)],
        "sample_id": [f"S{first + number:07d}" for number in range(n)],
        "query": corpus.texts(n, 180),
        "response": corpus.texts(n, 900),
        "error": corpus.texts(n, 60, random.random(n) < 0.005),
        "finish_reason": random.choice(["stop", "length"], n),
        "prompt_tokens": random.integers(200, 700, n),
        "output_tokens": random.integers(20, 256, n),
        "ttft_s": random.uniform(0.05, 2, n),
        "duration_s": random.uniform(1, 9, n),
        "scores": scores(random, corpus, n),
    }
    return pa.table(
        {field.name: columns[field.name] for field in RECORD_SCHEMA}, schema=RECORD_SCHEMA
    )


QUESTIONS: dict[str, dict[str, Any]] = {
    "first page": {},
    "page in the middle": {"start": 50_000},
    "sort by a metric": {"sort": "m3-"},
    "sort by a metric, page in the middle": {"sort": "m0+", "start": 50_000},
    "candidate, sort by duration": {"candidate": 1, "sort": "duration-"},
    "failed on a metric": {"metric": 3, "status": 3},
    "score range": {"metric": 3, "low": 2, "high": 3, "sort": "tokens+"},
    "rare text": {"text": "rare needle"},
    "common text, sort by a metric": {"text": "lh", "sort": "m2+"},
    "the same text, next page": {"text": "lh", "sort": "m2+", "start": 40},
}


def measure(folder: str) -> None:
    run = RunFolder(folder)
    with ExitStack() as served:
        view = _timed("until it serves", lambda: served.enter_context(viewing(run)))
        for name, asked in QUESTIONS.items():
            found = _timed(name, partial(view.answer, Query(**asked), lambda: False))
        _timed("a sample, whole", partial(view.record, found["rows"][0][0]))
        print(f"peak {_peak_gib():.2f} GiB")


def _timed(name: str, ask: Callable[[], Any]) -> Any:
    """What is answered; prints seconds on the clock, and of processor time, which other work on the
    machine stretches less."""
    started, busy = time.perf_counter(), time.process_time()
    found = ask()
    print(
        f"{name:<40} {time.perf_counter() - started:6.3f} s {time.process_time() - busy:6.3f} s of "
        "processor time"
    )
    return found


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument(
        "--keep",
        help="a folder that keeps the records for the next time; without it they are removed",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = Path(options.keep or passing) / f"units-{options.units}"
        # A process each, for its peak memory
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            if not (folder / "manifest.json").exists():
                alone.submit(write_made_run, options.units, str(folder)).result()
        measure(str(folder))


if __name__ == "__main__":
    main()

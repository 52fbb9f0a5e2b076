"""Seconds to reduce records of twelve metrics.

    python -m tests.bench.reduction [--units 1000000] [--rounds 2] [--keep FOLDER]

The records are made up but of real size: twelve scores a unit, a judgment of some 200 bytes with
each, and the texts that are not read. Each round runs in a process of its own, for its peak memory;
the clock runs from the first look at the files to the last figure, imports are not in it."""

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.reduce import reduce_records
from memray_eval.benchmarks import get_suite
from memray_eval.metric import DISAGREEMENT, JudgedMetric, Metric
from memray_eval.metrics import all_metrics
from memray_eval.metrics.assistant.empathy import RATED
from memray_eval.metrics.assistant.memory_utilization import f1_scores
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, SCORE_TYPE

METRICS = tuple(all_metrics()[name] for name in get_suite("memory").metrics)
# One judge, so none disagree
PARTS = sorted({part for metric in METRICS for part in metric.columns} - {DISAGREEMENT})
STATUSES = ("scored", "abstained", "not_applicable", "error")
UNITS_A_FILE = 2000


def measure(folder: str) -> tuple[float, float, float]:
    """Seconds, those of the processor, and the peak memory of this process in GiB."""
    started, cpu = time.perf_counter(), time.process_time()
    reduced = reduce_records(RunFolder(folder).records(), METRICS)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    assert len(reduced.metrics) == len(METRICS)
    return seconds, cpu_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def alone(call: Callable[[], Any]) -> Any:
    """What `call` returns from a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(call).result()


class Corpus:
    """Made-up words, from which texts of any length are cut without a copy a text."""

    def __init__(self, random: np.random.Generator, size: int = 1 << 24) -> None:
        self._random = random
        letters = random.choice(list("etaoinshrdlu"), (5000, 10))
        words = ["".join(word[: 2 + number % 9]) for number, word in enumerate(letters)]
        weights = 1 / np.arange(1, len(words) + 1)  # as often as words are in speech
        self._letters = " ".join(
            random.choice(words, size // 5, p=weights / weights.sum())
        ).encode()[:size]

    def texts(self, n: int, mean: int, wanted: np.ndarray | None = None) -> pa.StringArray:
        """`n` texts of some `mean` bytes, null where they are not wanted."""
        wanted = np.ones(n, dtype=bool) if wanted is None else wanted
        ends = np.cumsum(np.where(wanted, self._random.integers(mean // 2, mean * 3 // 2, n), 0))
        start = int(self._random.integers(0, len(self._letters) - ends[-1]))
        letters = pa.py_buffer(self._letters[start : start + int(ends[-1])])
        cut = pa.StringArray.from_buffers(
            n, pa.py_buffer(np.append(0, ends).astype(np.int32)), letters
        )
        return pc.if_else(pa.array(wanted), cut, pa.scalar(None, pa.string()))


def write_run(units: int, folder: str) -> None:
    """Writes a run folder of that many units, and a manifest when all of it is there."""
    run, random = RunFolder(folder), np.random.default_rng(0)
    run.create()
    corpus = Corpus(random)
    for first in range(0, units, UNITS_A_FILE):
        run.write_part(records(random, corpus, first, min(UNITS_A_FILE, units - first)))
    run.write_manifest({"units": units})


def records(
    random: np.random.Generator, corpus: Corpus, first: int, n: int, fails: bool = True
) -> pa.Table:
    """`n` units of one candidate; if some fail, one in 200 is unanswered and one score in 100
    without a verdict."""
    same = {
        "candidate": "small",
        "model": "org/small-model",
        "candidate_config": '{"name":"small","model":"org/small-model","backend":"vllm"}',
        "suite": "memory",
        "language": "en",
    }
    columns = {
        **{field.name: pa.nulls(n, field.type) for field in RECORD_SCHEMA},
        **{
            field.name: pa.repeat(pa.scalar("", pa.string()), n)
            for field in RECORD_SCHEMA
            if field.type == pa.string()
        },
        **{
            field.name: pa.array([[]] * n, field.type)
            for field in RECORD_SCHEMA
            if field.type == pa.list_(pa.string())
        },
        **{name: pa.repeat(pa.scalar(value), n) for name, value in same.items()},
        **{name: pa.repeat(pa.scalar("{}"), n) for name in ("traits", "emotion")},
        "memory": _in_json('{"notes":"', corpus.texts(n, 400), '"}'),
        "history": _in_json('[{"role":"user","content":"', corpus.texts(n, 400), '"}]'),
        "metadata": _in_json('{"notes":"', corpus.texts(n, 400), '"}'),
        "unit_id": [f"{number:016x}" for number in random.integers(0, 2**63, n)],
        "sample_id": [f"S{first + number:07d}" for number in range(n)],
        "query": corpus.texts(n, 180),
        "response": corpus.texts(n, 900),
        "error": corpus.texts(n, 60, random.random(n) < (0.005 if fails else 0.0)),
        "finish_reason": random.choice(["stop", "length"], n),
        "prompt_tokens": random.integers(200, 700, n),
        "output_tokens": random.integers(20, 256, n),
        "ttft_s": random.uniform(0.05, 2, n),
        "duration_s": random.uniform(1, 9, n),
        "scores": scores(random, corpus, n, fails),
    }
    return pa.table(
        {field.name: columns[field.name] for field in RECORD_SCHEMA}, schema=RECORD_SCHEMA
    )


def _in_json(before: str, texts: pa.StringArray, after: str) -> pa.StringArray:
    return pc.binary_join_element_wise(before, texts, after, "")


def scores(random: np.random.Generator, corpus: Corpus, n: int, fails: bool) -> pa.ListArray:
    """The scores of `n` units, the metrics of a unit one after the other."""
    size, kinds = n * len(METRICS), np.arange(len(METRICS))
    status = np.column_stack(
        [random.choice(4, n, p=shares(metric, fails)) for metric in METRICS]
    ).ravel()
    scored, metric = status == 0, np.tile(kinds, n)
    value, parts = zip(*(measures(random, metric, n) for metric in METRICS), strict=True)
    figures = np.full((n, len(METRICS), len(PARTS)), np.nan)  # no part where it is NaN
    for kind, of_metric in zip(kinds, parts, strict=True):
        for part, figure in of_metric.items():
            figures[:, kind, PARTS.index(part)] = figure
    figures = np.where(scored[:, None], figures.reshape(size, -1), np.nan)
    held = ~np.isnan(figures)
    judged = np.array([isinstance(metric, JudgedMetric) for metric in METRICS])
    judges = np.array(
        [getattr(metric, "preferred_judge", "all-MiniLM-L6-v2") for metric in METRICS]
    )
    columns = {
        "metric": np.array([metric.name for metric in METRICS])[metric],
        "status": np.array(STATUSES)[status],
        "value": pa.array(np.column_stack(value).ravel(), mask=~scored),
        "parts": pa.MapArray.from_arrays(
            pa.array(np.append(0, np.cumsum(held.sum(axis=1))), pa.int32()),
            np.array(PARTS)[np.nonzero(held)[1]],
            figures[held],
        ),
        "judgment": corpus.texts(size, 200, scored & judged[metric]),
        "judge": np.where(scored, judges[metric], ""),
        "input_tokens": random.integers(300, 900, size),
        "output_tokens": random.integers(30, 90, size),
        "cached_input_tokens": np.zeros(size, np.int64),
        "cache_write_tokens": np.zeros(size, np.int64),
        "cost_usd": random.uniform(0, 0.01, size),
        "saved_usd": np.zeros(size),
        "latency_s": random.uniform(0.2, 3, size),
        "cached": random.random(size) < 0.1,
        "calls": judged[metric].astype(np.int64),
        "error": corpus.texts(size, 40, status == STATUSES.index("error")),
    }
    columns |= {"served_model": pa.nulls(size), "unpriced_calls": np.zeros(size, np.int64)}
    arrays = [pa.array(columns[field.name], field.type) for field in SCORE_TYPE]
    return pa.ListArray.from_arrays(
        pa.array(np.arange(0, size + 1, len(METRICS)), pa.int32()),
        pa.StructArray.from_arrays(arrays, fields=list(SCORE_TYPE)),
    )


def shares(metric: Metric, fails: bool) -> tuple[float, ...]:
    """How often a metric comes to each of STATUSES; half of the samples have no history."""
    failed = 0.01 if fails else 0.0
    scored, without = (0.5, 0.48) if "history" in metric.requires else (0.97, 0.01)
    return scored, 0.02 - failed, without, failed


def measures(
    random: np.random.Generator, metric: Metric, n: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Values and parts of one metric, which belong together where its summary combines them."""
    parts = {
        part: np.minimum(random.poisson(1.5, n), 6).astype(float)
        for part in metric.columns
        if part in PARTS
    }
    if RATED in parts:
        parts[RATED] = np.ones(n)
    if metric.name == "memory_utilization":
        return f1_scores(parts), parts
    if metric.name == "groundedness":
        parts["grounded"] = np.minimum(parts["grounded"], parts["claims"])
        parts["hallucinated"] = parts["claims"] - parts["grounded"]
        return np.where(
            parts["claims"] > 0, parts["grounded"] / np.maximum(parts["claims"], 1), 1.0
        ), parts
    if metric.name == "relevance":
        parts["cosine"] = random.uniform(-0.1, 1, n)
        return np.clip(parts["cosine"], 0, 1), parts
    low, high = metric.scale
    return (
        random.integers(low, high + 1, n) if metric.integer_scale else random.integers(0, 3, n) / 2
    ), parts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--units", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--keep",
        help="a folder that keeps the records for the next time; without it they are removed",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = Path(options.keep or passing) / f"units-{options.units}"
        if not (folder / "manifest.json").exists():
            alone(partial(write_run, options.units, str(folder)))
        for number in range(1, options.rounds + 1):
            seconds, cpu_s, peak_gib = alone(partial(measure, str(folder)))
            cost = f"{seconds:.2f} s, {cpu_s:.2f} s of processor time, peak {peak_gib:.2f} GiB"
            print(f"round {number}: reduce_records {cost}", flush=True)


if __name__ == "__main__":
    main()

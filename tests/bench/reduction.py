"""Seconds to reduce records of twelve metrics, against DuckDB computing the same from the same
Parquet, in one run.

    python -m tests.bench.reduction [--units 1000000] [--rounds 2] [--keep FOLDER]

The records are made up but of real size: twelve scores a unit, a judgment of some 200 bytes with
each, and the texts that neither side needs to read. Each side runs in a process of its own, for its
peak memory, and the two alternate, because shared machines drift. The clock runs from the first
look at the files to the last figure; imports are not in it. Every figure of DuckDB's is looked up
in the summaries, and the run fails if one is missing or another. The DuckDB script makes one pass
over the files into a narrow table, which beat a pass a figure. It computes no more than the
metrics' figures, while `reduce_records` also looks for units written twice and sums up the
generation."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
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
from memray_eval.results.schema import RECORD_SCHEMA, SAMPLE_JSON, SCORE_TYPE
from memray_eval.types import MetricSummary

METRICS = tuple(all_metrics()[name] for name in get_suite("memory").metrics)
# One judge, so none disagree
PARTS = sorted({part for metric in METRICS for part in metric.columns} - {DISAGREEMENT})
STATUSES = ("scored", "abstained", "not_applicable", "error")
UNITS_A_FILE = 2000
TOLERANCE = 1e-9  # relative: the two sides add the same numbers in another order
EDGES = np.histogram_bin_edges([], bins=10, range=(0.0, 1.0))

_OUTCOMES = """
SET enable_progress_bar = false;
SET preserve_insertion_order = false;
CREATE TEMP TABLE outcomes AS
SELECT s.metric, s.status, s.value, s.judge, s.parts FROM (SELECT unnest(scores) AS s FROM read_parquet('{records}/*.parquet'))
"""  # noqa: E501
_STATISTICS = """
SELECT metric, count(*) AS n, count_if(status = 'scored') AS n_scored, count_if(status = 'abstained') AS n_abstained,
       count_if(status = 'not_applicable') AS n_not_applicable, count_if(status = 'error') AS n_failed,
       n_scored / (n - n_not_applicable) AS coverage, avg(value) AS mean, median(value) AS median, min(value) AS min,
       max(value) AS max, stddev_pop(value) AS std, stddev_samp(value) / sqrt(count(value)) AS stderr
FROM outcomes GROUP BY metric
"""  # noqa: E501
_PARTS = """
SELECT metric, part, sum(figure), sum(figure) / any_value(n_scored)
FROM (SELECT metric, unnest(map_keys(parts)) AS part, unnest(map_values(parts)) AS figure FROM outcomes WHERE status = 'scored')
JOIN (SELECT metric, count(*) AS n_scored FROM outcomes WHERE status = 'scored' GROUP BY metric) USING (metric)
GROUP BY metric, part
"""  # noqa: E501
_MACRO = """
SELECT avg(precision) AS precision, avg(recall) AS recall,
       avg(if(precision + recall > 0, 2 * precision * recall / (precision + recall), 0)) AS f1
FROM (SELECT if(tp + fp > 0, tp / (tp + fp), 1) AS precision, if(tp + fn > 0, tp / (tp + fn), 1) AS recall
      FROM (SELECT parts['tp'] AS tp, parts['fp'] AS fp, parts['fn'] AS fn
            FROM outcomes WHERE status = 'scored' AND metric = 'memory_utilization'))
"""  # noqa: E501
_JUDGES = (
    "SELECT metric, judge, count(*) FROM outcomes WHERE status = 'scored' GROUP BY metric, judge"
)
_STEPS = (
    "SELECT metric, round(value)::INT::VARCHAR, count(*) FROM outcomes WHERE {which} GROUP BY ALL"
)
_BINS = """
SELECT metric, bin - (value < $edges[bin + 1])::INT AS bin, count(*)
FROM (SELECT metric, value, least(floor(value * 10), 9)::INT AS bin FROM outcomes WHERE {which}) GROUP BY ALL
"""  # noqa: E501


class Measured(NamedTuple):
    """One side's run: its time, its processor time, the peak memory of its process, and figures by
    name."""

    seconds: float
    cpu_s: float
    peak_gib: float
    figures: dict[str, float]


def measured(side: Callable[[str], dict[str, float]], folder: str) -> Measured:
    started, cpu = time.perf_counter(), time.process_time()
    figures = side(folder)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return Measured(
        seconds, cpu_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, figures
    )


def alone(call: Callable[[], Any]) -> Any:
    """What `call` returns from a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(call).result()


def by_duckdb(folder: str) -> dict[str, float]:
    """The figures of a run folder by a plain DuckDB script, each under the name that `named` gives
    it."""
    even = [metric.name for metric in METRICS if not metric.integer_scale]
    found: dict[str, float] = {}
    with duckdb.connect() as database:
        database.execute(_OUTCOMES.format(records=f"{folder}/records"))
        statistics_of = database.execute(_STATISTICS)
        names = [column[0] for column in statistics_of.description]
        for metric, *row in statistics_of.fetchall():
            found |= {
                f"{metric}.{name}": figure for name, figure in zip(names[1:], row, strict=True)
            }
        for metric, part, total, average in database.execute(_PARTS).fetchall():
            found |= {f"{metric}.total.{part}": total, f"{metric}.average.{part}": average}
        macro = zip(
            ("precision", "recall", "f1"), database.execute(_MACRO).fetchall()[0], strict=True
        )
        found |= {f"memory_utilization.macro.{name}": figure for name, figure in macro}
        found |= {
            f"{metric}.judge.{name}": n for metric, name, n in database.execute(_JUDGES).fetchall()
        }
        steps = database.execute(
            _STEPS.format(which=f"status = 'scored' AND metric NOT IN {tuple(even)}")
        ).fetchall()
        binned = _BINS.format(which=f"status = 'scored' AND metric IN {tuple(even)}")
        bins = database.execute(binned, {"edges": EDGES.tolist()}).fetchall()
    found |= {f"{metric}.distribution.{step}": n for metric, step, n in steps}
    return found | {
        f"{metric}.distribution.{EDGES[number]:.1f}-{EDGES[number + 1]:.1f}": n
        for metric, number, n in bins
    }


def by_stage(folder: str) -> dict[str, float]:
    """The figures of a run folder by the reduce stage."""
    reduced = reduce_records(RunFolder(folder).records(), METRICS)
    return {
        f"{summary.metric}.{name}": figure
        for summary in reduced.metrics
        for name, figure in named(summary)
    }


def named(summary: MetricSummary) -> Iterator[tuple[str, float]]:
    """The figures of a summary, and its sums and means of parts under the names of the parts."""
    flat = summary.model_dump(
        include=set(MetricSummary.model_fields)
        - {"metric", "candidate", "title", "scale", "layout"}
    )
    yield from ((name, figure) for name, figure in flat.items() if not isinstance(figure, dict))
    yield from ((f"judge.{name}", n) for name, n in summary.judges.items())
    yield from ((f"distribution.{name}", n) for name, n in summary.distribution.items())
    yield from (
        (f"macro.{name}", figure) for name, figure in summary.macro.items() if figure is not None
    )
    aggregates = {**summary.micro, **summary.extras}
    spellings = {"total": ("{}", "total_{}"), "average": ("avg_{}", "average_{}", "{}_share")}
    for part in PARTS:
        for kind, spelled in spellings.items():
            figures = (aggregates.get(spelling.format(part)) for spelling in spelled)
            yield from ((f"{kind}.{part}", figure) for figure in figures if figure is not None)


def differences(stage: dict[str, float], plain: dict[str, float]) -> list[str]:
    """What the two sides do not agree on. Means and sums of parts that no summary shows are no
    difference."""
    shown = {
        name for name in plain if name in stage or name.split(".")[1] not in ("total", "average")
    }
    return [
        f"{name}: {stage.get(name)} by the stage, {plain[name]} by DuckDB"
        for name in sorted(shown)
        if name not in stage or not math.isclose(stage[name], plain[name], rel_tol=TOLERANCE)
    ]


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


def records(random: np.random.Generator, corpus: Corpus, first: int, n: int) -> pa.Table:
    """`n` units of one candidate, one in 200 of them unanswered."""
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
            field.name: lists(random, n)
            for field in RECORD_SCHEMA
            if field.type == pa.list_(pa.string())
        },
        **{name: pa.repeat(pa.scalar(value), n) for name, value in same.items()},
        **{name: corpus.texts(n, 400) for name in SAMPLE_JSON},
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


def lists(random: np.random.Generator, n: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(
        np.arange(0, 3 * n + 1, 3), random.choice(["job", "commute", "sleep_hours", "diet"], 3 * n)
    )


def scores(random: np.random.Generator, corpus: Corpus, n: int) -> pa.ListArray:
    """The scores of `n` units, the metrics of a unit one after the other."""
    size, kinds = n * len(METRICS), np.arange(len(METRICS))
    status = np.column_stack([random.choice(4, n, p=shares(metric)) for metric in METRICS]).ravel()
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


def shares(metric: Metric) -> tuple[float, ...]:
    """How often a metric comes to each of STATUSES; half of the samples have no history."""
    return (0.5, 0.01, 0.48, 0.01) if "history" in metric.requires else (0.97, 0.01, 0.01, 0.01)


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


def compare(folder: str, rounds: int) -> None:
    """Prints what either side takes in each round, and raises SystemExit when they disagree."""
    ratios = []
    for number in range(1, rounds + 1):
        stage, plain = (alone(partial(measured, side, folder)) for side in (by_stage, by_duckdb))
        if differ := differences(stage.figures, plain.figures):
            raise SystemExit("\n".join(("the two sides disagree:", *differ)))
        ratios.append(stage.seconds / plain.seconds)
        for name, side in (("reduce_records", stage), ("DuckDB", plain)):
            cost = (
                f"{side.seconds:.2f} s, {side.cpu_s:.2f} s of processor time, peak "
                f"{side.peak_gib:.2f} GiB"
            )
            print(f"round {number}: {name} {cost}", flush=True)
    print(
        f"mean ratio {statistics.mean(ratios):.3f} (wanted: at most 2); {len(plain.figures)} "
        "figures agree"
    )


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
        compare(str(folder), options.rounds)


if __name__ == "__main__":
    main()

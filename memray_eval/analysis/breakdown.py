"""Breaks a run's results down by task, by length and depth (seed 001's monitoring) or by entries of
memory, and by temperature, in DuckDB (a unit written twice counts once), and lists the units on
which the judge's verdict and the suite's own rule disagree. A score that a rule gave because the
judge failed is not compared."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.score_table import (
    CODED,
    MEAN,
    STDERR,
    Reader,
    Records,
    ScoreTable,
    fields_of_shares,
    is_fallback,
    read_score_tables,
)
from memray_eval.analysis.scores import find_cluster
from memray_eval.analysis.statistics import figures_interval
from memray_eval.benchmarks import mean_of
from memray_eval.metric import RULES, JudgedMetric, Metric
from memray_eval.types import (
    RULE_METRIC,
    VERDICT_METRIC,
    Agreement,
    Candidate,
    HeatMap,
    LengthPoint,
    MacroSummary,
    MetricSummary,
    Sweep,
    TaskMetric,
    TaskSummary,
    is_estimate,
    split_jurors,
)

CORRECT_FROM = 0.5  # a score of at least this says that the answer is correct
RESPONSE_CHARACTERS = 500  # how much of a response the list of disagreements shows

_COMPARED = ("metric", "value", "judge", "judgment")
_OF_DISAGREEMENTS = tuple("unit_id sample_id candidate task answers response".split())


def compares(metrics: Sequence[Metric]) -> bool:
    """Whether a run with these metrics has both a judge's verdict and a rule's score to compare."""
    return {VERDICT_METRIC, RULE_METRIC} <= {metric.name for metric in metrics}


def agreement(both: int, neither: int, only_judge: int, only_rule: int) -> Agreement:
    """Computes Cohen's kappa and the share agreed from the counts of a 2x2 table, not all 0."""
    n = both + neither + only_judge + only_rule
    denominator = (both + only_judge) * (only_judge + neither)
    denominator += (both + only_rule) * (only_rule + neither)
    return Agreement(
        n=n,
        both=both,
        neither=neither,
        only_judge=only_judge,
        only_rule=only_rule,
        share=(both + neither) / n,
        kappa=2 * (both * neither - only_judge * only_rule) / denominator if denominator else None,
    )


def disagreements(table: ScoreTable) -> list[dict[str, Any]]:
    """The units of a block on which judge and rule disagree, with their texts."""
    texts = table.select(_OF_DISAGREEMENTS, _COMPARED)
    metric, values = texts.codes((VERDICT_METRIC, RULE_METRIC)), texts.values
    verdict = texts.by_unit((metric == 0) & ~texts.is_judge(is_fallback), values)
    rule = texts.by_unit(metric == 1, values)
    is_apart = (verdict >= CORRECT_FROM) != (rule >= CORRECT_FROM)
    differing = texts.of_units(is_apart & ~np.isnan(verdict + rule))
    of_unit: defaultdict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for unit, score in zip(differing.unit.tolist(), differing.scores.to_pylist(), strict=True):
        of_unit[unit][score["metric"]] = score
    rows = []
    for unit, row in enumerate(differing.units.to_pylist()):
        judged, ruled = of_unit[unit][VERDICT_METRIC], of_unit[unit][RULE_METRIC]
        rows.append(
            {
                **{name: row[name] for name in ("unit_id", "sample_id", "task", "candidate")},
                "response": (row["response"] or "")[:RESPONSE_CHARACTERS],
                "answers": row["answers"],
                "judge": judged["judge"],
                "verdict": "CORRECT" if judged["value"] >= CORRECT_FROM else "INCORRECT",
                "reasoning": json.loads(judged["judgment"] or "{}").get("reasoning"),
                "rule": ruled["judge"],
                "rule_value": ruled["value"],
            }
        )
    return rows


DIFFERING = Reader(_OF_DISAGREEMENTS, _COMPARED, disagreements)


# Of more distinct ones, lengths are binned by powers of two and depths by 5 percent.
MAX_LENGTHS, MAX_DEPTHS = 12, 21

_FIGURES = tuple(
    "value calls cached cost_usd unpriced_calls input_tokens output_tokens latency_s".split()
)
_TEXTS_OF_UNITS = ("unit_id", "sample_id", "candidate", "task", "metadata")
_OF_UNITS = (*_TEXTS_OF_UNITS, "prompt_tokens")

_UNIT_ROWS = pa.schema(
    {"unit": pa.int64(), **dict.fromkeys(_TEXTS_OF_UNITS, pa.string()), "prompt_tokens": pa.int64()}
)
_SCORE_ROWS = pa.schema(
    {"metric": pa.dictionary(pa.int32(), pa.string())}
    | dict.fromkeys(
        "is_failed is_applicable is_no_answer is_abstained is_fallback is_estimate cached".split(),
        pa.bool_(),
    )
    | dict.fromkeys("unit calls input_tokens output_tokens unpriced_calls".split(), pa.int64())
    | dict.fromkeys("value part whole cost_usd latency_s".split(), pa.float64())
)

# A depth of null says that the task has no depth (common words). A sample whose metadata has a
# length and no depth at all is on no heat map; one with entries has no depth.
_TAKE_UNITS = """
CREATE MACRO number(document, path) AS
    CASE WHEN json_type(document, path) IN ('BIGINT', 'UBIGINT', 'DOUBLE')
         THEN json_extract_string(document, path)::DOUBLE END;
CREATE TABLE every AS
WITH valid AS (
    SELECT * REPLACE (CASE WHEN json_valid(metadata) THEN metadata END AS metadata)
    FROM unit_rows),
fields AS (
    SELECT unit, unit_id, candidate, task, prompt_tokens,
           number(metadata, '$.length') AS length, number(metadata, '$.depth') AS depth,
           json_type(metadata, '$.depth') AS depth_type, number(metadata, '$.entries') AS entries,
           coalesce({cluster}, concat(task, ' ', sample_id)) AS cluster,
           json_extract_string(metadata, '$.bucket') AS bucket
    FROM valid)
SELECT unit, unit_id, candidate, task, bucket, depth, prompt_tokens, cluster,
       CASE WHEN length IS NULL THEN 'entries' ELSE 'tokens' END AS measure,
       CASE WHEN length > 0 AND (depth_type = 'NULL' OR depth BETWEEN 0 AND 100) THEN length
            WHEN length IS NULL AND entries > 0 AND depth IS NULL THEN entries END AS length
FROM fields;
CREATE TABLE units AS
SELECT * EXCLUDE (unit_id) FROM every WHERE unit IN (SELECT min(unit) FROM every GROUP BY unit_id);
DROP TABLE every;
"""
_CONTENTS = """
SELECT coalesce(bool_or(task != ''), false), count(DISTINCT length),
       count(DISTINCT depth) FILTER (length IS NOT NULL)
FROM units
"""
_BY_TASK = """
GROUP BY GROUPING SETS ((candidate, task{0}), (candidate, task, bucket{0}))
HAVING grouping(bucket) = 1 OR bucket != ''
"""
_TASKS = f"""
SELECT candidate, task, bucket, count(*) AS n FROM units {_BY_TASK.format("")}
ORDER BY ALL NULLS FIRST
"""
_TASK_METRICS = f"""
SELECT candidate, task, bucket, metric,
       count(*) AS n, count(value) AS n_scored, count_if(is_failed) AS n_failed,
       count_if(is_no_answer) AS n_no_answer, count_if(is_abstained) AS n_abstained,
       {MEAN} AS mean, {STDERR} AS stderr,
       count(value) / nullif(count_if(is_applicable), 0) AS coverage,
       count_if(is_failed) / nullif(count_if(is_applicable), 0) AS error_rate,
       sum(calls)::BIGINT AS calls, count_if(cached) AS cached, count_if(is_fallback) AS fallbacks,
       count_if(is_estimate AND value IS NOT NULL) AS estimates, sum(cost_usd) AS cost_usd,
       sum(input_tokens)::BIGINT AS input_tokens, sum(output_tokens)::BIGINT AS output_tokens,
       avg(latency_s) FILTER (calls > 0 AND latency_s > 0) AS latency_s_mean,
       coalesce(sum(unpriced_calls), 0)::BIGINT AS unpriced_calls
FROM units JOIN scores USING (unit) {_BY_TASK.format(", metric")}
"""
# A row without a task covers all of a candidate's units.
_AGREEMENTS = f"""
WITH pairs AS (
    SELECT unit,
           bool_or(value >= {CORRECT_FROM})
               FILTER (metric = '{VERDICT_METRIC}' AND NOT is_fallback) AS judge,
           bool_or(value >= {CORRECT_FROM}) FILTER (metric = '{RULE_METRIC}') AS rule
    FROM scores WHERE value IS NOT NULL GROUP BY unit)
SELECT candidate, task, bucket,
       count_if(judge AND rule), count_if(NOT judge AND NOT rule),
       count_if(judge AND NOT rule), count_if(rule AND NOT judge)
FROM pairs JOIN units USING (unit) WHERE judge IS NOT NULL AND rule IS NOT NULL
GROUP BY GROUPING SETS ((candidate), (candidate, task), (candidate, task, bucket))
HAVING grouping(bucket) = 1 OR bucket != ''
"""
# STDERR over the sums of clusters is CR1, as statistics.clustered_error
_CELLS = f"""
WITH clusters AS (
    SELECT candidate, metric, measure, {{length}} AS cell_length, {{depth}} AS cell_depth, cluster,
           sum(part) AS part, sum(whole) AS whole, count(value) AS n,
           count_if(is_estimate AND value IS NOT NULL) AS estimates,
           count_if(is_fallback AND value IS NOT NULL) AS fallbacks,
           sum(prompt_tokens) AS tokens, count(prompt_tokens) AS counted, sum(cost_usd) AS cost_usd,
           coalesce(sum(unpriced_calls), 0) AS unpriced_calls
    FROM units JOIN scores USING (unit) WHERE length IS NOT NULL GROUP BY ALL)
SELECT candidate, metric, measure, cell_length, cell_depth, {MEAN}, {STDERR}, sum(n)::BIGINT,
       count(part), sum(tokens) / nullif(sum(counted), 0), sum(cost_usd),
       sum(unpriced_calls)::BIGINT, sum(estimates)::BIGINT, sum(fallbacks)::BIGINT
FROM clusters GROUP BY candidate, metric, measure, cell_length, cell_depth ORDER BY ALL
"""
_LENGTH, _UNITS = re.compile(r"(\d+)([kKmM]?)"), {"": 1, "k": 2**10, "m": 2**20}
_BINNED = {"length": "pow(2, ceil(log2(length)))", "depth": "round(depth / 5) * 5"}

Place: TypeAlias = tuple[str, str | None, str | None]  # candidate, task, bucket


@dataclass(frozen=True)
class Breakdown:
    """The parts of `Summary` by task, over tasks, and by length and depth."""

    tasks: tuple[TaskSummary, ...] = ()
    macro: tuple[MacroSummary, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()


def break_down(records: Records, metrics: Sequence[Metric]) -> Breakdown:
    """Aggregates Parquet files with RECORD_SCHEMA by candidate, task and bucket. Empty, and no
    score is read, if no sample names a task or a length and depth, and no rule is compared."""
    with duckdb.connect() as database:
        unit_rows = pa.RecordBatchReader.from_batches(_UNIT_ROWS, _unit_rows(records))
        database.register("unit_rows", unit_rows)
        key = find_cluster(records)
        cluster = f"json_extract_string(metadata, '$.{key}')" if key else "NULL"
        database.execute(_TAKE_UNITS.format(cluster=cluster))
        [(has_tasks, n_lengths, n_depths)] = database.execute(_CONTENTS).fetchall()
        if not (has_tasks or n_lengths or compares(metrics)):
            return Breakdown()
        score_rows = pa.RecordBatchReader.from_batches(_SCORE_ROWS, _score_rows(records, metrics))
        database.register("score_rows", score_rows)
        database.execute("CREATE TABLE scores AS SELECT * FROM score_rows")
        agreements = {
            (candidate, task, bucket): agreement(*counts)
            for candidate, task, bucket, *counts in database.execute(_AGREEMENTS).fetchall()
        }
        tasks = tuple(_summarise_tasks(database, metrics, agreements)) if has_tasks else ()
        macro = _summarise_macro(database, metrics, tasks, agreements)
        bins = n_lengths > MAX_LENGTHS, n_depths > MAX_DEPTHS
        return Breakdown(
            tasks=tasks,
            macro=tuple(macro) if has_tasks or agreements else (),
            heat_maps=tuple(_heat_maps(database, metrics, *bins)) if n_lengths else (),
        )


def _unit_rows(records: Records) -> Iterator[pa.RecordBatch]:
    first = 0
    for table in read_score_tables(records, _OF_UNITS, ["metric"]):
        numbers = pa.array(np.arange(first, first + table.units.num_rows))
        first += table.units.num_rows
        columns = [numbers, *(table.units[name] for name in _OF_UNITS)]
        yield pa.record_batch(columns, schema=_UNIT_ROWS)


def _score_rows(records: Records, metrics: Sequence[Metric]) -> Iterator[pa.RecordBatch]:
    first = 0
    fields = (*fields_of_shares(metrics), "status", "judge", *_FIGURES)
    names = [metric.name for metric in metrics]
    kinds = np.array([isinstance(metric, JudgedMetric) for metric in metrics] + [False])
    for table in read_score_tables(records, ["unit_id"], tuple(dict.fromkeys(fields)), CODED):
        metric, (part, whole) = table.codes(names), table.shares(metrics)
        status = partial(table.map_names, "status", nothing=np.False_)
        figures = {name: table.column(name) for name in _FIGURES}
        # Records of older versions count no calls: one for each model behind the score, then
        n_models = table.map_names("judge", _count_models, np.int64(0))
        n_models *= kinds[metric] & ~figures["cached"].to_numpy(zero_copy_only=False)
        columns = {
            **figures,
            "calls": pc.coalesce(figures["calls"], pa.array(n_models)),
            "unit": pa.array(table.unit + first),
            "metric": pa.DictionaryArray.from_arrays(
                pa.array(np.maximum(metric, 0).astype(np.int32)), pa.array([*names, ""])
            ),
            "is_failed": pa.array(status("error".__eq__)),
            "is_applicable": pa.array(status("not_applicable".__ne__)),
            "is_no_answer": pa.array(status("no_answer".__eq__)),
            "is_abstained": pa.array(status("abstained".__eq__)),
            "is_fallback": pa.array(table.is_judge(is_fallback)),
            "is_estimate": pa.array(kinds[metric] & table.is_judge(is_estimate)),
            "part": pa.array(part, mask=np.isnan(part)),
            "whole": pa.array(whole, mask=np.isnan(whole)),
        }
        rows = pa.record_batch([columns[name] for name in _SCORE_ROWS.names], schema=_SCORE_ROWS)
        yield rows.filter(pa.array(metric >= 0))
        first += table.units.num_rows


def _count_models(judge: str) -> int:
    """Counts the models that judged a score: 0 if rules estimated it or none was asked."""
    return 0 if not judge or judge.startswith(RULES) else len(split_jurors(judge))


def _summarise_tasks(
    database: Any, metrics: Sequence[Metric], agreements: dict[Place, Agreement]
) -> Iterator[TaskSummary]:
    metrics_of: defaultdict[Place, dict[str, TaskMetric]] = defaultdict(dict)
    by_name = {metric.name: metric for metric in metrics}
    for row in database.sql(_TASK_METRICS).to_arrow_table().to_pylist():
        cell = row.pop("candidate"), row.pop("task"), row.pop("bucket")
        metric = by_name[row["metric"]]
        of_metric = TaskMetric(**metric.clip_mean(row), average=metric.average)
        metrics_of[cell][metric.name] = of_metric
    for candidate, task, bucket, n in sorted(database.execute(_TASKS).fetchall(), key=_place_key):
        cell = candidate, task, bucket
        of_cell = metrics_of[cell]
        yield TaskSummary(
            candidate=candidate, task=task, bucket=bucket, n=n, agreement=agreements.get(cell),
            metrics=tuple(of_cell[name] for name in by_name if name in of_cell),
        )  # fmt: skip


def _place_key(row: Sequence[Any]) -> tuple[str, str, float, str]:
    """By candidate and task; a task's buckets by the first number in them (8k, 1M), others last."""
    candidate, task, bucket = row[:3]
    size = -1.0
    if bucket is not None:
        match = _LENGTH.search(bucket)
        size = float(match[1]) * _UNITS[match[2].lower()] if match else math.inf
    return candidate or "", task or "", size, bucket or ""


def _summarise_macro(
    database: Any,
    metrics: Sequence[Metric],
    tasks: Sequence[TaskSummary],
    agreements: dict[Place, Agreement],
) -> Iterator[MacroSummary]:
    means: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for task in tasks:
        for metric in task.metrics:
            if task.bucket is None and metric.mean is not None:
                means[task.candidate, metric.metric].append(metric.mean)
    counts = "SELECT candidate, count(*) FROM units GROUP BY 1 ORDER BY 1"
    for candidate, n in database.execute(counts).fetchall():
        of_tasks = {metric.name: means[candidate, metric.name] for metric in metrics if tasks}
        yield MacroSummary(
            candidate=candidate,
            n=n,
            means={name: mean_of(of_metric) for name, of_metric in of_tasks.items()},
            n_tasks={name: len(of_metric) for name, of_metric in of_tasks.items()},
            agreement=agreements.get((candidate, None, None)),
        )


def _heat_maps(
    database: Any, metrics: Sequence[Metric], bins_lengths: bool, bins_depths: bool
) -> Iterator[HeatMap]:
    is_binned = {"length": bins_lengths, "depth": bins_depths}
    axes = {axis: _BINNED[axis] if is_binned[axis] else axis for axis in is_binned}
    by_name = {metric.name: metric for metric in metrics}
    cells = defaultdict[tuple[str, str, Any], dict[tuple[float, float | None], LengthPoint]](dict)
    replaced = defaultdict[tuple[str, str, Any], list[int]](lambda: [0, 0])
    found = database.execute(_CELLS.format(**axes)).fetchall()
    for candidate, name, measure, length, depth, *figures in found:
        mean, stderr, n, groups, tokens, cost_usd, unpriced, *others = figures
        key = candidate, name, measure
        scale, clustered = by_name[name].scale, (stderr or 0.0, groups) if groups < n else None
        interval = figures_interval(mean, stderr, n, scale=scale, clustered=clustered)
        low, high = interval or (None, None)
        cells[key][length, depth] = LengthPoint(
            length=length, mean=mean, n=n, low=low, high=high,
            prompt_tokens=tokens, cost_usd=cost_usd, unpriced_calls=unpriced,
        )  # fmt: skip
        replaced[key] = [sum(pair) for pair in zip(replaced[key], others, strict=True)]
    for key in sorted(cells, key=lambda key: (list(by_name).index(key[1]), key)):
        at, (candidate, name, measure) = cells[key], key
        lengths = sorted({length for length, _ in at})
        depths = sorted({depth for _, depth in at if depth is not None})
        rows = [
            [at.get((length, depth), LengthPoint(length=length)) for length in lengths]
            for depth in (*depths, None)
        ]
        no_depth = rows.pop() if any(depth is None for _, depth in at) else rows.pop()[:0]
        yield HeatMap(
            candidate=candidate,
            metric=name,
            scale=by_name[name].scale,
            lengths=tuple(lengths),
            depths=tuple(depths),
            values=tuple(tuple(cell.mean for cell in row) for row in rows),
            n=tuple(tuple(cell.n for cell in row) for row in rows),
            without_depth=tuple(cell.mean for cell in no_depth),
            n_without_depth=tuple(cell.n for cell in no_depth),
            points=tuple(no_depth),
            measure=measure,
            lengths_binned=bins_lengths,
            depths_binned=bins_depths,
            estimates=replaced[key][0],
            fallbacks=replaced[key][1],
        )


def temperature_sweeps(
    candidates: Sequence[Candidate], metrics: Sequence[MetricSummary]
) -> tuple[Sweep, ...]:
    """A sweep for every metric and every set of candidates that differ only in name and
    temperature, of two or more. Ordered by the set's first candidate, then by metric."""
    sets: defaultdict[Candidate, list[tuple[float, Candidate]]] = defaultdict(list)
    for candidate in candidates:
        temperature = candidate.sampling.temperature
        if temperature is not None:  # else the server's own, whatever that is
            sampling = candidate.sampling.model_copy(update={"temperature": 0.0})
            alike = candidate.model_copy(update={"name": "-", "sampling": sampling})
            sets[alike].append((temperature, candidate))
    summaries = {(metric.metric, metric.candidate): metric for metric in metrics}
    sweeps = []
    for alike, of_set in sets.items():
        of_set.sort(key=itemgetter(0))
        temperatures = tuple(temperature for temperature, _ in of_set)
        names = tuple(candidate.name for _, candidate in of_set)
        for metric in dict.fromkeys(metric.metric for metric in metrics):
            points = [summaries[metric, name] for name in names if (metric, name) in summaries]
            if len(set(temperatures)) < 2 or len(points) < len(names):
                continue
            sweep = Sweep(
                metric=metric,
                model=alike.model,
                prompt=alike.prompt,
                candidates=names,
                temperatures=temperatures,
                average=points[0].figure.average,
                means=tuple(point.figure.value for point in points),
                stderrs=tuple(point.figure.stderr for point in points),
                n=tuple(point.n_scored for point in points),
                estimates=tuple(point.n_estimated for point in points),
                fallbacks=tuple(point.n_fallbacks for point in points),
            )
            sweeps.append(sweep)
    return tuple(sweeps)

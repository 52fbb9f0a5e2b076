"""The reduce stage: aggregates written records for a summary. A unit written twice counts once.

Only the columns that a summary needs are decoded (no texts, no judgments), names as dictionary
codes, and the scores are split by metric at once. What stays in memory is one number per unit for
every column of every metric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.errors import cause_of
from memray_eval.metric import Metric, MetricColumns, summarise
from memray_eval.results.schema import RECORD_SCHEMA
from memray_eval.stages.pooled import part_columns
from memray_eval.stages.rates import generated_tokens_per_s
from memray_eval.types import Cause, GenerationSummary, MetricSummary, PromptCacheUse

MOST_CAUSES = 20  # how many causes of failure are kept, the most frequent ones
_FILES_AT_ONCE = 8  # may exceed the cores: reading from a cloud is mostly waiting
_UNITS_AT_ONCE = 8192  # bounds how many scores are in memory before they are split
_SCORE = "scores.list.element"
_CODED = tuple(f"{_SCORE}.{name}" for name in ("metric", "status", "judge", "parts.key_value.key"))
# records of older versions lack these
_OF_ENGINE = ("prompt_form", "truncated_tokens", "cached_tokens", "thinking_blocks")
_OF_UNITS = (
    "candidate",
    "model",
    "finish_reason",
    "prompt_tokens",
    "output_tokens",
    "ttft_s",
    "duration_s",
    *_OF_ENGINE,
)
# and these, which a prompt cache is about
_OF_CACHE = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "saved_usd")
_OF_SCORES = ("metric", "status", "value", "parts", "judge", "error", *_OF_CACHE)
_COLUMNS = (*_OF_UNITS, "error", *(f"{_SCORE}.{name}" for name in _OF_SCORES), "unit_id")
_UNITS = pa.schema(
    [*map(RECORD_SCHEMA.field, _OF_UNITS), ("unanswered", pa.bool_()), ("failed", pa.bool_())]
)

_GENERATION = """
SELECT candidate, any_value(model), count(*), count_if(unanswered), coalesce(sum(prompt_tokens), 0),
       coalesce(sum(output_tokens), 0), avg(ttft_s), quantile_cont(ttft_s, 0.95), avg(duration_s),
       sum(cached_tokens), sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL),
       count(*) FILTER (truncated_tokens > 0), count(*) FILTER (thinking_blocks > 0),
       count(*) FILTER (
           finish_reason IS NOT NULL AND (prompt_tokens IS NULL OR output_tokens IS NULL))
FROM units GROUP BY candidate ORDER BY candidate
"""
_FINISH = """
SELECT finish_reason, count(*) FROM units
WHERE candidate = ? AND finish_reason IS NOT NULL GROUP BY 1 ORDER BY 1
"""
_FORMS = """
SELECT prompt_form, count(*) FROM units
WHERE candidate = ? AND prompt_form IS NOT NULL GROUP BY 1 ORDER BY 1
"""

Flags: TypeAlias = npt.NDArray[np.bool_]  # one per unit, or one per score
Indices: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Reduced:
    """The aggregates of a run's records."""

    n_units: int
    n_failed_units: int
    generation: tuple[GenerationSummary, ...]
    metrics: tuple[MetricSummary, ...]
    causes: tuple[Cause, ...] = ()
    prompt_cache: PromptCacheUse | None = None


def reduce_records(
    records: pads.Dataset, metrics: Sequence[Metric], generation_s: float | None
) -> Reduced:
    """Aggregates Parquet files with RECORD_SCHEMA by candidate and metric. `generation_s` is the
    wall time of generation, for tokens per second."""
    files = list(records.get_fragments())
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        kept = _mark_first(list(pool.map(_read_unit_ids, files)))
        found = [
            block
            for blocks in pool.map(partial(_reduce_file, metrics=metrics), files, kept)
            for block in blocks
        ]
    units = pa.Table.from_batches([block.units for block in found], _UNITS)
    outcomes: defaultdict[tuple[str, str], list[MetricColumns]] = defaultdict(list)
    for block in found:
        for metric, outcome in block.outcomes:
            outcomes[metric, outcome.candidate].append(outcome)
    generation = tuple(_summarise_generation(units, generation_s))
    return Reduced(
        n_units=units.num_rows,
        n_failed_units=pc.sum(units["failed"]).as_py() or 0,
        generation=generation,
        metrics=tuple(
            summarise(
                metric,
                _concatenate(candidate.candidate, outcomes[metric.name, candidate.candidate]),
            )
            for metric in metrics
            for candidate in generation
        ),
        causes=tuple(_merge_causes(block.causes for block in found)),
        prompt_cache=_sum_cache(block.cache for block in found),
    )


def _read_unit_ids(file: pads.ParquetFileFragment) -> pa.ChunkedArray:
    with file.open() as stream:
        return pq.ParquetFile(stream).read(columns=["unit_id"])["unit_id"]


def _mark_first(ids: Sequence[pa.ChunkedArray]) -> list[Flags]:
    """Marks, file by file, the first row of each unit. A retried write task may leave a unit in two
    files; both rows are the same."""
    column = pa.chunked_array([chunk for file in ids for chunk in file.chunks], pa.string())
    rows = pa.table({"unit_id": column, "row": np.arange(len(column))})
    kept = np.zeros(len(column), dtype=np.bool_)
    kept[rows.group_by("unit_id").aggregate([("row", "min")])["row_min"].to_numpy()] = True
    return np.split(kept, np.cumsum([len(file) for file in ids])[:-1])


class _Block(NamedTuple):
    """The parts of one block of records: a row per unit, the outcomes of each metric and candidate,
    why units failed, and the sums of _OF_CACHE."""

    units: pa.RecordBatch
    outcomes: list[tuple[str, MetricColumns]]
    causes: dict[str, Cause]
    cache: tuple[float, ...]


def _reduce_file(
    file: pads.ParquetFileFragment, kept: Flags, metrics: Sequence[Metric]
) -> list[_Block]:
    """Reads the rows of a file that are `kept`, in blocks of _UNITS_AT_ONCE."""
    blocks, row = [], 0
    with file.open() as stream:
        parquet = pq.ParquetFile(stream, read_dictionary=_CODED, pre_buffer=True)
        # Row groups are read apart: pyarrow cannot join their dictionary codes within a list.
        for group in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(_UNITS_AT_ONCE, row_groups=[group], columns=_COLUMNS):
                wanted = kept[row : row + batch.num_rows]
                row += batch.num_rows
                if not wanted.all():
                    batch = batch.filter(pa.array(wanted))
                blocks.append(_reduce_block(batch, metrics))
    return blocks


def _reduce_block(batch: pa.RecordBatch, metrics: Sequence[Metric]) -> _Block:
    """Splits a batch of records into its units, its outcomes and its causes of failure. A unit has
    failed if it is unanswered, or if any of its scores is an error."""
    scores, unit = batch["scores"].flatten(), pc.list_parent_indices(batch["scores"]).to_numpy()
    names = {name: _encode(pc.struct_field(scores, name)) for name in ("metric", "status", "judge")}
    unanswered = batch["error"].is_valid().to_numpy(zero_copy_only=False)
    is_error = names["status"].where("error")
    failed = unanswered.copy()
    failed[unit[is_error]] = True
    columns = [
        *(_column_or_nulls(batch, name) for name in _OF_UNITS),
        pa.array(unanswered),
        pa.array(failed),
    ]
    outcomes = _metric_columns(scores, names, _encode(batch["candidate"]), unit, metrics)
    errors = pc.struct_field(scores, "error").filter(pa.array(is_error))
    causes = _find_causes(batch, unit[is_error], errors)
    there = {field.name for field in scores.type}
    cache = tuple(
        float(pc.sum(pc.struct_field(scores, name)).as_py() or 0) if name in there else 0.0
        for name in _OF_CACHE
    )
    return _Block(pa.record_batch(columns, schema=_UNITS), list(outcomes), causes, cache)


def _sum_cache(blocks: Iterable[tuple[float, ...]]) -> PromptCacheUse | None:
    """The use of prompt caches; None where no provider told of any."""
    sums = [sum(column) for column in zip(*blocks, strict=True)] or [0.0] * len(_OF_CACHE)
    *tokens, saved_usd = sums
    if not any(tokens[1:]):
        return None
    counted = dict(zip(_OF_CACHE, map(round, tokens), strict=False))
    return PromptCacheUse(**counted, saved_usd=saved_usd)


def _find_causes(batch: pa.RecordBatch, unit: Indices, errors: pa.Array) -> dict[str, Cause]:
    """Counts the failed units of a block by cause. `errors` are the errors of scores, and `unit`
    the row of each. If an answer failed, its error is the cause, not those of its scores."""
    answers = {row: text for row, text in enumerate(batch["error"].to_pylist()) if text is not None}
    texts = {row: {text: None} for row, text in answers.items()}
    for row, text in zip(unit.tolist(), errors.to_pylist(), strict=True):
        if row not in answers:
            texts.setdefault(row, {})[text or "no reason was given"] = None
    n_units, examples = Counter[str](), dict[str, tuple[str, int]]()
    for row, in_row in texts.items():
        for cause, text in {cause_of(text): text for text in in_row}.items():
            n_units[cause] += 1
            examples.setdefault(cause, (text, row))
    ids = batch["unit_id"]
    return {
        cause: Cause(cause=cause, n_units=n, example=text, unit_id=ids[row].as_py())
        for cause, n in n_units.items()
        for text, row in [examples[cause]]
    }


def _merge_causes(blocks: Iterable[Mapping[str, Cause]]) -> list[Cause]:
    """Adds up the causes of all blocks, the most frequent first."""
    n_units, first = Counter[str](), dict[str, Cause]()
    for block in blocks:
        for name, cause in block.items():
            n_units[name] += cause.n_units
            first.setdefault(name, cause)
    by_frequency = sorted(n_units, key=lambda name: (-n_units[name], name))[:MOST_CAUSES]
    return [first[name].model_copy(update={"n_units": n_units[name]}) for name in by_frequency]


def _column_or_nulls(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of the batch, or nulls if an older version wrote the file without it."""
    return (
        batch[name]
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, _UNITS.field(name).type)
    )


def _metric_columns(
    scores: pa.StructArray,
    names: Mapping[str, _CodedColumn],
    candidates: _CodedColumn,
    unit: Indices,
    metrics: Sequence[Metric],
) -> Iterator[tuple[str, MetricColumns]]:
    """Yields the outcomes of each metric and candidate of a block. `unit` holds the row that each
    score belongs to."""
    values = pc.struct_field(scores, "value").to_numpy(zero_copy_only=False)
    parts = part_columns(pc.struct_field(scores, "parts"))
    candidate = _CodedColumn(candidates.names, candidates.codes[unit])
    for metric in metrics:
        of_metric, scored = names["metric"].where(metric.name), names["status"].where("scored")
        for name in candidate.names:
            rows = of_metric & candidate.where(name)
            figures = np.flatnonzero(rows & scored)
            columns = {
                part: parts[part][figures] if part in parts else np.zeros(figures.size)
                for part in metric.columns
            }
            yield (
                metric.name,
                MetricColumns(
                    candidate=name,
                    by_status=names["status"].tally(rows),
                    by_judge=names["judge"].tally(figures),
                    columns={"value": values[figures], **columns},
                ),
            )


class _CodedColumn(NamedTuple):
    """A column of names as codes: the distinct names, and for each row the index of its name."""

    names: list[str]
    codes: npt.NDArray[np.int32]

    def where(self, name: str) -> Flags:
        found: Flags = self.codes == (self.names.index(name) if name in self.names else -1)
        return found

    def tally(self, rows: Flags | Indices) -> Counter[str]:
        counts = np.bincount(self.codes[rows], minlength=len(self.names))
        return Counter(
            {name: int(count) for name, count in zip(self.names, counts, strict=True) if count}
        )


def _encode(names: pa.Array) -> _CodedColumn:
    coded = names.dictionary_encode()  # a no-op if it was read as codes
    return _CodedColumn(coded.dictionary.to_pylist(), coded.indices.to_numpy())


def _concatenate(candidate: str, outcomes: Sequence[MetricColumns]) -> MetricColumns:
    """Joins the outcomes of one metric and candidate from all blocks. Rows are put in the order of
    their figures: which block came first must not change a sum's last digits."""
    names = sorted(outcomes[0].columns) if outcomes else []
    columns = {
        name: np.concatenate([outcome.columns[name] for outcome in outcomes]) for name in names
    }
    order: Indices | None = np.lexsort(tuple(columns.values())) if columns else None
    return MetricColumns(
        candidate=candidate,
        by_status=_sum_counts(outcome.by_status for outcome in outcomes),
        by_judge=_sum_counts(outcome.by_judge for outcome in outcomes),
        columns={name: column[order] for name, column in columns.items()},
    )


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _summarise_generation(units: Any, generation_s: float | None) -> Iterator[GenerationSummary]:
    with duckdb.connect() as database:
        database.register("units", units)
        for row in database.execute(_GENERATION).fetchall():
            (
                name,
                model,
                n,
                failed,
                prompt,
                output,
                ttft,
                ttft_p95,
                duration,
                cached,
                measured,
                truncated,
                thinking,
                uncounted,
            ) = row
            yield GenerationSummary(
                candidate=name,
                model=model,
                n=n,
                n_failed=failed,
                prompt_tokens=int(prompt),
                output_tokens=int(output),
                output_tokens_per_s=generated_tokens_per_s(int(output), generation_s),
                ttft_s_mean=ttft,
                ttft_s_p95=ttft_p95,
                duration_s_mean=duration,
                finish_reasons=dict(database.execute(_FINISH, [name]).fetchall()),
                cached_tokens=None if cached is None else int(cached),
                cache_hit_rate=int(cached) / int(measured) if measured else None,
                truncated=truncated,
                thinking=thinking,
                uncounted=uncounted,
                prompt_forms=dict(database.execute(_FORMS, [name]).fetchall()),
            )

"""The reduce stage: aggregates written records for a summary. A unit written twice counts once.

Only the columns that a summary needs are decoded (no texts, no judgments), names as dictionary
codes, and the scores are split by metric at once. What stays in memory is one number per unit for
every column of every metric."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import NamedTuple, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from memray_eval.analysis.score_table import part_columns
from memray_eval.errors import LONGEST_CAUSE, MAY_VARY, cause_of
from memray_eval.metric import Metric, MetricColumns, summarise
from memray_eval.ports import FloatArray
from memray_eval.results.schema import RECORD_SCHEMA
from memray_eval.stages.rates import generated_tokens_per_s
from memray_eval.types import FALLBACKS, Cause, GenerationSummary, MetricSummary, PromptCacheUse

MOST_CAUSES = 20  # how many causes of failure are kept, the most frequent ones
_FILES_AT_ONCE = 8  # may exceed the cores: reading from a cloud is mostly waiting
_LOCAL_FILES_AT_ONCE = 4
_UNITS_AT_ONCE = 8192  # bounds how many scores are in memory before they are split
_SCORE = "scores.list.element"
_CODED = tuple(f"{_SCORE}.{name}" for name in ("metric", "status", "judge", "parts.key_value.key"))
# records of older versions lack these
_OF_LATER = (
    *("prompt_form", "truncated_tokens", "cached_tokens", "thinking_blocks"),
    *("no_answer", "raised_max_tokens", "ended_s"),
)
_OF_UNITS = (
    "candidate",
    "model",
    "finish_reason",
    "prompt_tokens",
    "output_tokens",
    "ttft_s",
    "duration_s",
    *_OF_LATER,
)
# and these, which a prompt cache is about
_OF_CACHE = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "saved_usd")
_OF_SCORES = ("metric", "status", "value", "parts", "judge", "error", *_OF_CACHE)
_COLUMNS = (*_OF_UNITS, "error", *(f"{_SCORE}.{name}" for name in _OF_SCORES))
_COLUMNS_BUT_CACHE = tuple(
    name for name in _COLUMNS if name.removeprefix(f"{_SCORE}.") not in _OF_CACHE
)
_TOKENS_OF_CACHE = {f"{_SCORE}.{name}" for name in ("cached_input_tokens", "cache_write_tokens")}
_UNITS = pa.schema(
    [*map(RECORD_SCHEMA.field, _OF_UNITS), ("unanswered", pa.bool_()), ("failed", pa.bool_())]
)

_GENERATION = """
SELECT candidate, any_value(model), count(*), count_if(unanswered), coalesce(sum(prompt_tokens), 0),
       coalesce(sum(output_tokens), 0), avg(ttft_s), quantile_cont(ttft_s, 0.95), avg(duration_s),
       sum(cached_tokens), sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL),
       count(*) FILTER (truncated_tokens > 0), count(*) FILTER (thinking_blocks > 0),
       count(*) FILTER (
           finish_reason IS NOT NULL AND (prompt_tokens IS NULL OR output_tokens IS NULL)),
       count(raised_max_tokens),
       count(*) FILTER (raised_max_tokens IS NOT NULL AND no_answer IS NULL AND NOT unanswered)
FROM units GROUP BY candidate ORDER BY candidate
"""
_TALLY = """
SELECT {0}, count(*) FROM units WHERE candidate = ? AND {0} IS NOT NULL GROUP BY 1 ORDER BY 1
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
    replaced: tuple[Cause, ...] = ()
    prompt_cache: PromptCacheUse | None = None


def reduce_records(records: pads.Dataset, metrics: Sequence[Metric]) -> Reduced:
    """Aggregates Parquet files with RECORD_SCHEMA by candidate and metric."""
    files = list(records.get_fragments())
    is_local = isinstance(records.filesystem, pafs.LocalFileSystem)
    with ThreadPoolExecutor(_LOCAL_FILES_AT_ONCE if is_local else _FILES_AT_ONCE) as pool:
        heads = list(pool.map(_read_head, files))
        columns = _COLUMNS if any(map(_may_use_prompt_cache, heads)) else _COLUMNS_BUT_CACHE
        reduce_file = partial(_reduce_file, metrics=metrics, columns=columns)
        ranks = _rank_units([head.ids for head in heads])
        found = list(chain.from_iterable(pool.map(reduce_file, files, heads, ranks)))
        outcomes: defaultdict[tuple[str, str], list[_Outcomes]] = defaultdict(list)
        for block in found:
            for name, outcome in block.outcomes:
                outcomes[name, outcome.of_metric.candidate].append(outcome)

        def summarise_one(wanted: tuple[Metric, str]) -> MetricSummary:
            metric, candidate = wanted
            return summarise(
                metric, _concatenate(metric, candidate, outcomes[metric.name, candidate])
            )

        units = pa.Table.from_batches([block.units for block in found], _UNITS)
        candidates = sorted(units["candidate"].unique().to_pylist())
        summaries = pool.map(summarise_one, product(metrics, candidates))
        # While the pool summarises
        generation = tuple(_summarise_generation(units))
        causes = tuple(_merge_causes([block.causes for block in found]))
        return Reduced(
            n_units=units.num_rows,
            n_failed_units=pc.sum(units["failed"]).as_py() or 0,
            generation=generation,
            metrics=tuple(summaries),
            causes=causes,
            replaced=tuple(_merge_causes([block.replaced for block in found])),
            prompt_cache=_sum_cache(block.cache for block in found),
        )


class _Head(NamedTuple):
    """What is read of a file first: its metadata, and the unit of each row."""

    metadata: pq.FileMetaData
    ids: pa.ChunkedArray


def _read_head(file: pads.ParquetFileFragment) -> _Head:
    with file.open() as stream:
        parquet = pq.ParquetFile(stream)
        return _Head(parquet.metadata, parquet.read(columns=["unit_id"])["unit_id"])


def _may_use_prompt_cache(head: _Head) -> bool:
    """Whether a score of the file may have tokens that a prompt cache read or wrote, by the
    statistics that Parquet keeps of a column."""
    schema = head.metadata.schema
    columns = [
        place for place in range(len(schema)) if schema.column(place).path in _TOKENS_OF_CACHE
    ]
    groups = map(head.metadata.row_group, range(head.metadata.num_row_groups))
    kept = [group.column(place).statistics for group in groups for place in columns]
    return any(one is None or not one.has_min_max or one.max for one in kept)


def _rank_units(ids: Sequence[pa.ChunkedArray]) -> list[Indices]:
    """Ranks the rows of each file by their unit's id, over all files; -1 for a row whose unit an
    earlier row has. A retried write task may leave a unit in two files; both rows are the same."""
    column = pa.chunked_array([chunk for file in ids for chunk in file.chunks], pa.string())
    order = pc.sort_indices(column).to_numpy()  # stable: of equal ids the first row comes first
    in_order = column.take(pa.array(order)).combine_chunks()
    ranks = np.empty(len(column), dtype=np.int64)
    ranks[order] = np.arange(len(column))
    is_again = pc.equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False)
    ranks[order[1:][is_again]] = -1
    return np.split(ranks, np.cumsum([len(file) for file in ids])[:-1])


class _Outcomes(NamedTuple):
    """The outcomes of one metric and candidate in a block, and the rank of each scored unit."""

    of_metric: MetricColumns
    ranks: Indices


class _Causes(NamedTuple):
    """The fields of some Causes, a list each."""

    cause: list[str]
    n_units: list[int]
    example: list[str]
    unit_id: list[str]


class _Block(NamedTuple):
    """The parts of one block of records: a row per unit, the outcomes of each metric and candidate,
    why units failed and why judges did whose verdicts were replaced, and the sums of _OF_CACHE."""

    units: pa.RecordBatch
    outcomes: list[tuple[str, _Outcomes]]
    causes: _Causes
    replaced: _Causes
    cache: tuple[float, ...]


def _reduce_file(
    file: pads.ParquetFileFragment,
    head: _Head,
    ranks: Indices,
    metrics: Sequence[Metric],
    columns: Sequence[str],
) -> list[_Block]:
    """Reads the rows of a file that have a rank, in blocks of _UNITS_AT_ONCE."""
    blocks, row = [], 0
    with file.open() as stream:
        parquet = pq.ParquetFile(
            stream, metadata=head.metadata, read_dictionary=_CODED, pre_buffer=True
        )
        # Row groups are read apart: pyarrow cannot join their dictionary codes within a list.
        for group in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(_UNITS_AT_ONCE, row_groups=[group], columns=columns):
                here, there = head.ids.slice(row, batch.num_rows), ranks[row : row + batch.num_rows]
                row += batch.num_rows
                if (there < 0).any():
                    wanted = pa.array(there >= 0)
                    batch, here = batch.filter(wanted), here.filter(wanted)
                    there = there[there >= 0]
                blocks.append(_reduce_block(batch, here, there, metrics))
    return blocks


def _reduce_block(
    batch: pa.RecordBatch, ids: pa.ChunkedArray, ranks: Indices, metrics: Sequence[Metric]
) -> _Block:
    """Splits a batch of records into its units, its outcomes and its causes of failure. A unit has
    failed if it is unanswered, or if any of its scores is an error."""
    scores, unit = batch["scores"].flatten(), batch["scores"].value_parent_indices().to_numpy()
    names = {name: _encode(pc.struct_field(scores, name)) for name in ("metric", "status", "judge")}
    unanswered = pc.is_valid(batch["error"]).to_numpy(zero_copy_only=False)
    is_error = names["status"].where("error")
    failed = unanswered.copy()
    failed[unit[is_error]] = True
    columns = [
        *(_column_or_nulls(batch, name) for name in _OF_UNITS),
        pa.array(unanswered),
        pa.array(failed),
    ]
    outcomes = _split_by_metric(scores, names, _encode(batch["candidate"]), unit, ranks, metrics)
    # If an answer failed, its error is the cause, not those of its scores.
    counted = is_error & ~unanswered[unit]
    told = pc.struct_field(scores, "error")
    errors = told.filter(pa.array(counted))
    rows = np.concatenate([np.flatnonzero(unanswered), unit[counted]])
    texts = pa.concat_arrays([batch["error"].drop_null(), errors])
    there = {field.name for field in scores.type}
    cache = tuple(
        float(pc.sum(pc.struct_field(scores, name)).as_py() or 0) if name in there else 0.0
        for name in _OF_CACHE
    )
    stood_in = [code for code, name in enumerate(names["judge"].names) if name in FALLBACKS]
    replaced = np.flatnonzero(np.isin(names["judge"].codes, stood_in))
    return _Block(
        pa.record_batch(columns, schema=_UNITS),
        list(outcomes),
        _find_causes(rows, texts, ids),
        _find_causes(unit[replaced], told.take(pa.array(replaced)), ids),
        cache,
    )


def _sum_cache(blocks: Iterable[tuple[float, ...]]) -> PromptCacheUse | None:
    """The use of prompt caches; None where no provider told of any."""
    sums = [sum(column) for column in zip(*blocks, strict=True)] or [0.0] * len(_OF_CACHE)
    *tokens, saved_usd = sums
    if not any(tokens[1:]):
        return None
    counted = dict(zip(_OF_CACHE, map(round, tokens), strict=False))
    return PromptCacheUse(**counted, saved_usd=saved_usd)


def _find_causes(rows: Indices, texts: pa.Array, ids: pa.ChunkedArray) -> _Causes:
    """Counts the failed units of a block by cause. `texts` are all errors, `rows` the row of each,
    `ids` the units of all rows."""
    coded = texts.fill_null("no reason was given").dictionary_encode()
    number: dict[str, int] = {}
    numbers = np.array(
        [number.setdefault(cause, len(number)) for cause in causes_of(coded.dictionary)],
        dtype=np.intp,
    )[coded.indices.to_numpy()]
    if not number:
        return _Causes([], [], [], [])
    # A unit counts once for a cause, however many of its scores have it.
    n_units = np.bincount(np.unique(rows * len(number) + numbers) % len(number))
    first = np.unique(numbers, return_index=True)[1]
    examples, units = texts.take(pa.array(first)), ids.take(pa.array(rows[first]))
    return _Causes(list(number), n_units.tolist(), examples.to_pylist(), units.to_pylist())


def causes_of(texts: pa.StringArray) -> Iterator[str]:
    """The cause of each of many errors: `cause_of` is asked of those alone that it would change."""
    changes = pc.or_(
        pc.match_substring_regex(texts, MAY_VARY),
        pc.greater(pc.binary_length(texts), LONGEST_CAUSE),
    )
    for text, is_changed in zip(texts.to_pylist(), changes.to_pylist(), strict=True):
        yield cause_of(text) if is_changed else text


def _merge_causes(blocks: Sequence[_Causes]) -> list[Cause]:
    """Adds up the causes of all blocks, the most frequent first."""
    n_units: Counter[str] = Counter()
    first: dict[str, tuple[str, str]] = {}
    for found in reversed(blocks):  # the first of all is set last
        n_units.update(dict(zip(found.cause, found.n_units, strict=True)))
        examples = zip(found.example, found.unit_id, strict=True)
        first.update(zip(found.cause, examples, strict=True))
    most = heapq.nsmallest(MOST_CAUSES, n_units, key=lambda name: (-n_units[name], name))
    return [
        Cause(cause=name, n_units=n_units[name], example=first[name][0], unit_id=first[name][1])
        for name in most
    ]


def _column_or_nulls(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of the batch, or nulls if an older version wrote the file without it."""
    return (
        batch[name]
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, _UNITS.field(name).type)
    )


def _split_by_metric(
    scores: pa.StructArray,
    names: Mapping[str, _CodedColumn],
    candidates: _CodedColumn,
    unit: Indices,
    ranks: Indices,
    metrics: Sequence[Metric],
) -> Iterator[tuple[str, _Outcomes]]:
    """Yields the outcomes of each metric and candidate of a block. `unit` holds the row that each
    score belongs to."""
    values = pc.struct_field(scores, "value").to_numpy(zero_copy_only=False)
    parts = part_columns(pc.struct_field(scores, "parts"))
    metric, status, judge = (names[name] for name in ("metric", "status", "judge"))
    n_candidates = len(candidates.names)
    n_groups = len(metric.names) * n_candidates
    group = metric.codes * n_candidates + candidates.codes[unit]
    group = group.astype(np.min_scalar_type(n_groups))  # of 16 bits or fewer is sorted in one pass
    by_status = status.tally(group, n_groups)
    scored = np.flatnonzero(status.where("scored"))
    scored = scored[np.argsort(group[scored], kind="stable")]
    by_judge = judge.tally(group, n_groups, scored)
    ends = np.cumsum(np.bincount(group[scored], minlength=n_groups))
    rows_of = np.split(scored, ends[:-1])
    for one in metrics:
        place = metric.names.index(one.name) if one.name in metric.names else None
        for number, name in enumerate(candidates.names):
            at = None if place is None else place * n_candidates + number
            rows = scored[:0] if at is None else rows_of[at]
            columns = {part: parts[part][rows] for part in one.columns if part in parts}
            found = MetricColumns(
                candidate=name,
                by_status={} if at is None else by_status[at],
                by_judge={} if at is None else by_judge[at],
                columns={"value": values[rows], **columns},
            )
            yield one.name, _Outcomes(found, ranks[unit[rows]])


class _CodedColumn(NamedTuple):
    """A column of names as codes: the distinct names, and for each row the index of its name."""

    names: list[str]
    codes: npt.NDArray[np.int32]

    def where(self, name: str) -> Flags:
        found: Flags = self.codes == (self.names.index(name) if name in self.names else -1)
        return found

    def tally(
        self, group: Indices, n_groups: int, rows: Indices | slice = slice(None)
    ) -> list[Counter[str]]:
        """How often each group of rows has each name."""
        cells = group[rows].astype(np.intp) * len(self.names) + self.codes[rows]
        counts = np.bincount(cells, minlength=n_groups * len(self.names))
        return [
            Counter({name: n for name, n in zip(self.names, row, strict=True) if n})
            for row in counts.reshape(n_groups, len(self.names)).tolist()
        ]


def _encode(names: pa.Array) -> _CodedColumn:
    coded = names.dictionary_encode()  # a no-op if it was read as codes
    return _CodedColumn(coded.dictionary.to_pylist(), coded.indices.to_numpy())


def _concatenate(metric: Metric, candidate: str, outcomes: Sequence[_Outcomes]) -> MetricColumns:
    """Joins the outcomes of one metric and candidate from all blocks; a part that a block lacks is
    0 there. Rows are put in the order of their units' ids: which block came first must not change
    a sum's last digits."""
    blocks = [outcome.of_metric for outcome in outcomes]
    columns: dict[str, FloatArray] = {}
    if outcomes:
        order = np.argsort(np.concatenate([outcome.ranks for outcome in outcomes]))
        nothing = [np.zeros(outcome.ranks.size) for outcome in outcomes]
        for name in ("value", *metric.columns):
            found = [block.columns.get(name) for block in blocks]
            columns[name] = (
                np.zeros(order.size)
                if all(column is None for column in found)
                else np.concatenate(
                    [
                        zeros if column is None else column
                        for column, zeros in zip(found, nothing, strict=True)
                    ]
                )[order]
            )
    return MetricColumns(
        candidate=candidate,
        by_status=_sum_counts(block.by_status for block in blocks),
        by_judge=_sum_counts(block.by_judge for block in blocks),
        columns=columns,
    )


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _busy_seconds(units: pa.Table) -> dict[str, float | None]:
    """The seconds in which any request of a candidate was under way: a pause before a resumed
    session, or while other candidates were asked, is none of them. None if the time of any of its
    answers is unknown."""
    candidates = _encode(units["candidate"].combine_chunks())
    ended = units["ended_s"].to_numpy()
    started = ended - units["duration_s"].to_numpy()
    counts = pc.greater(units["output_tokens"].fill_null(0), 0).to_numpy()
    found: dict[str, float | None] = {}
    for code, name in enumerate(candidates.names):
        mine, known = candidates.codes == code, ~np.isnan(started)
        of_it = np.flatnonzero(mine & known)
        of_it = of_it[np.argsort(started[of_it], kind="stable")]
        latest = np.maximum.accumulate(ended[of_it])
        idle = np.maximum(started[of_it][1:] - latest[:-1], 0.0).sum()
        is_whole = of_it.size > 0 and not (mine & counts & ~known).any()
        found[name] = float(latest[-1] - started[of_it[0]] - idle) if is_whole else None
    return found


def _summarise_generation(units: pa.Table) -> Iterator[GenerationSummary]:
    busy_s = _busy_seconds(units)
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
                asked_again,
                answered_then,
            ) = row
            ends, forms, causes = (
                dict(database.execute(_TALLY.format(column), [name]).fetchall())
                for column in ("finish_reason", "prompt_form", "no_answer")
            )
            yield GenerationSummary(
                candidate=name,
                model=model,
                n=n,
                n_failed=failed,
                prompt_tokens=int(prompt),
                output_tokens=int(output),
                output_tokens_per_s=generated_tokens_per_s(int(output), busy_s[name]),
                ttft_s_mean=ttft,
                ttft_s_p95=ttft_p95,
                duration_s_mean=duration,
                finish_reasons=ends,
                cached_tokens=None if cached is None else int(cached),
                cache_hit_rate=int(cached) / int(measured) if measured else None,
                truncated=truncated,
                thinking=thinking,
                uncounted=uncounted,
                prompt_forms=forms,
                no_answer=causes,
                answered=n - failed - sum(causes.values()),
                asked_again=asked_again,
                answered_then=answered_then,
            )

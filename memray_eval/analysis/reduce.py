"""The reduce stage: aggregates written records for a summary, one number per unit in memory for
every column of every metric. A unit written twice counts once."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, product
from typing import Any, NamedTuple, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from memray_eval.analysis.rates import per_s
from memray_eval.analysis.score_table import (
    CODED,
    Flags,
    Reader,
    ScoreTable,
    column_statistics,
    read_blocks,
    read_parts,
    score_columns,
)
from memray_eval.errors import LONGEST_CAUSE, MAY_VARY, cause_of
from memray_eval.metric import Metric, MetricColumns, summarise
from memray_eval.ports import FloatArray
from memray_eval.results.schema import RECORD_SCHEMA
from memray_eval.types import FALLBACKS, Cause, GenerationSummary, MetricSummary, PromptCacheUse

MOST_CAUSES = 20  # how many causes of failure are kept, the most frequent ones
_FILES_AT_ONCE = 8  # may exceed the cores: reading from a cloud is mostly waiting
_LOCAL_FILES_AT_ONCE = 4
_UNITS_AT_ONCE = 8192  # bounds how many scores are in memory before they are split
_OF_UNITS = (
    "candidate model finish_reason prompt_tokens output_tokens ttft_s duration_s prompt_form "
    "truncated_tokens cached_tokens thinking_blocks no_answer raised_max_tokens ended_s"
).split()
# what a score says of its prompt's cache
_OF_CACHE = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "saved_usd")
_OF_SCORES = ("metric", "status", "value", "parts", "judge", "error")
_COLUMNS_BUT_CACHE = ("unit_id", *_OF_UNITS, "error", *score_columns(*_OF_SCORES))
_COLUMNS = (*_COLUMNS_BUT_CACHE, *score_columns(*_OF_CACHE))
_TOKENS_OF_CACHE = score_columns("cached_input_tokens", "cache_write_tokens")
_UNITS = pa.schema(
    [*map(RECORD_SCHEMA.field, _OF_UNITS), ("unanswered", pa.bool_()), ("failed", pa.bool_())]
)

_GENERATION = """
SELECT candidate, any_value(model) AS model, count(*) AS n, count_if(unanswered) AS n_failed,
       coalesce(sum(prompt_tokens), 0)::BIGINT AS prompt_tokens,
       coalesce(sum(output_tokens), 0)::BIGINT AS output_tokens,
       avg(ttft_s) AS ttft_s_mean, quantile_cont(ttft_s, 0.95) AS ttft_s_p95,
       avg(duration_s) AS duration_s_mean, sum(cached_tokens)::BIGINT AS cached_tokens,
       sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL)::BIGINT AS cacheable_tokens,
       count(*) FILTER (truncated_tokens > 0) AS truncated,
       count(*) FILTER (thinking_blocks > 0) AS thinking,
       count(*) FILTER (
           finish_reason IS NOT NULL AND (prompt_tokens IS NULL OR output_tokens IS NULL)
       ) AS uncounted,
       count(raised_max_tokens) AS asked_again,
       count(*) FILTER (
           raised_max_tokens IS NOT NULL AND no_answer IS NULL AND NOT unanswered
       ) AS answered_then,
       histogram(finish_reason) AS finish_reasons, histogram(prompt_form) AS prompt_forms,
       histogram(no_answer) AS no_answer
FROM units GROUP BY candidate ORDER BY candidate
"""
_TALLIES = ("finish_reasons", "prompt_forms", "no_answer")

Indices: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Reduced:
    """The aggregates of a run's records, and what each reader took of their blocks."""

    n_units: int
    n_failed_units: int
    generation: tuple[GenerationSummary, ...]
    metrics: tuple[MetricSummary, ...]
    causes: tuple[Cause, ...] = ()
    replaced: tuple[Cause, ...] = ()
    prompt_cache: PromptCacheUse | None = None
    taken: tuple[list[Any], ...] = field(default=(), compare=False)


def reduce_records(records: pads.Dataset, metrics: Sequence[Metric], *readers: Reader) -> Reduced:
    """Aggregates Parquet files with RECORD_SCHEMA by candidate and metric, in one pass, in which
    `readers` take what they need of each block, so that they need no pass of their own."""
    files = list(records.get_fragments())
    of_cache = (column_statistics(file.metadata, _TOKENS_OF_CACHE) for file in files)
    kept = [column for file in of_cache for column, _ in file]
    uses_cache = any(column is None or not column.has_min_max or column.max for column in kept)
    columns = dict.fromkeys(_COLUMNS if uses_cache else _COLUMNS_BUT_CACHE)
    for reader in readers:
        columns |= dict.fromkeys((*reader.units, *score_columns(*reader.scores)))
    reduce_file = partial(_reduce_file, metrics=metrics, columns=tuple(columns), readers=readers)
    is_local = isinstance(records.filesystem, pafs.LocalFileSystem)
    with ThreadPoolExecutor(_LOCAL_FILES_AT_ONCE if is_local else _FILES_AT_ONCE) as pool:
        of_files = list(pool.map(reduce_file, files))
        ranks = _rank_units([block.ids for file in of_files for block in file])
        if any((ranked < 0).any() for ranked in ranks):  # the rare retry that wrote a unit again
            rest = iter(ranks)
            nothing = np.zeros(0, np.int64)
            first = [np.concatenate([nothing, *islice(rest, len(file))]) >= 0 for file in of_files]
            of_files = list(pool.map(reduce_file, files, first))
            ranks = [ranked[ranked >= 0] for ranked in ranks]
        blocks = list(chain.from_iterable(of_files))
        outcomes: defaultdict[tuple[str, str], list[MetricColumns]] = defaultdict(list)
        for block, ranked in zip(blocks, ranks, strict=True):
            for name, outcome in block.outcomes:
                of = replace(outcome, units=ranked[outcome.units])
                outcomes[name, outcome.candidate].append(of)

        def summarise_metric(key: tuple[Metric, str]) -> MetricSummary:
            metric, candidate = key
            joined = _concatenate(metric, candidate, outcomes[metric.name, candidate])
            return summarise(metric, joined)

        units = pa.Table.from_batches([block.units for block in blocks], _UNITS)
        candidates = sorted(units["candidate"].unique().to_pylist())
        summaries = pool.map(summarise_metric, product(metrics, candidates))
        # While the pool summarises
        generation = tuple(_summarise_generation(units))
        causes = tuple(_merge_causes(cause for block in blocks for cause in block.causes))
        return Reduced(
            n_units=units.num_rows,
            n_failed_units=pc.sum(units["failed"]).as_py() or 0,
            generation=generation,
            metrics=tuple(summaries),
            causes=causes,
            replaced=tuple(_merge_causes(cause for block in blocks for cause in block.replaced)),
            prompt_cache=_sum_cache(block.cache for block in blocks),
            taken=tuple([block.taken[at] for block in blocks] for at in range(len(readers))),
        )


def _rank_units(ids: Sequence[pa.StringArray]) -> list[Indices]:
    """Ranks the rows of each block by their unit's id, over all blocks; -1 for a row whose unit an
    earlier row has. A retried write task may leave a unit in two files; both rows are the same."""
    column = pa.chunked_array(ids, pa.string())
    order = pc.sort_indices(column).to_numpy()  # stable: of equal ids the first row comes first
    in_order = column.take(pa.array(order)).combine_chunks()
    ranks = np.empty(len(column), dtype=np.int64)
    ranks[order] = np.arange(len(column))
    is_again = pc.equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False)
    ranks[order[1:][is_again]] = -1
    return np.split(ranks, np.cumsum([len(block) for block in ids]))[:-1]


class _Block(NamedTuple):
    """The parts of one block of records: the units' ids and a row each, the outcomes of each metric
    and candidate, why units failed and why judges did whose verdicts were replaced, the sums of
    _OF_CACHE, and what each reader took of it."""

    ids: pa.StringArray
    units: pa.RecordBatch
    outcomes: list[tuple[str, MetricColumns]]
    causes: list[Cause]
    replaced: list[Cause]
    cache: tuple[float, ...]
    taken: tuple[Any, ...] = ()


def _reduce_file(
    file: pads.ParquetFileFragment,
    is_first: Flags | None = None,
    *,
    metrics: Sequence[Metric],
    columns: Sequence[str],
    readers: Sequence[Reader],
) -> list[_Block]:
    """The blocks of a file; `is_first` leaves out rows whose unit an earlier one has."""
    blocks, row = [], 0
    for batch in read_blocks(file, columns, _UNITS_AT_ONCE, CODED):
        here = slice(row, row + batch.num_rows)
        row += batch.num_rows
        kept = batch if is_first is None else batch.filter(pa.array(is_first[here]))
        table = ScoreTable.of(kept)
        taken = tuple(reader.take(table) for reader in readers)
        blocks.append(_reduce_block(table, metrics)._replace(taken=taken))
    return blocks


def _reduce_block(table: ScoreTable, metrics: Sequence[Metric]) -> _Block:
    """Splits a block of records into its units, its outcomes and its causes of failure. A unit has
    failed if it is unanswered, or if any of its scores is an error."""
    units, unit, ids = table.units, table.unit, table.units["unit_id"]
    unanswered = pc.is_valid(units["error"]).to_numpy(zero_copy_only=False)
    is_error = table.map_names("status", "error".__eq__, np.False_)
    failed = unanswered.copy()
    failed[unit[is_error]] = True
    columns = [*(units[name] for name in _OF_UNITS), pa.array(unanswered), pa.array(failed)]
    # If an answer failed, its error is the cause, not those of its scores.
    counted = is_error & ~unanswered[unit]
    errors = table.column("error").cast(pa.string())
    rows = np.concatenate([np.flatnonzero(unanswered), unit[counted]])
    texts = pa.concat_arrays([units["error"].drop_null(), errors.filter(pa.array(counted))])
    cache = tuple(float(pc.sum(table.column(name)).as_py() or 0) for name in _OF_CACHE)
    replaced = np.flatnonzero(table.is_judge(FALLBACKS.__contains__))
    return _Block(
        ids,
        pa.record_batch(columns, schema=_UNITS),
        list(_split_by_metric(table, metrics)),
        _find_causes(rows, texts, ids),
        _find_causes(unit[replaced], errors.take(pa.array(replaced)), ids),
        cache,
    )


def _sum_cache(blocks: Iterable[tuple[float, ...]]) -> PromptCacheUse | None:
    """The use of prompt caches; None if no provider reported any."""
    sums = [sum(column) for column in zip(*blocks, strict=True)] or [0.0] * len(_OF_CACHE)
    *tokens, saved_usd = sums
    if not any(tokens[1:]):
        return None
    counted = dict(zip(_OF_CACHE, map(round, tokens), strict=False))
    return PromptCacheUse(**counted, saved_usd=saved_usd)


def _find_causes(rows: Indices, texts: pa.Array, ids: pa.StringArray) -> list[Cause]:
    """Counts a block's failed units by cause: errors' `texts` and `rows`, the `ids` of all rows."""
    coded = texts.fill_null("no reason was given").dictionary_encode()
    number: dict[str, int] = {}
    of_text = [number.setdefault(of, len(number)) for of in causes_of(coded.dictionary)]
    numbers = np.array(of_text, np.intp)[coded.indices.to_numpy()]
    if not number:
        return []
    # A unit counts once for a cause, however many of its scores have it.
    n_units = np.bincount(np.unique(rows * len(number) + numbers) % len(number))
    first = np.unique(numbers, return_index=True)[1]
    examples, units = texts.take(pa.array(first)), ids.take(pa.array(rows[first]))
    columns = number, n_units.tolist(), examples.to_pylist(), units.to_pylist()
    return [
        Cause(cause=cause, n_units=n, example=example, unit_id=unit_id)
        for cause, n, example, unit_id in zip(*columns, strict=True)
    ]


def causes_of(texts: pa.StringArray) -> Iterator[str]:
    """The cause of each of many errors: `cause_of` is asked of those alone that it would change."""
    is_long = pc.greater(pc.binary_length(texts), LONGEST_CAUSE)
    changes = pc.or_(pc.match_substring_regex(texts, MAY_VARY), is_long)
    for text, is_changed in zip(texts.to_pylist(), changes.to_pylist(), strict=True):
        yield cause_of(text) if is_changed else text


def _merge_causes(causes: Iterable[Cause]) -> list[Cause]:
    n_units: Counter[str] = Counter()
    first: dict[str, Cause] = {}
    for cause in causes:
        n_units[cause.cause] += cause.n_units
        first.setdefault(cause.cause, cause)
    most = heapq.nsmallest(MOST_CAUSES, n_units, key=lambda name: (-n_units[name], name))
    return [first[name].model_copy(update={"n_units": n_units[name]}) for name in most]


def _split_by_metric(
    table: ScoreTable, metrics: Sequence[Metric]
) -> Iterator[tuple[str, MetricColumns]]:
    values, unit, candidates = table.values, table.unit, _encode(table.units["candidate"])
    parts, tags = read_parts(table.column("parts"))
    status, judge = _encode(table.column("status")), _encode(table.column("judge"))
    # The scores of other metrics are behind those of the last one
    metric = table.codes([metric.name for metric in metrics]) % (len(metrics) + 1)
    n_groups = (len(metrics) + 1) * len(candidates.names)
    group = metric * len(candidates.names) + candidates.codes[unit]
    group = group.astype(np.min_scalar_type(n_groups))  # of 16 bits or fewer is sorted in one pass
    by_status = status.tally(group, n_groups)
    scored = np.flatnonzero(table.map_names("status", "scored".__eq__, np.False_))
    scored = scored[np.argsort(group[scored], kind="stable")]
    by_judge = judge.tally(group, n_groups, scored)
    ends = np.cumsum(np.bincount(group[scored], minlength=n_groups))
    rows_of = np.split(scored, ends[:-1])
    for cell, (definition, name) in enumerate(product(metrics, candidates.names)):
        rows = rows_of[cell]
        columns = {part: parts[part][rows] for part in definition.columns if part in parts}
        outcome = MetricColumns(
            candidate=name,
            by_status=by_status[cell],
            by_judge=by_judge[cell],
            columns={"value": values[rows], **columns},
            tags={tag: of_tag[np.isin(at, rows)] for tag, (at, of_tag) in tags.items()},
            units=unit[rows],
        )
        yield definition.name, outcome


class _CodedColumn(NamedTuple):
    """A column of names as codes: the distinct names, and for each row the index of its name."""

    names: list[str]
    codes: npt.NDArray[np.int32]

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


def _concatenate(metric: Metric, candidate: str, blocks: Sequence[MetricColumns]) -> MetricColumns:
    """Joins the outcomes of one metric and candidate from all blocks; a part that a block lacks is
    0. Rows are in the order of their units' ids, so that a sum's last digits stay the same."""
    columns: dict[str, FloatArray] = {}
    if blocks:
        order = np.argsort(np.concatenate([block.units for block in blocks]))
        for name in ("value", *metric.columns):
            pieces = [block.columns.get(name, np.zeros(block.units.size)) for block in blocks]
            columns[name] = np.concatenate(pieces)[order]
    return MetricColumns(
        candidate=candidate,
        by_status=_sum_counts(block.by_status for block in blocks),
        by_judge=_sum_counts(block.by_judge for block in blocks),
        columns=columns,
        tags=_join_tags(block.tags for block in blocks),
    )


def _join_tags(blocks: Iterable[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    """The values by tag of all blocks; sorted, so that a sum's last digits stay the same."""
    pieces: defaultdict[str, list[FloatArray]] = defaultdict(list)
    for block in blocks:
        for tag, values in block.items():
            if values.size:
                pieces[tag].append(values)
    return {tag: np.sort(np.concatenate(pieces[tag])) for tag in sorted(pieces)}


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))


def _busy_seconds(units: pa.Table) -> dict[str, float | None]:
    """The seconds in which any request was under way; None if an answer's time is unknown."""
    candidates = _encode(units["candidate"].combine_chunks())
    ended = units["ended_s"].to_numpy()
    started = ended - units["duration_s"].to_numpy()
    counts = pc.greater(units["output_tokens"].fill_null(0), 0).to_numpy()
    is_timed = ~np.isnan(started)
    seconds: dict[str, float | None] = {}
    for code, name in enumerate(candidates.names):
        is_its_own = candidates.codes == code
        rows = np.flatnonzero(is_its_own & is_timed)
        rows = rows[np.argsort(started[rows], kind="stable")]
        latest = np.maximum.accumulate(ended[rows])
        idle = np.maximum(started[rows][1:] - latest[:-1], 0.0).sum()
        is_complete = rows.size > 0 and not (is_its_own & counts & ~is_timed).any()
        seconds[name] = float(latest[-1] - started[rows[0]] - idle) if is_complete else None
    return seconds


def _summarise_generation(units: pa.Table) -> Iterator[GenerationSummary]:
    busy_s = _busy_seconds(units)
    with duckdb.connect() as database:
        database.register("units", units)
        for row in database.sql(_GENERATION).to_arrow_table().to_pylist():
            tallies = {name: dict(row.pop(name) or ()) for name in _TALLIES}
            cacheable, busy = row.pop("cacheable_tokens"), busy_s[row["candidate"]]
            yield GenerationSummary(
                **row,
                **tallies,
                output_tokens_per_s=per_s(
                    row["output_tokens"] or None, busy
                ),  # a baseline has none
                cache_hit_rate=row["cached_tokens"] / cacheable if cacheable else None,
                answered=row["n"] - row["n_failed"] - sum(tallies["no_answer"].values()),
            )

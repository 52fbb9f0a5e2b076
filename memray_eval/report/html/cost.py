"""The cost and the course of a run: latencies, each judge's calls, tokens and money, and its
stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.marks import NOTHING
from memray_eval.analysis.score_table import ScoreTable
from memray_eval.ports import FloatArray
from memray_eval.report.html.view_model import number
from memray_eval.report.sections import Row, Table, cost_figure, figure
from memray_eval.stages.rates import rows_per_s

PERCENTILES = (50, 90, 95, 99)
_SECONDS = {"ttft_s": "first token", "duration_s": "whole answer"}
_SUMS = (
    *("cached", "input_tokens", "output_tokens", "cached_input_tokens", "cost_usd"),
    *("unpriced_calls", "saved_usd", "latency_s"),
)


class RunCost:
    """Sums up blocks of records: `judges` has a row a judge (`scores`, sums of SCORES, how many
    were `timed`), `seconds` the times of answers by candidate and what was measured."""

    UNITS, SCORES = ("candidate", *_SECONDS), ("judge", *_SUMS)

    def __init__(self) -> None:
        self.seconds: defaultdict[tuple[str, str], list[FloatArray]] = defaultdict(list)
        self._judges: pa.Table | None = None

    @property
    def judges(self) -> list[dict[str, Any]]:
        """Those of most scores first."""
        rows = [] if self._judges is None else self._judges.to_pylist()
        return sorted(rows, key=lambda row: -row["scores"])

    def add(self, table: ScoreTable) -> None:
        for candidate in pc.unique(table.units["candidate"]).to_pylist():
            units = table.units.filter(pc.equal(table.units["candidate"], candidate))
            for column, what in _SECONDS.items():
                if len(values := units[column].drop_null()):
                    self.seconds[candidate, what].append(values.to_numpy())
        columns = {name: table.column(name).cast(pa.float64()) for name in _SUMS}
        columns["timed"] = pc.greater(columns["latency_s"], 0).cast(pa.float64())
        columns["scores"] = pa.repeat(1.0, len(table.scores))
        judge = table.column("judge")
        is_judged = pc.fill_null(pc.not_equal(judge, ""), False)
        of_block = pa.table({"judge": judge, **columns}).filter(is_judged)
        before = [] if self._judges is None else [self._judges]
        by_judge = pa.concat_tables([*before, of_block]).group_by("judge", use_threads=False)
        sums = by_judge.aggregate([(name, "sum") for name in columns])
        sums = sums.select(["judge", *(f"{name}_sum" for name in columns)])
        self._judges = sums.rename_columns(["judge", *columns])

    def tables(self) -> Iterator[Table]:
        if rows := list(self._judge_rows()):
            yield Table(rows, title="Judges")
        heads = ("candidate", "n", *(f"p{percent}" for percent in PERCENTILES))
        percentiles = []
        for name, parts in sorted(self.seconds.items()):
            values = np.concatenate(parts)
            at = (f"{value:.2f}" for value in np.percentile(values, PERCENTILES))
            percentiles.append((", ".join(name), f"{values.size:,}", *at))
        if percentiles:
            yield Table([heads, *percentiles], title="Latency percentiles, seconds")

    def _judge_rows(self) -> Iterator[Row]:
        judges = self.judges
        if not judges:
            return
        has_prompt_cache = any(spent["cached_input_tokens"] for spent in judges)
        in_cache = ("from prompt cache", "it saved, $") if has_prompt_cache else ()
        heads = ("judge", "scores", "cached", "tokens in", *in_cache)
        yield (*heads, "tokens out", "cost, $", "latency, s")
        for spent in judges:
            taken, n_timed = spent["input_tokens"], spent["timed"]
            share = spent["cached_input_tokens"] / taken if taken else None
            cells = (figure(share, ".1%"), figure(spent["saved_usd"])) if has_prompt_cache else ()
            counts = (f"{spent[name]:,.0f}" for name in ("scores", "cached", "input_tokens"))
            written, paid = f"{spent['output_tokens']:,.0f}", spent["cost_usd"]
            cost = cost_figure(paid, spent["unpriced_calls"])
            latency = figure(spent["latency_s"] / n_timed if n_timed else None, ".2f")
            yield (spent["judge"], *counts, *cells, written, cost, latency)


def stages(manifest: Mapping[str, Any]) -> Table | None:
    """The last session's stages: rows, start after the first, span and rate."""
    recorded = (manifest.get("stages") or {}).items()
    of_stages = {name: stage for name, stage in recorded if stage.get("rows")}
    if not of_stages:
        return None
    rows: list[Row] = [("stage", "rows", "began after, s", "lasted, s", "rows per second")]
    starts = [stage["started"] for stage in of_stages.values() if stage.get("started") is not None]
    for name, stage in of_stages.items():
        span, begun = stage.get("span_s"), stage.get("started")
        per_s = rows_per_s(stage["rows"], span)
        after = NOTHING if begun is None else f"{begun - min(starts):,.1f}"
        rows.append((name, f"{stage['rows']:,}", after, number(span, 1), figure(per_s, ",.1f")))
    return Table(rows, title="Stages of the last session")

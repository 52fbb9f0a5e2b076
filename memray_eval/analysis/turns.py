"""Sessions: what they came to, and metrics over their turns (mean, worst and last turn, trend)."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from memray_eval.analysis.score_table import Records, is_fallback, read_score_tables
from memray_eval.analysis.scores import metadata_keys
from memray_eval.analysis.statistics import (
    TIE,
    Clusters,
    code_names,
    count_units,
    mean_interval,
    standard_error,
    t_interval,
)
from memray_eval.metric import Metric, linearise_ratio
from memray_eval.ports import FloatArray
from memray_eval.types import (
    SESSION,
    SESSION_END,
    TURN,
    TURNS,
    USER_COST,
    USER_MODEL,
    SessionFigure,
    SessionSummary,
    TurnSummary,
    is_estimate,
    session_turn,
)

_UNITS = ("unit_id", "candidate", "task", "metadata", "epoch")
_SCORES = ("metric", "status", "value", "judge")
SESSION_COLUMNS = ["unit_id", "candidate", "metadata", "error", "prompt_tokens", "cached_tokens",
                   "epoch"]  # fmt: skip
_NOTES = (SESSION, TURN, TURNS, SESSION_END, USER_MODEL, USER_COST)
_SPENT = ("calls", "input_tokens", "output_tokens", "cost_usd", "unpriced_calls")
_UNSCORED = ("error", "abstained", "no_answer")


class Value(NamedTuple):
    """A turn's score (NaN if it should have one and has none), its conversation, the `cluster` that
    this is drawn with, and how far on it is, in turns."""

    value: float
    conversation: str
    cluster: str
    at: float
    is_last: bool
    is_estimate: bool
    is_fallback: bool


def summarise_turns(records: Records, metrics: Sequence[Metric]) -> tuple[TurnSummary, ...]:
    """One row a candidate, task and metric of level "turn"; none if samples name no sessions."""
    by_name = {metric.name: metric for metric in metrics if metric.level == "turn"}
    if not by_name or SESSION not in metadata_keys(records):
        return ()
    cells = defaultdict[tuple[str, str, str | None], list[Value]](list)
    for candidate, task, metric, value in _read_values(records, list(by_name)):
        for named in {task or None, None}:
            cells[candidate, metric, named].append(value)
    order = list(by_name)
    keys = sorted(cells, key=lambda key: (key[0], key[2] or "", order.index(key[1])))
    rows = (_summarise(cells[of, name, task], of, by_name[name], task) for of, name, task in keys)
    return tuple(row for row in rows if row is not None)


def count_unplaced(records: Records) -> int:
    """The records that name a session and no turn of it."""
    if SESSION not in metadata_keys(records):
        return 0
    texts = records.to_table(columns=["metadata"])["metadata"].to_pylist()
    metadata = (json.loads(text or "{}") for text in texts)
    return sum(of.get(SESSION) is not None and session_turn(of) is None for of in metadata)


def _read_values(
    records: Records, names: Sequence[str]
) -> Iterator[tuple[str, str | None, str, Value]]:
    """Each score of a turn that its metric applies to, with candidate, task and metric; a unit
    written twice counts once."""
    seen: set[str] = set()
    for table in read_score_tables(records, _UNITS, _SCORES):
        units, turns = table.units.to_pylist(), []
        for unit in units:
            is_new = unit["unit_id"] not in seen
            turns.append(session_turn(json.loads(unit["metadata"] or "{}")) if is_new else None)
            seen.add(unit["unit_id"])
        columns = (
            table.unit.tolist(),
            table.codes(names).tolist(),
            table.values.tolist(),
            table.column("status").to_pylist(),
            table.is_judge(is_estimate).tolist(),
            table.is_judge(is_fallback).tolist(),
        )
        for row, code, value, status, estimate, fallback in zip(*columns, strict=True):
            turn = turns[row]
            if turn is not None and code >= 0 and (value == value or status in _UNSCORED):
                unit = units[row]
                talk = f"{turn.session}\x1f{unit['epoch']}"  # each epoch is a talk of its own
                placed = (talk, turn.session, turn.turn, turn.is_last)
                of_turn = Value(value, *placed, estimate, fallback)
                yield unit["candidate"], unit["task"], names[code], of_turn


def _summarise(
    values: Sequence[Value], candidate: str, metric: Metric, task: str | None
) -> TurnSummary | None:
    scored = [value for value in values if value.value == value.value]
    if not scored:
        return None
    of, at = np.array([value.value for value in scored]), np.array([value.at for value in scored])
    talks = code_names([value.conversation for value in scored])
    clusters = code_names([value.cluster for value in scored])
    cluster_of = clusters[np.unique(talks, return_index=True)[1]]  # each conversation's
    lowest = np.full(cluster_of.size, np.inf)
    np.minimum.at(lowest, talks, of)
    is_last = np.array([value.is_last for value in scored], np.bool_)
    return TurnSummary(
        candidate=candidate,
        metric=metric.name,
        scale=metric.scale,
        task=task,
        n_sessions=cluster_of.size,
        n_turns=len(scored),
        n_unscored=len(values) - len(scored),
        mean=_mean(of, metric.scale, cluster_of.size, clusters),
        worst=_mean(lowest, metric.scale, lowest.size, cluster_of),
        last=_mean(of[is_last], metric.scale, int(is_last.sum()), clusters[is_last])
        if is_last.any()
        else None,
        trend=_trend(of, at, talks, cluster_of),
        estimates=sum(value.is_estimate for value in scored),
        fallbacks=sum(value.is_fallback for value in scored),
    )


def _mean(
    values: FloatArray, scale: tuple[float, float], n: int, clusters: Clusters
) -> SessionFigure:
    """The mean with its interval, clustered if a cluster has several of the values."""
    of = None if count_units(values, clusters) == values.size else clusters
    low, high = (mean_interval(values, of, scale=scale) if n > 1 else None) or (None, None)
    return SessionFigure(value=float(values.mean()), n=n, low=low, high=high)


def _trend(
    values: FloatArray, at: FloatArray, talks: Clusters, cluster_of: Clusters
) -> SessionFigure | None:
    """The slope within conversations (`talks`; `cluster_of` each), by fixed effects: the sum over
    them of (at - its mean) (value - its mean), over that of (at - its mean)^2. As a ratio of sums
    by cluster its error is CR1, with Student's t of clusters - 1. None if no conversation has
    values at two places."""
    apart = at - (_sum_by(talks, at) / np.bincount(talks))[talks]
    rises, spreads = _sum_by(talks, apart * values), _sum_by(talks, apart**2)
    within = spreads > 0
    by_cluster = np.unique(cluster_of[within], return_inverse=True)[1]
    part, whole = _sum_by(by_cluster, rises[within]), _sum_by(by_cluster, spreads[within])
    linear = linearise_ratio(part, whole) if whole.size else None
    if linear is None:
        return None
    slope, error = float(part.sum() / whole.sum()), standard_error(linear)
    interval = t_interval(slope, error, whole.size - 1) if error and error > TIE else None
    low, high = interval or (None, None)
    return SessionFigure(value=slope, n=int(within.sum()), low=low, high=high)


def _sum_by(codes: Clusters, values: FloatArray) -> FloatArray:
    sums: FloatArray = np.bincount(codes, weights=values).astype(np.float64)
    return sums


def summarise_sessions(tables: Iterable[pa.Table]) -> tuple[SessionSummary, ...]:
    """The sessions of each candidate, by rows with SESSION_COLUMNS. A repeated unit counts once."""
    turns, seen = defaultdict[str, list[dict[str, Any]]](list), set[str]()
    for table in tables:
        for row in table.select(SESSION_COLUMNS).to_pylist():
            notes = json.loads(row.pop("metadata") or "{}")
            is_placed = all(isinstance(notes.get(key), int) for key in (TURN, TURNS))
            if SESSION in notes and is_placed and row["unit_id"] not in seen:
                seen.add(row["unit_id"])
                turns[row["candidate"]].append(row | {key: notes.get(key) for key in _NOTES})
    return tuple(_summarise_session(name, turns[name]) for name in sorted(turns))


def _summarise_session(candidate: str, turns: Sequence[Mapping[str, Any]]) -> SessionSummary:
    lasts = [turn for turn in turns if turn[SESSION_END]]
    ends = Counter("failed" if turn["error"] is not None else turn[SESSION_END] for turn in lasts)
    asked = [turn for turn in turns if turn[USER_COST]]
    spent: Counter[str] = Counter()
    for turn in asked:
        spent.update(turn[USER_COST])
    later = [
        turn
        for turn in turns
        if turn[TURN] > 1 and turn["cached_tokens"] is not None and turn["prompt_tokens"]
    ]
    return SessionSummary(
        candidate=candidate,
        n_sessions=len({(str(turn[SESSION]), turn["epoch"]) for turn in turns}),
        n_turns=len(turns),
        n_unasked=sum(turn[TURNS] - turn[TURN] for turn in lasts),
        ends=dict(sorted(ends.items())),
        later_prompt_tokens=sum(turn["prompt_tokens"] for turn in later),
        later_cached_tokens=sum(turn["cached_tokens"] for turn in later) if later else None,
        user_models=tuple(sorted({str(turn[USER_MODEL]) for turn in asked})),
        **{f"user_{name}": spent[name] for name in _SPENT},
    )

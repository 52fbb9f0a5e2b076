"""Reads the verdicts on pairs out of the records of pairwise runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memray_eval.analysis.intervals import Flags
from memray_eval.metrics._shared.evidence import FIRST
from memray_eval.ports import FloatArray
from memray_eval.types import Pair, Record, Response, pair_of

PRIOR_SD = 10.0
_ROUNDS = 100
_LONGEST_STEP = 2.0
_CLOSE = 1e-9
Numbers = npt.NDArray[np.intp]


class Matches(NamedTuple):
    """Rows of matches: candidates `i` and `j` by number, and a covariate `x` (or none)."""

    i: Numbers
    j: Numbers
    x: FloatArray | None = None


class Strengths(NamedTuple):
    """Fitted parameters, one row a set of counts: strengths of shape (sets, candidates) with mean
    0, ties (sets,) and the covariate's weight (sets,), zeros where there is none."""

    of: FloatArray
    ties: FloatArray
    weight: FloatArray

    def win_rate(self, i: int, j: int) -> FloatArray:
        """The share of i's points against j where the covariate is 0: a tie counts half."""
        gap = (self.of[:, i] - self.of[:, j]) / 2
        win, loss, tie = np.exp(gap), np.exp(-gap), np.exp(self.ties)
        share: FloatArray = (win + tie / 2) / (win + loss + tie)
        return share


def fit_strengths(
    matches: Matches,
    n_candidates: int,
    wins: FloatArray,
    ties: FloatArray,
    losses: FloatArray,
    prior_sd: float = PRIOR_SD,
) -> Strengths:
    """Fits each set of counts apart; counts have the shape (sets, matches) and are i's."""
    design = np.zeros((matches.i.size, n_candidates + 1))
    rows = np.arange(matches.i.size)
    design[rows, matches.i] += 0.5
    design[rows, matches.j] -= 0.5
    if matches.x is not None:
        design[:, -1] = matches.x / 2
    outer = (design[:, :, None] * design[:, None, :]).reshape(rows.size, -1)
    sets, width = wins.shape[0], design.shape[1]
    at, tie = np.zeros((sets, width)), np.zeros(sets)
    n = wins + ties + losses
    prior = np.eye(width + 1) / prior_sd**2
    for _ in range(_ROUNDS):
        gap = at @ design.T
        weights = np.stack(
            [np.exp(gap), np.exp(-gap), np.broadcast_to(np.exp(tie)[:, None], gap.shape)]
        )
        p_win, p_loss, p_tie = weights / weights.sum(axis=0)
        edge = p_win - p_loss
        slope = np.empty((sets, width + 1))
        slope[:, :width] = (wins - losses - n * edge) @ design
        slope[:, width] = (ties - n * p_tie).sum(axis=1)
        slope -= np.concatenate([at, tie[:, None]], axis=1) / prior_sd**2
        curve = np.empty((sets, width + 1, width + 1))
        curve[:, :width, :width] = ((n * (1 - p_tie - edge**2)) @ outer).reshape(sets, width, width)
        mixed = -(n * edge * p_tie) @ design
        curve[:, :width, width] = curve[:, width, :width] = mixed
        curve[:, width, width] = (n * p_tie * (1 - p_tie)).sum(axis=1)
        step = np.linalg.solve(curve + prior, slope[:, :, None])[:, :, 0]
        step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        at, tie = at + step[:, :width], tie + step[:, width]
        if np.abs(step).max() < _CLOSE:
            break
    return Strengths(at[:, :-1], tie, at[:, -1])


def ranks_of(strengths: FloatArray) -> Numbers:
    """The rank of each candidate in each row, 1 for the strongest; equal ones keep their order."""
    order = np.argsort(-strengths, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, strengths.shape[1] + 1)[None, :], axis=1)
    return ranks


TIE = 0.5
Question: TypeAlias = tuple[str, str]  # sample id and task


@dataclass(frozen=True)
class PairVerdicts:
    """The pairs of one metric that have both verdicts, as columns: the numbers of question, cluster
    and candidates (`i` < `j`), the verdicts with i's answer first and with j's first (1: the first
    is preferred), and by how many `doublings` i's answer is longer. `n_incomplete` pairs lack a
    verdict. An empty answer loses without a verdict, against another one it ties: `is_judged`
    is False there. `unanswered` counts by candidate and kind, of `n_asked` questions;
    `n_unanswered` pairs, of which an answer failed or is excluded, are left out. `is_whole`:
    every two candidates of a question were compared on it."""

    metric: str
    question: Numbers
    cluster: Numbers
    i: Numbers
    j: Numbers
    i_first: FloatArray
    j_first: FloatArray
    doublings: FloatArray
    is_judged: Flags
    n_incomplete: int = 0
    judges: tuple[str, ...] = ()
    statuses: Mapping[str, int] = field(default_factory=dict)
    unanswered: Mapping[tuple[str, str], int] = field(default_factory=dict)
    n_asked: int = 0
    n_unanswered: int = 0
    is_whole: bool = True

    @cached_property
    def points(self) -> FloatArray:
        """i's points of each pair: 1 where both verdicts are for i, 0 where both are for j, and a
        half for a tie, also where the two verdicts disagree."""
        return np.where(self.i_first == 1 - self.j_first, self.i_first, TIE)

    @cached_property
    def judged(self) -> PairVerdicts:
        """The pairs that a judge decided, as columns."""
        rows = ("question", "cluster", "i", "j", "i_first", "j_first", "doublings", "is_judged")
        return replace(self, **{name: getattr(self, name)[self.is_judged] for name in rows})


@dataclass
class _Pair:
    """One pair while records are read: a value for each order, a length for each answer."""

    values: list[float] = field(default_factory=lambda: [math.nan, math.nan])
    lengths: list[int] = field(default_factory=lambda: [0, 0])
    cluster: str | None = None
    is_judged: bool = True


@dataclass
class _OfMetric:
    pairs: dict[tuple[Question, int, int], _Pair] = field(default_factory=dict)
    judges: set[str] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    compares: bool = False


def read_verdicts(
    records: Iterable[Record], sides: Sequence[str], cluster: str | None = None
) -> list[PairVerdicts]:
    """The verdicts of every metric that compares pairs, of candidates in the order of `sides`;
    `cluster` is a key of the samples' metadata. Rows that are no pair of two sides are left out."""
    number = {name: number for number, name in enumerate(sides)}
    metrics: dict[str, _OfMetric] = {}
    unanswered: dict[tuple[str, str], set[Question]] = {}
    lost: set[tuple[Question, int, int]] = set()
    seen: set[tuple[Question, int, int]] = set()
    for record in records:
        pair = _pair_or_none(record)
        if pair is None or not {pair.first, pair.second} <= number.keys():
            continue
        question, first = (pair.sample_id, pair.task), number[pair.first]
        second = number[pair.second]
        key = (question, min(first, second), max(first, second))
        seen.add(key)
        for lacking in pair.unanswered:
            unanswered.setdefault((lacking.candidate, lacking.kind), set()).add(question)
        if any(lacking.kind != "empty" for lacking in pair.unanswered):
            lost.add(key)
            continue
        empty = [lacking.candidate for lacking in pair.unanswered]
        order, answer = int(first != key[1]), record.response or Response()
        for score in record.scores:
            of_metric = metrics.setdefault(score.metric, _OfMetric())
            verdicts = of_metric.pairs.setdefault(key, _Pair(is_judged=not empty))
            lengths = len(answer.text), len(pair.other)
            verdicts.lengths[order], verdicts.lengths[1 - order] = lengths
            named = None if cluster is None else record.sample.metadata.get(cluster)
            verdicts.cluster = None if named is None else str(named)
            if empty:
                verdicts.values[order] = TIE if len(empty) > 1 else float(pair.first not in empty)
                continue
            of_metric.statuses[score.status] += 1
            if score.value is not None:
                of_metric.compares = of_metric.compares or FIRST in score.parts
                of_metric.judges.add(score.judge)
                verdicts.values[order] = score.value
    compares = [name for name, of_metric in metrics.items() if of_metric.compares] or list(metrics)
    counts = {key: len(questions) for key, questions in unanswered.items()}
    columns = [_to_columns(name, metrics[name], counts, len(lost)) for name in compares]
    is_whole, n_asked = _has_every_two(seen), len({question for question, *_ in seen})
    return [replace(of_metric, is_whole=is_whole, n_asked=n_asked) for of_metric in columns]


def _has_every_two(pairs: Iterable[tuple[Question, int, int]]) -> bool:
    counts, sides = Counter[Question](), dict[Question, set[int]]()
    for question, *two in pairs:
        counts[question] += 1
        sides.setdefault(question, set()).update(two)
    return all(n == math.comb(len(sides[question]), 2) for question, n in counts.items())


def _pair_or_none(record: Record) -> Pair | None:
    try:
        return pair_of(record.sample)
    except ValueError:  # a row of somebody else's; its score says so
        return None


def _to_columns(
    metric: str, of_metric: _OfMetric, unanswered: Mapping[tuple[str, str], int], n_unanswered: int
) -> PairVerdicts:
    questions: dict[Question, int] = {}
    clusters: dict[Any, int] = {}
    numbers = np.empty((4, len(of_metric.pairs)), np.intp)
    figures = np.empty((4, len(of_metric.pairs)))
    is_judged = np.array([pair.is_judged for pair in of_metric.pairs.values()], np.bool_)
    for row, ((key, *sides), verdicts) in enumerate(of_metric.pairs.items()):
        number = questions.setdefault(key, len(questions))
        # who names no cluster is one of its own
        group = clusters.setdefault(verdicts.cluster or key, len(clusters))
        numbers[:, row] = number, group, *sides
        figures[:, row] = *verdicts.values, *verdicts.lengths
    is_complete = ~np.isnan(figures).any(axis=0)
    question, cluster, i, j = numbers[:, is_complete]
    i_first, j_first, length_i, length_j = figures[:, is_complete]
    return PairVerdicts(
        metric,
        question,
        cluster,
        i,
        j,
        i_first,
        j_first,
        np.log2((1 + length_i) / (1 + length_j)),
        is_judged[is_complete],
        n_incomplete=int((~is_complete).sum()),
        judges=tuple(sorted(of_metric.judges)),
        statuses=dict(of_metric.statuses),
        unanswered=unanswered,
        n_unanswered=n_unanswered,
    )

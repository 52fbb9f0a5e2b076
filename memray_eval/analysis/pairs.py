"""The figures of verdicts on pairs: win rates, strengths, ranks, and the judge's biases."""

from __future__ import annotations

import logging
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pyarrow import fs
from pydantic import ConfigDict, Field, ValidationError

from memray_eval.analysis.marks import why_undecided
from memray_eval.analysis.scores import Flags, find_cluster
from memray_eval.analysis.statistics import (
    SETTINGS,
    Clusters,
    CompareOptions,
    Interval,
    count_units,
    count_wins,
    expand_level,
    mean_interval,
    percentile_interval,
)
from memray_eval.metrics._evidence import FIRST
from memray_eval.ports import FloatArray
from memray_eval.results.run_folder import FIGURES_OF_PAIRS, RunFolder
from memray_eval.storage.paths import locate, readable
from memray_eval.types import Frozen, Record, Response, pair_of

PRIOR_SD = 10.0
_ROUNDS = 100
_LONGEST_STEP = 2.0
_CLOSE = 1e-9
_EQUAL = 1e-6  # strengths that differ by less: the fit ends at steps of _CLOSE
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
        of_tie = np.broadcast_to(np.exp(tie)[:, None], gap.shape)
        weights = np.stack([np.exp(gap), np.exp(-gap), of_tie])
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


def ranks_of(strengths: FloatArray) -> tuple[Numbers, Numbers]:
    """The best and the worst rank of each candidate in each row, 1 for the strongest: those that
    are equally strong share all of theirs. Both have the shape of `strengths`."""
    ahead = strengths[:, None, :] - strengths[:, :, None]
    return 1 + (ahead > _EQUAL).sum(axis=2), (ahead >= -_EQUAL).sum(axis=2)


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

    is_judged: bool
    cluster: str | None = None
    values: list[float] = field(default_factory=lambda: [math.nan, math.nan])
    lengths: list[int] = field(default_factory=lambda: [0, 0])


def read_verdicts(
    records: Iterable[Record], sides: Sequence[str], cluster: str | None = None
) -> list[PairVerdicts]:
    """The verdicts of every metric that compares pairs, of candidates in the order of `sides`;
    `cluster` is a key of the samples' metadata. Rows that are no pair of two sides are left out."""
    number = {name: number for number, name in enumerate(sides)}
    metrics: defaultdict[str, dict[tuple[Question, int, int], _Pair]] = defaultdict(dict)
    judges, statuses = defaultdict[str, set[str]](set), defaultdict[str, Counter[str]](Counter)
    compares: set[str] = set()
    unanswered: defaultdict[tuple[str, str], set[Question]] = defaultdict(set)
    lost: set[tuple[Question, int, int]] = set()
    seen: set[tuple[Question, int, int]] = set()
    for record in records:
        try:
            pair = pair_of(record.sample)
        except ValueError:  # a row of somebody else's; its score says so
            continue
        if pair is None or not {pair.first, pair.second} <= number.keys():
            continue
        question, first = (pair.sample_id, pair.task), number[pair.first]
        second = number[pair.second]
        key = (question, min(first, second), max(first, second))
        seen.add(key)
        for lacking in pair.unanswered:
            unanswered[lacking.candidate, lacking.kind].add(question)
        if any(lacking.kind != "empty" for lacking in pair.unanswered):
            lost.add(key)
            continue
        empty = [lacking.candidate for lacking in pair.unanswered]
        order, answer = int(first != key[1]), record.response or Response()
        named = None if cluster is None else record.sample.metadata.get(cluster)
        for score in record.scores:
            verdicts = metrics[score.metric].setdefault(key, _Pair(is_judged=not empty))
            lengths = len(answer.text), len(pair.other)
            verdicts.lengths[order], verdicts.lengths[1 - order] = lengths
            verdicts.cluster = None if named is None else str(named)
            if empty:
                verdicts.values[order] = TIE if len(empty) > 1 else float(pair.first not in empty)
                continue
            statuses[score.metric][score.status] += 1
            if score.value is not None:
                compares |= {score.metric} if FIRST in score.parts else set()
                judges[score.metric].add(score.judge)
                verdicts.values[order] = score.value
    sides_of: defaultdict[Question, set[int]] = defaultdict(set)
    for question, *two in seen:
        sides_of[question].update(two)
    return [
        replace(
            _to_columns(name, pairs),
            judges=tuple(sorted(judges[name])),
            statuses=dict(statuses[name]),
            unanswered={key: len(questions) for key, questions in unanswered.items()},
            n_asked=len(sides_of),
            n_unanswered=len(lost),
            is_whole=len(seen) == sum(math.comb(len(of), 2) for of in sides_of.values()),
        )
        for name, pairs in metrics.items()
        if name in compares or not compares
    ]


def _to_columns(metric: str, pairs: Mapping[tuple[Question, int, int], _Pair]) -> PairVerdicts:
    questions: dict[Question, int] = {}
    clusters: dict[Any, int] = {}
    rows = [
        (
            questions.setdefault(key, len(questions)),
            # who names no cluster is one of its own
            clusters.setdefault(pair.cluster or key, len(clusters)),
            *sides,
            pair.is_judged,
            *pair.values,
            *pair.lengths,
        )
        for (key, *sides), pair in pairs.items()
    ]
    columns = np.array(rows, np.float64).reshape(-1, 9).T
    columns = columns[:, ~np.isnan(columns).any(axis=0)]
    question, cluster, i, j, is_judged = columns[:5].astype(np.intp)
    i_first, j_first, length_i, length_j = columns[5:]
    return PairVerdicts(
        metric,
        question,
        cluster,
        i,
        j,
        i_first,
        j_first,
        np.log2((1 + length_i) / (1 + length_j)),
        is_judged.astype(np.bool_),
        n_incomplete=len(rows) - question.size,
    )


class Rate(Frozen):
    """A share with its interval, over `n` cases; None without one, or without a spread."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


class CandidateStanding(Frozen):
    """One candidate. `rate` is its share of the points of its pairs, a tie counting half.
    `strength` is its log-odds by the Bradley-Terry model with ties, 0 the mean of all, without an
    interval if it won or lost every pair; `rank_low` is the best and `rank_high` the worst rank
    that the data leave open."""

    candidate: str
    wins: int = 0
    ties: int = 0
    losses: int = 0
    rate: Rate = Rate()
    strength: float | None = None
    strength_interval: Interval | None = None
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    n_empty: int = 0
    n_excluded: int = Field(default=0, exclude_if=operator.not_)
    n_failed: int = 0


class Duel(Frozen):
    """Candidate `a` against `b`: wins, ties and losses of a, its share of the points, and what that
    would be at equal lengths (an estimate of the model; None: it cannot be told)."""

    a: str
    b: str
    wins: int
    ties: int
    losses: int
    rate: Rate
    at_equal_length: float | None = None


class Criterion(Frozen):
    """The figures of one metric. Of the judge: `first_share` is how often it prefers the answer
    shown first, `flips` the share of pairs whose verdict changes with the order, `longer_share`
    that of decided pairs that the longer answer wins, and `odds_of_double_length` the factor of an
    answer's odds at twice the length. `n_incomplete` pairs lack a verdict; of `n_unanswered` an
    answer failed, or is left out. An empty answer is a loss, which says nothing of the judge.
    `undecided` says that a candidate's empty answers were left out of too many."""

    metric: str
    judges: tuple[str, ...]
    n_pairs: int
    n_questions: int
    n_incomplete: int = 0
    undecided: str = Field(default="", exclude_if=operator.not_)
    n_unanswered: int = 0
    statuses: dict[str, int] = Field(default_factory=dict)
    standings: tuple[CandidateStanding, ...] = ()
    duels: tuple[Duel, ...] = ()
    first_share: Rate = Rate()
    flips: Rate = Rate()
    longer_share: Rate = Rate()
    odds_of_double_length: Rate = Rate()


class PairSide(Frozen):
    """A candidate of a pairwise run: its name there, and the run and candidate that answered."""

    name: str
    run: str
    candidate: str


class PairwiseReport(Frozen):
    """The figures of a pairwise run (`runs`, by id: an earlier version made one of each round).
    `is_whole` says that every two candidates were compared on every sample. `cluster` is the field
    of the samples that intervals are clustered by, None for each sample."""

    model_config = ConfigDict(extra="ignore")  # earlier versions kept the number of rounds

    runs: tuple[str, ...]
    sides: tuple[PairSide, ...]
    level: float
    cluster: str | None
    is_whole: bool
    criteria: tuple[Criterion, ...]


DRAWS = 1000
_LENGTH_DRAWS = 200
_BOUNDED = 0.1  # by how much of itself a weight may move with the width of its prior
_LENGTH_STEP = 0.25  # of log2: lengths that differ by less than a fifth count as one


def measure_pairs(
    pairs: PairVerdicts, sides: Sequence[str], how: CompareOptions = SETTINGS
) -> Criterion:
    """All figures of one metric. Intervals are clustered by question, unless samples name a larger
    cluster; those of strengths, ranks and length are bootstrap intervals over clusters."""
    judged = pairs.judged
    by_length = _fit_lengths(judged, len(sides), how)
    odds = Rate()
    if by_length is not None:
        drawn = np.exp(by_length.weight)  # the first of the data, the others of resamples
        low, high = percentile_interval(drawn[1:], how.level)
        odds = Rate(value=float(drawn[0]), low=low, high=high, n=judged.points.size)
    # of both orders together
    both_orders = np.concatenate([judged.i_first, judged.j_first])
    decided, twice = both_orders != TIE, np.concatenate([judged.cluster, judged.cluster])
    flipped = (judged.i_first != 1 - judged.j_first).astype(np.float64)
    apart = (judged.points != TIE) & (judged.doublings != 0)
    excluded = (pairs.unanswered.get((name, "excluded"), 0) for name in sides)
    longer_won = (judged.points[apart] == 1) == (judged.doublings[apart] > 0)
    return Criterion(
        metric=pairs.metric,
        judges=pairs.judges,
        n_pairs=pairs.points.size,
        n_questions=int(np.unique(pairs.question).size),
        n_incomplete=pairs.n_incomplete,
        undecided=why_undecided(pairs.n_asked, max(excluded, default=0), 0),
        n_unanswered=pairs.n_unanswered,
        statuses=dict(pairs.statuses),
        standings=tuple(_standings(pairs, sides, how)),
        duels=tuple(_duels(pairs, sides, by_length, how)),
        first_share=_rate(both_orders[decided], twice[decided], how),
        flips=_rate(flipped, judged.cluster, how),
        longer_share=_rate(longer_won.astype(np.float64), judged.cluster[apart], how),
        odds_of_double_length=odds,
    )


def _rate(values: FloatArray, clusters: Clusters, how: CompareOptions) -> Rate:
    """The mean with its interval, clustered where a cluster has several of the values."""
    if not values.size:
        return Rate()
    is_alone = count_units(values, clusters) == values.size
    ends = mean_interval(values, None if is_alone else clusters, how, (0.0, 1.0))
    low, high = ends or (None, None)
    return Rate(value=float(values.mean()), low=low, high=high, n=values.size)


def _standings(
    pairs: PairVerdicts, sides: Sequence[str], how: CompareOptions
) -> list[CandidateStanding]:
    standings = [
        CandidateStanding(
            candidate=name,
            n_empty=pairs.unanswered.get((name, "empty"), 0),
            n_excluded=pairs.unanswered.get((name, "excluded"), 0),
            n_failed=pairs.unanswered.get((name, "error"), 0),
        )
        for name in sides
    ]
    if not pairs.points.size:
        return standings
    kinds, wins, ties, losses = _resample(np.stack([pairs.i, pairs.j], axis=1), pairs, DRAWS)
    # the first of the data, the others of resamples
    strengths = fit_strengths(Matches(kinds[:, 0], kinds[:, 1]), len(sides), wins, ties, losses).of
    fitted, drawn = strengths[:1], strengths[1:]
    (ranks, _), (best, worst) = ranks_of(fitted), ranks_of(drawn)
    n_units = count_units(pairs.points, pairs.cluster)
    level = expand_level(how.level, n_units)
    # Else no result of so few questions is significant: two-sided sign flips give 2^(1-n) at least
    can_rank = 2.0 ** (1 - n_units) <= 1 - how.level
    ends = ((1 - how.level) / 2, (1 + how.level) / 2)
    for number, standing in enumerate(standings):
        of_j = np.where(pairs.j == number, 1 - pairs.points, np.nan)
        own = np.where(pairs.i == number, pairs.points, of_j)
        played = ~np.isnan(own)
        counts = count_wins(own[played] - TIE)
        # who wins or loses everything has a strength without an end on that side
        is_bounded = max(counts["wins"], counts["losses"]) < played.sum()
        ends_drawn = percentile_interval(drawn[:, number], level)
        low, high = (
            int(np.quantile(of[:, number], end, method="inverted_cdf"))
            for of, end in zip((best, worst), ends, strict=True)
        )
        standings[number] = standing.model_copy(
            update={
                **counts,
                "rate": _rate(own[played], pairs.cluster[played], how),
                "strength": float(fitted[0, number]),
                "strength_interval": ends_drawn if is_bounded else None,
                "rank": int(ranks[0, number]),
                "rank_low": low if can_rank else 1,
                "rank_high": high if can_rank else len(sides),
            }
        )
    return sorted(standings, key=lambda standing: standing.rank or 0)


def _resample(
    matches: Numbers, pairs: PairVerdicts, draws: int, seed: int = 0
) -> tuple[Numbers, FloatArray, FloatArray, FloatArray]:
    """The kinds of `matches` (a row a pair), and the counts of wins, ties and losses by kind, each
    of shape (1 + draws, kinds): of the data themselves, then of resamples of whole clusters."""
    kinds, of_kind = np.unique(matches, axis=0, return_inverse=True)
    n_kinds = len(kinds)
    outcomes = np.where(pairs.points > TIE, 0, np.where(pairs.points < TIE, 2, 1))
    cells = of_kind.reshape(-1) * 3 + outcomes
    names, codes = np.unique(pairs.cluster, return_inverse=True)
    random = np.random.default_rng(seed)
    counts = np.empty((1 + draws, n_kinds * 3))
    counts[0] = np.bincount(cells, minlength=n_kinds * 3)
    for draw in range(1, 1 + draws):
        drawn = np.bincount(random.integers(0, names.size, names.size), minlength=names.size)
        counts[draw] = np.bincount(cells, weights=drawn[codes], minlength=n_kinds * 3)
    wins, ties, losses = np.moveaxis(counts.reshape(1 + draws, n_kinds, 3), 2, 0)
    return kinds, wins, ties, losses


def _fit_lengths(pairs: PairVerdicts, n_candidates: int, how: CompareOptions) -> Strengths | None:
    """Strengths beside the weight of length, of the data and of resamples. None where nothing can
    be told of length: answers differ in it nowhere or always by as much, or it decides everything,
    so that the prior and not the data keeps its weight finite."""
    steps = np.rint(pairs.doublings / _LENGTH_STEP)
    if steps.size < 2 or np.ptp(steps) == 0:
        return None
    rows = np.stack([pairs.i, pairs.j, steps.astype(np.intp)], axis=1)
    kinds, wins, ties, losses = _resample(rows, pairs, _LENGTH_DRAWS, how.seed)
    doublings = kinds[:, 2].astype(np.float64) * _LENGTH_STEP
    matches = Matches(kinds[:, 0], kinds[:, 1], doublings)
    fitted = fit_strengths(matches, n_candidates, wins, ties, losses)
    of_data = (wins[:1], ties[:1], losses[:1])
    wide = fit_strengths(matches, n_candidates, *of_data, prior_sd=2 * PRIOR_SD)
    moved = abs(float(wide.weight[0] - fitted.weight[0]))
    return fitted if moved <= _BOUNDED * max(1.0, abs(float(fitted.weight[0]))) else None


def _duels(
    pairs: PairVerdicts, sides: Sequence[str], by_length: Strengths | None, how: CompareOptions
) -> list[Duel]:
    two = np.unique(np.stack([pairs.i, pairs.j], axis=1), axis=0).tolist()
    return [
        Duel(
            a=sides[a],
            b=sides[b],
            **count_wins(pairs.points[rows] - TIE),
            rate=_rate(pairs.points[rows], pairs.cluster[rows], how),
            at_equal_length=None if by_length is None else float(by_length.win_rate(a, b)[0]),
        )
        for a, b in two
        for rows in [(pairs.i == a) & (pairs.j == b)]
    ]


logger = logging.getLogger(__name__)


def report_pairs(folder: RunFolder, sides: Sequence[PairSide]) -> PairwiseReport:
    """Measures the verdicts of a pairwise run. Raises DataError for unreadable records."""
    how, names, kept = CompareOptions(), [side.name for side in sides], read_report(folder)
    with readable(folder.path):
        cluster = find_cluster(folder.records())
    # the rounds of an earlier version, which lie beside it
    parent = folder.path.rpartition("/")[0] or "."
    others = [run for run in kept.runs if run != folder.run_id] if kept is not None else []
    folders = [*filter(RunFolder.has_manifest, (RunFolder(f"{parent}/{run}") for run in others))]
    folders.append(folder)
    records = chain.from_iterable(folder.each() for folder in folders)
    verdicts = read_verdicts(records, names, cluster)
    return PairwiseReport(
        runs=tuple(folder.run_id for folder in folders),
        sides=tuple(sides),
        level=how.level,
        cluster=cluster,
        is_whole=all(of_metric.is_whole for of_metric in verdicts),
        criteria=tuple(measure_pairs(of_metric, names, how) for of_metric in verdicts),
    )


def read_report(folder: RunFolder) -> PairwiseReport | None:
    """The report that a pairwise run keeps; None where there is none, or another version's."""
    kept = folder.read_json(FIGURES_OF_PAIRS)
    if kept is None:
        return None
    try:
        return PairwiseReport.model_validate(kept)
    except ValidationError as error:
        logger.warning("%s/pairs.json is none of this version: %s", folder.path, error)
        return None


def find_report(runs: Sequence[tuple[RunFolder, str]]) -> PairwiseReport | None:
    """The newest pairwise report, beside the first run, over all of these candidates; or None."""
    parent = runs[0][0].path.rpartition("/")[0] or "."
    filesystem, inner = locate(parent)
    with readable(parent):
        infos = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
        names = [info.base_name for info in infos if info.type == fs.FileType.Directory]
        kept = filesystem.get_file_info([f"{inner}/{name}/pairs.json" for name in names])
    wanted = {(folder.run_id, candidate) for folder, candidate in runs}
    newest = sorted(
        (info.mtime_ns or 0, name)
        for name, info in zip(names, kept, strict=True)
        if info.type == fs.FileType.File
    )
    for _, name in reversed(newest):
        report = read_report(RunFolder(f"{parent}/{name}"))
        if report is not None and wanted <= {(side.run, side.candidate) for side in report.sides}:
            return report
    return None

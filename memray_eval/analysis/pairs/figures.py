"""The figures of verdicts on pairs: win rates, strengths, ranks, and the judge's biases."""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from itertools import chain

import numpy as np
from pyarrow import fs
from pydantic import ConfigDict, Field, ValidationError

from memray_eval.analysis.marks import why_undecided
from memray_eval.analysis.pairs.verdicts import (
    PRIOR_SD,
    TIE,
    Matches,
    Numbers,
    PairVerdicts,
    Strengths,
    fit_strengths,
    ranks_of,
    read_verdicts,
)
from memray_eval.analysis.scores import find_cluster
from memray_eval.analysis.statistics import (
    SETTINGS,
    Clusters,
    Interval,
    Settings,
    count_units,
    count_wins,
    expand_level,
    mean_interval,
    percentile_interval,
)
from memray_eval.ports import FloatArray
from memray_eval.results.run_folder import FIGURES_OF_PAIRS, RunFolder
from memray_eval.storage.paths import locate, readable
from memray_eval.types import Frozen


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


def measure_pairs(pairs: PairVerdicts, sides: Sequence[str], how: Settings = SETTINGS) -> Criterion:
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


def _rate(values: FloatArray, clusters: Clusters, how: Settings) -> Rate:
    """The mean with its interval, clustered where a cluster has several of the values."""
    if not values.size:
        return Rate()
    is_alone = count_units(values, clusters) == values.size
    ends = mean_interval(values, None if is_alone else clusters, how, (0.0, 1.0))
    low, high = ends or (None, None)
    return Rate(value=float(values.mean()), low=low, high=high, n=values.size)


def _standings(pairs: PairVerdicts, sides: Sequence[str], how: Settings) -> list[CandidateStanding]:
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
    fitted, drawn = draw_strengths(pairs, len(sides))
    ranks, ranks_drawn = ranks_of(fitted)[0], ranks_of(drawn)
    level = expand_level(how.level, count_units(pairs.points, pairs.cluster))
    ends = ((1 - how.level) / 2, (1 + how.level) / 2)
    for number, standing in enumerate(standings):
        of_j = np.where(pairs.j == number, 1 - pairs.points, np.nan)
        own = np.where(pairs.i == number, pairs.points, of_j)
        played = ~np.isnan(own)
        counts = count_wins(own[played] - TIE)
        # who wins or loses everything has a strength without an end on that side
        is_bounded = max(counts["wins"], counts["losses"]) < played.sum()
        ends_drawn = percentile_interval(drawn[:, number], level)
        best, worst = np.quantile(ranks_drawn[:, number], ends, method="inverted_cdf")
        standings[number] = standing.model_copy(
            update={
                **counts,
                "rate": _rate(own[played], pairs.cluster[played], how),
                "strength": float(fitted[0, number]),
                "strength_interval": ends_drawn if is_bounded else None,
                "rank": int(ranks[number]),
                "rank_low": int(best),
                "rank_high": int(worst),
            }
        )
    return sorted(standings, key=lambda standing: standing.rank or 0)


def draw_strengths(
    pairs: PairVerdicts, n_candidates: int, draws: int = DRAWS
) -> tuple[FloatArray, FloatArray]:
    """The strengths of shape (1, candidates), and those of `draws` resamples of whole clusters,
    (draws, candidates). Always the same for the same verdicts."""
    kinds, wins, ties, losses = _resample(np.stack([pairs.i, pairs.j], axis=1), pairs, draws)
    matches = Matches(kinds[:, 0], kinds[:, 1])
    fitted = fit_strengths(matches, n_candidates, wins, ties, losses).of
    return fitted[:1], fitted[1:]


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


def _fit_lengths(pairs: PairVerdicts, n_candidates: int, how: Settings) -> Strengths | None:
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
    wide = fit_strengths(
        matches, n_candidates, wins[:1], ties[:1], losses[:1], prior_sd=2 * PRIOR_SD
    )
    moved = abs(float(wide.weight[0] - fitted.weight[0]))
    return fitted if moved <= _BOUNDED * max(1.0, abs(float(fitted.weight[0]))) else None


def _duels(
    pairs: PairVerdicts, sides: Sequence[str], by_length: Strengths | None, how: Settings
) -> list[Duel]:
    duels = []
    for a, b in np.unique(np.stack([pairs.i, pairs.j], axis=1), axis=0).tolist():
        rows = (pairs.i == a) & (pairs.j == b)
        duels.append(
            Duel(
                a=sides[a],
                b=sides[b],
                **count_wins(pairs.points[rows] - TIE),
                rate=_rate(pairs.points[rows], pairs.cluster[rows], how),
                at_equal_length=None if by_length is None else float(by_length.win_rate(a, b)[0]),
            )
        )
    return duels


logger = logging.getLogger(__name__)


def report_pairs(folder: RunFolder, sides: Sequence[PairSide]) -> PairwiseReport:
    """Measures the verdicts of a pairwise run. Raises DataError for unreadable records."""
    how, names, kept = Settings(), [side.name for side in sides], read_report(folder)
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
    """The newest report of a pairwise run over all of these candidates of runs, among the folders
    beside the first; None where there is none."""
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

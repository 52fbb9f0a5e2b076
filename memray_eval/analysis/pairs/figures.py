"""The figures of verdicts on pairs: win rates, strengths, ranks, and the judge's biases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memray_eval.analysis.marks import why_undecided
from memray_eval.analysis.pairs.bradley_terry import (
    PRIOR_SD,
    Matches,
    Numbers,
    Strengths,
    fit_strengths,
    ranks_of,
)
from memray_eval.analysis.pairs.models import CandidateStanding, Criterion, Duel, Rate
from memray_eval.analysis.pairs.verdicts import TIE, PairVerdicts
from memray_eval.analysis.statistics import (
    SETTINGS,
    Clusters,
    Settings,
    count_units,
    count_wins,
    expand_level,
    mean_interval,
    percentile_interval,
)
from memray_eval.ports import FloatArray

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

"""The figures of verdicts on pairs: win rates, strengths, ranks, and the judge's biases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memray_eval.ports import FloatArray
from memray_eval.report.pairs.bradley_terry import Matches, Strengths, fit_strengths, ranks_of
from memray_eval.report.pairs.models import Criterion, Duel, Rate, Standing
from memray_eval.report.pairs.verdicts import TIE, PairVerdicts
from memray_eval.report.statistics import (
    Clusters,
    Settings,
    expand_level,
    mean_interval,
    percentile_interval,
)

DRAWS = 1000
_LENGTH_DRAWS = 200  # of the model with a covariate, which has a row a pair
_SEED = 0
Flags = npt.NDArray[np.bool_]


def measure_pairs(
    found: PairVerdicts, sides: Sequence[str], settings: Settings | None = None
) -> Criterion:
    """All figures of one metric. Intervals are clustered: all pairs of a cluster, which is a
    question unless samples name a larger one, count together; those of strengths and ranks are
    bootstrap intervals over clusters."""
    how = settings or Settings()
    whole = found.is_complete
    i, j, points, clusters = (
        column[whole] for column in (found.i, found.j, found.points, found.cluster)
    )
    longer = np.log2((1 + found.length_i[whole]) / (1 + found.length_j[whole]))
    by_length = _fit_lengths(i, j, points, longer, clusters, len(sides), how)
    order = np.concatenate([found.i_first[whole], found.j_first[whole]])
    decided, twice = order != TIE, np.concatenate([clusters, clusters])
    flipped = (found.i_first[whole] != 1 - found.j_first[whole]).astype(np.float64)
    apart = (points != TIE) & (longer != 0)
    longer_won = (points[apart] == 1) == (longer[apart] > 0)
    return Criterion(
        metric=found.metric,
        judges=found.judges,
        n_pairs=int(whole.sum()),
        n_questions=int(np.unique(found.question[whole]).size),
        n_incomplete=int((~whole).sum()),
        n_unanswered=found.n_unanswered,
        statuses=dict(found.statuses),
        standings=tuple(_standings(found, sides, how)),
        duels=tuple(_duels(i, j, points, clusters, sides, by_length, how)),
        first_share=_rate(order[decided], twice[decided], how),
        flips=_rate(flipped, clusters, how),
        longer_share=_rate(longer_won.astype(np.float64), clusters[apart], how),
        odds_of_double_length=_odds(by_length, points.size, how),
    )


def _rate(values: FloatArray, clusters: Clusters, how: Settings) -> Rate:
    """The mean with its interval, clustered where a cluster has several of the values."""
    if not values.size:
        return Rate()
    is_alone = np.unique(clusters).size == values.size
    ends = mean_interval(values, None if is_alone else clusters, how)
    low, high = (None, None) if ends is None else (max(0.0, ends.low), min(1.0, ends.high))
    return Rate(value=float(values.mean()), low=low, high=high, n=values.size)


def _standings(found: PairVerdicts, sides: Sequence[str], how: Settings) -> list[Standing]:
    """The candidates, the strongest first."""
    whole = found.is_complete
    i, j, points, clusters = (
        column[whole] for column in (found.i, found.j, found.points, found.cluster)
    )
    standings = [
        Standing(
            candidate=name,
            n_empty=found.unanswered.get((name, "empty"), 0),
            n_failed=found.unanswered.get((name, "error"), 0),
        )
        for name in sides
    ]
    if not points.size:
        return standings
    fitted, drawn = draw_strengths(i, j, points, clusters, len(sides))
    ranks, ranks_drawn = ranks_of(fitted)[0], ranks_of(drawn)
    level = expand_level(how.level, int(np.unique(clusters).size))
    ends = ((1 - how.level) / 2, (1 + how.level) / 2)
    for number, one in enumerate(standings):
        own = np.where(i == number, points, np.where(j == number, 1 - points, np.nan))
        played = ~np.isnan(own)
        best, worst = np.quantile(ranks_drawn[:, number], ends, method="inverted_cdf")
        standings[number] = one.model_copy(
            update={
                **_counts(own[played]),
                "rate": _rate(own[played], clusters[played], how),
                "strength": float(fitted[0, number]),
                "strength_interval": percentile_interval(drawn[:, number], level),
                "rank": int(ranks[number]),
                "rank_low": int(best),
                "rank_high": int(worst),
            }
        )
    return sorted(standings, key=lambda one: one.rank or 0)


def _counts(points: FloatArray) -> dict[str, int]:
    wins, losses = int((points > TIE).sum()), int((points < TIE).sum())
    return {"wins": wins, "ties": points.size - wins - losses, "losses": losses}


def draw_strengths(
    i: npt.NDArray[np.intp],
    j: npt.NDArray[np.intp],
    points: FloatArray,
    clusters: Clusters,
    n_candidates: int,
    draws: int = DRAWS,
    seed: int = _SEED,
) -> tuple[FloatArray, FloatArray]:
    """The strengths of shape (1, candidates), and those of `draws` resamples of whole clusters,
    (draws, candidates). Always the same for the same verdicts."""
    duels, of_duel = np.unique(np.stack([i, j], axis=1), axis=0, return_inverse=True)
    of_duel = of_duel.reshape(-1)
    names, codes = np.unique(clusters, return_inverse=True)
    kinds = np.where(points > TIE, 0, np.where(points < TIE, 2, 1))
    # by cluster, duel and outcome
    counts = np.zeros((names.size, len(duels) * 3))
    np.add.at(counts, (codes, of_duel * 3 + kinds), 1.0)
    random = np.random.default_rng(seed)
    weights = random.multinomial(names.size, np.full(names.size, 1 / names.size), size=draws)
    sets = np.concatenate([counts.sum(axis=0)[None, :], weights.astype(np.float64) @ counts])
    wins, ties, losses = np.moveaxis(sets.reshape(draws + 1, len(duels), 3), 2, 0)
    matches = Matches(duels[:, 0], duels[:, 1])
    fitted = fit_strengths(matches, n_candidates, wins, ties, losses).of
    return fitted[:1], fitted[1:]


def _fit_lengths(
    i: npt.NDArray[np.intp],
    j: npt.NDArray[np.intp],
    points: FloatArray,
    longer: FloatArray,
    clusters: Clusters,
    n_candidates: int,
    how: Settings,
) -> Strengths | None:
    """Strengths beside the weight of length, and those of resamples; None where no two answers of a
    pair differ in length, or all by as much, so that nothing can be told of it."""
    if points.size < 2 or np.ptp(longer) == 0:
        return None
    names, codes = np.unique(clusters, return_inverse=True)
    random = np.random.default_rng(how.seed)
    drawn = random.multinomial(names.size, np.full(names.size, 1 / names.size), size=_LENGTH_DRAWS)
    matches = Matches(i, j, longer)
    parts = []
    # the data themselves first; few at a time, because each set has a row a pair
    weights = np.concatenate([np.ones((1, names.size)), drawn])[:, codes]
    for chunk in np.array_split(weights, max(1, weights.size // 1_000_000)):
        parts.append(
            fit_strengths(
                matches, n_candidates, chunk * (points > TIE), chunk * (points == TIE),
                chunk * (points < TIE),
            )
        )  # fmt: skip
    return Strengths(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _odds(fitted: Strengths | None, n: int, how: Settings) -> Rate:
    if fitted is None:
        return Rate()
    odds = np.exp(fitted.weight)
    low, high = percentile_interval(odds[1:], how.level)
    return Rate(value=float(odds[0]), low=low, high=high, n=n)


def _duels(
    i: npt.NDArray[np.intp],
    j: npt.NDArray[np.intp],
    points: FloatArray,
    clusters: Clusters,
    sides: Sequence[str],
    by_length: Strengths | None,
    how: Settings,
) -> list[Duel]:
    duels = []
    for a, b in np.unique(np.stack([i, j], axis=1), axis=0):
        rows = (i == a) & (j == b)
        duels.append(
            Duel(
                a=sides[a],
                b=sides[b],
                **_counts(points[rows]),
                rate=_rate(points[rows], clusters[rows], how),
                at_equal_length=None if by_length is None else float(by_length.win_rate(a, b)[0]),
            )
        )
    return duels

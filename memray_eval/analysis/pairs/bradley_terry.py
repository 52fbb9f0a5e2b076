"""Bradley-Terry strengths with ties, as Davidson models them.

    P(i over j) : P(j over i) : P(tie) = e^(a) : e^(-a) : e^(n),  a = (s_i - s_j + g x) / 2

s are the candidates' strengths (log-odds), n says how common ties are (the ln of Davidson's nu),
and x is a covariate of the match, such as how much longer i's answer is, with its weight g. Source:
Davidson, On Extending the Bradley-Terry Model to Accommodate Ties in Paired Comparison Experiments,
JASA 65 (1970).

Newton's method finds the one maximum of the likelihood. A normal prior with standard deviation
PRIOR_SD on every parameter keeps the strength finite of a candidate that won every match."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memray_eval.ports import FloatArray

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

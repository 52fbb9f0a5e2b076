"""What a pairwise run says: of its candidates, of each two of them, and of its judge."""

from __future__ import annotations

import operator

from pydantic import ConfigDict, Field

from memray_eval.analysis.statistics import Interval
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

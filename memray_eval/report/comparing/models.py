"""What a comparison is made of, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from memray_eval.report.scores import Scores
from memray_eval.report.statistics import Interval, Paired, Settings
from memray_eval.types import Frozen

Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Side:
    """One candidate of one run, under the name it has in this comparison. `manifest` is the run's
    manifest.json."""

    name: str
    candidate: str
    manifest: Mapping[str, Any]
    scores: Scores


class Flip(Frozen):
    """A unit whose score differs: `a` and `b` are its two scores, `direction` is up where B's is
    higher."""

    sample_id: str
    task: str
    direction: Direction
    a: float
    b: float


class MetricComparison(Frozen):
    """One metric of B (`other`) against A, over the `paired.n` common units that both have a score
    of; `only_a` and `only_b` count the common units that one side alone has one of.

    The p-values are corrected over all metrics and candidates of the comparison: `p_holm` for any
    false finding, `p_fdr` for the share of them (Benjamini-Hochberg). `interval_a` and `interval_b`
    are those of the means. `flips_up` and `flips_down` are there for metrics whose values are 0 and
    1 only. `flips` lists the first of the units that changed, of other metrics those that changed
    most. `mark_a` and `mark_b` say how many of the paired values are offline estimates, or a rule's
    in place of a judge that failed."""

    metric: str
    other: str
    paired: Paired
    interval_a: Interval | None = None
    interval_b: Interval | None = None
    p_holm: float | None = None
    p_fdr: float | None = None
    only_a: int = 0
    only_b: int = 0
    flips_up: int | None = None
    flips_down: int | None = None
    flips: tuple[Flip, ...] = ()
    letter: str = "B"
    mark_a: str = ""
    mark_b: str = ""

    @property
    def mark(self) -> str:
        """Both marks as one."""
        if self.mark_a == self.mark_b:
            return self.mark_a
        return "; ".join(
            f"{side}: {told}"
            for side, told in (("A", self.mark_a), (self.letter, self.mark_b))
            if told
        )


class CommonUnits(Frozen):
    """How the units of A and of `other` meet. `letter` is what warnings and tables call that one:
    B, C, ..."""

    other: str
    letter: str
    n: int
    only_a: int
    only_b: int


class Comparison(Frozen):
    """All that `compare` found. `baseline` is A; `cluster` the field that units were clustered by.
    `failed_gates` says in words what `failures` found."""

    baseline: str
    others: tuple[str, ...]
    cluster: str | None
    settings: Settings
    common: tuple[CommonUnits, ...]
    metrics: tuple[MetricComparison, ...]
    warnings: tuple[str, ...] = ()
    failed_gates: tuple[str, ...] = ()

"""Marks for figures that are not, or not wholly, the verdict of a judge."""

from collections.abc import Mapping
from typing import Protocol

from memray_eval.types import FALLBACKS, Figure, MetricSummary

ESTIMATE = "estimate"
NOTHING = "-"
ENOUGH = 0.95  # of answers and verdicts, for a figure that decides, recommends or compares
_REPLACED = "by fallback"


def mark(n_scored: int, estimates: int, fallbacks: int | Mapping[str, int] = 0) -> str:
    """The mark of a figure over `n_scored` units: "estimate" if rules alone scored it, else how
    many they scored, also in place of a judge that failed (`fallbacks`). "" if all are verdicts."""
    parts = []
    if estimates:
        share = "" if estimates == n_scored else f" for {estimates} of {n_scored}"
        parts.append(f"{ESTIMATE}{share}")
    counts = {"": fallbacks} if isinstance(fallbacks, int) else fallbacks
    for way, count in counts.items():
        if count:
            parts.append(f"{count} of {n_scored} {FALLBACKS.get(way, _REPLACED)}")
    return ", ".join(parts)


def metric_mark(metric: MetricSummary) -> str:
    """The mark of a metric's figures."""
    return mark(metric.n_scored, metric.n_estimated, fallbacks_of(metric))


def fallbacks_of(metric: MetricSummary) -> dict[str, int]:
    """How many units each fallback scored."""
    return {judge: count for judge, count in metric.judges.items() if judge in FALLBACKS}


def left_out(n_asked: int, n_no_answer: int, n_abstained: int) -> str:
    """How many answers and verdicts are left out of a figure over `n_asked` units, in words."""
    parts = []
    if n_no_answer:
        parts.append(f"{n_no_answer:,} of {n_asked:,} did not answer")
    if n_abstained:
        parts.append(f"{n_abstained:,} of {n_asked:,} verdicts could not be read")
    return ", ".join(parts)


def why_undecided(n_asked: int, n_no_answer: int, n_abstained: int) -> str:
    """Why a figure over `n_asked` units decides nothing: too many answers or verdicts are left out
    of it. "" if at least ENOUGH of them count."""
    if n_no_answer + n_abstained <= (1 - ENOUGH) * n_asked + 1e-9:
        return ""
    return f"not decided: {left_out(n_asked, n_no_answer, n_abstained)}"


def count_left_out(metric: MetricSummary) -> tuple[int, int, int]:
    """What `left_out` and `why_undecided` take; failed units have their own tolerance."""
    n_asked = metric.n_scored + metric.n_no_answer + metric.n_abstained
    return n_asked, metric.n_no_answer, metric.n_abstained


def metric_undecided(metric: MetricSummary) -> str:
    """`why_undecided` of a metric."""
    return why_undecided(*count_left_out(metric))


class _Averaged(Protocol):
    """A metric's figure: `average` says which stands for it."""

    @property
    def metric(self) -> str: ...

    @property
    def average(self) -> str: ...


def name_figure(figure: _Averaged) -> str:
    """The metric's name, and which average stands for it where that is not the mean."""
    return figure.metric if figure.average == "mean" else f"{figure.metric} ({figure.average})"


def format_figure(figure: Figure, scale: tuple[float, float]) -> str:
    """A metric's figure with so many digits as a report shows: three, or two on a scale beyond 1;
    "no claims" where there were none, NOTHING where nothing was scored."""
    if figure.value is None:
        return f"no {figure.whole}" if figure.whole else NOTHING
    return f"{figure.value:z.{digits_of(scale)}f}"


def digits_of(scale: tuple[float, float]) -> int:
    """How many decimals of a metric's figure are shown."""
    return 2 if scale[1] > 1 else 3


def append_mark(figure: str, mark: str) -> str:
    """Appends a mark to a figure, if there is one."""
    return f"{figure} {mark}" if mark else figure

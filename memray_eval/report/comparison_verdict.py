"""A comparison in a sentence: on which metrics another side is better or worse than A
beyond chance, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memray_eval.analysis.comparing.models import CommonUnits, Comparison, MetricComparison
from memray_eval.analysis.marks import digits_of, name_figure
from memray_eval.analysis.recommendation import round_up
from memray_eval.analysis.where import GroupFigure, main_group, places_in_words
from memray_eval.report.sections import ends

NAMED = 3  # metrics that the sentence names on each side
_WIDE = (0.0, 5.0)


def verdict_of_all(comparison: Comparison) -> str:
    """The sentence on three sides or more: how often each is, or may be, best; "" of two."""
    n = len({row.metric for row in comparison.matrix})
    of = f"{n} metric{'s' * (n > 1)}"
    if all(row.is_best for row in comparison.matrix):
        return f"No candidate is shown to differ from the best on any of {of}." if n else ""
    best = Counter(row.side for row in comparison.matrix if row.is_best).most_common()
    counts = ", ".join(f"{comparison.shown_as(side)} on {count}" for side, count in best)
    return f"Best, or not clearly below it, on {of}: {counts}."


def verdict(comparison: Comparison, common: CommonUnits) -> str:
    """The sentence on one side of a comparison."""
    rows = comparison.rows_of(common.other)
    undecided = [f"{name_figure(row)}, {row.left_out}" for row in rows if row.is_undecided]
    others = f", and {len(undecided) - 1} more" if len(undecided) > 1 else ""
    rest = f" {undecided[0]}{others}." if undecided else ""
    decided = [row for row in rows if not row.is_undecided]
    leading = ""
    for row in decided if len(decided) > 1 else ():
        if row.metric == comparison.leads and row.paired.difference is not None:
            is_found = row.is_found(comparison.settings.level)
            leading = f"{_difference(row)}{': no difference is shown' * (not is_found)}. "
    return leading + _verdict(comparison, common, decided) + rest


def _verdict(comparison: Comparison, common: CommonUnits, rows: Sequence[MetricComparison]) -> str:
    scored = [row for row in rows if row.paired.difference is not None]
    a, b = (comparison.shown_as(name) for name in (comparison.baseline, common.other))
    if not scored and comparison.rows_of(common.other) != rows:
        return f"{b} and {a} are not compared."
    if not scored:
        return f"{b} and {a} have no score in common."
    shown = [row for row in scored if row.is_found(comparison.settings.level)]
    better = [row for row in shown if (row.paired.difference or 0.0) > 0]
    worse = [row for row in shown if (row.paired.difference or 0.0) < 0]
    if not shown:
        which = f"any of {len(scored)} metrics" if len(scored) > 1 else scored[0].metric
        return f"No difference is shown between {a} and {b} on {which}{_how_many_more(scored)}."
    parts = [
        f"{b} is better than {a} on {len(better) or 'none'} of {len(scored)}{_details(better)}",
        f"worse on {len(worse) or 'none'}{_details(worse)}",
    ]
    if not better:
        parts = [f"{b} is worse than {a} on {len(worse)} of {len(scored)}{_details(worse)}"]
        parts.append("better on none")
    if rest := len(scored) - len(shown):
        parts.append(f"{rest} without a clear difference")
    parts += places_in_words({row.metric: _where(comparison, row) for row in shown}, NAMED)
    return f"{', '.join(parts[:2])}; {'; '.join(parts[2:])}".removesuffix("; ") + "."


def _details(rows: Sequence[MetricComparison]) -> str:
    if not rows:
        return ""
    largest = sorted(rows, key=lambda row: -abs(row.paired.effect_size or 0.0))[:NAMED]
    differences = ", ".join(map(_difference, largest))
    return f" ({differences}{', ...' if len(rows) > NAMED else ''})"


def _difference(row: MetricComparison) -> str:
    paired, of = row.paired, row.corrected or row.paired
    largest = max(abs(value) for value in (paired.mean_a or 0.0, paired.mean_b or 0.0))
    digits = digits_of(_WIDE if largest > 1 else (0.0, 1.0))
    difference = f"{name_figure(row)} {paired.difference:+z.{digits}f}"
    between = ends(of.low, of.high, f"z.{digits}f")
    return f"{difference} {between}".rstrip() + (", est." if row.mark else "")


def _how_many_more(rows: Sequence[MetricComparison]) -> str:
    """How many more samples would show a difference, of the metric that needs the fewest."""
    most = max(row.paired.n for row in rows)
    needed = [(row.more, row) for row in rows if row.more and row.paired.n * 2 >= most]
    if not needed:
        return ""
    more, row = min(needed, key=lambda pair: pair[0])
    true = f"if the true difference is {row.paired.difference:+z.2g} in {name_figure(row)}"
    return f"; {true}, about {round_up(more):,} more samples would confirm it"


def groups_of(comparison: Comparison, row: MetricComparison) -> dict[str, list[GroupFigure]]:
    """The differences of a row by group, for each field that splits them."""
    by_field: dict[str, list[GroupFigure]] = {}
    for group in comparison.groups:
        if (group.metric, group.other) == (row.metric, row.other):
            by_field.setdefault(group.by, []).append(group)
    return by_field


def _where(comparison: Comparison, row: MetricComparison) -> str:
    """The group with most of the difference, of the first field that has one; "" if none has."""
    for by, figures in groups_of(comparison, row).items():
        if (main := main_group(figures)) is not None:
            return f"{by} {main or 'unnamed'}"
    return ""

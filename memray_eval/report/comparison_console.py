"""Renders a comparison as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from memray_eval.analysis.comparing.models import (
    AdjustedDifference,
    CommonUnits,
    Comparison,
    MetricComparison,
)
from memray_eval.analysis.marks import NOTHING, name_figure
from memray_eval.report.comparison_verdict import is_found, verdict
from memray_eval.report.pairs_console import judge_lines, leader_in_words
from memray_eval.report.sections import Part, Table, append_column, ends, figure, lines_of

GROUPS_SHOWN = 10
ADJUSTED_TITLE = (
    "adjusted to people's labels (Rogan-Gladen takes it that the judge errs on both sides alike)"
)
ADJUSTED_HEADS = ("metric", "n", "A", "{letter}", "{letter}-A", "95% of {letter}-A", "labels")


def render(comparison: Comparison, n_flips: int | None = None) -> str:
    """Renders what each comparison says and warnings first, then two tables per candidate, where
    they differ, and the first `n_flips` units that changed (None: all that the comparison
    lists)."""
    return "\n".join(lines_of(_parts(comparison, n_flips))) + "\n"


def _parts(comparison: Comparison, n_flips: int | None) -> Iterator[Part]:
    yield f"A: {comparison.baseline}"
    yield from (f"{common.letter}: {common.other}" for common in comparison.common)
    yield ""
    for common in comparison.common:
        yield from wrap(
            verdict(comparison, common), 80, break_on_hyphens=False, break_long_words=False
        )
    yield from (f"warning: {warning}" for warning in comparison.warnings)
    for common in comparison.common:
        rows = [metric for metric in comparison.metrics if metric.other == common.other]
        other = common.letter
        yield from ("", f"{other} against A: {common.n} common units", "")
        level = f"{comparison.settings.level:.0%} of {other}-A"
        heads = ("metric", "n", "A", other, f"{other}-A", level, "p", "p Holm")
        marks = ["", *(row.mark for row in rows)]
        yield Table(append_column([heads, *map(_difference_row, rows)], marks))
        yield ""
        head = (
            "metric",
            "stderr",
            "d",
            "win/tie/loss",
            "flips",
            "only A",
            f"only {other}",
            "detectable",
        )
        yield Table(append_column([head, *map(_detail_row, rows)], marks))
        yield from _adjusted_lines(comparison, common)
        yield from _group_lines(comparison, rows)
        yield from (line for row in rows for line in _flip_lines(row, n_flips))
    for criterion in comparison.pairs.criteria if comparison.pairs else ():
        yield from ("", *wrap(f"pairs: {leader_in_words(criterion)}", 80))
        yield from (f"  {line}" for told in judge_lines(criterion) for line in wrap(told, 78))
    yield from ("", *_legend(comparison))


def _difference_row(row: MetricComparison) -> Sequence[str]:
    found = row.paired
    means = (figure(found.mean_a), figure(found.mean_b), figure(found.difference, "+z.4f"))
    return (
        name_figure(row),
        str(found.n),
        *means,
        ends(found.low, found.high) or NOTHING,
        figure(found.p_value),
        figure(row.p_holm),
    )


def _detail_row(row: MetricComparison) -> Sequence[str]:
    found = row.paired
    return (
        name_figure(row),
        figure(found.stderr),
        figure(found.effect_size, "+z.2f"),
        f"{found.wins}/{found.ties}/{found.losses}",
        NOTHING if row.flips_up is None else f"+{row.flips_up} -{row.flips_down}",
        str(row.only_a),
        str(row.only_b),
        figure(found.detectable),
    )


def _adjusted_lines(comparison: Comparison, common: CommonUnits) -> Iterator[Part]:
    """The differences as people would see them, where labels were given."""
    rows = [one for one in comparison.adjusted if one.other == common.other]
    if not rows:
        return
    yield ""
    yield ADJUSTED_TITLE
    heads = tuple(head.format(letter=common.letter) for head in ADJUSTED_HEADS)
    if cells := [adjusted_row(one) for one in rows if not one.refused]:
        yield Table([heads, *cells])
    yield from (
        f"{one.metric}: not adjusted by {one.labelled}: {one.refused}"
        for one in rows
        if one.refused
    )


def _group_lines(comparison: Comparison, rows: Sequence[MetricComparison]) -> Iterator[Part]:
    """The differences in each group, the largest first; of metrics that differ beyond chance, or of
    the first where none does."""
    found = [row for row in rows if is_found(row, comparison.settings.level)] or list(rows[:1])
    for row in found:
        groups = [
            one
            for one in comparison.groups
            if (one.metric, one.other, one.by) == (row.metric, row.other, comparison.by)
        ]
        if len(groups) < 2:
            continue
        largest = sorted(groups, key=lambda one: -abs(one.difference))
        cells = [
            (
                one.group or f"(no {comparison.by})",
                str(one.n),
                figure(one.difference, "+z.4f"),
                ends(one.low, one.high) or NOTHING,
                "*" if one.is_shown else "",
            )
            for one in largest[:GROUPS_SHOWN]
        ]
        yield from (
            "",
            f"{name_figure(row)} by {comparison.by} (* beyond chance, over all groups):",
        )
        yield Table(cells)
        if (rest := len(largest) - GROUPS_SHOWN) > 0:
            yield f"and {rest} smaller differences"


def _flip_lines(row: MetricComparison, n_flips: int | None) -> Iterator[str]:
    shown, mark = row.flips[:n_flips], f" ({row.mark})" if row.mark else ""
    if shown and row.flips_up is not None:
        yield from ("", f"{row.metric}, flipped units{mark}:")
        yield from (
            f"  {'+' if flip.direction == 'up' else '-'} {flip.sample_id} {flip.task}".rstrip()
            for flip in shown
        )
    elif shown:
        yield from ("", f"{row.metric}, units that changed most{mark}:")
        yield from (
            f"  {flip.a:g} -> {flip.b:g}  {flip.sample_id} {flip.task}".rstrip() for flip in shown
        )


def _legend(comparison: Comparison) -> Iterator[str]:
    how = comparison.settings
    yield f"{how_measured(comparison)}."
    yield (
        "p: sign-flip permutation test, two-sided; Holm: corrected over all rows. d: Cohen's, of "
        "the differences."
    )
    yield (
        f"detectable: the smallest true difference found {how.power:.0%} of the time. win: A is "
        "lower."
    )
    if comparison.groups:
        yield (
            f"by group: intervals of {how.level:.0%} over all {len(comparison.groups):,} groups of "
            "metrics and fields together (Bonferroni)."
        )
    yield (
        "flips: units from 0 to 1 and from 1 to 0. only A: common units that have a score in A "
        "alone."
    )


def how_measured(comparison: Comparison) -> str:
    """Says how the standard errors and intervals were computed."""
    clusters = [
        row.paired.n_clusters for row in comparison.metrics if row.paired.n_clusters is not None
    ]
    field = comparison.cluster
    errors = (
        f"clustered by {field} (CR1, {max(clusters, default=0)} clusters)"
        if field
        else "plain, units independent"
    )
    of_shares = (
        "" if field else "; of metrics of 0 and 1 Tango's (differences) and Wilson's (means)"
    )
    kind = "bootstrap (BCa, expanded)" if comparison.settings.bootstrap else f"Student{of_shares}"
    return f"Standard errors: {errors}. Intervals: {kind}"


def adjusted_row(one: AdjustedDifference) -> tuple[str, ...]:
    """The cells of an adjusted difference, under ADJUSTED_HEADS."""
    return (
        one.metric,
        f"{one.n:,}",
        figure(one.mean_a),
        figure(one.mean_b),
        figure(one.difference, "+z.4f"),
        ends(one.low, one.high) or NOTHING,
        f"{one.n_labels:,} of {one.labelled} ({one.method})",
    )

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
        yield from (f"  {line}" for text in judge_lines(criterion) for line in wrap(text, 78))
    yield from ("", *_legend(comparison))


def _difference_row(row: MetricComparison) -> Sequence[str]:
    paired = row.paired
    means = (figure(paired.mean_a), figure(paired.mean_b), figure(paired.difference, "+z.4f"))
    return (
        name_figure(row),
        str(paired.n),
        *means,
        ends(paired.low, paired.high) or NOTHING,
        figure(paired.p_value),
        figure(row.p_holm),
    )


def _detail_row(row: MetricComparison) -> Sequence[str]:
    paired = row.paired
    return (
        name_figure(row),
        figure(paired.stderr),
        figure(paired.effect_size, "+z.2f"),
        f"{paired.wins}/{paired.ties}/{paired.losses}",
        NOTHING if row.flips_up is None else f"+{row.flips_up} -{row.flips_down}",
        str(row.only_a),
        str(row.only_b),
        figure(paired.detectable),
    )


def _adjusted_lines(comparison: Comparison, common: CommonUnits) -> Iterator[Part]:
    """The differences as people would see them, where labels were given."""
    rows = [difference for difference in comparison.adjusted if difference.other == common.other]
    if not rows:
        return
    yield ""
    yield ADJUSTED_TITLE
    heads = tuple(head.format(letter=common.letter) for head in ADJUSTED_HEADS)
    if cells := [adjusted_row(difference) for difference in rows if not difference.refused]:
        yield Table([heads, *cells])
    yield from (
        f"{difference.metric}: not adjusted by {difference.labelled}: {difference.refused}"
        for difference in rows
        if difference.refused
    )


def _group_lines(comparison: Comparison, rows: Sequence[MetricComparison]) -> Iterator[Part]:
    """The differences in each group, the largest first; of metrics that differ beyond chance, or of
    the first where none does."""
    listed = [row for row in rows if is_found(row, comparison.settings.level)] or list(rows[:1])
    for row in listed:
        groups = [
            group
            for group in comparison.groups
            if (group.metric, group.other, group.by) == (row.metric, row.other, comparison.by)
        ]
        if len(groups) < 2:
            continue
        largest = sorted(groups, key=lambda group: -abs(group.difference))
        cells = [
            (
                group.group or f"(no {comparison.by})",
                str(group.n),
                figure(group.difference, "+z.4f"),
                ends(group.low, group.high) or NOTHING,
                "*" if group.is_shown else "",
            )
            for group in largest[:GROUPS_SHOWN]
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


def adjusted_row(difference: AdjustedDifference) -> tuple[str, ...]:
    """The cells of an adjusted difference, under ADJUSTED_HEADS."""
    return (
        difference.metric,
        f"{difference.n:,}",
        figure(difference.mean_a),
        figure(difference.mean_b),
        figure(difference.difference, "+z.4f"),
        ends(difference.low, difference.high) or NOTHING,
        f"{difference.n_labels:,} of {difference.labelled} ({difference.method})",
    )

"""Renders a comparison as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from memray_eval.analysis.comparing.models import CommonUnits, Comparison, MetricComparison
from memray_eval.analysis.marks import NOTHING, name_figure
from memray_eval.analysis.statistics import Interval
from memray_eval.report.comparison_verdict import is_found, verdict
from memray_eval.report.pairs_console import judge_lines, leader_in_words
from memray_eval.report.sections import (
    Cell,
    Content,
    Row,
    Section,
    Table,
    append_column,
    ends,
    figure,
    lines_of,
)

GROUPS_SHOWN = 10
ADJUSTED_TITLE = (
    "adjusted to people's labels (Rogan-Gladen takes it that the judge errs on both sides alike)"
)


def render(comparison: Comparison, n_flips: int | None = None) -> str:
    """Renders what each comparison says and warnings first, then two tables per candidate, where
    they differ, and the first `n_flips` units that changed (None: all that the comparison
    lists)."""
    return "\n".join(lines_of(_parts(comparison, n_flips))) + "\n"


def _parts(comparison: Comparison, n_flips: int | None) -> Iterator[Content]:
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
        yield from ("", f"{common.letter} against A: {common.n} common units", "")
        yield from lines_of(figures_section(comparison, common).parts)
        if adjusted := adjusted_section(comparison, common):
            yield from ("", adjusted.title, *adjusted.lines())
        yield from _group_lines(comparison, rows)
        yield from (line for row in rows for line in _flip_lines(row, n_flips))
    for criterion in comparison.pairs.criteria if comparison.pairs else ():
        yield from ("", *wrap(f"pairs: {leader_in_words(criterion)}", 80))
        yield from (f"  {line}" for text in judge_lines(criterion) for line in wrap(text, 78))
    yield from ("", *_legend(comparison))


def figures_section(comparison: Comparison, common: CommonUnits) -> Section:
    """Two tables of all figures of a side: the differences, and how sure they are."""
    rows = [metric for metric in comparison.metrics if metric.other == common.other]
    other, marks = common.letter, ["", *(row.mark for row in rows)]
    level = f"{comparison.settings.level:.0%} of {other}-A"
    differences: list[Row] = [("metric", "n", "A", other, f"{other}-A", level, "p", "p Holm")]
    certainty: list[Row] = [
        ("metric", "stderr", "d", "win/tie/loss", "flips", "only A", f"only {other}",
         "detectable", "p BH"),
    ]  # fmt: skip
    for row in rows:
        name, paired = name_figure(row), row.paired
        differences.append((
            name,
            str(paired.n),
            Cell(figure(paired.mean_a), hint=_describe_ends(row.interval_a)),
            Cell(figure(paired.mean_b), hint=_describe_ends(row.interval_b)),
            figure(paired.difference, "+z.4f"),
            ends(paired.low, paired.high) or NOTHING,
            figure(paired.p_value),
            figure(row.p_holm),
        ))  # fmt: skip
        certainty.append((
            name,
            figure(paired.stderr),
            figure(paired.effect_size, "+z.2f"),
            f"{paired.wins}/{paired.ties}/{paired.losses}",
            NOTHING if row.flips_up is None else f"+{row.flips_up} -{row.flips_down}",
            str(row.only_a),
            str(row.only_b),
            figure(paired.detectable),
            figure(row.p_fdr),
        ))  # fmt: skip
    tables = [Table(append_column(rows, marks)) for rows in (differences, certainty)]
    return Section(common.other, [tables[0], "", tables[1]])


def _describe_ends(interval: Interval | None) -> str:
    return "" if interval is None else ends(interval.low, interval.high, "z.4f")


def adjusted_section(comparison: Comparison, common: CommonUnits) -> Section | None:
    """The differences as people would see them; None if no labels were given."""
    adjusted = [row for row in comparison.adjusted if row.other == common.other]
    if not adjusted:
        return None
    letter = common.letter
    rows: list[Row] = [("metric", "n", "A", letter, f"{letter}-A", f"95% of {letter}-A", "labels")]
    rows += [
        (
            row.metric,
            f"{row.n:,}",
            figure(row.mean_a),
            figure(row.mean_b),
            figure(row.difference, "+z.4f"),
            ends(row.low, row.high) or NOTHING,
            f"{row.n_labels:,} of {row.labelled} ({row.method})",
        )
        for row in adjusted
        if not row.refused
    ]
    refused = [
        f"{row.metric}: not adjusted by {row.labelled}: {row.refused}"
        for row in adjusted
        if row.refused
    ]
    return Section(ADJUSTED_TITLE, [*([Table(rows)] if len(rows) > 1 else []), *refused])


def _group_lines(comparison: Comparison, rows: Sequence[MetricComparison]) -> Iterator[Content]:
    """The differences in each group, the largest first; of metrics that differ beyond chance, or of
    the first if none does."""
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
        "p: sign-flip permutation test, two-sided; Holm, BH: corrected over all rows. d: Cohen's, "
        "of the differences."
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
    """The method of the standard errors and intervals."""
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

"""Renders a comparison as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from memray_eval.analysis.comparing.models import (
    CommonUnits,
    Comparison,
    GroupDifference,
    MetricComparison,
    Standing,
)
from memray_eval.analysis.marks import NOTHING, append_mark, name_figure
from memray_eval.analysis.statistics import Interval
from memray_eval.analysis.where import LEAST, LENGTH
from memray_eval.report.comparison_verdict import verdict
from memray_eval.report.pairs_console import judge_lines, leader_in_words
from memray_eval.report.sections import (
    Cell,
    Content,
    Row,
    Section,
    Table,
    append_column,
    count_span,
    ends,
    figure,
    fit_tables,
    lines_of,
)

GROUPS_SHOWN = 10
BEST = "*"
ADJUSTED_TITLE = (
    "adjusted to people's labels (Rogan-Gladen takes it that the judge errs on both sides alike)"
)


def render(comparison: Comparison, n_flips: int | None = None, is_split: bool = False) -> str:
    """Renders what each comparison says and warnings first, then two tables per candidate, where
    they differ (`is_split`: all groups of the field `by`), and the first `n_flips` units that
    changed (None: all that the comparison lists)."""
    return "\n".join(lines_of(_parts(comparison, n_flips, is_split))) + "\n"


def _parts(comparison: Comparison, n_flips: int | None, is_split: bool) -> Iterator[Content]:
    for common in comparison.common:
        yield from wrap(
            verdict(comparison, common), 80, break_on_hyphens=False, break_long_words=False
        )
    yield ""
    yield f"A: {comparison.with_title(comparison.baseline)}"
    for common in comparison.common:
        yield f"{common.letter}: {comparison.with_title(common.other)}"
    if matrix := matrix_section(comparison):
        yield from ("", *matrix.lines())
    yield from (f"warning: {warning}" for warning in comparison.warnings)
    for common in comparison.common:
        rows = [metric for metric in comparison.metrics if metric.other == common.other]
        yield from ("", f"{common.letter} against A: {common.n} common units", "")
        yield from lines_of(figures_section(comparison, common).parts)
        if adjusted := adjusted_section(comparison, common):
            yield from ("", adjusted.title, *adjusted.lines())
        yield from _group_lines(comparison, common, rows if is_split else ())
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


def matrix_section(comparison: Comparison) -> Section | None:
    """The figures of all sides, a row a side and a column a metric; None of two sides."""
    rows = {(row.side, row.metric): row for row in comparison.matrix}
    if not rows:
        return None
    sides = (comparison.baseline, *comparison.others)
    metrics = dict.fromkeys(row.metric for row in comparison.matrix)
    columns = []
    for metric in metrics:
        of_metric = [rows[side, metric] for side in sides]
        name = append_mark(name_figure(of_metric[0]), of_metric[0].mark and "est.")
        columns.append((name, *map(_standing, of_metric)))
    ns = [row.n for row in comparison.matrix]
    return Section("all candidates", [
        *fit_tables(("", *map(comparison.shown_as, sides)), columns),
        *wrap(
            f"{BEST} the best, or not shown to be below it (paired t-tests, Holm over metrics and "
            f"pairs of candidates); on the {count_span(ns, ',')} units that all have scored.", 80
        ),
    ])  # fmt: skip


def _standing(row: Standing) -> Cell:
    mark = BEST if row.is_best else " "
    return Cell(f"{row.value:z.3f}{mark}", hint=ends(row.low, row.high, "z.4f"))


def _group_lines(
    comparison: Comparison, common: CommonUnits, split: Sequence[MetricComparison]
) -> Iterator[Content]:
    """The groups that stand out, themes before lengths, the largest difference first; and every
    group of `comparison.by` of the metrics `split`."""
    groups = [group for group in comparison.groups if group.other == common.other]
    overall = {
        row.metric: row.paired.difference for row in comparison.metrics if row.other == common.other
    }
    shown = sorted(
        (group for group in groups if group.is_shown),
        key=lambda group: (group.by == LENGTH, -abs(group.difference)),
    )
    if n := sum(group.n >= LEAST for group in groups):
        where = f"where {common.letter}-A is not as over all units"
        none = f"none of the {n:,} groups of {LEAST} units or more is told from all units"
        yield from ("", f"{where}:" if shown else f"{where}: {none}")
    if shown:
        head = ("", "n", f"{common.letter}-A", "interval", "over all")
        cells = [
            (
                f"{group.metric}, {group.by} {group.group or '(none)'}",
                *_group_cells(group),
                figure(overall[group.metric], "+z.4f"),
            )
            for group in shown[:GROUPS_SHOWN]
        ]
        yield Table([head, *cells])
        if (rest := len(shown) - GROUPS_SHOWN) > 0:
            yield f"and {rest} more"
    for row in split:
        of_row = [group for group in groups if group.metric == row.metric]
        of_row = [group for group in of_row if group.by == comparison.by]
        if len(of_row) < 2:
            continue
        largest = sorted(of_row, key=lambda group: -abs(group.difference))
        yield from ("", f"{name_figure(row)} by {comparison.by} (* told from all units):")
        yield Table([
            (group.group or f"(no {comparison.by})", *_group_cells(group), "*" * group.is_shown)
            for group in largest
        ])  # fmt: skip


def _group_cells(group: GroupDifference) -> tuple[str, str, str]:
    between = ends(group.low, group.high) or NOTHING
    return str(group.n), figure(group.difference, "+z.4f"), between


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
    if any(group.n >= LEAST for group in comparison.groups):
        yield (
            f"where: groups of {LEAST} units or more that are told from all units (t-test, Holm "
            f"over all groups); intervals of {how.level:.0%} over all (Bonferroni)."
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

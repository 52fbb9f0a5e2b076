"""Renders a comparison as one HTML file: differences, figures, warnings, and what changed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from memray_eval.analysis.comparing import CommonUnits, Compared, Flip, MetricComparison
from memray_eval.analysis.marks import append_mark, name_figure
from memray_eval.analysis.statistics import Interval
from memray_eval.analysis.where import sort_splits
from memray_eval.report.comparison_console import (
    Texts,
    figures_section,
    how_measured,
    how_pairs_measured,
    matrix_section,
    pair_sections,
    records_of,
    splits_of,
    verdict,
    verdict_of_all,
)
from memray_eval.report.html.page import asset, render_page
from memray_eval.report.html.plots import Axis, forest_axis, forest_row
from memray_eval.report.html.view_model import LEAST_SPAN, doubts_of_comparison, draw_places
from memray_eval.report.html.why import MEANS, WhyRow, describe_answer, shorten
from memray_eval.report.sections import ends, figure, label


def render_comparison(
    comparison: Compared, texts: Texts, compared: Sequence[Mapping[str, str]] = ()
) -> str:
    """Renders the page. One that is served has for each of its sides (`compared`) the letter, the
    name, the address of its `run`, and those of the comparison with it `as_baseline` and `without`
    it, "" if there is none."""
    against = [_compare_with_baseline(comparison, common, texts) for common in comparison.common]
    return render_page(
        "comparison.html",
        ("theme.js", "marks.js", "judgment.js", "regions.js", "comparison.js"),
        comparison=comparison,
        against=against,
        doubts=list(doubts_of_comparison(comparison)),
        links=list(_links(comparison, against)),
        baseline=comparison.shown_as(comparison.baseline),
        names=[comparison.shown_as(name) for name in comparison.others],
        says=verdict_of_all(comparison),
        how_measured=how_measured(comparison),
        matrix=matrix_section(comparison),
        own_style=Markup(asset("comparison.css") + (asset("served.css") if compared else "")),
        level=f"{comparison.settings.level:.0%}",
        alpha=f"{1 - comparison.settings.level:.0%}",
        power=f"{comparison.settings.power:.0%}",
        compared=compared,
        pairs=list(pair_sections(comparison.pairs)) if comparison.pairs else (),
        how_pairs=how_pairs_measured(comparison.pairs) if comparison.pairs else "",
    )


def _links(comparison: Compared, against: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Lists what else differs, and of each side the first group and the units that changed."""
    if n := len(comparison.warnings):
        yield f"what else differs ({n})", "#warnings"
    for side in against:
        letter, of = side["common"].letter, f" of {side['name']}" * (len(against) > 1)
        for panel in side["places"]["panels"][:1] if side["places"] else ():
            split = panel["split"]
            yield f"{label(split.metric)} by {label(split.by)}{of}", f"#where-{letter}"
        for first in side["changed"][:1]:
            if first["is_found"]:
                yield f"answers that changed on {first['metric']}{of}", f"#changed-{letter}"


def _compare_with_baseline(
    comparison: Compared, common: CommonUnits, texts: Texts
) -> dict[str, Any]:
    """One side against the baseline; `changed` are of the metrics that differ beyond chance, or of
    the first if none does, `changed_rest` of the others."""
    rows, scales = comparison.rows_of(common.other), comparison.scales
    drawn = [row for row in rows if row.metric in scales and row.paired.difference is not None]
    # one axis for all metrics, with zero in its middle
    ends = [abs(end) for row in drawn for end in _shares_of_scale(row, scales[row.metric])]
    span = max(LEAST_SPAN, *ends) * 1.06 if ends else LEAST_SPAN
    axis = Axis(-span, span, 12, 308)
    listed = [_changed(row, comparison, texts) for row in rows if row.flips]
    listed.sort(key=lambda units: not units["is_found"])
    alpha = 1 - comparison.settings.level
    differences = [_difference(row, scales[row.metric], axis, alpha) for row in drawn]
    names = {row.metric for row in drawn}
    splits = [split for split in splits_of(comparison, common) if split.metric in names]
    n_shown = max(1, sum(units["is_found"] for units in listed))
    return {
        "common": common,
        "name": comparison.shown_as(common.other),
        "says": verdict(comparison, common),
        "differences": differences,
        "axis": forest_axis(axis),
        "without_scale": [row.metric for row in rows if row not in drawn],
        "places": draw_places(sort_splits(splits)),
        "changed": listed[:n_shown],
        "changed_rest": listed[n_shown:],
        "figures": figures_section(comparison, common),
    }


def _shares_of_scale(row: MetricComparison, scale: tuple[float, float]) -> list[float]:
    """A difference and the ends of its interval, if it has one, as shares of the metric's scale."""
    values = (row.paired.difference, *(row.corrected or (row.paired.low, row.paired.high)))
    return [value / ((scale[1] - scale[0]) or 1.0) for value in values if value is not None]


def _difference(
    row: MetricComparison, scale: tuple[float, float], axis: Axis, alpha: float
) -> dict[str, Any]:
    """A row of the forest plot: a metric's difference drawn in percent of its scale."""
    middle, *limits = _shares_of_scale(row, scale)
    is_told = row.is_found(1 - alpha)
    difference = figure(row.paired.difference, "+z.4f")
    between = ends(*(row.corrected or (row.paired.low, row.paired.high)))
    between += " (corrected)" if row.corrected else ""
    hint = f"{row.metric}: {difference} {between}".rstrip()
    direction = ("higher" if middle > 0 else "lower") if is_told else "may be chance"
    direction = "not compared" if row.is_undecided else direction
    return {
        "of": row,
        "plot": forest_row(middle, Interval(*limits) if limits else None, axis, is_told, hint),
        "figure": difference,
        "interval": between,
        "verdict": append_mark(direction, row.remarks and f"({row.remarks})"),
        "is_found": is_told,
    }


def _changed(row: MetricComparison, comparison: Compared, texts: Texts) -> dict[str, Any]:
    """The changed units of one metric that are listed."""
    what = "that changed most" if row.flips_up is None else "that went from 0 to 1 or back"
    n = row.paired.wins + row.paired.losses
    has_epochs = any(len(answers) > 1 for of in texts.values() for answers in of.values())
    return {
        "metric": append_mark(name_figure(row), row.mark and f"({row.mark})"),
        "note": f"{len(row.flips):,} of {n:,} answers {what}{MEANS * has_epochs}",
        "is_found": row.is_found(comparison.settings.level),
        "units": [_changed_row(flip, row, comparison, texts) for flip in row.flips],
    }


def _changed_row(flip: Flip, row: MetricComparison, comparison: Compared, texts: Texts) -> WhyRow:
    first, second = records_of(comparison, row, flip, texts)
    query = next((record.sample.query for record in (first, second) if record), "")
    a = describe_answer(f"A: {comparison.shown_as(comparison.baseline)}", first, row.metric)
    b = describe_answer(f"{row.letter}: {comparison.shown_as(row.other)}", second, row.metric)
    change = f"{flip.a:.4g} → {flip.b:.4g}"
    return WhyRow(flip.sample_id, flip.task, shorten(query), change, flip.direction, (a, b))

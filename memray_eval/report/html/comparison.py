"""Renders a comparison as one HTML file: a forest plot of the differences, every figure, warnings,
and the texts of the units that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from memray_eval.report.comparing.console import how_measured
from memray_eval.report.comparing.models import CommonUnits, Comparison, Flip, MetricComparison
from memray_eval.report.comparing.verdict import is_found, verdict
from memray_eval.report.html.page_renderer import asset, render_page, write_page
from memray_eval.report.html.plots import Axis, forest_axis, forest_row
from memray_eval.report.html.view_model import Cell, Grid, label, number
from memray_eval.report.marks import NOTHING, append_mark, name_figure
from memray_eval.report.scores import Text
from memray_eval.report.statistics import Interval

MOST_CHARACTERS = 20_000  # shown of one answer; the rest is only in the run
# of a scale, to both sides of zero, so that a tiny difference does not look large
_LEAST_SPAN = 0.05
Scales = Mapping[str, tuple[float, float]]  # by metric
Texts = Mapping[str, Mapping[tuple[str, str], Text]]  # by side, then by sample id and task


class Difference(NamedTuple):
    """A row of the forest plot: a metric's difference drawn in percent of its scale, and in the
    metric's own figures."""

    metric: str
    plot: Markup
    figure: str
    interval: str
    p: str
    verdict: str
    is_found: bool


class Changed(NamedTuple):
    """A unit that changed, with both answers."""

    flip: Flip
    query: str
    a: str
    b: str


class ChangedUnits(NamedTuple):
    """The changed units of one metric that are listed."""

    metric: str
    note: str
    units: tuple[Changed, ...]


class Against(NamedTuple):
    """One candidate against the baseline. `says` is the comparison in a sentence, and `groups` the
    differences by group of the metrics that differ."""

    common: CommonUnits
    says: str
    groups: tuple[Grid, ...]
    differences: tuple[Difference, ...]
    axis: Markup
    without_scale: tuple[str, ...]
    figures: Grid
    changed: tuple[ChangedUnits, ...]


class ComparedSide(NamedTuple):
    """A side of a comparison that is served: its letter and name, the address of its run, and those
    of the comparison with it as baseline and without it ("" where there is none)."""

    letter: str
    name: str
    run: str
    as_baseline: str
    without: str


def write_comparison(comparison: Comparison, scales: Scales, texts: Texts, path: str) -> None:
    """Writes the page to a path or cloud URL. Raises ConfigError for a place that cannot be
    written."""
    write_page(render_comparison(comparison, scales, texts), path, "--html")


def render_comparison(
    comparison: Comparison, scales: Scales, texts: Texts, compared: Sequence[ComparedSide] = ()
) -> str:
    """Renders the page. A metric without a scale appears only in the table. A page that is served
    has links for each of its sides (`compared`)."""
    return render_page(
        "comparison.html",
        ("theme.js", "comparison.js"),
        comparison=comparison,
        against=[
            _compare_with_baseline(comparison, common, scales, texts)
            for common in comparison.common
        ],
        baseline=comparison.shown_as(comparison.baseline),
        names=[comparison.shown_as(one) for one in comparison.others],
        how_measured=how_measured(comparison),
        own_style=Markup(asset("comparison.css") + (asset("served.css") if compared else "")),
        level=f"{comparison.settings.level:.0%}",
        alpha=f"{1 - comparison.settings.level:.0%}",
        power=f"{comparison.settings.power:.0%}",
        compared=compared,
    )


def _compare_with_baseline(
    comparison: Comparison, common: CommonUnits, scales: Scales, texts: Texts
) -> Against:
    rows = [row for row in comparison.metrics if row.other == common.other]
    drawn = [row for row in rows if row.metric in scales and row.paired.difference is not None]
    # one axis for all metrics, with zero in its middle
    ends = [abs(end) for row in drawn for end in _shares_of_scale(row, scales[row.metric])]
    span = max(_LEAST_SPAN, *ends) * 1.06 if ends else _LEAST_SPAN
    axis = Axis(-span, span, 12, 308)
    return Against(
        common=common,
        says=verdict(comparison, common),
        groups=tuple(_group_grids(comparison, rows)),
        differences=tuple(
            _difference(row, scales[row.metric], axis, 1 - comparison.settings.level)
            for row in drawn
        ),
        axis=forest_axis(axis),
        without_scale=tuple(label(row.metric) for row in rows if row not in drawn),
        figures=_figures(common, rows, comparison),
        changed=tuple(
            _changed(row, texts.get(comparison.baseline, {}), texts.get(common.other, {}))
            for row in rows
            if row.flips
        ),
    )


def _shares_of_scale(row: MetricComparison, scale: tuple[float, float]) -> list[float]:
    """A difference and the ends of its interval, if it has one, as shares of the metric's scale."""
    width = (scale[1] - scale[0]) or 1.0
    return [
        value / width
        for value in (row.paired.difference, row.paired.low, row.paired.high)
        if value is not None
    ]


def _difference(
    row: MetricComparison, scale: tuple[float, float], axis: Axis, alpha: float
) -> Difference:
    middle, *ends = _shares_of_scale(row, scale)
    corrected = row.p_holm
    is_told = is_found(row, 1 - alpha)
    figure, between = _format_signed(row.paired.difference), _format_interval(row)
    hint = f"{label(row.metric)}: {figure} {between}".rstrip()
    return Difference(
        metric=label(name_figure(row)),
        plot=forest_row(middle, Interval(*ends) if ends else None, axis, is_told, hint),
        figure=figure,
        interval=between,
        p=_format_p(corrected),
        verdict=append_mark(
            ("higher" if middle > 0 else "lower") if is_told else "may be chance",
            row.mark and f"({row.mark})",
        ),
        is_found=is_told,
    )


def _figures(common: CommonUnits, rows: Sequence[MetricComparison], comparison: Comparison) -> Grid:
    heads = (
        "metric", "n", "A", common.letter, f"{common.letter} - A",
        f"{comparison.settings.level:.0%} interval", "detectable",
        "p", "p Holm", "p BH", "effect d", "win / tie / loss", "flips", f"only A / {common.letter}",
    )  # fmt: skip
    return Grid(
        f"{common.other} against {comparison.baseline}",
        heads,
        tuple((_label_with_mark(row), _cells(row)) for row in rows),
    )


def _group_grids(comparison: Comparison, rows: Sequence[MetricComparison]) -> Iterator[Grid]:
    """The differences by group of the metrics that differ beyond chance, the largest first."""
    for row in rows:
        of_metric = (row.metric, row.other)
        groups = [one for one in comparison.groups if (one.metric, one.other) == of_metric]
        if len(groups) < 2 or not is_found(row, comparison.settings.level):
            continue
        cells = tuple(
            (
                label(one.group) or f"no {comparison.by}",
                (
                    Cell(f"{one.n:,}"),
                    Cell(_format_signed(one.difference)),
                    Cell(_format_between(one.low, one.high) or NOTHING),
                    Cell("beyond chance" if one.is_shown else "may be chance"),
                ),
            )
            for one in sorted(groups, key=lambda one: -abs(one.difference))
        )
        heads = (comparison.by or "", "n", f"{row.letter} - A", "interval", "")
        yield Grid(f"{label(name_figure(row))} by {comparison.by}", heads, cells)


def _label_with_mark(row: MetricComparison) -> str:
    return label(name_figure(row)) + (f" ({row.mark})" if row.mark else "")


def _cells(row: MetricComparison) -> tuple[Cell, ...]:
    found = row.paired
    flips = NOTHING if row.flips_up is None else f"+{row.flips_up} / -{row.flips_down}"
    texts = (
        f"{found.n:,}", number(found.mean_a, 4), number(found.mean_b, 4),
        _format_signed(found.difference), _format_interval(row) or NOTHING,
        number(found.detectable, 4),
        _format_p(found.p_value), _format_p(row.p_holm), _format_p(row.p_fdr),
        _format_signed(found.effect_size, 2),
        f"{found.wins:,} / {found.ties:,} / {found.losses:,}", flips,
        f"{row.only_a:,} / {row.only_b:,}",
    )  # fmt: skip
    hints = {1: _format_ends(row.interval_a), 2: _format_ends(row.interval_b)}
    return tuple(Cell(text, None, hints.get(place, "")) for place, text in enumerate(texts))


def _changed(
    row: MetricComparison, a: Mapping[tuple[str, str], Text], b: Mapping[tuple[str, str], Text]
) -> ChangedUnits:
    found = row.paired
    what = "that changed most" if row.flips_up is None else "that went from 0 to 1 or back"
    note = f"{len(row.flips):,} of {found.wins + found.losses:,} units {what}"
    return ChangedUnits(_label_with_mark(row), note, tuple(_add_texts(row.flips, a, b)))


def _add_texts(
    flips: Sequence[Flip], a: Mapping[tuple[str, str], Text], b: Mapping[tuple[str, str], Text]
) -> Iterator[Changed]:
    for flip in flips:
        first, second = a.get((flip.sample_id, flip.task)), b.get((flip.sample_id, flip.task))
        query = (first or second or Text("", "", "")).query
        yield Changed(flip, _shorten(query), _answer_text(first), _answer_text(second))


def _answer_text(text: Text | None) -> str:
    if text is None:
        return "(not in the records)"
    return (
        f"(failed: {_shorten(text.error)})" if text.error else _shorten(text.response) or "(empty)"
    )


def _shorten(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]} … ({len(text) - MOST_CHARACTERS:,} more characters)"


def _format_signed(value: float | None, digits: int = 4) -> str:
    return NOTHING if value is None else f"{value:+.{digits}f}"


def _format_interval(row: MetricComparison) -> str:
    return _format_between(row.paired.low, row.paired.high)


def _format_between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:+.4f} to {high:+.4f}"


def _format_ends(found: Interval | None) -> str:
    return "" if found is None else f"{found.low:.4f} to {found.high:.4f}"


def _format_p(value: float | None) -> str:
    return NOTHING if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"

"""Draws the groups in which candidates differ: a small plot for each metric and field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from memray_eval.analysis.marks import digits_of
from memray_eval.analysis.statistics import Interval
from memray_eval.analysis.where import GroupFigure, Split
from memray_eval.report.html.plots import Axis, forest_axis, forest_row
from memray_eval.report.html.view_model import label

PANELS, GROUPS = 6, 6  # shown at once; the others are folded
LEAST_SPAN = 0.05  # of a scale, to both sides of 0, so that a tiny difference does not look large


class PlaceRow(NamedTuple):
    """A group: its difference in the metric's own scale, and drawn in percent of it."""

    group: str
    n: str
    plot: Markup
    difference: str
    low: str
    high: str
    is_shown: bool


class Panel(NamedTuple):
    """A split with its groups drawn, of which those after GROUPS are folded."""

    split: Split
    rows: tuple[PlaceRow, ...]
    rest: tuple[PlaceRow, ...]


class Places(NamedTuple):
    """`says` tells what the differences are, and `rest` are the panels that are folded."""

    says: str
    axis: Markup
    panels: tuple[Panel, ...]
    rest: tuple[Panel, ...]


def draw_places(splits: Sequence[Split]) -> Places | None:
    """Draws the splits in their order, groups that do not stand out folded; None without any."""
    if not splits:
        return None
    shown = [(split, group) for split in splits[:PANELS] for group in split.groups]
    shares = [abs(group.difference) / _width(split) for split, group in shown]
    span = min(1.0, max(LEAST_SPAN, 1.6 * max(shares)))
    axis = Axis(-span, span, 8, 142)
    drawn = [tuple(_row(split, group, axis) for group in split.groups) for split in splits]
    panels = []
    for split, rows in zip(splits, drawn, strict=True):
        n_shown = min(GROUPS, sum(row.is_shown for row in rows) or GROUPS)
        panels.append(Panel(split, rows[:n_shown], rows[n_shown:]))
    n = min(PANELS, sum(split.is_shown for split in splits))
    return Places(_meaning(splits), forest_axis(axis), tuple(panels[:n]), tuple(panels[n:]))


def _meaning(splits: Sequence[Split]) -> str:
    if not splits[0].against:
        return f"Each group's figure of {splits[0].of} less its figure over all units"
    pairs = dict.fromkeys((split.of, split.against) for split in splits)
    if len(pairs) == 1:
        return f"{splits[0].of} less {splits[0].against} on the units that both have"
    return "The candidate with the highest figure less the one with the lowest"


def _width(split: Split) -> float:
    return (split.scale[1] - split.scale[0]) or 1.0


def _row(split: Split, group: GroupFigure, axis: Axis) -> PlaceRow:
    width, digits = _width(split), digits_of(split.scale)
    ends = group.interval and Interval(*(end / width for end in group.interval))
    name = label(group.group) or f"no {label(split.by)}"
    figure = f"{group.difference:+z.{digits}f}"
    low, high = (f"{end:+z.{digits}f}" for end in group.interval) if group.interval else ("", "")
    hint = f"{name}: {figure}" + (f" between {low} and {high}" if low else "")
    plot = forest_row(group.difference / width, ends, axis, group.is_shown, hint)
    return PlaceRow(name, f"{group.n:,}", plot, figure, low, high, group.is_shown)

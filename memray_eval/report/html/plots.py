"""Plots as inline SVG, drawn without a library: every text and attribute is escaped, and colours
are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from memray_eval.report.statistics import Interval

# Of a plot with axes: narrow, so that its text stays readable on a phone
_WIDTH, _HEIGHT = (
    420,
    270,
)
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 14, 40
_SERIES = 6  # colours for lines; more series take them again


class Point(NamedTuple):
    """A candidate in the plane of speed and quality, with the interval of its quality."""

    label: str
    x: float
    y: float
    interval: Interval | None = None
    is_best: bool = False


class Line(NamedTuple):
    """A line of a plot against temperature: a model and prompt, and at each temperature its mean
    and interval."""

    name: str
    points: tuple[tuple[float, float, Interval | None], ...]


class Axis(NamedTuple):
    """A range in the data's units, laid over pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 2)


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """An element: `class_` and `text_anchor` become class and text-anchor; children that are not
    Markup are escaped."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{pairs}>{Markup('').join(children)}</{name}>")  # all of it escaped above


def interval(mean: float, found: Interval | None, scale: tuple[float, float]) -> Markup:
    """A mean on its metric's scale as a dot, with its interval as a bar."""
    axis = Axis(*scale, 6, 154)
    parts = [tag("line", class_="rail", x1=6, x2=154, y1=11, y2=11)]
    if found is not None:
        parts.append(
            tag("line", class_="bar", x1=axis.at(found.low), x2=axis.at(found.high), y1=11, y2=11)
        )
    parts.append(tag("circle", class_="dot", cx=axis.at(mean), cy=11, r=3.5))
    spread = "" if found is None else f", between {found.low:.3f} and {found.high:.3f}"
    return drawing(
        160,
        22,
        f"{mean:.3f}{spread}, on a scale of {scale[0]:g} to {scale[1]:g}",
        parts,
        "interval",
    )


def distribution(counts: Mapping[str, int]) -> Markup:
    """How many units got which score, from the lowest to the highest, as bars (the summary lists
    the best first)."""
    bins = list(counts.items())[::-1]
    step, most = 120 / max(1, len(bins)), max(counts.values(), default=0) or 1
    bars = []
    for place, (name, count) in enumerate(bins):
        height = max(1.0, round(30 * count / most, 2)) if count else 0.6
        x, width = round(place * step + 1, 2), round(step - 2, 2)
        hint = tag("title", f"{name}: {count}")
        bars.append(
            tag(
                "rect",
                hint,
                class_="bin" if count else "bin none",
                x=x,
                y=32 - height,
                width=width,
                height=height,
            )
        )
    return drawing(
        120, 34, "; ".join(f"{name}: {count}" for name, count in bins), bars, "distribution"
    )


def speed_quality(
    points: Sequence[Point],
    x_name: str = "output tokens per second",
    y_name: str = "quality",
    unit: str = "tokens/s",
) -> Markup:
    """Tokens per second, or another `x_name`, against quality 0-100, a dot a candidate, whiskers
    where its interval is known. At least one point; names stand above and below in turn, so that
    neighbours' do not meet."""
    ends = [end for point in points for end in (point.interval or (point.y,))]
    y = Axis(max(0.0, min(ends) - 10), min(100.0, max(ends) + 10), _HEIGHT - _BOTTOM, _TOP)
    x = Axis(
        min(point.x for point in points) * 0.85,
        max(point.x for point in points) * 1.1,
        _LEFT,
        _WIDTH - _RIGHT,
    )
    parts = list(_grid(x, y, x_name, y_name))
    for place, point in enumerate(sorted(points, key=lambda point: point.x)):
        at_x, at_y = x.at(point.x), y.at(point.y)
        if point.interval is not None:
            low, high = y.at(point.interval.low), y.at(point.interval.high)
            parts.append(tag("line", class_="bar", x1=at_x, x2=at_x, y1=low, y2=high))
        hint = tag("title", f"{point.label}: {point.x:,.1f} {unit}, {y_name} {point.y:.1f}")
        parts.append(
            tag(
                "circle",
                hint,
                class_="dot best" if point.is_best else "dot",
                cx=at_x,
                cy=at_y,
                r=5.5,
            )
        )
        anchor, shift = ("end", -9) if at_x + 9 + 7.5 * len(point.label) > _WIDTH else ("start", 9)
        parts.append(
            tag(
                "text",
                point.label,
                class_="name",
                x=at_x + shift,
                y=at_y + (18 if place % 2 else -9),
                text_anchor=anchor,
            )
        )
    said = "; ".join(
        f"{point.label}: {point.x:,.1f} {unit}, {y_name} {point.y:.1f}" for point in points
    )
    return drawing(_WIDTH, _HEIGHT, said, parts, "plot")


def temperature_curves(metric: str, lines: Sequence[Line]) -> Markup:
    """A metric against temperature, with a line a model and prompt."""
    points = [point for line in lines for point in line.points]
    ends = [end for _, mean, found in points for end in (found or (mean,))]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = (high - low) * 0.1 or 0.05
    temperatures = [temperature for temperature, _, _ in points] or [0.0]
    x = Axis(min(temperatures), max(temperatures), _LEFT + 10, _WIDTH - _RIGHT - 10)
    y = Axis(low - margin, high + margin, _HEIGHT - _BOTTOM, _TOP)
    parts = list(_grid(x, y, "temperature", "mean"))
    for place, line in enumerate(lines):
        parts.extend(_curve(line, x, y, f"s{place % _SERIES}"))
    return drawing(_WIDTH, _HEIGHT, f"{metric} against temperature", parts, "plot")


def _curve(line: Line, x: Axis, y: Axis, colour: str) -> Iterator[Markup]:
    path = " ".join(f"{x.at(temperature)},{y.at(mean)}" for temperature, mean, _ in line.points)
    yield tag("polyline", class_=f"curve {colour}", points=path)
    for temperature, mean, found in line.points:
        at = x.at(temperature)
        if found is not None:
            yield tag(
                "line",
                class_=f"whisker {colour}",
                x1=at,
                x2=at,
                y1=y.at(found.low),
                y2=y.at(found.high),
            )
        hint = tag("title", f"temperature {temperature:g}: {mean:.4f}")
        yield tag("circle", hint, class_=f"node {colour}", cx=at, cy=y.at(mean), r=4)


def throughput(bin_s: float, counted: Mapping[str, Sequence[int]], what: str) -> Markup:
    """What was counted per second, under one or more names, over the session's own clock: a step a
    bin of `bin_s` seconds."""
    n_bins = max(map(len, counted.values()))
    rates = {name: [count / bin_s for count in counts] for name, counts in counted.items()}
    x = Axis(0.0, n_bins * bin_s, _LEFT, _WIDTH - _RIGHT)
    y = Axis(
        0.0,
        max(rate for each in rates.values() for rate in each) * 1.05 or 1.0,
        _HEIGHT - _BOTTOM,
        _TOP,
    )
    parts = list(_grid(x, y, "seconds since the session began", f"{what} per second"))
    for place, (name, each) in enumerate(rates.items()):
        steps = [
            (edge * bin_s, rate) for bin_, rate in enumerate(each) for edge in (bin_, bin_ + 1)
        ]
        path = " ".join(f"{x.at(second)},{y.at(rate)}" for second, rate in steps)
        parts.append(
            tag("polyline", tag("title", name), class_=f"curve s{place % _SERIES}", points=path)
        )
    return drawing(
        _WIDTH, _HEIGHT, f"{what} per second over time: {', '.join(counted)}", parts, "plot"
    )


def forest_row(
    difference: float, found: Interval | None, axis: Axis, is_found: bool, hint: str
) -> Markup:
    """A difference with its interval, around a line at 0; filled where it `is_found`, hollow where
    it may be chance."""
    parts = [
        tag("line", class_="rail", x1=axis.start, x2=axis.end, y1=13, y2=13),
        tag("line", class_="zero", x1=axis.at(0.0), x2=axis.at(0.0), y1=0, y2=26),
    ]
    if found is not None:
        parts.append(
            tag("line", class_="bar", x1=axis.at(found.low), x2=axis.at(found.high), y1=13, y2=13)
        )
    parts.append(
        tag("circle", class_="dot" if is_found else "dot open", cx=axis.at(difference), cy=13, r=5)
    )
    return drawing(axis.end + axis.start, 26, hint, parts, "forest")


def forest_axis(axis: Axis) -> Markup:
    """The scale below such rows, in percent."""
    parts = [
        tag(
            "text",
            f"{value * 100:+g}%" if value else "0",
            x=axis.at(value),
            y=14,
            text_anchor="middle",
        )
        for value in ticks(axis.low, axis.high, 4)
    ]
    return drawing(axis.end + axis.start, 20, "percent of the metric's scale", parts, "forest")


def _grid(x: Axis, y: Axis, x_name: str, y_name: str) -> Iterator[Markup]:
    for value in ticks(y.low, y.high):
        yield tag(
            "line", class_="rail", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y.at(value), y2=y.at(value)
        )
        yield tag("text", f"{value:g}", x=_LEFT - 7, y=y.at(value) + 4, text_anchor="end")
    for value in ticks(x.low, x.high):
        yield tag(
            "text", f"{value:g}", x=x.at(value), y=_HEIGHT - _BOTTOM + 18, text_anchor="middle"
        )
    yield tag(
        "text",
        x_name,
        class_="axis",
        x=(_LEFT + _WIDTH - _RIGHT) / 2,
        y=_HEIGHT - 5,
        text_anchor="middle",
    )
    turned = f"rotate(-90 11 {(_TOP + _HEIGHT - _BOTTOM) / 2})"
    yield tag(
        "text",
        y_name,
        class_="axis",
        x=11,
        y=(_TOP + _HEIGHT - _BOTTOM) / 2,
        text_anchor="middle",
        transform=turned,
    )


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values within a range, 1, 2 or 5 times a power of ten apart, near `about` of them."""
    span = high - low
    if span <= 0:
        return [low]
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + place) * step, 10) + 0.0 for place in range(count)]


def drawing(
    width: float, height: float, label: str, parts: Sequence[Markup], class_: str
) -> Markup:
    """Parts as one picture, which `label` tells those who do not see it."""
    return tag(
        "svg",
        *parts,
        class_=class_,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
    )

"""Plots as inline SVG, drawn without a library: every text and attribute is escaped, and colours
are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from memray_eval.analysis.statistics import Interval
from memray_eval.stages.rates import period_per_s

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


class OnScale(NamedTuple):
    """A figure on its metric's scale, with its interval."""

    name: str
    value: float
    interval: Interval | None = None
    is_estimate: bool = False


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """An element: `class_` and `text_anchor` become class and text-anchor; children that are not
    Markup are escaped."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{pairs}>{Markup('').join(children)}</{name}>")  # all of it escaped above


_SCALE = Axis(0.0, 1.0, 8, 232)  # the axis that all rows of a table of figures share
_LANE = 13  # pixels for one candidate in such a row


def scale_row(figures: Sequence[OnScale | None], scale: tuple[float, float]) -> Markup:
    """Figures of one metric below each other, a lane a candidate, their scale laid over the whole
    axis: a dot (hollow for estimates) and the interval as a bar."""
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    height = max(1, len(figures)) * _LANE + 4
    parts, hints = [], []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = _SCALE.at(share)
        parts.append(tag("line", class_="rail", x1=at, x2=at, y1=0, y2=height))
    for lane, figure in enumerate(figures):
        if figure is None:
            continue
        y, colour = 2 + _LANE * (lane + 0.5), f"s{lane % _SERIES}"
        if figure.interval is not None:
            ends = [_SCALE.at((end - low) / width) for end in figure.interval]
            parts.append(tag("line", class_=f"bar {colour}", x1=ends[0], x2=ends[1], y1=y, y2=y))
        kind = "dot open" if figure.is_estimate else "dot"
        at = _SCALE.at((figure.value - low) / width)
        parts.append(tag("circle", class_=f"{kind} {colour}", cx=at, cy=y, r=4))
        spread = (
            figure.interval and f" between {figure.interval.low:.3g} and {figure.interval.high:.3g}"
        )
        hints.append(f"{figure.name} {figure.value:.3g}{spread or ''}")
    hint = f"{'; '.join(hints) or 'no figure'}; on a scale of {scale[0]:g} to {scale[1]:g}"
    return drawing(240, height, hint, parts, "onscale")


def scale_axis() -> Markup:
    """The axis above such rows, in percent of each metric's scale."""
    parts = [
        tag("text", f"{share:.0%}", x=_SCALE.at(share), y=11, text_anchor=anchor)
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    ]
    return drawing(240, 15, "axis: percent of each metric's scale", parts, "onscale")


_BARS = 168  # pixels that all bars of a distribution share
_NAMED_BINS = 6  # up to so many bins have their names below them; of more, the ends have theirs


def distribution(counts: Mapping[str, int]) -> Markup:
    """How many units got which score, from the lowest to the highest, as bars with their counts
    above and their scores below (the summary lists the best first)."""
    bins = list(counts.items())[::-1]
    step, most = _BARS / max(1, len(bins)), max(counts.values(), default=0) or 1
    parts = [tag("line", class_="rail", x1=0, x2=_BARS, y1=43, y2=43)]
    for number, (name, count) in enumerate(bins):
        height = max(1.0, round(30 * count / most, 2)) if count else 0.6
        x, width = round(number * step + 1, 2), round(step - 2, 2)
        parts.append(
            tag(
                "rect",
                tag("title", f"{name}: {count}"),
                class_="bin" if count else "bin none",
                x=x,
                y=43 - height,
                width=width,
                height=height,
            )
        )
        middle = round(x + width / 2, 2)
        if count:
            # at most four characters, up to a million
            shown = str(count) if count < 1000 else f"{count / 1000:.{int(count < 10_000)}f}k"
            parts.append(_small(shown, middle, 40 - height))
        if len(bins) <= _NAMED_BINS:
            parts.append(_small(name, middle, 54))
    if len(bins) > _NAMED_BINS:
        low, high = bins[0][0].partition("-")[0], bins[-1][0].rpartition("-")[2]
        parts += [_small(low, 0, 54, "start"), _small(high, _BARS, 54, "end")]
    hint = "; ".join(f"{name}: {count}" for name, count in bins)
    return drawing(_BARS, 58, f"units by score: {hint}", parts, "distribution")


def _small(text: str, x: float, y: float, anchor: str = "middle") -> Markup:
    return tag("text", text, class_="small", x=x, y=round(y, 2), text_anchor=anchor)


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
    for number, point in enumerate(sorted(points, key=lambda point: point.x)):
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
                y=at_y + (18 if number % 2 else -9),
                text_anchor=anchor,
            )
        )
    hints = "; ".join(
        f"{point.label}: {point.x:,.1f} {unit}, {y_name} {point.y:.1f}" for point in points
    )
    return drawing(_WIDTH, _HEIGHT, hints, parts, "plot")


def temperature_curves(metric: str, lines: Sequence[Line]) -> Markup:
    """A metric against temperature, with a line a model and prompt."""
    points = [point for line in lines for point in line.points]
    ends = [end for _, mean, interval in points for end in (interval or (mean,))]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = (high - low) * 0.1 or 0.05
    temperatures = [temperature for temperature, _, _ in points] or [0.0]
    x = Axis(min(temperatures), max(temperatures), _LEFT + 10, _WIDTH - _RIGHT - 10)
    y = Axis(low - margin, high + margin, _HEIGHT - _BOTTOM, _TOP)
    parts = list(_grid(x, y, "temperature", "mean"))
    for number, line in enumerate(lines):
        parts.extend(_curve(line, x, y, f"s{number % _SERIES}"))
    return drawing(_WIDTH, _HEIGHT, f"{metric} against temperature", parts, "plot")


def _curve(line: Line, x: Axis, y: Axis, colour: str) -> Iterator[Markup]:
    path = " ".join(f"{x.at(temperature)},{y.at(mean)}" for temperature, mean, _ in line.points)
    yield tag("polyline", class_=f"curve {colour}", points=path)
    for temperature, mean, interval in line.points:
        at = x.at(temperature)
        if interval is not None:
            yield tag(
                "line",
                class_=f"whisker {colour}",
                x1=at,
                x2=at,
                y1=y.at(interval.low),
                y2=y.at(interval.high),
            )
        hint = tag("title", f"temperature {temperature:g}: {mean:.4f}")
        yield tag("circle", hint, class_=f"node {colour}", cx=at, cy=y.at(mean), r=4)


def throughput(bin_s: float, counted: Mapping[str, Sequence[int]], what: str) -> Markup:
    """What was counted per second, under one or more names, over the session's own clock: a step a
    bin of `bin_s` seconds."""
    n_bins = max(map(len, counted.values()))
    rates = {
        name: [period_per_s(count, bin_s) or 0.0 for count in counts]
        for name, counts in counted.items()
    }
    x = Axis(0.0, n_bins * bin_s, _LEFT, _WIDTH - _RIGHT)
    y = Axis(
        0.0,
        max(rate for per_s in rates.values() for rate in per_s) * 1.05 or 1.0,
        _HEIGHT - _BOTTOM,
        _TOP,
    )
    parts = list(_grid(x, y, "seconds since the session began", f"{what} per second"))
    for number, (name, per_s) in enumerate(rates.items()):
        steps = [
            (edge * bin_s, rate) for bin_, rate in enumerate(per_s) for edge in (bin_, bin_ + 1)
        ]
        path = " ".join(f"{x.at(second)},{y.at(rate)}" for second, rate in steps)
        parts.append(
            tag("polyline", tag("title", name), class_=f"curve s{number % _SERIES}", points=path)
        )
    return drawing(
        _WIDTH, _HEIGHT, f"{what} per second over time: {', '.join(counted)}", parts, "plot"
    )


def forest_row(
    difference: float, interval: Interval | None, axis: Axis, is_found: bool, hint: str
) -> Markup:
    """A difference with its interval, around a line at 0; filled where it `is_found`, hollow where
    it may be chance."""
    parts = [
        tag("line", class_="rail", x1=axis.start, x2=axis.end, y1=13, y2=13),
        tag("line", class_="zero", x1=axis.at(0.0), x2=axis.at(0.0), y1=0, y2=26),
    ]
    if interval is not None:
        parts.append(
            tag(
                "line",
                class_="bar",
                x1=axis.at(interval.low),
                x2=axis.at(interval.high),
                y1=13,
                y2=13,
            )
        )
    parts.append(
        tag("circle", class_="dot" if is_found else "dot open", cx=axis.at(difference), cy=13, r=5)
    )
    return drawing(axis.end + axis.start, 26, hint, parts, "forest")


def forest_axis(axis: Axis) -> Markup:
    """The scale below such rows, in percent."""
    width = axis.end + axis.start
    parts = []
    for value in ticks(axis.low, axis.high, 4):
        at, text = axis.at(value), f"{value * 100:+g}%" if value else "0"
        reach = 4 * len(text)  # half of the text's width, about
        anchor = "start" if at < reach else "end" if at > width - reach else "middle"
        x = {"start": 0.0, "end": width, "middle": at}[anchor]
        parts.append(tag("text", text, x=x, y=14, text_anchor=anchor))
    return drawing(width, 20, "percent of the metric's scale", parts, "forest")


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
    return [round((first + number) * step, 10) + 0.0 for number in range(count)]


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

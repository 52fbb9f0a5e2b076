"""Plots as inline SVG, drawn without a library: every text and attribute is escaped, and colours are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from memray_eval.types import Sweep

_WIDTH, _HEIGHT = 420, 270  # of a plot with axes: narrow, so that its text stays readable on a phone
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 14, 40
_SERIES = 6  # colours for lines; more series take them again


class Point(NamedTuple):
    """A candidate in the plane of speed and quality, with half the interval of its quality."""

    label: str
    x: float
    y: float
    half: float | None = None
    is_best: bool = False


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
    """An element: `class_` and `text_anchor` become class and text-anchor; children that are not Markup are escaped."""
    pairs = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{pairs}>{Markup('').join(children)}</{name}>")  # all of it escaped above


def interval(mean: float, half: float | None, scale: tuple[float, float]) -> Markup:
    """A mean on its metric's scale as a dot, with its interval as a bar."""
    axis = Axis(*scale, 6, 154)
    parts = [tag("line", class_="rail", x1=6, x2=154, y1=11, y2=11)]
    if half is not None:
        parts.append(tag("line", class_="bar", x1=axis.at(mean - half), x2=axis.at(mean + half), y1=11, y2=11))
    parts.append(tag("circle", class_="dot", cx=axis.at(mean), cy=11, r=3.5))
    spread = "" if half is None else f", plus or minus {half:.3f}"
    return _svg(160, 22, f"{mean:.3f}{spread}, on a scale of {scale[0]:g} to {scale[1]:g}", parts, "interval")


def distribution(counts: Mapping[str, int]) -> Markup:
    """How many units got which score, from the lowest to the highest, as bars (the summary lists the best first)."""
    bins = list(counts.items())[::-1]
    step, most = 120 / max(1, len(bins)), max(counts.values(), default=0) or 1
    bars = []
    for place, (name, count) in enumerate(bins):
        height = max(1.0, round(30 * count / most, 2)) if count else 0.6
        x, width = round(place * step + 1, 2), round(step - 2, 2)
        hint = tag("title", f"{name}: {count}")
        bars.append(tag("rect", hint, class_="bin" if count else "bin none", x=x, y=32 - height, width=width, height=height))
    return _svg(120, 34, "; ".join(f"{name}: {count}" for name, count in bins), bars, "distribution")


def speed_quality(points: Sequence[Point]) -> Markup:
    """Tokens per second against quality 0-100, a dot a candidate, whiskers where its interval is known. At least one point;
    names stand above and below in turn, so that neighbours' do not meet."""
    ends = [point.y + side * (point.half or 0.0) for point in points for side in (-1, 1)]
    y = Axis(max(0.0, min(ends) - 10), min(100.0, max(ends) + 10), _HEIGHT - _BOTTOM, _TOP)
    x = Axis(min(point.x for point in points) * 0.85, max(point.x for point in points) * 1.1, _LEFT, _WIDTH - _RIGHT)
    parts = list(_grid(x, y, "output tokens per second", "quality"))
    for place, point in enumerate(sorted(points, key=lambda point: point.x)):
        at_x, at_y = x.at(point.x), y.at(point.y)
        if point.half is not None:
            low, high = y.at(point.y - point.half), y.at(point.y + point.half)
            parts.append(tag("line", class_="bar", x1=at_x, x2=at_x, y1=low, y2=high))
        hint = tag("title", f"{point.label}: {point.x:.1f} tokens/s, quality {point.y:.1f}")
        parts.append(tag("circle", hint, class_="dot best" if point.is_best else "dot", cx=at_x, cy=at_y, r=5.5))
        anchor, shift = ("end", -9) if at_x + 9 + 7.5 * len(point.label) > _WIDTH else ("start", 9)
        parts.append(
            tag("text", point.label, class_="name", x=at_x + shift, y=at_y + (18 if place % 2 else -9), text_anchor=anchor)
        )
    said = "; ".join(f"{point.label}: {point.x:.1f} tokens/s, quality {point.y:.1f}" for point in points)
    return _svg(_WIDTH, _HEIGHT, said, parts, "plot")


def temperature_curves(sweeps: Sequence[Sweep]) -> Iterator[tuple[str, Markup, list[str]]]:
    """A plot a metric, with a line a model and prompt: its metric, its drawing, and the names of its lines in order."""
    for metric in dict.fromkeys(sweep.metric for sweep in sweeps):
        lines = [sweep for sweep in sweeps if sweep.metric == metric]
        names = [line.model if line.prompt == "default" else f"{line.model}, prompt {line.prompt}" for line in lines]
        yield metric, _curves(metric, lines), names


def _curves(metric: str, lines: Sequence[Sweep]) -> Markup:
    spread = [
        mean + side * 1.96 * (stderr or 0.0)
        for line in lines
        for mean, stderr in zip(line.means, line.stderrs, strict=True)
        if mean is not None
        for side in (-1, 1)
    ]
    temperatures = [temperature for line in lines for temperature in line.temperatures]
    margin = (max(spread, default=1.0) - min(spread, default=0.0)) * 0.1 or 0.05
    x = Axis(min(temperatures), max(temperatures), _LEFT + 10, _WIDTH - _RIGHT - 10)
    y = Axis(min(spread, default=0.0) - margin, max(spread, default=1.0) + margin, _HEIGHT - _BOTTOM, _TOP)
    parts = list(_grid(x, y, "temperature", "mean"))
    for place, line in enumerate(lines):
        parts.extend(_curve(line, x, y, f"s{place % _SERIES}"))
    return _svg(_WIDTH, _HEIGHT, f"{metric} against temperature", parts, "plot")


def _curve(line: Sweep, x: Axis, y: Axis, colour: str) -> Iterator[Markup]:
    known = [row for row in zip(line.temperatures, line.means, line.stderrs, strict=True) if row[1] is not None]
    path = " ".join(f"{x.at(temperature)},{y.at(mean or 0.0)}" for temperature, mean, _ in known)
    yield tag("polyline", class_=f"curve {colour}", points=path)
    for temperature, mean, stderr in known:
        at, value = x.at(temperature), mean or 0.0
        if stderr is not None:
            low, high = y.at(value - 1.96 * stderr), y.at(value + 1.96 * stderr)
            yield tag("line", class_=f"whisker {colour}", x1=at, x2=at, y1=low, y2=high)
        hint = tag("title", f"temperature {temperature:g}: {value:.4f}")
        yield tag("circle", hint, class_=f"node {colour}", cx=at, cy=y.at(value), r=4)


def _grid(x: Axis, y: Axis, x_name: str, y_name: str) -> Iterator[Markup]:
    for value in ticks(y.low, y.high):
        yield tag("line", class_="rail", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y.at(value), y2=y.at(value))
        yield tag("text", f"{value:g}", x=_LEFT - 7, y=y.at(value) + 4, text_anchor="end")
    for value in ticks(x.low, x.high):
        yield tag("text", f"{value:g}", x=x.at(value), y=_HEIGHT - _BOTTOM + 18, text_anchor="middle")
    yield tag("text", x_name, class_="axis", x=(_LEFT + _WIDTH - _RIGHT) / 2, y=_HEIGHT - 5, text_anchor="middle")
    turned = f"rotate(-90 11 {(_TOP + _HEIGHT - _BOTTOM) / 2})"
    yield tag("text", y_name, class_="axis", x=11, y=(_TOP + _HEIGHT - _BOTTOM) / 2, text_anchor="middle", transform=turned)


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


def _svg(width: float, height: float, label: str, parts: Sequence[Markup], class_: str) -> Markup:
    return tag("svg", *parts, class_=class_, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)

"""Plots as inline SVG: every text and attribute is escaped, colours are the page's classes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from memray_eval.analysis.statistics import Interval

# Of a plot with axes: narrow, so that its text stays readable on a phone
_WIDTH, _HEIGHT = 420, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 14, 40
_SERIES = 6  # colours for lines; more series take them again


class PlotPoint(NamedTuple):
    """A candidate in the plane of speed and quality, with the interval of its quality."""

    label: str
    x: float
    y: float
    interval: Interval | None = None
    is_best: bool = False


class Line(NamedTuple):
    """A line of a plot: its name, and at each place its mean and interval."""

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
    """An element: `class_` becomes class; children that are not Markup are escaped."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{pairs}>{Markup('').join(children)}</{name}>")  # all of it escaped above


def _line(class_: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return tag("line", class_=class_, x1=x1, x2=x2, y1=y1, y2=y2)


def _dot(class_: str, x: float, y: float, radius: float, *hint: str) -> Markup:
    return tag("circle", *hint, class_=class_, cx=x, cy=y, r=radius)


def _text(
    words: str, x: float, y: float, anchor: str = "middle", class_: str = "", **more: str
) -> Markup:
    kind = {"class_": class_} if class_ else {}
    return tag("text", words, **kind, x=x, y=round(y, 2), text_anchor=anchor, **more)


_SCALE = Axis(0.0, 1.0, 8, 232)  # the axis that all rows of a table of figures share
_LETTER = 9  # pixels of a letter's width, about
_LANE = 13  # pixels for one candidate in such a row


def scale_row(figures: Sequence[OnScale | None], scale: tuple[float, float]) -> Markup:
    """Figures of one metric below each other, a lane a candidate, their scale laid over the whole
    axis and its ends below: a dot (hollow for estimates) and the interval as a bar."""
    low, width = scale[0], (scale[1] - scale[0]) or 1.0
    height = max(1, len(figures)) * _LANE + 4
    rails = map(_SCALE.at, (0.0, 0.25, 0.5, 0.75, 1.0))
    parts, hints = [_line("rail", at, at, 0, height) for at in rails], []
    for lane, figure in enumerate(figures):
        if figure is None:
            continue
        y, colour, spread = 2 + _LANE * (lane + 0.5), f"s{lane % _SERIES}", ""
        if figure.interval is not None:
            start, end = (_SCALE.at((end - low) / width) for end in figure.interval)
            parts.append(_line(f"bar {colour}", start, end, y, y))
            spread = f" between {figure.interval.low:.3g} and {figure.interval.high:.3g}"
        kind = "dot open" if figure.is_estimate else "dot"
        parts.append(_dot(f"{kind} {colour}", _SCALE.at((figure.value - low) / width), y, 4))
        hints.append(f"{figure.name} {figure.value:.3g}{spread}")
    hint = f"{'; '.join(hints) or 'no figure'}; on a scale of {scale[0]:g} to {scale[1]:g}"
    for end, at, anchor in zip(scale, (0.0, 1.0), ("start", "end"), strict=True):
        parts.append(_text(f"{end:g}", _SCALE.at(at), height + 9, anchor, "small"))
    return drawing(240, height + 12, hint, parts, "onscale")


_BARS = 168  # pixels that all bars of a distribution share
_NAMED_BINS = 6  # up to this many bins have their names below them; of more, the ends have theirs


def distribution(counts: Mapping[str, int]) -> Markup:
    """Units by score from the lowest, as bars with counts above and scores below."""
    bins = list(counts.items())[::-1]
    step, most = _BARS / max(1, len(bins)), max(counts.values(), default=0) or 1
    parts = [_line("rail", 0, _BARS, 43, 43)]
    for number, (name, count) in enumerate(bins):
        height = max(1.0, round(30 * count / most, 2)) if count else 0.6
        x, width = round(number * step + 1, 2), round(step - 2, 2)
        hint, kind = tag("title", f"{name}: {count}"), "bin" if count else "bin none"
        parts.append(tag("rect", hint, class_=kind, x=x, y=43 - height, width=width, height=height))
        middle = round(x + width / 2, 2)
        if count:
            # at most four characters, up to a million
            shown = str(count) if count < 1000 else f"{count / 1000:.{int(count < 10_000)}f}k"
            parts.append(_text(shown, middle, 40 - height, class_="small"))
        if len(bins) <= _NAMED_BINS:
            parts.append(_text(name, middle, 54, class_="small"))
    if len(bins) > _NAMED_BINS:
        low, high = bins[0][0].partition("-")[0], bins[-1][0].rpartition("-")[2]
        parts.append(_text(low, 0, 54, "start", "small"))
        parts.append(_text(high, _BARS, 54, "end", "small"))
    hints = "; ".join(f"{name}: {count}" for name, count in bins)
    return drawing(_BARS, 58, f"answers by score: {hints}", parts, "distribution")


def speed_quality(
    points: Sequence[PlotPoint],
    x_name: str = "output tokens per second",
    y_name: str = "quality",
    unit: str = "tokens/s",
) -> Markup:
    """Speed, or another `x_name`, against quality 0-100: a dot a candidate, whiskers if known."""
    ends = [end for point in points for end in (point.interval or (point.y,))]
    xs = [point.x for point in points]
    y = Axis(max(0.0, min(ends) - 10), min(100.0, max(ends) + 10), _HEIGHT - _BOTTOM, _TOP)
    x = Axis(min(xs) * 0.85, max(xs) * 1.1, _LEFT, _WIDTH - _RIGHT)
    hints = {at: f"{at.label}: {at.x:,.1f} {unit}, {y_name} {at.y:.1f}" for at in points}
    parts = list(_grid(x, y, x_name, y_name))
    for number, point in enumerate(sorted(points, key=lambda point: point.x)):
        at_x, at_y = x.at(point.x), y.at(point.y)
        if point.interval is not None:
            parts.append(_line("bar", at_x, at_x, *map(y.at, point.interval)))
        kind = "dot best" if point.is_best else "dot"
        parts.append(_dot(kind, at_x, at_y, 5.5, tag("title", hints[point])))
        anchor, shift = ("end", -9) if at_x + 9 + 7.5 * len(point.label) > _WIDTH else ("start", 9)
        below = 18 if number % 2 else -9
        parts.append(_text(point.label, at_x + shift, at_y + below, anchor, "name"))
    return drawing(_WIDTH, _HEIGHT, "; ".join(hints.values()), parts, "plot")


def draw_curves(
    metric: str, lines: Sequence[Line], x_name: str, places: Mapping[float, str] | None = None
) -> Markup:
    """A metric over temperature or length, a line a candidate; `places` name those of the axis."""
    points = [point for line in lines for point in line.points]
    ends = [end for _, mean, interval in points for end in (interval or (mean,))]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = (high - low) * 0.1 or 0.05
    xs = [at for at, _, _ in points] or [0.0]
    x = Axis(min(xs), max(xs), _LEFT + 10, _WIDTH - _RIGHT - 10)
    y = Axis(low - margin, high + margin, _HEIGHT - _BOTTOM, _TOP)
    parts = list(_grid(x, y, x_name, "mean", places))
    for number, line in enumerate(lines):
        colour = f"s{number % _SERIES}"
        path = " ".join(f"{x.at(value)},{y.at(mean)}" for value, mean, _ in line.points)
        parts.append(tag("polyline", class_=f"curve {colour}", points=path))
        for value, mean, interval in line.points:
            at = x.at(value)
            if interval is not None:
                parts.append(_line(f"whisker {colour}", at, at, *map(y.at, interval)))
            shown = (places or {}).get(value, f"{value:g}")
            hint = tag("title", f"{x_name} {shown}: {mean:.4f}")
            parts.append(_dot(f"node {colour}", at, y.at(mean), 4, hint))
    return drawing(_WIDTH, _HEIGHT, f"{metric} against {x_name}", parts, "plot")


def forest_row(
    difference: float, interval: Interval | None, axis: Axis, is_found: bool, hint: str
) -> Markup:
    """A difference with its interval, around a line at 0; filled if it `is_found`."""
    zero = axis.at(0.0)
    parts = [_line("rail", axis.start, axis.end, 13, 13), _line("zero", zero, zero, 0, 26)]
    if interval is not None:
        parts.append(_line("bar", axis.at(interval.low), axis.at(interval.high), 13, 13))
    parts.append(_dot("dot" if is_found else "dot open", axis.at(difference), 13, 5))
    return drawing(axis.end + axis.start, 26, hint, parts, "forest")


def forest_axis(axis: Axis) -> Markup:
    """The scale below such rows, in percent, with as many labels as have room."""
    width = axis.end + axis.start
    for about in (4, 2, 1):
        texts = {axis.at(v): f"{v * 100:+g}%" if v else "0" for v in ticks(*axis[:2], about)}
        room = (axis.end - axis.start) / max(1, len(texts) - 1)
        if (widest := _LETTER * max(map(len, texts.values()))) + axis.start < room:
            break
    middles = {min(max(at, widest / 2), width - widest / 2): text for at, text in texts.items()}
    parts = [_text(text, at, 14) for at, text in middles.items()]
    return drawing(width, 20, "percent of the metric's scale", parts, "forest")


def _grid(
    x: Axis, y: Axis, x_name: str, y_name: str, places: Mapping[float, str] | None = None
) -> Iterator[Markup]:
    for value in ticks(y.low, y.high):
        yield _line("rail", _LEFT, _WIDTH - _RIGHT, y.at(value), y.at(value))
        yield _text(f"{value:g}", _LEFT - 7, y.at(value) + 4, "end")
    for value, name in (places or {at: f"{at:g}" for at in ticks(x.low, x.high)}).items():
        yield _text(name, x.at(value), _HEIGHT - _BOTTOM + 18)
    yield _text(x_name, (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 5, class_="axis")
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    yield _text(y_name, 11, middle, class_="axis", transform=f"rotate(-90 11 {middle})")


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
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", *parts, class_=class_, viewBox=box, role="img", aria_label=label)

"""Which candidate to use: speed against quality (seed 004's "Interpreting Tradeoffs"), by a rule that is printed with it.

Along the Pareto front, from its fastest candidate on, the next better one is taken where the points that it gains over the
fastest, and over the one in hand, are worth its slowdown, and the intervals of their qualities lie apart. Else the one in hand
stays: at parity, and where no difference is shown, speed wins.
"""

from __future__ import annotations

from collections.abc import Sequence

from memray_eval.report.statistics import Interval, OpenShare, figures_interval
from memray_eval.types import Frozen, Performance, Recommendation

_ROUNDING = 1e-9  # 90.1 - 85.1 is a gap of 5 points


class Worth(Frozen):
    """`points` of quality (0-100) are worth being up to `slowdown` times slower; None: however slow."""

    points: float
    slowdown: float | None


class Rule(Frozen):
    """The thresholds. That two intervals of `level` lie apart asks for more than that their difference is significant."""

    worth: tuple[Worth, ...]
    level: OpenShare = 0.95

    def is_worth(self, points: float, slowdown: float) -> bool:
        return any(
            points >= each.points - _ROUNDING and (each.slowdown is None or slowdown <= each.slowdown + _ROUNDING)
            for each in self.worth
        )

    def in_words(self) -> str:
        steps = (
            f"{each.points:g} points better at {'any speed' if each.slowdown is None else f'up to {each.slowdown:g}x slower'}"
            for each in self.worth
        )
        return (
            f"from the fastest on, a slower candidate is taken where it is {', '.join(steps)}, and the "
            f"{self.level * 100:g} % intervals (answers taken as independent) do not overlap; else speed wins."
        )


# Seed 004: at parity speed wins; 13 points are worth 1.7x; "quality gap large (15-20pts), worth slowdown". The first step keeps
# two candidates of one model, whose speeds differ by chance, from being told apart by that.
RULE = Rule(
    worth=(
        Worth(points=2, slowdown=1.1),
        Worth(points=5, slowdown=1.5),
        Worth(points=10, slowdown=2.0),
        Worth(points=15, slowdown=3.0),
        Worth(points=20, slowdown=None),
    )
)


class Point(Frozen):
    """A candidate's speed (tokens/s) and quality (0-100) with its interval; None: not measured."""

    name: str
    speed: float | None
    quality: float | None
    interval: Interval | None = None


class _Known(Point):
    """A candidate of which both are measured."""

    speed: float
    quality: float


def quality_interval(row: Performance, rule: Rule = RULE) -> Interval | None:
    """Of a quality on 0-100, its answers taken as independent: Wilson's where all lie at the ends of the scale, else Student's.
    None for fewer than two scored answers, and for answers that all score the same within the scale."""
    return figures_interval(row.quality, row.quality_stderr, row.n_scored, rule.level, scale=(0.0, 100.0))


def recommend(performance: Sequence[Performance], rule: Rule = RULE) -> Recommendation | None:
    """The recommendation over candidates, of their rows over all tasks; None for fewer than two. The same figures give the same
    one in whatever order they come."""
    rows = sorted((row for row in performance if row.task is None), key=lambda row: row.candidate)
    points = [
        Point(name=row.candidate, speed=row.tokens_per_s or None, quality=row.quality, interval=quality_interval(row, rule))
        for row in rows
    ]
    if len(points) < 2:
        return None
    compared: Sequence[Point]
    use: str | None
    known = [_Known(**dict(point)) for point in points if point.speed is not None and point.quality is not None]
    rated = sorted((point for point in points if point.quality is not None), key=lambda point: -(point.quality or 0.0))
    timed = sorted((point for point in points if point.speed is not None), key=lambda point: -(point.speed or 0.0))
    front = pareto(known)
    if len(known) > 1:
        compared, use, reason = known, *_traded(front, rule)
    elif len(rated) > 1:
        compared, use, reason = rated, *_by_quality(rated)
    elif len(timed) > 1:
        compared, use, reason = timed, *_by_speed(timed)
    else:
        compared, use, reason = [], None, "neither speed nor quality was measured of two candidates"
    names = {point.name for point in compared}
    return Recommendation(
        fastest=tuple(point.name for point in timed if point.speed == timed[0].speed),
        best=tuple(point.name for point in rated if point.quality == rated[0].quality),
        as_good=tuple(point.name for point in rated if point.quality != rated[0].quality and not _apart(point, rated[0])),
        pareto=tuple(point.name for point in front),
        left_out=tuple(point.name for point in points if point.name not in names),
        use=use,
        reason=reason,
        rule=rule.in_words(),
    )


def pareto(points: Sequence[_Known]) -> list[_Known]:
    """The candidates to which no other is equal in speed and quality and better in one, the fastest first. Equal ones are all
    on the front."""

    def is_beaten(point: _Known) -> bool:
        return any(
            other.speed >= point.speed
            and other.quality >= point.quality
            and (other.speed, other.quality) != (point.speed, point.quality)
            for other in points
        )

    return sorted((point for point in points if not is_beaten(point)), key=lambda point: (-point.speed, point.name))


def _traded(front: Sequence[_Known], rule: Rule) -> tuple[str, str]:
    """Which of the front to use, and why."""
    fastest = chosen = front[0]
    for point in front[1:]:
        if all(_is_taken(point, other, rule) for other in (fastest, chosen)):
            chosen = point
    reasons = ["fastest"] if chosen is fastest else [_gain(fastest, chosen)]
    best = front[-1]
    if best.quality > chosen.quality:
        against = next(other for other in (chosen, fastest) if not _is_taken(best, other, rule))
        reasons.append(_why_not(best, against, rule))
    elif chosen is fastest:
        reasons.append("best quality")
    return chosen.name, "; ".join(reasons)


def _is_taken(better: _Known, faster: _Known, rule: Rule) -> bool:
    return _apart(better, faster) and rule.is_worth(*_trade(faster, better))


def _gain(faster: _Known, better: _Known) -> str:
    points, slowdown = _trade(faster, better)
    return f"Better quality ({_pts(points)}), reasonable speed tradeoff ({slowdown:.1f}x)"


def _why_not(best: _Known, against: _Known, rule: Rule) -> str:
    """Why the one with the best quality is not taken in place of a faster one."""
    points, slowdown = _trade(against, best)
    if not _apart(best, against):
        return f"no difference shown in quality to {best.name} (+{_pts(points)}, {_why_together(best, against)})"
    if points < min(each.points for each in rule.worth) - _ROUNDING:
        return f"quality parity with {best.name} (+{_pts(points)}), which is {slowdown:.1f}x slower than {against.name}"
    return f"{best.name} is better (+{_pts(points)}), but {slowdown:.1f}x slower than {against.name}"


def _by_quality(rated: Sequence[Point]) -> tuple[str | None, str]:
    best, second = rated[:2]
    if best.quality == second.quality or not _apart(best, second):
        return None, f"no difference shown in quality between {best.name} and {second.name}; speed was not measured"
    return best.name, "best quality; speed was not measured"


def _by_speed(timed: Sequence[Point]) -> tuple[str | None, str]:
    fastest, second = timed[:2]
    if fastest.speed == second.speed:
        return None, f"{fastest.name} and {second.name} are as fast; quality was not measured"
    return fastest.name, "fastest; quality was not measured"


def _apart(one: Point, other: Point) -> bool:
    """Whether the intervals of two qualities do not even touch; False where one is not known."""
    if one.interval is None or other.interval is None:
        return False
    return one.interval.low > other.interval.high or other.interval.low > one.interval.high


def _why_together(one: Point, other: Point) -> str:
    is_known = one.interval is not None and other.interval is not None
    return "the intervals overlap" if is_known else "no interval: too few answers, or all score the same"


def _trade(faster: _Known, slower: _Known) -> tuple[float, float]:
    """The points that the slower one gains, and how many times slower it is."""
    return slower.quality - faster.quality, faster.speed / slower.speed


def _pts(points: float) -> str:
    return f"{points:.1f}".removesuffix(".0") + "pts"

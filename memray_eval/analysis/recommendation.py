"""Recommends a candidate by speed against quality (seed 004's "Interpreting Tradeoffs"), by a rule
that is printed with it: it walks the Pareto front from the fastest on, and takes the next better
one if the points that it gains over the fastest, and over the one chosen so far, are worth its
slowdown and shown by the paired differences on common prompts. Otherwise speed wins."""

from __future__ import annotations

from collections.abc import Sequence

from memray_eval.analysis.statistics import Interval, OpenShare, figures_interval
from memray_eval.types import Frozen, Performance, QualityPair, Recommendation, SpeedRatio

SAME_SPEED = 1.1  # two runs of one model differ as much
_ROUNDING = 1e-9  # 90.1 - 85.1 is a gap of 5 points


class Worth(Frozen):
    """`points` of quality (0-100) are worth up to `slowdown` times the time (None: any)."""

    points: float
    slowdown: float | None


class TradeoffRule(Frozen):
    """The thresholds of a recommendation. `level` holds for all intervals together."""

    worth: tuple[Worth, ...]
    level: OpenShare = 0.95

    def is_worth(self, points: float, slowdown: float) -> bool:
        return any(
            points >= step.points - _ROUNDING
            and (step.slowdown is None or slowdown <= step.slowdown + _ROUNDING)
            for step in self.worth
        )

    def in_words(self, n_pairs: int = 1) -> str:
        steps = (
            f"{step.points:g} points better at "
            f"{'any speed' if step.slowdown is None else f'up to {step.slowdown:g}x slower'}"
            for step in self.worth
        )
        level = 1 - (1 - self.level) / max(1, n_pairs)
        several = f" ({level * 100:.4g} % each, for {n_pairs} pairs)" if n_pairs > 1 else ""
        return (
            f"from the fastest on, a slower candidate is taken where it is {', '.join(steps)}, and "
            f"the {self.level * 100:g} % interval of the difference on common prompts{several} "
            "lies above 0; else speed wins, if that of the median ratio of speeds lies above 1.1."
        )


# Seed 004: at parity speed wins; 13 points are worth 1.7x; "quality gap large (15-20pts), worth
# slowdown". The first step keeps speeds that differ by chance, as of two candidates of one model,
# from deciding.
RULE = TradeoffRule(
    worth=(
        Worth(points=2, slowdown=SAME_SPEED),
        Worth(points=5, slowdown=1.5),
        Worth(points=10, slowdown=2.0),
        Worth(points=15, slowdown=3.0),
        Worth(points=20, slowdown=None),
    )
)


class Point(Frozen):
    """A candidate's speed (tokens/s) and quality (0-100); None: not measured."""

    name: str
    speed: float | None
    quality: float | None


class _Known(Point):
    """A candidate whose speed and quality are both measured."""

    speed: float
    quality: float


def quality_interval(row: Performance) -> Interval | None:
    """Computes the interval of a quality on 0-100 by `figures_interval`: answers count as
    independent, of sessions these."""
    n = row.n_scored if row.n_clusters is None else row.n_clusters
    return figures_interval(row.quality, row.quality_stderr, n, RULE.level, scale=(0.0, 100.0))


def recommend(
    performance: Sequence[Performance],
    pairs: Sequence[QualityPair] = (),
    speeds: Sequence[SpeedRatio] = (),
    corrected: Sequence[QualityPair] = (),
    rule: TradeoffRule = RULE,
) -> Recommendation | None:
    """Recommends a candidate by their rows over all tasks and their differences on common prompts,
    without those not shown in `corrected` (over all metrics); None for fewer than two."""
    rows = sorted((row for row in performance if row.task is None), key=lambda row: row.candidate)
    points = [
        Point(name=row.candidate, speed=row.tokens_per_s or None, quality=row.quality)
        for row in rows
    ]
    if len(points) < 2:
        return None
    compared: Sequence[Point]
    use: str | None
    measured = [
        _Known(**dict(point))
        for point in points
        if point.speed is not None and point.quality is not None
    ]
    rated = sorted(
        (point for point in points if point.quality is not None),
        key=lambda point: -(point.quality or 0.0),
    )
    timed = sorted(
        (point for point in points if point.speed is not None),
        key=lambda point: -(point.speed or 0.0),
    )
    front, differences = (
        pareto(measured),
        _Differences([*pairs, *(pair for pair in corrected if not pair.is_shown)], speeds),
    )
    if len(measured) > 1:
        compared, use, reason = measured, *_choose_from_front(measured, front, differences, rule)
    elif len(rated) > 1:
        compared, use, reason = rated, *_choose_by_quality(rated, differences)
    elif len(timed) > 1:
        (fastest, *others), compared = timed, timed
        use, reason = fastest.name, "fastest; quality was not measured"
        if even := [other.name for other in others if not differences.is_faster(fastest, other)]:
            use = None
            even_ones = f"{fastest.name} and {even[0]}"
            reason = f"no difference shown in speed between {even_ones}; quality was not measured"
    else:
        compared, use, reason = [], None, "neither speed nor quality was measured of two candidates"
    names = {point.name for point in compared}
    lower = [point.name for point in rated if point.quality != rated[0].quality]
    return Recommendation(
        fastest=tuple(point.name for point in timed if point.speed == timed[0].speed),
        best=tuple(point.name for point in rated if point.quality == rated[0].quality),
        as_good=tuple(name for name in lower if not differences.of(name, rated[0].name).is_shown),
        pareto=tuple(point.name for point in front),
        left_out=tuple(point.name for point in points if point.name not in names),
        use=use,
        reason=reason,
        rule=rule.in_words(len(pairs)),
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.a, pair.b))),
        speeds=tuple(sorted(speeds, key=lambda pair: (pair.a, pair.b))),
    )


class _Differences:
    """The pairs of candidates, looked up from either side."""

    def __init__(self, pairs: Sequence[QualityPair], speeds: Sequence[SpeedRatio]) -> None:
        self._pairs: dict[tuple[str, str], QualityPair] = {}
        for pair in pairs:
            self._pairs |= {(pair.a, pair.b): pair, (pair.b, pair.a): swap_sides(pair)}
        self._times_as_fast = {(of.b, of.a): of.low for of in speeds if of.low} | {
            (of.a, of.b): 1 / of.high for of in speeds if of.high
        }

    def of(self, a: str, b: str) -> QualityPair:
        """B against A; a pair without figures if they have no prompt in common."""
        return self._pairs.get((a, b)) or QualityPair(a=a, b=b, n=0, level=RULE.level)

    def is_better(self, better: Point, other: Point) -> bool:
        pair = self.of(other.name, better.name)
        return pair.is_shown and (pair.difference or 0.0) > 0

    def is_faster(self, faster: Point, other: Point) -> bool:
        """True if the ratio of speeds on common prompts is told from SAME_SPEED."""
        return self._times_as_fast.get((faster.name, other.name), 0.0) > SAME_SPEED


def swap_sides(pair: QualityPair) -> QualityPair:
    """The same pair from the other side."""
    low, high, difference = (
        None if figure is None else -figure for figure in (pair.high, pair.low, pair.difference)
    )
    return pair.model_copy(
        update={"a": pair.b, "b": pair.a, "difference": difference, "low": low, "high": high}
    )


def pareto(points: Sequence[_Known]) -> list[_Known]:
    """The candidates that no other beats, the fastest first. One beats another if it is as good in
    speed and quality and better in one of them; equal candidates are all on the front."""

    def is_beaten(point: _Known) -> bool:
        return any(
            other.speed >= point.speed
            and other.quality >= point.quality
            and (other.speed, other.quality) != (point.speed, point.quality)
            for other in points
        )

    return sorted(
        (point for point in points if not is_beaten(point)),
        key=lambda point: (-point.speed, point.name),
    )


def _choose_from_front(
    measured: Sequence[_Known],
    front: Sequence[_Known],
    differences: _Differences,
    rule: TradeoffRule,
) -> tuple[str | None, str]:
    """Chooses the candidate of the front to use, and says why. It is called the best only if it is
    shown to be better than every other; none is chosen if the fastest is not shown to be faster
    (`is_faster`) than another and no difference in quality is shown either."""

    def is_taken(better: _Known, faster: _Known) -> bool:
        return differences.is_better(better, faster) and rule.is_worth(
            *_gain_and_slowdown(faster, better, differences)
        )

    fastest = chosen = front[0]
    for point in front[1:]:
        if all(is_taken(point, other) for other in (fastest, chosen)):
            chosen = point
    reasons = ["fastest"]
    if chosen is not fastest:
        points, slowdown = _gain_and_slowdown(fastest, chosen, differences)
        gain = f"Better quality ({_format_points(points)})"
        reasons = [f"{gain}, reasonable speed tradeoff ({slowdown:.1f}x)"]
    for point in measured:
        if point is chosen or chosen is not fastest or differences.is_faster(chosen, point):
            continue
        pair = differences.of(chosen.name, point.name)
        if not pair.is_shown:
            is_near = chosen.speed <= SAME_SPEED * point.speed
            speed = f"under {SAME_SPEED:g}x" if is_near else "it may be chance"
            return None, (
                f"no difference shown between {chosen.name} and {point.name}: in quality "
                f"{why_not_shown(pair)}; in speed {speed}"
            )
    best = front[-1]
    if best.quality > chosen.quality:
        against = next(other for other in (chosen, fastest) if not is_taken(best, other))
        reasons.append(_explain_refusal(best, against, differences, rule))
    elif chosen is fastest:
        is_best = all(
            differences.is_better(chosen, point) for point in measured if point is not chosen
        )
        reasons.append("best quality" if is_best else "no other is shown to be better")
    return chosen.name, "; ".join(reasons)


def _explain_refusal(
    best: _Known, against: _Known, differences: _Differences, rule: TradeoffRule
) -> str:
    """Says why the candidate of the best quality is not chosen over a faster one."""
    points, slowdown = _gain_and_slowdown(against, best, differences)
    gain = f"+{_format_points(points)}"
    if not differences.is_better(best, against):
        return (
            f"no difference shown in quality to {best.name} "
            f"({why_not_shown(differences.of(against.name, best.name))})"
        )
    if points < min(step.points for step in rule.worth) - _ROUNDING:
        return (
            f"quality parity with {best.name} ({gain}), which is {slowdown:.1f}x slower than "
            f"{against.name}"
        )
    return f"{best.name} is better ({gain}), but {slowdown:.1f}x slower than {against.name}"


def _choose_by_quality(rated: Sequence[Point], differences: _Differences) -> tuple[str | None, str]:
    best, *others = rated
    for other in others:
        if not differences.is_better(best, other):
            why = why_not_shown(differences.of(other.name, best.name))
            return (
                None,
                f"no difference shown in quality between {best.name} and {other.name} ({why}); "
                "speed was not measured",
            )
    return best.name, "best quality; speed was not measured"


def why_not_shown(pair: QualityPair) -> str:
    """Describes a difference that is not shown, and about how many more prompts would show it."""
    prompts = f"{pair.n} common prompt{'s' * (pair.n != 1)}"
    if pair.n < 2 or pair.difference is None:
        return f"{prompts}, too few to tell" if pair.n else "no common prompts"
    if abs(pair.difference) <= _ROUNDING:
        return f"equal on average over {prompts}"
    span = (
        ""
        if pair.low is None or pair.high is None
        else f", interval {pair.low:z.1f} to {pair.high:z.1f}"
    )
    more = (
        f"about {round_up(pair.more):,} more would show one of this size"
        if pair.more
        else "no number of them would show it"
    )
    return f"{pair.difference:+z.1f}pts on {prompts}{span}; {more}".replace(".0pts", "pts")


def round_up(count: int) -> int:
    """Rounds up to two digits, because an estimate is not known better."""
    unit = int("1".ljust(max(1, len(str(count)) - 1), "0"))
    return -(-count // unit) * unit


def _gain_and_slowdown(
    faster: _Known, slower: _Known, differences: _Differences
) -> tuple[float, float]:
    """The points that the slower candidate gains on the common prompts (on all if there are none),
    and how many times slower it is."""
    gain = differences.of(faster.name, slower.name).difference
    return slower.quality - faster.quality if gain is None else gain, faster.speed / slower.speed


def _format_points(points: float) -> str:
    return f"{points:z.1f}".removesuffix(".0") + "pts"

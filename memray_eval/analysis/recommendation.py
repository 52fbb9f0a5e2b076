"""Recommends a candidate by speed against quality (seed 004's "Interpreting Tradeoffs"), by a rule
that is printed with it: it walks the Pareto front from the fastest on, and takes the next better
one if the points that it gains over the fastest, and over the one chosen so far, are worth its
slowdown and shown by the paired differences on common prompts. Otherwise speed wins.

Speed and quality are measured by candidate and task in DuckDB, a narrow row a unit; one that was
written twice counts once. Of differences one number a prompt, candidate and metric is in memory."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.analysis.rates import ANSWER_TOKENS_PER_S
from memray_eval.analysis.score_table import (
    MEAN,
    STDERR,
    Records,
    fields_of_shares,
    is_fallback,
    read_score_tables,
)
from memray_eval.analysis.scores import (
    Scores,
    clips_mean,
    count_epochs,
    find_cluster,
    first_of_each,
    read_all_scores,
    unit_keys,
)
from memray_eval.analysis.statistics import (
    SETTINGS,
    TIE,
    Clusters,
    CompareOptions,
    Interval,
    count_units,
    cut_to,
    difference_interval,
    figures_interval,
    mean_error,
    median_interval,
    more_to_show,
)
from memray_eval.analysis.where import clusters_of_units, common_rows
from memray_eval.metric import JudgedMetric, Metric
from memray_eval.ports import FloatArray
from memray_eval.types import (
    MetricSummary,
    Performance,
    QualityPair,
    Recommendation,
    SpeedRatio,
    is_estimate,
)

SAME_SPEED = 1.1  # two runs of one model differ as much
# How many points of quality (0-100) are worth up to how many times the time. Seed 004: at parity
# speed wins; 13 points are worth 1.7x; "quality gap large (15-20pts), worth slowdown". The first
# step keeps speeds that differ by chance, as of two candidates of one model, from deciding.
WORTH = ((2, SAME_SPEED), (5, 1.5), (10, 2.0), (15, 3.0), (20, math.inf))
_ROUNDING = 1e-9  # 90.1 - 85.1 is a gap of 5 points


def describe_rule(n_pairs: int = 1) -> str:
    """The rule in words, with the level of each interval where there are several pairs."""
    speeds = (f"up to {most:g}x slower" if most < math.inf else "any speed" for _, most in WORTH)
    worth = zip(WORTH, speeds, strict=True)
    steps = ", ".join(f"{points} points better at {speed}" for (points, _), speed in worth)
    level = SETTINGS.for_all(n_pairs).level
    several = f" ({level * 100:.4g} % each, for {n_pairs} pairs)" if n_pairs > 1 else ""
    return (
        f"from the fastest on, a slower candidate is taken where it is {steps}, and the "
        f"{SETTINGS.level * 100:g} % interval of the difference on common prompts{several} lies "
        "above 0; else speed wins, if that of the median ratio of speeds lies above 1.1."
    )


class Point(NamedTuple):
    """A candidate whose speed (tokens/s) and quality (0-100) are both measured."""

    name: str
    speed: float
    quality: float


def cut_quality(row: Performance) -> Performance:
    """The row as it is shown: its quality is cut to the scale, as the metric's figure is. What is
    recommended goes by that before, as the differences do."""
    quality = row.quality if row.quality is None else cut_to(row.quality, (0.0, 100.0))
    return row.model_copy(update={"quality": quality})


def quality_interval(row: Performance) -> Interval | None:
    """The interval of a quality on 0-100, of independent answers or of clusters."""
    n = row.n_scored if row.n_clusters is None else row.n_clusters
    return figures_interval(row.quality, row.quality_stderr, n, scale=(0.0, 100.0))


def recommend(
    performance: Sequence[Performance],
    pairs: Sequence[QualityPair] = (),
    speeds: Sequence[SpeedRatio] = (),
    corrected: Sequence[QualityPair] = (),
    undecided: str = "",
) -> Recommendation | None:
    """Recommends a candidate by their rows over all tasks and their differences on common prompts,
    without those not shown in `corrected` (over all metrics); None for fewer than two. Nobody is
    recommended if the quality is `undecided`, for the reason given."""
    rows = sorted((row for row in performance if row.task is None), key=lambda row: row.candidate)
    if len(rows) < 2:
        return None
    speed_of = {row.candidate: row.tokens_per_s for row in rows if row.tokens_per_s}
    quality_of = {row.candidate: row.quality for row in rows if row.quality is not None}
    both = [name for name in speed_of if name in quality_of]
    measured = [Point(name, speed_of[name], quality_of[name]) for name in both]
    rated = sorted(quality_of, key=lambda name: -quality_of[name])
    timed = sorted(speed_of, key=lambda name: -speed_of[name])
    front = pareto(measured)
    hidden = [pair for pair in corrected if not pair.is_shown]
    differences = _Differences([*pairs, *hidden], speeds)
    compared: Sequence[str] = ()
    use, reason = None, "neither speed nor quality was measured of two candidates"
    if len(measured) > 1:
        compared = [point.name for point in measured]
        use, reason = _choose_from_front(measured, front, differences)
    elif len(rated) > 1:
        compared, (use, reason) = rated, _choose_by("quality", rated, differences)
    elif len(timed) > 1:
        compared, (use, reason) = timed, _choose_by("speed", timed, differences)
    if undecided:
        use, reason = None, undecided
    lower = [name for name in rated if quality_of[name] != quality_of[rated[0]]]
    return Recommendation(
        fastest=tuple(name for name in timed if speed_of[name] == speed_of[timed[0]]),
        best=tuple(name for name in rated if name not in lower),
        as_good=tuple(name for name in lower if not differences.of(name, rated[0]).is_shown),
        pareto=tuple(point.name for point in front),
        left_out=tuple(row.candidate for row in rows if row.candidate not in compared),
        use=use,
        reason=reason,
        rule=describe_rule(len(pairs)),
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
        return self._pairs.get((a, b)) or QualityPair(a=a, b=b, n=0, level=SETTINGS.level)

    def is_better(self, better: str, other: str) -> bool:
        pair = self.of(other, better)
        return pair.is_shown and (pair.difference or 0.0) > 0

    def is_faster(self, faster: str, other: str) -> bool:
        """True if the ratio of speeds on common prompts is told from SAME_SPEED."""
        return self._times_as_fast.get((faster, other), 0.0) > SAME_SPEED

    def gain_and_slowdown(self, faster: Point, slower: Point) -> tuple[float, float]:
        """The points that the slower gains, on common prompts if any, and how much slower it is."""
        gain, apart = self.of(faster.name, slower.name).difference, slower.quality - faster.quality
        return apart if gain is None else gain, faster.speed / slower.speed

    def is_worth(self, better: Point, faster: Point) -> bool:
        """True if the better one is shown to be, and by as much as its slowdown asks for."""
        gain, slowdown = self.gain_and_slowdown(faster, better)
        return self.is_better(better.name, faster.name) and any(
            gain >= points - _ROUNDING and slowdown <= most + _ROUNDING for points, most in WORTH
        )


def swap_sides(pair: QualityPair) -> QualityPair:
    """The same pair from the other side."""
    low, high, difference = (
        None if figure is None else -figure for figure in (pair.high, pair.low, pair.difference)
    )
    return pair.model_copy(
        update={"a": pair.b, "b": pair.a, "difference": difference, "low": low, "high": high}
    )


def pareto(points: Sequence[Point]) -> list[Point]:
    """The candidates that no other beats, the fastest first. One beats another if it is as good in
    speed and quality and better in one of them; equal candidates are all on the front."""
    front = [
        point
        for point in points
        if not any(
            other.speed >= point.speed
            and other.quality >= point.quality
            and (other.speed, other.quality) != (point.speed, point.quality)
            for other in points
        )
    ]
    return sorted(front, key=lambda point: (-point.speed, point.name))


def _choose_from_front(
    measured: Sequence[Point], front: Sequence[Point], differences: _Differences
) -> tuple[str | None, str]:
    """Chooses the candidate of the front to use, and says why. It is called the best only if it is
    shown to be better than every other; none is chosen if the fastest is not shown to be faster
    (`is_faster`) than another and no difference in quality is shown either."""
    fastest = chosen = front[0]
    for point in front[1:]:
        if all(differences.is_worth(point, other) for other in (fastest, chosen)):
            chosen = point
    rest = [point for point in measured if point is not chosen]
    reasons = ["fastest"]
    if chosen is not fastest:
        points, slowdown = differences.gain_and_slowdown(fastest, chosen)
        gain = f"Better quality ({_format_points(points)})"
        reasons = [f"{gain}, reasonable speed tradeoff ({slowdown:.1f}x)"]
    for point in rest if chosen is fastest else ():
        pair = differences.of(chosen.name, point.name)
        if not differences.is_faster(chosen.name, point.name) and not pair.is_shown:
            is_near = chosen.speed <= SAME_SPEED * point.speed
            speed = f"under {SAME_SPEED:g}x" if is_near else "it may be chance"
            return None, (
                f"no difference shown between {chosen.name} and {point.name}: in quality "
                f"{why_not_shown(pair)}; in speed {speed}"
            )
    best = front[-1]
    if best.quality > chosen.quality:
        refused = (at for at in (chosen, fastest) if not differences.is_worth(best, at))
        reasons.append(_explain_refusal(best, next(refused), differences))
    elif chosen is fastest:
        is_best = all(differences.is_better(chosen.name, point.name) for point in rest)
        reasons.append("best quality" if is_best else "no other is shown to be better")
    return chosen.name, "; ".join(reasons)


def _explain_refusal(best: Point, against: Point, differences: _Differences) -> str:
    points, slowdown = differences.gain_and_slowdown(against, best)
    gain = f"+{_format_points(points)}"
    if not differences.is_better(best.name, against.name):
        why = why_not_shown(differences.of(against.name, best.name))
        return f"no difference shown in quality to {best.name} ({why})"
    if points < WORTH[0][0] - _ROUNDING:
        than = f"which is {slowdown:.1f}x slower than {against.name}"
        return f"quality parity with {best.name} ({gain}), {than}"
    return f"{best.name} is better ({gain}), but {slowdown:.1f}x slower than {against.name}"


def _choose_by(
    what: str, ranked: Sequence[str], differences: _Differences
) -> tuple[str | None, str]:
    """Chooses by quality or speed alone, where the other was not measured."""
    by_quality, (best, *others) = what == "quality", ranked
    lacking = f"; {'speed' if by_quality else 'quality'} was not measured"
    is_ahead = differences.is_better if by_quality else differences.is_faster
    for other in others:
        if not is_ahead(best, other):
            why = f" ({why_not_shown(differences.of(other, best))})" if by_quality else ""
            return None, f"no difference shown in {what} between {best} and {other}{why}{lacking}"
    return best, ("best quality" if by_quality else "fastest") + lacking


def why_not_shown(pair: QualityPair) -> str:
    """Describes a difference that is not shown, and about how many more prompts would show it."""
    prompts = f"{pair.n} common prompt{'s' * (pair.n != 1)}"
    if pair.n < 2 or pair.difference is None:
        return f"{prompts}, too few to tell" if pair.n else "no common prompts"
    if abs(pair.difference) <= _ROUNDING:
        return f"equal on average over {prompts}"
    span, more = "", "no number of them would show it"
    if pair.low is not None and pair.high is not None:
        span = f", interval {pair.low:z.1f} to {pair.high:z.1f}"
    if pair.more:
        more = f"about {round_up(pair.more):,} more would show one of this size"
    return f"{pair.difference:+z.1f}pts on {prompts}{span}; {more}".replace(".0pts", "pts")


def round_up(count: int) -> int:
    """Rounds up to two digits, because an estimate is not known better."""
    unit = int("1".ljust(max(1, len(str(count)) - 1), "0"))
    return -(-count // unit) * unit


def _format_points(points: float) -> str:
    return f"{points:z.1f}".removesuffix(".0") + "pts"


_POINTS = 100.0


def paired_qualities(
    records: Records, headline: Metric, candidates: Sequence[str]
) -> tuple[QualityPair, ...]:
    """Compares every pair of candidates by the headline metric, at one level for all together."""
    pairs = list(combinations(candidates, 2))
    if not pairs:
        return ()
    scores = read_all_scores(records, candidates, find_cluster(records), metrics=[headline.name])
    settings = SETTINGS.for_all(len(pairs))
    return tuple(_compare(headline, scores[a], scores[b], (a, b), settings) for a, b in pairs)


def differences_from_best(
    records: Records, metrics: Sequence[MetricSummary], by_name: Mapping[str, Metric]
) -> tuple[QualityPair, ...]:
    """Compares, for each metric, every candidate (b) with the one of the highest figure (a). The
    level holds for all pairs of candidates and all metrics together."""
    rated: dict[str, dict[str, float]] = {}
    for metric in metrics:
        if metric.figure.value is not None and metric.metric in by_name:
            rated.setdefault(metric.metric, {})[metric.candidate] = metric.figure.value
    compared = {name: figures for name, figures in rated.items() if len(figures) > 1}
    candidates = sorted({name for figures in compared.values() for name in figures})
    if not compared:
        return ()
    settings = SETTINGS.for_all(len(compared) * math.comb(len(candidates), 2))
    scores = read_all_scores(records, candidates, find_cluster(records), metrics=list(compared))
    return tuple(
        _compare(by_name[name], scores[best], scores[other], (best, other), settings)
        for name, figures in compared.items()
        # of equal figures that were cut to the scale (`clips_mean`), by what they were before
        for best in [max(sorted(figures), key=lambda of: (figures[of], _mean_of(scores[of], name)))]
        for other in sorted(figures)
        if other != best
    )


def _mean_of(scores: Scores, metric: str) -> float:
    """The mean before it is cut to the scale; 0 for a metric whose mean never is."""
    values = scores.values.get(metric, np.zeros(0))
    return float(np.nanmean(values)) if clips_mean(metric) and values.size else 0.0


def _compare(
    metric: Metric, a: Scores, b: Scores, names: tuple[str, str], settings: CompareOptions
) -> QualityPair:
    """Compares two candidates by one metric, its scale laid over 0-1, on their common prompts."""
    name, nothing = metric.name, np.zeros(0)
    if not (name in a.values and name in b.values):
        return QualityPair(a=names[0], b=names[1], n=0, level=settings.level, metric=name)
    rows_a, rows_b = common_rows(a, b)
    both = ~np.isnan(a.values[name][rows_a]) & ~np.isnan(b.values[name][rows_b])
    low, width = metric.scale[0], (metric.scale[1] - metric.scale[0]) or 1.0
    sides = a.of_figure(name, rows_a[both]), b.of_figure(name, rows_b[both])
    of_a, of_b = (nothing if side is None else (side - low) / width for side in sides)
    if of_a.size != of_b.size:  # one side has nothing to divide by
        of_a = of_b = nothing
    clusters = clusters_of_units(b.units["cluster"].take(rows_b[both])) if of_b.size else None
    pair = pair_of(*names, of_a, of_b, clusters, settings)
    return pair.model_copy(update={"metric": name})


def pair_of(
    a: str,
    b: str,
    of_a: FloatArray,
    of_b: FloatArray,
    clusters: Clusters | None = None,
    settings: CompareOptions = SETTINGS,
) -> QualityPair:
    """Compares two columns of qualities in 0-1, one row per prompt."""
    pair = QualityPair(a=a, b=b, n=of_a.size, level=settings.level)
    if not of_a.size:
        return pair
    difference = float((of_b - of_a).mean())
    error, units = mean_error(of_b - of_a, clusters) or 0.0, count_units(of_a, clusters)
    interval = difference_interval(of_a, of_b, clusters, settings, (0.0, 1.0))
    if interval is not None:
        is_shown = interval.low > 0 or interval.high < 0
    else:  # no spread: only the number of units can tell
        is_shown = abs(difference) > TIE and 2.0 ** (1 - units) < 1 - settings.level
    more = None if is_shown else more_to_show(difference, error, of_a.size, units, settings)
    return pair.model_copy(
        update={
            "difference": _POINTS * difference,
            "low": interval and _POINTS * interval.low,
            "high": interval and _POINTS * interval.high,
            "is_shown": is_shown,
            "more": more,
        }
    )


_TEXT_COLUMNS = ("unit_id", "candidate", "task", "prompt_type")
_FIGURES = ("output_tokens", "ttft_s", "duration_s")
_COLUMNS = (*_TEXT_COLUMNS, *_FIGURES, "error")
_ROWS = pa.schema(
    dict.fromkeys(_TEXT_COLUMNS, pa.string())
    | {"output_tokens": pa.int64(), "ttft_s": pa.float64(), "duration_s": pa.float64()}
    | {"is_answered": pa.bool_(), "part": pa.float64(), "whole": pa.float64()}
    | dict.fromkeys(("is_estimate", "is_fallback"), pa.bool_())
)

# The time of a failed answer does not count. A sample without a task goes by its prompt type.
_PERFORMANCE = f"""
WITH units AS (
    SELECT DISTINCT ON (unit_id) candidate, is_estimate, is_fallback,
           coalesce(nullif(task, ''), prompt_type, '') AS task,
           (part - $low * whole) * 100 / ($high - $low) AS part, whole,
           is_answered AND output_tokens IS NOT NULL AND duration_s > 0 AS is_timed,
           CASE WHEN is_answered THEN output_tokens END AS tokens,
           CASE WHEN is_answered THEN ttft_s END AS ttft_s,
           CASE WHEN is_answered THEN duration_s END AS duration_s
    FROM unit_rows)
SELECT candidate, task, count(*) AS n,
       sum(duration_s) AS duration_s_total, avg(duration_s) AS duration_s_mean,
       coalesce(sum(tokens), 0)::BIGINT AS output_tokens,
       {ANSWER_TOKENS_PER_S} AS tokens_per_s,
       avg(ttft_s) AS ttft_s_mean, quantile_cont(ttft_s, 0.95) AS ttft_s_p95,
       count(part) AS n_scored, {MEAN} AS quality, {STDERR} AS quality_stderr,
       count_if(is_estimate) AS estimates, count_if(is_fallback) AS fallbacks
FROM units GROUP BY GROUPING SETS ((candidate), (candidate, task))
HAVING grouping(task) = 1 OR task != ''
ORDER BY candidate, task NULLS FIRST
"""


def measure_speed(records: Records, headline: Metric | None) -> tuple[Performance, ...]:
    """Reads Parquet files with RECORD_SCHEMA and returns, for each candidate, a row over all its
    tasks (task None), then one per task. Quality is that of the `headline` metric, None without
    one, and without a standard error if samples have several answers (`add_intervals` has it)."""
    low, high = headline.scale if headline else (0.0, 1.0)
    with duckdb.connect() as database:
        rows = _unit_rows(records, headline)
        database.register("unit_rows", pa.RecordBatchReader.from_batches(_ROWS, rows))
        performance = database.sql(_PERFORMANCE, params={"low": low, "high": high})
        rows_of = performance.to_arrow_table().to_pylist()
    apart = {"quality_stderr": None} if count_epochs(records) > 1 else {}
    return tuple(Performance(**row | apart) for row in rows_of)


def speed_ratios(records: Records, candidates: Sequence[str]) -> tuple[SpeedRatio, ...]:
    """Compares the speeds of every pair of candidates on the prompts that both answered. The level
    holds for all intervals together, of medians by order statistics."""
    pairs = list(combinations(candidates, 2))
    level = SETTINGS.for_all(len(pairs)).level
    speeds = {name: _speeds(records, name) for name in candidates} if pairs else {}
    ratios = []
    for a, b in pairs:
        (keys_a, of_a), (keys_b, of_b) = speeds[a], speeds[b]
        at = pc.index_in(keys_b, value_set=keys_a)
        both = of_b[at.is_valid().to_numpy(zero_copy_only=False)] / of_a[at.drop_null().to_numpy()]
        if both.size:
            ratios.append(median_ratio(a, b, both, level))
    return tuple(ratios)


def median_ratio(a: str, b: str, ratios: FloatArray, level: float = SETTINGS.level) -> SpeedRatio:
    """The median of the ratios of two candidates' speeds, with its interval."""
    low, high = median_interval(ratios, level) or (None, None)
    median = float(np.median(ratios))
    return SpeedRatio(a=a, b=b, n=ratios.size, level=level, ratio=median, low=low, high=high)


def _speeds(records: Records, candidate: str) -> tuple[pa.Array, FloatArray]:
    """The keys of a candidate's units, and the output tokens per second of each answer."""
    is_timed = pc.field("error").is_null() & (pc.field("candidate") == candidate)
    is_timed &= (pc.field("duration_s") > 0) & (pc.field("output_tokens") > 0)
    columns = ["sample_id", "task", "output_tokens", "duration_s"]
    table = records.to_table(columns, filter=is_timed)
    table = table.take(first_of_each(unit_keys(table)))
    of = pc.divide(table["output_tokens"].cast(pa.float64()), table["duration_s"])
    return unit_keys(table).combine_chunks(), of.to_numpy()


def _unit_rows(records: Records, headline: Metric | None) -> Iterator[pa.RecordBatch]:
    """A row a unit: what it adds to the metric's figure, part and whole (null without a value),
    and whether its score is an estimate, or a fallback."""
    metrics, is_judged = (headline,) if headline else (), isinstance(headline, JudgedMetric)
    fields = (*fields_of_shares(metrics), "judge")
    for table in read_score_tables(records, _COLUMNS, fields):
        of_metric = table.codes([metric.name for metric in metrics]) == 0
        scored = table.only(of_metric & ~np.isnan(table.values))
        shares = [scored.by_unit(slice(None), column) for column in scored.shares(metrics)]
        by_rules = [scored.is_judge(kind) & is_judged for kind in (is_estimate, is_fallback)]
        columns = [
            *(table.units[name] for name in (*_TEXT_COLUMNS, *_FIGURES)),
            table.units["error"].is_null(),
            *(pa.array(column, mask=np.isnan(column)) for column in shares),
            *(pa.array(scored.has(rows)) for rows in by_rules),
        ]
        yield pa.record_batch(columns, schema=_ROWS)

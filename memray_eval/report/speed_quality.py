"""Renders speed beside quality in seed 004's form, then the recommendations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memray_eval.analysis.marks import NOTHING, append_mark, mark
from memray_eval.analysis.recommendation import quality_interval, round_up, swap_sides
from memray_eval.report.sections import ends, figure, format_interval, wrap_text
from memray_eval.types import Performance, Recommendation, Summary

_TASK_WIDTH, _NAME_WIDTH, _SPEED_WIDTH = 14, 20, 4  # the seed's; a longer name widens its column


def performance_lines(rows: Sequence[Performance], headline: str) -> Iterator[str]:
    """One candidate's block: its figures over all tasks, then a line per task."""
    (whole,) = (row for row in rows if row.task is None)
    within = "" if whole.ttft_s_p95 is None else f"  (95% within {whole.ttft_s_p95:.3f}s)"
    yield (
        f"  Total Duration:      {figure(whole.duration_s_total, '.2f', 's')}  (of all "
        "answers; they overlap in a run)"
    )
    yield f"  Total Tokens:        {whole.output_tokens or NOTHING}"
    yield f"  Avg Speed:           {figure(whole.tokens_per_s, '.1f', ' tokens/sec')}"
    yield f"  Avg Time to First:   {figure(whole.ttft_s_mean, '.3f', 's')}{within}"
    if headline:
        yield f"  Avg Quality:         {_format_quality(whole)}  (95 % interval; {headline})"
    if tasks := [row for row in rows if row.task is not None]:
        yield from ("", "  Performance by Task:")
        yield from _task_lines(tasks)


def recommendation_lines(summary: Summary, advice: Recommendation) -> Iterator[str]:
    """The fastest and the best candidate, the Pareto front, which one to use, and the rule."""
    whole = {row.candidate: row for row in summary.performance if row.task is None}
    fastest = [f"{whole[name].tokens_per_s:.1f} tok/s" for name in advice.fastest]
    rows = (whole[name] for name in advice.best)
    best = [append_mark(f"{row.quality:z.1f}/100", performance_mark(row)) for row in rows]
    yield from _list_names("Fastest Model:", advice.fastest, *fastest[:1])
    yield from _list_names("Best Quality:", advice.best, *best[:1])
    if advice.as_good:
        yield from _list_names("Not Shown Worse:", advice.as_good)
    yield from ("", "Speed vs Quality Tradeoff:")
    yield from _tradeoff_lines(list(whole.values()))
    yield from _pair_lines(advice, whole)
    yield ""
    if advice.pareto:
        yield from _list_names("Pareto Front:", advice.pareto)
    if advice.left_out:
        yield from _list_names("Left Out:", advice.left_out, "speed or quality not measured")
    yield "Recommendation:"
    mark = next(filter(None, map(performance_mark, whole.values())), "")
    text = f"Use {advice.use} - {advice.reason}" if advice.use else advice.reason
    yield from wrap_text(f"{text} (quality: {mark})" if mark else text, "   ")
    yield from wrap_text(f"Rule: {advice.rule}", "   ")


def _task_lines(tasks: Sequence[Performance]) -> Iterator[str]:
    speeds = [figure(row.tokens_per_s, ".1f") for row in tasks]
    name_width = max(_TASK_WIDTH, *(len(row.task or "") for row in tasks))
    speed_width = max(_SPEED_WIDTH, *map(len, speeds))
    for row, speed in zip(tasks, speeds, strict=True):
        duration = figure(row.duration_s_mean, ".2f", "s")
        quality = append_mark(figure(row.quality, ".0f", "/100"), performance_mark(row))
        yield (
            f"    {row.task:<{name_width}}{duration:>7}  |  {speed:>{speed_width}} tok/s  |  Q: "
            f"{quality}"
        )


def _tradeoff_lines(rows: Sequence[Performance]) -> Iterator[str]:
    speeds = [figure(row.tokens_per_s, ".1f") for row in rows]
    name_width = max(_NAME_WIDTH, *(len(row.candidate) for row in rows))
    speed_width = max(_SPEED_WIDTH, *map(len, speeds))
    for row, speed in zip(rows, speeds, strict=True):
        yield (
            f"   {row.candidate:<{name_width}} Speed: {speed:>{speed_width}} tok/s  |  Quality: "
            f"{_format_quality(row)}"
        )


def _pair_lines(advice: Recommendation, whole: Mapping[str, Performance]) -> Iterator[str]:
    """The differences from the candidate to use, else from the best, on common prompts."""
    base = advice.use or next(iter(advice.best), "")
    of_base = (pair for pair in advice.pairs if base in (pair.a, pair.b))
    pairs = [swap_sides(pair) if pair.b == base else pair for pair in of_base]
    if not pairs:
        return
    yield ""
    yield f"Quality Against {base}, on Common Prompts ({pairs[0].level * 100:.4g} % intervals):"
    width = max(_NAME_WIDTH, *(len(pair.b) for pair in pairs))
    for pair in pairs:
        span = ends(pair.low, pair.high, "+z.1f")
        unit = f"{span and f' {span}'} points on {pair.n}"
        points = figure(pair.difference, "+z.1f", unit)
        more = "" if pair.more is None else f"; ~{round_up(pair.more):,} more would tell"
        marked = performance_mark(whole[pair.b]) if pair.b in whole else ""
        yield append_mark(f"   {pair.b:<{width}} {points}{more}", marked)


def _list_names(label: str, names: Sequence[str], note: str = "") -> list[str]:
    text = f"{', '.join(names) or NOTHING}" + (f" ({note})" if note else "")
    return wrap_text(f"{label:<20} {text}")


def _format_quality(row: Performance) -> str:
    """Formats a quality with its 95 % interval (half its width, or its ends) and its mark."""
    spread = format_interval(row.quality, quality_interval(row), 1)
    quality = figure(row.quality, ".1f", "/100") + (
        spread and (f" {spread}" if spread.startswith("±") else f" ({spread})")
    )
    return append_mark(quality, performance_mark(row))


def performance_mark(row: Performance) -> str:
    """The mark of a row's quality."""
    return "" if row.quality is None else mark(row.n_scored, row.estimates, row.fallbacks)

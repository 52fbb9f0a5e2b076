"""What a run found, in a sentence, for the head of its page and of the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memray_eval.analysis.intervals import Intervals
from memray_eval.analysis.marks import digits_of, format_figure, name_figure
from memray_eval.analysis.recommendation import swap_sides
from memray_eval.analysis.where import Split, places_in_words, places_of
from memray_eval.report.decisions import NAMES, decide, means_of
from memray_eval.types import EXISTING, MetricSummary, QualityPair, Summary

NAMED = 3  # differences that the sentence names
_PLAIN = Intervals()


def title(summary: Summary) -> str:
    """What was asked: the candidates and the suite."""
    names = [
        "Given answers" if one.candidate == one.model == EXISTING else one.candidate
        for one in summary.candidates
    ]
    shown = names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - 2} more"]
    whole = " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else "".join(shown)
    return f"{whole or 'Nobody'} on {summary.suite or 'no suite'}"


def answer(summary: Summary, splits: Sequence[Split] = ()) -> str:
    """The sentence: who is better where, of several candidates; of one what stands out. `splits`
    (of `find_places`) add the places."""
    known = [one for one in summary.metrics if one.figure.value is not None]
    if not known:
        return f"Nothing was scored: {_why_nothing(summary)}."
    failed = (
        f" {summary.n_failed_units:,} of {summary.n_units:,} units failed."
        if summary.n_failed_units
        else ""
    )
    if len(summary.candidates) > 1:
        return "".join((*_several(summary, known, places_of(splits)), failed))
    return "".join((*_one(summary, known), *_place_of_one(splits), failed))


def _why_nothing(summary: Summary) -> str:
    if not summary.causes:
        answered = sum(one.answered or 0 for one in summary.candidates)
        return "no metric applied to an answer" if answered else "there is no answer"
    first, *others = summary.causes
    if summary.n_failed_units < summary.n_units:
        return first.cause
    count = f", {first.n_units:,} of them with" if others else ":"
    return f"all {summary.n_units:,} units failed{count} {first.cause}"


def _several(
    summary: Summary, known: Sequence[MetricSummary], places: Mapping[str, str]
) -> Iterator[str]:
    metrics = {one.metric for one in known}
    shown = [pair for pair in summary.differences if pair.is_shown]
    names = [one.candidate for one in summary.candidates]
    scales = {one.metric: one.scale for one in known}
    n_compared = len({pair.metric for pair in summary.differences})
    if not summary.differences:
        yield f"{len(names)} candidates on {len(metrics)} metrics, not compared."
    elif not shown:
        of = f" on any of {n_compared} metrics" if n_compared > 1 else ""
        yield f"No candidate is told from the best{of}."
    elif len(names) == 2:
        by_winner = {name: [pair for pair in shown if pair.a == name] for name in names}
        first, second = sorted(names, key=lambda name: -len(by_winner[name]))
        yield f"{first} is better than {second} on {len(by_winner[first])} of {n_compared}"
        yield f" ({_details(by_winner[first], scales)}), worse on "
        lost = by_winner[second]
        yield f"{len(lost)} ({_details(lost, scales)})" if lost else "none"
        rest = n_compared - len(shown)
        told = [f"{rest} not told apart"] if rest else []
        of_shown = {pair.metric: places.get(pair.metric, "") for pair in shown}
        told += places_in_words(of_shown, NAMED)
        yield f"; {'; '.join(told)}." if told else "."
    else:
        level = {name: n_compared - sum(pair.b == name for pair in shown) for name in names}
        parts = [
            f"{name} on {level[name]}" for name in sorted(names, key=lambda name: -level[name])
        ]
        yield f"Best, or not told from the best, of {n_compared} metrics: {', '.join(parts)}."
        largest = min(shown, key=lambda pair: pair.difference or 0.0)
        gain = _gain(largest, scales[largest.metric])
        yield f" Largest difference: {gain}, {largest.a} over {largest.b}."


def _details(pairs: Sequence[QualityPair], scales: Mapping[str, tuple[float, float]]) -> str:
    largest = sorted(pairs, key=lambda pair: pair.difference or 0.0)[:NAMED]
    told = ", ".join(_gain(pair, scales[pair.metric]) for pair in largest)
    return f"{told}{', ...' if len(pairs) > NAMED else ''}"


def _gain(pair: QualityPair, scale: tuple[float, float]) -> str:
    """By how much the best of a pair (a) is better, in the metric's own scale."""
    best, digits = swap_sides(pair), digits_of(scale)
    gain, low, high = (
        None if points is None else f"{points / 100 * (scale[1] - scale[0]):z.{digits}f}"
        for points in (best.difference, best.low, best.high)
    )
    between = "" if low is None or high is None else f" [{low}, {high}]"
    return f"{pair.metric} +{gain}{between}"


def _one(summary: Summary, known: Sequence[MetricSummary]) -> Iterator[str]:
    overall = [one for one in decide(means_of(summary)) if not one.scenario]
    for decision in overall:
        why = f": {decision.reasons[0]}" if decision.reasons else ""
        marked = f" ({decision.mark})" if decision.mark else ""
        yield f"{decision.candidate}: {NAMES[decision.verdict]}{marked}{why}."
        return
    if len(known) == 1:
        yield f"{_figure(known[0])}."
        return
    ranked = sorted(
        known,
        key=lambda one: (
            ((one.figure.value or 0.0) - one.scale[0]) / ((one.scale[1] - one.scale[0]) or 1.0)
        ),
    )
    yield f"Highest in its scale: {_figure(ranked[-1])}; lowest: {_figure(ranked[0])}."


def _place_of_one(splits: Sequence[Split]) -> Iterator[str]:
    """The group that stands out most, told from chance."""
    for split in splits[:1]:
        for group in split.groups[:1]:
            if split.against or not group.is_shown or group.interval is None:
                continue
            digits, sign = digits_of(split.scale), 1 if group.difference > 0 else -1
            low, high = sorted(sign * end for end in group.interval)
            yield (
                f" It stands out in {split.by} {group.group or 'unnamed'}: {split.metric} is "
                f"{abs(group.difference):z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}] "
                f"{'higher' if sign > 0 else 'lower'} than over all."
            )


def _figure(one: MetricSummary) -> str:
    found, digits = _PLAIN.of_metric(one), digits_of(one.scale)
    between = f" [{found.low:z.{digits}f}, {found.high:z.{digits}f}]" if found else ""
    estimate = ", an estimate" if one.n_estimated else ""
    figure = format_figure(one.figure, one.scale)
    return f"{name_figure(one)} {figure}{between} of {one.scale[1]:g}{estimate}"

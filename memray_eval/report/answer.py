"""A run's result in a sentence; how many of its units have no answer, and why."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from memray_eval.analysis.marks import (
    count_left_out,
    digits_of,
    format_figure,
    left_out,
    metric_undecided,
    name_figure,
)
from memray_eval.analysis.recommendation import round_up, swap_sides
from memray_eval.analysis.where import Split, places_in_words, places_of
from memray_eval.report.decisions import decide, describe_verdict, means_of
from memray_eval.report.sections import bounded, ends, metric_ends, share_of
from memray_eval.types import (
    EXISTING,
    RULES_ON_NO_ANSWER,
    GenerationSummary,
    MetricSummary,
    QualityPair,
    Summary,
)

NAMED = 3  # differences that the sentence names


def title(summary: Summary) -> str:
    """The run's own title, the candidates and the suite."""
    named = [(of.candidate, of.model) for of in summary.candidates]
    names = ["Given answers" if both == (EXISTING, EXISTING) else both[0] for both in named]
    shown = names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - 2} more"]
    whole = " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else "".join(shown)
    of = f"{whole or 'Nobody'} on {summary.suite or 'no suite'}"
    return f"{summary.name}: {of}" if summary.name else of


def answer(summary: Summary, splits: Sequence[Split] = ()) -> str:
    """The sentence: who is better where, of several candidates; of one what is remarkable. `splits`
    (of `find_places`) add the places. It names no estimate."""
    scored = [metric for metric in summary.metrics if metric.figure.value is not None]
    if not scored:
        return f"Nothing was scored: {_why_nothing(summary)}."
    if summary.n_failed_units == summary.n_units:
        names = ", ".join(dict.fromkeys(metric.metric for metric in scored))
        why = _why_nothing(summary)
        return f"{why[0].upper()}{why[1:]}. Scored all the same: {names}."
    estimates = {metric.metric for metric in scored if is_mostly_estimated(metric)}
    splits = [split for split in splits if split.metric not in estimates]
    n_failed = summary.n_failed_units
    failed = f" {n_failed:,} of {summary.n_units:,} answers failed." * bool(n_failed)
    if len(summary.candidates) > 1:
        leading = _describe_leading(summary, scored)
        return "".join(
            (*leading, *_describe_candidates(summary, scored, places_of(splits)), failed)
        )
    return "".join((*_describe_candidate(summary, scored), *_outstanding_group(splits), failed))


def estimates_in_words(summary: Summary) -> str:
    """What an estimate is, and what those of the run were measured to be worth, in short."""
    metrics: dict[str, dict[str, None]] = {}
    for metric in summary.metrics:
        if metric.n_estimated:
            worth = metric.worth.partition(";")[0] or "not measured"
            metrics.setdefault(worth, {})[metric.metric] = None
    measured = (f"{', '.join(names)}: {worth}" for worth, names in metrics.items())
    return f"an estimate, not a judge's verdict ({'; '.join(measured)})"


def compared_differences(summary: Summary) -> list[QualityPair]:
    """The differences of candidates in what is no estimate, and in what enough answers count."""
    left_out = {
        metric.metric
        for metric in summary.metrics
        if is_mostly_estimated(metric) or metric_undecided(metric)
    }
    return [pair for pair in summary.differences if pair.metric not in left_out]


def is_mostly_estimated(metric: MetricSummary) -> bool:
    """True if rules scored at least half of a metric's answers in place of a judge."""
    return metric.n_estimated * 2 >= max(1, metric.n_scored)


def _why_nothing(summary: Summary) -> str:
    if not summary.causes:
        if undecided := _undecided(summary.metrics, len(summary.candidates) > 1):
            return undecided[0]
        answered = sum(candidate.answered or 0 for candidate in summary.candidates)
        return "no metric applied to an answer" if answered else "there is no answer"
    first, *others = summary.causes
    if summary.n_failed_units < summary.n_units:
        return first.cause
    count = f", {first.n_units:,} of them with" if others else ":"
    return f"all {summary.n_units:,} answers failed{count} {first.cause}"


def _describe_leading(summary: Summary, scored: Sequence[MetricSummary]) -> Iterator[str]:
    """What is shown of the metric that leads, where others are compared too."""
    differences = compared_differences(summary)
    of_leading = [pair for pair in differences if pair.metric == summary.leads]
    if not of_leading or len({pair.metric for pair in differences}) == 1:
        return
    if shown := [pair for pair in of_leading if pair.is_shown]:
        scale = next(of.scale for of in scored if of.metric == summary.leads)
        gains = (f"{_describe_gain(pair, scale)}, {pair.a} over {pair.b}" for pair in shown)
        yield f"{'; '.join(gains)}. "
    else:
        yield f"{summary.leads}: no difference is shown. "


def _describe_candidates(
    summary: Summary, scored: Sequence[MetricSummary], groups: Mapping[str, str]
) -> Iterator[str]:
    metrics = {metric.metric for metric in scored}
    estimates = {metric.metric for metric in scored if is_mostly_estimated(metric)}
    differences = compared_differences(summary)
    shown = [pair for pair in differences if pair.is_shown]
    names = [candidate.candidate for candidate in summary.candidates]
    undecided = _undecided(scored, has_several=True)
    scales = {metric.metric: metric.scale for metric in scored}
    n_compared = len({pair.metric for pair in differences})
    if not differences:
        why = ": all figures are estimates" if metrics == estimates else ""
        why = f": {undecided[0]}" if undecided and not why else why
        count = f"{len(metrics)} metric{'s' * (len(metrics) != 1)}"
        yield f"{len(names)} candidates on {count}, not compared{why}."
    elif not shown:
        of = f" on {differences[0].metric}" if len(metrics) > 1 else ""
        if n_compared > 1:
            of = f" on any of {n_compared} metrics"
        if len(names) == 2:
            yield f"No difference is shown between {' and '.join(names)}{of}"
        else:
            yield f"No candidate is shown to differ from the best{of}"
        needed = ((pair.more, pair.difference, pair.metric) for pair in differences if pair.more)
        if least := min(needed, default=None):
            more, points, metric = least
            gap = abs(points or 0.0) / 100 * (scales[metric][1] - scales[metric][0])
            one = f"one of {gap:z.{digits_of(scales[metric])}f} in {metric}"
            yield f"; about {round_up(more):,} more samples would show {one}"
        yield "."
    elif len(names) == 2:
        first, second = sorted(names, key=lambda name: -sum(pair.a == name for pair in shown))
        places = {pair.metric: groups.get(pair.metric, "") for pair in shown}
        shown.sort(key=lambda pair: pair.difference or 0.0)
        won, lost = (
            [_describe_gain(pair, scales[pair.metric]) for pair in shown if pair.a == name]
            for name in (first, second)
        )
        yield compare_in_words(first, second, won, lost, n_compared, places)
    else:
        compared = {(of, pair.metric) for pair in differences if pair.n for of in (pair.a, pair.b)}
        below = {(pair.b, pair.metric) for pair in shown}
        level = Counter(name for name, _ in compared - below)
        most_first = sorted(names, key=lambda name: -level[name])
        counts = ", ".join(f"{name} on {level[name]}" for name in most_first if level[name])
        yield f"Best, or not clearly below it, on {n_compared} metrics: {counts}."
        largest = min(shown, key=lambda pair: pair.difference or 0.0)
        gain = _describe_gain(largest, scales[largest.metric])
        yield f" Largest difference: {gain}, {largest.a} over {largest.b}."
    if differences and undecided:
        yield f" {_first_and_more(undecided)}."


def _undecided(metrics: Sequence[MetricSummary], has_several: bool) -> list[str]:
    """What is not decided, and why, a text a metric and candidate."""
    return [
        f"{row.metric}{f' of {row.candidate}' * has_several} is {why}"
        for row in metrics
        if (why := metric_undecided(row))
    ]


def _first_and_more(texts: Sequence[str]) -> str:
    return texts[0] + (f", and {len(texts) - 1} more" if len(texts) > 1 else "")


def compare_in_words(
    first: str, second: str, better: Sequence[str], worse: Sequence[str], n: int,
    places: Mapping[str, str], words: tuple[str, str] = ("better", "worse"),
) -> str:  # fmt: skip
    """The sentence on two of `n` metrics: the differences on which the first is better, and worse,
    the largest first, and the places that have most of them."""
    counts = [
        f" ({', '.join(texts[:NAMED])}{', ...' * (len(texts) > NAMED)})" if texts else ""
        for texts in (better, worse)
    ]
    won, lost = f"{len(better)} of {n}{counts[0]}", f"{len(worse) or 'none'}{counts[1]}"
    rest = n - len(better) - len(worse)
    parts = [f"{rest} without a clear difference"] * bool(rest) + places_in_words(places, NAMED)
    sentence = f"{first} is {words[0]} than {second} on {won}, {words[1]} on {lost}"
    return f"{'; '.join((sentence, *parts))}."


def _describe_gain(pair: QualityPair, scale: tuple[float, float]) -> str:
    """By how much the best of a pair (a) is better, in the metric's own scale."""
    best, form = swap_sides(pair), f"z.{digits_of(scale)}f"
    gain, low, high = (
        None if points is None else points / 100 * (scale[1] - scale[0])
        for points in (best.difference, best.low, best.high)
    )
    return f"{pair.metric} +{bounded(gain, low, high, form)}"


def _describe_candidate(summary: Summary, scored: Sequence[MetricSummary]) -> Iterator[str]:
    decisions = decide(means_of(summary))
    for decision in decisions:
        if not decision.scenario:
            why = f": {decision.reasons[0]}" if decision.reasons else ""
            stops = [of for of in decisions if of.scenario and of.verdict != "deploy"]
            named = ", ".join(f"{of.scenario} ({describe_verdict(of)})" for of in stops)
            stopped = f"; not deploy in {named}" if stops else ""
            yield f"{decision.candidate}: {describe_verdict(decision)}{why}{stopped}."
            return
    measured = [metric for metric in scored if not is_mostly_estimated(metric)]
    if not measured:
        n = len(scored)
        what = f"all {n} figures are estimates" if n > 1 else "the figure is an estimate"
        yield f"Without a judge's verdict: {what}."
        return
    undecided = _undecided(measured, has_several=False)
    rest = f" {_first_and_more(undecided)}." if undecided else ""
    measured = [metric for metric in measured if not metric_undecided(metric)]
    if len(measured) < 2:
        yield f"{_describe_figure(measured[0])}.{rest}" if measured else rest[1:]
        return
    ranked = sorted(measured, key=lambda of: share_of(of.figure.value or 0.0, of.scale))
    yield from (f"{_describe_figure(of)}. " for of in ranked if of.metric == summary.leads)
    others = [of for of in ranked if of.metric != summary.leads]
    if len(others) == 1:
        yield f"{_describe_figure(others[0])}.{rest}"
        return
    lowest = "Lowest" if others[0] is ranked[0] else "Of the others, lowest"
    yield f"{lowest} on its own scale: {_describe_figure(others[0])}.{rest}"


def _outstanding_group(splits: Sequence[Split]) -> Iterator[str]:
    """The group that stands out most, told from chance."""
    for split in splits[:1]:
        for group in split.groups[:1]:
            if split.against or not group.is_shown or group.interval is None:
                continue
            form, sign = f"z.{digits_of(split.scale)}f", 1 if group.difference > 0 else -1
            low, high = sorted(sign * end for end in group.interval)
            yield (
                f" It stands out in {split.by} {group.group or 'unnamed'}: {split.metric} is "
                f"{abs(group.difference):{form}} {ends(low, high, form)} "
                f"{'higher' if sign > 0 else 'lower'} than over all."
            )


def _describe_figure(metric: MetricSummary) -> str:
    limits = metric_ends(metric)
    between = f" [{', '.join(limits)}]" if limits else ""
    estimate = f", {metric.n_estimated:,} answers estimated" if metric.n_estimated else ""
    shown = format_figure(metric.figure, metric.scale)
    out = left_out(*count_left_out(metric))
    return (
        f"{name_figure(metric)} {shown}{between} of {metric.scale[1]:g}{estimate}"
        f"{f' ({out})' if out else ''}"
    )


def causes_in_words(generation: GenerationSummary) -> str:
    """Such as "4 (3 limit, 1 refusal)"; "" if every unit has an answer, or failed."""
    most_first = sorted(generation.no_answer.items(), key=lambda item: (-item[1], item[0]))
    causes = ", ".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in most_first)
    return f"{sum(generation.no_answer.values()):,} ({causes})" if causes else ""


def no_answer_lines(summary: Summary) -> Iterator[str]:
    """A line for each candidate with unanswered units, and one for what was asked again."""
    for generation in summary.candidates:
        of = f" of {generation.candidate}" if len(summary.candidates) > 1 else ""
        if causes_text := causes_in_words(generation):
            total, _, causes = causes_text.partition(" ")
            name = generation.candidate
            metrics = [metric for metric in summary.metrics if metric.candidate == name]
            outcome = _what_became(generation, metrics)
            yield f"No answer: {total} of {generation.n:,}{of} {causes}{outcome}"
        if generation.asked_again:
            yield (
                f"Asked again with a larger limit: {generation.asked_again:,}{of}, of which "
                f"{generation.answered_then:,} answered then"
            )


def _what_became(generation: GenerationSummary, metrics: list[MetricSummary]) -> str:
    if not metrics:
        return ""
    if not any(metric.n_scored for metric in metrics):
        return ", not scored"
    if any(RULES_ON_NO_ANSWER in metric.judges for metric in metrics):
        return ", counted as the lowest score (on_no_answer: zero)"
    n_left_out = max(metric.n_no_answer for metric in metrics)
    if not n_left_out:
        return ", scored as empty texts"
    total = sum(generation.no_answer.values())
    some = "" if n_left_out == total else f"{n_left_out:,} of them "
    return f", {some}left out of the figures"

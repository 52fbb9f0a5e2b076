"""How many units have an answer, and why the others have none, in words."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.types import RULES_ON_NO_ANSWER, GenerationSummary, MetricSummary, Summary


def causes_in_words(one: GenerationSummary) -> str:
    """Such as "4 (3 limit, 1 refusal)"; "" if every unit has an answer, or failed."""
    most_first = sorted(one.no_answer.items(), key=lambda item: (-item[1], item[0]))
    causes = ", ".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in most_first)
    return f"{sum(one.no_answer.values()):,} ({causes})" if causes else ""


def no_answer_lines(summary: Summary) -> Iterator[str]:
    """A line for each candidate some of whose units have no answer, and one for what was asked
    again."""
    for one in summary.candidates:
        of = f" of {one.candidate}" if len(summary.candidates) > 1 else ""
        if told := causes_in_words(one):
            total, _, causes = told.partition(" ")
            mine = [metric for metric in summary.metrics if metric.candidate == one.candidate]
            yield f"No answer: {total} of {one.n:,}{of} {causes}{_what_became(one, mine)}"
        if one.asked_again:
            yield (
                f"Asked again with a larger limit: {one.asked_again:,}{of}, of which "
                f"{one.answered_then:,} answered then"
            )


def _what_became(one: GenerationSummary, metrics: list[MetricSummary]) -> str:
    if not metrics:
        return ""
    if any(RULES_ON_NO_ANSWER in metric.judges for metric in metrics):
        return ", counted as the lowest score (on_no_answer: zero)"
    n_left_out = max(metric.n_no_answer for metric in metrics)
    if not n_left_out:
        return ", scored as empty texts"
    total = sum(one.no_answer.values())
    some = "" if n_left_out == total else f"{n_left_out:,} of them "
    return f", {some}left out of the figures"

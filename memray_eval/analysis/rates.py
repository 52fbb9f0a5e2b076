"""Every speed that a run shows, defined once: the console, the page and the files of a run take
theirs from here. report/READING.md lists them."""

from __future__ import annotations

# `answer_tokens_per_s` of many answers, in SQL over rows with `tokens`, `duration_s`, `is_timed`:
# all their tokens over all their seconds, so that a long answer counts as long as it took.
ANSWER_TOKENS_PER_S = "sum(tokens) FILTER (is_timed) / sum(duration_s) FILTER (is_timed)"


def rows_per_s(rows: int, span_s: float | None) -> float | None:
    """A stage's finished rows over the seconds from its first start to its last end."""
    return _divide(rows, span_s)


def period_per_s(count: int, seconds: float) -> float | None:
    """The rate at a time: the judge calls sent in a period, retries included, or the units that a
    stage finished in it, over its seconds: the last ten in a live view, a bin in plots."""
    return _divide(count, seconds)


def generated_tokens_per_s(output_tokens: int, busy_s: float | None) -> float | None:
    """A candidate's throughput: the output tokens of all its answers, over the seconds in which any
    of its requests was under way. None without tokens, as of a baseline."""
    return _divide(output_tokens or None, busy_s)


def answer_tokens_per_s(output_tokens: int | None, duration_s: float | None) -> float | None:
    """One answer's speed: its output tokens over all of its seconds, those until its first token
    included. Of several answers: ANSWER_TOKENS_PER_S."""
    return _divide(output_tokens, duration_s)


def _divide(amount: int | None, seconds: float | None) -> float | None:
    return amount / seconds if amount is not None and seconds is not None and seconds > 0 else None

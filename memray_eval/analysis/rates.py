"""Every speed that a run shows is an amount over seconds; report/READING.md says of each which."""

# Answers' tokens a second, in SQL over rows with `tokens`, `duration_s`, `is_timed`: all their
# tokens over all their seconds, so that a long answer counts as long as it took.
ANSWER_TOKENS_PER_S = "sum(tokens) FILTER (is_timed) / sum(duration_s) FILTER (is_timed)"


def per_s(amount: int | None, seconds: float | None) -> float | None:
    """An amount over its seconds; None if either is not known, or there is no time."""
    return amount / seconds if amount is not None and seconds is not None and seconds > 0 else None

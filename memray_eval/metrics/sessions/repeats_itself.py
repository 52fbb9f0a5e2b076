"""Repeats itself: what share of the reply has the assistant not said before, by runs of four words?

1 - the share of the reply's word 4-grams, each occurrence counted, that are in one of its own
earlier replies. Source: the idea is Self-BLEU's (Zhu et al. 2018), a text's n-gram precision
against its own other texts; here the references are the earlier replies, one n counts and nothing
is clipped. A reply of fewer than 4 words is repeated if an earlier one is the same. Not
applicable without an earlier reply; an empty response scores 1: it repeats nothing."""

from __future__ import annotations

from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.text_processing.matching import words
from memray_eval.types import Response, Sample

N = 4  # words


def ngrams(text: str) -> list[tuple[str, ...]]:
    """The runs of N words of a text; all of its words if they are fewer; [] if it has none."""
    tokens = words(text)
    return [tuple(tokens[k : k + N]) for k in range(max(1, len(tokens) - N + 1))] if tokens else []


def measure(sample: Sample, response: Response) -> MetricValue:
    """1 - repeated / all n-grams of the reply."""
    own = ngrams(response.text)
    replies = (turn.content for turn in sample.history if turn.role == "assistant")
    earlier = {gram for reply in replies for gram in ngrams(reply)} if own else set()
    repeated = sum(gram in earlier for gram in own)
    share = repeated / len(own) if own else 0.0
    return MetricValue(
        value=1.0 - share, parts={"repeated": float(repeated), "all": len(own) * 1.0}
    )


def why_not(sample: Sample) -> str | None:
    if any(turn.role == "assistant" for turn in sample.history):
        return None
    return "there is no earlier reply to repeat"


METRIC = ComputedMetric(
    title="REPEATS ITSELF (NEW WORDS)",
    value_label="New Words",
    scale=(0, 1),
    applies=why_not,
    parts=("repeated", "all"),
    measure=measure,
)

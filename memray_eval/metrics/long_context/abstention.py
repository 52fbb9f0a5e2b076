"""Whether the response declines exactly where the question has no answer in the conversation.

1.0 where the response says that it does not know (by its English words: "not mentioned", "I don't
know", "cannot be determined" and the like) and the question cannot be answered, or where neither
holds; else 0.0. Whether an answer that is given is right is not asked. An empty response declines
nothing. In another language than English what does not decline in English words is not measured."""

import numpy as np

from memray_eval.metric import (
    Aggregates,
    Columns,
    ComputedMetric,
    MetricValue,
    NothingToScoreError,
    ratio,
    section,
)
from memray_eval.text_processing.denials import says_unknown
from memray_eval.text_processing.numerals import is_foreign
from memray_eval.types import Response, Sample

DECLINED, UNANSWERABLE = "declined", "unanswerable"


def is_unanswerable(sample: Sample) -> bool:
    return sample.metadata.get("unanswerable") is True


def applies(sample: Sample) -> str | None:
    if sample.answers or is_unanswerable(sample):
        return None
    return "the sample has no right answer (its field `answers`), and not metadata.unanswerable"


def measure(sample: Sample, response: Response) -> MetricValue:
    declined, wanted = says_unknown(response.text), is_unanswerable(sample)
    # a name alone ("La Paz") answers a question
    if not declined and is_foreign(response.text, is_prose=wanted):
        raise NothingToScoreError("not measured: the text is in another language than English")
    parts = {DECLINED: float(declined), UNANSWERABLE: float(wanted)}
    return MetricValue(float(declined == wanted), parts)


def aggregate(columns: Columns) -> Aggregates:
    """How many of the unanswerable questions are declined, and how many of the others."""
    declined, wanted = columns[DECLINED], columns[UNANSWERABLE]
    both = float(np.dot(declined, wanted))
    n = float(wanted.sum())
    return Aggregates(
        extras={
            "declined_unanswerable": ratio(both, n),
            "declined_answerable": ratio(float(declined.sum()) - both, wanted.size - n),
        }
    )


METRIC = ComputedMetric(
    title="ABSTENTION",
    value_label="Abstention",
    scale=(0, 1),
    applies=applies,
    measure=measure,
    parts=(DECLINED, UNANSWERABLE),
    aggregate=aggregate,
    layout=(
        section(
            ("Declines Rightly", "mean", "percent"),
            (
                "Unanswerable, Declined",
                "extras.declined_unanswerable",
                "percent",
                "higher is better",
            ),
            ("Answerable, Declined", "extras.declined_answerable", "percent", "lower is better"),
            ("Total Samples", "n_scored", "count"),
        ),
    ),
)

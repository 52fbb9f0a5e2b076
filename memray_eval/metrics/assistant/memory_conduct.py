"""Memory conduct: does the response say what it must of the user's memory, and nothing that it must
not?

By code, from the sample's `metadata.expects`: {"say": [[text, ...], ...]}, of each list one
text; {"not": [text, ...]}, none of them; {"outdated": [text, ...]}, none of them unless all of
"say" is said; {"ask": [text, ...]}, one of them within a question; {"or_ask": [text, ...]}, such a
question in place of "say". 1 if all holds, else 0. Texts are found as words and values, without
case: "8,000" is "8000", and "art" is not in "start". It tells what stands in a response, not
what the response means by it."""

import re

from memray_eval.metric import Aggregates, Columns, ComputedMetric, Measured, MetricValue, section
from memray_eval.text_processing.denials import read_expectations, says
from memray_eval.types import Response, Sample
from memray_eval.types.samples import EXPECTS

_QUESTION = re.compile(r"[^.!?\n。！？؟]*[?？؟]")
SAID, SLIPPED, ASKED = "said", "slipped", "asked"


def measure(sample: Sample, response: Response) -> MetricValue:
    """1 if the response does all that is expected, else 0. Raises ValueError for expectations that
    cannot be read."""
    expects = read_expectations(sample.metadata)
    text = response.text
    questions = " . ".join(_QUESTION.findall(text))
    says_all = all(says(text, group) for group in expects.get("say", ()))
    asks = says(questions, [*expects.get("ask", ()), *expects.get("or_ask", ())])
    slipped = says(text, expects.get("not", ())) or (
        says(text, expects.get("outdated", ())) and not says_all
    )
    does = (says_all or (asks and "or_ask" in expects)) and (asks or "ask" not in expects)
    parts = {SAID: float(says_all), SLIPPED: float(slipped), ASKED: float(asks)}
    return MetricValue(float(does and not slipped), parts)


def aggregate(columns: Columns) -> Aggregates:
    """The shares of responses that say all they must, say what they must not, and ask."""
    return Aggregates(
        extras={f"{name}_rate": float(columns[name].mean()) for name in (SAID, SLIPPED, ASKED)}
    )


METRIC = ComputedMetric(
    title="MEMORY CONDUCT",
    value_label="Conduct",
    scale=(0, 1),
    measure=measure,
    measured=Measured(n=76, what="replies", recall=0.80, specificity=0.74, kappa=0.55),
    applies=lambda sample: (
        None if sample.metadata.get(EXPECTS) else f"metadata.{EXPECTS} says nothing of this sample"
    ),
    by_task=True,
    parts=(SAID, SLIPPED, ASKED),
    aggregate=aggregate,
    layout=(
        section(
            ("Does All", "mean", "percent"),
            ("Says What It Must", "extras.said_rate", "percent"),
            ("Says What It Must Not", "extras.slipped_rate", "percent", "lower is better"),
            ("Asks", "extras.asked_rate", "percent"),
            ("Total Samples", "n_scored", "count"),
        ),
    ),
)

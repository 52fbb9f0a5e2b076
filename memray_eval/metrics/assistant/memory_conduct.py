"""Memory conduct: does the response say what it must of the user's memory, and nothing that it must
not?

By code, from the sample's `metadata.expects`: {"say": [[text, ...], ...]}, of each list one
text; {"not": [text, ...]}, none of them; {"outdated": [text, ...]}, none of them unless all of
"say" is said; {"ask": [text, ...]}, one of them within a question; {"or_ask": [text, ...]}, such a
question in place of "say". 1 if all holds, else 0. Texts are found as words and values, without
case: "8,000" is "8000", and "art" is not in "start". It tells what stands in a response, not
what the response means by it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from memray_eval.metric import Aggregates, Columns, ComputedMetric, Measured, MetricValue
from memray_eval.metrics._shared.layout import section
from memray_eval.text_processing.values import tokens
from memray_eval.types import Response, Sample
from memray_eval.types.samples import EXPECTS

_LISTS = ("not", "outdated", "ask", "or_ask")
_QUESTION = re.compile(r"[^.!?\n。！？؟]*[?？؟]")
_POSSESSIVE = re.compile(r"['’]s\b")
SAID, SLIPPED, ASKED = "said", "slipped", "asked"


def expectations(sample: Sample) -> Mapping[str, Any]:
    """What is expected of a response. Raises ValueError that names the field at fault."""
    expects = sample.metadata.get(EXPECTS)
    if not isinstance(expects, Mapping) or not expects:
        raise ValueError(f"metadata.{EXPECTS}: a mapping of say, {', '.join(_LISTS)}")
    if unknown := sorted(expects.keys() - {"say", *_LISTS}):
        raise ValueError(
            f"metadata.{EXPECTS}: no {unknown[0]!r}; there are: say, {', '.join(_LISTS)}"
        )
    groups = {"say": expects.get("say", []), **{name: [expects.get(name, [])] for name in _LISTS}}
    for name, lists in groups.items():
        if not isinstance(lists, list) or not all(map(_is_texts, lists)):
            raise ValueError(f"metadata.{EXPECTS}.{name}: lists of texts, none of them empty")
    return expects


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and tokens(text) for text in value)


def measure(sample: Sample, response: Response) -> MetricValue:
    """1 if the response does all that is expected, else 0."""
    expects = expectations(sample)
    text = response.text
    questions = " . ".join(_QUESTION.findall(text))
    said = all(_holds(text, group) for group in expects.get("say", ()))
    asked = _holds(questions, [*expects.get("ask", ()), *expects.get("or_ask", ())])
    slipped = _holds(text, expects.get("not", ())) or (
        _holds(text, expects.get("outdated", ())) and not said
    )
    does = (said or (asked and "or_ask" in expects)) and (asked or "ask" not in expects)
    parts = {SAID: float(said), SLIPPED: float(slipped), ASKED: float(asked)}
    return MetricValue(float(does and not slipped), parts)


def _holds(text: str, sought: Iterable[str]) -> bool:
    return any(
        _is_within(phrase, words) for words in _readings(text) for phrase in map(tokens, sought)
    )


@lru_cache(8)
def _readings(text: str) -> tuple[tuple[str, ...], ...]:
    """The words of a text without possessive endings; with hyphens as tokens() has them, and as
    spaces."""
    plain = _POSSESSIVE.sub("", text)
    return tokens(plain), tokens(plain.replace("-", " "))


def _is_within(phrase: Sequence[str], words: Sequence[str]) -> bool:
    """True if the words hold the phrase. Text without spaces between words (Chinese, Japanese) is
    looked through by character."""
    if any("\u3040" <= character <= "\u9fff" for word in phrase for character in word):
        return "".join(phrase) in "".join(words)
    size = len(phrase)
    return any(tuple(words[at : at + size]) == tuple(phrase) for at in range(len(words) - size + 1))


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

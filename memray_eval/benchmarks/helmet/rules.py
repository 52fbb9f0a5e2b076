"""HELMET's score of its RAG tasks and of json_kv, as princeton-nlp/HELMET 4526dfb has it (utils.py,
data.py): whether a right answer is in the reply, both normalised. Its other recall tasks are
scored as RULER scores them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memray_eval.benchmarks import Rule
from memray_eval.benchmarks.longbench.rules import english_words

VERSION = "HELMET 4526dfb"
ANSWER, VALUE = "Answer:", "corresponding value:"


def substring_match(reply: str, answers: Sequence[str], prefix: str = ANSWER) -> float:
    """1.0 if any of the answers, without case, punctuation and articles, is a part of the reply
    or of what follows the prefix there. Parts of words count: "art" is in "party". Raises
    ValueError without answers."""
    if not answers:
        raise ValueError("the sample has no answers to look for")
    texts = [_normalise(text) for text in (reply, read_answer(reply, prefix))]
    return float(any(_normalise(answer) in text for answer in answers for text in texts))


def read_answer(reply: str, prefix: str) -> str:
    """The rest of the first line after the prefix, in any case; the first line where it is not
    there."""
    match = re.search(f"{re.escape(prefix)}(.*)", reply, re.IGNORECASE)
    text = (match[1] if match else reply.split("\n")[0]).strip()
    return re.sub(f"^{re.escape(prefix)}", "", text, flags=re.IGNORECASE).strip()


def _normalise(text: str) -> str:
    return " ".join(english_words(text))


RULES = {
    "helmet_substring": Rule(
        title="HELMET substring match",
        value_label="Accuracy",
        about="Whether a right answer is a part of the reply, both normalised, as HELMET scores "
        "RAG.",
        version=VERSION,
        score=lambda sample, text: substring_match(
            text, sample.answers, VALUE if sample.task == "json_kv" else ANSWER
        ),
    )
}

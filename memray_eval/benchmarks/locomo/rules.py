"""LoCoMo's score: F1 over Porter-stemmed words, by category, as snap-research/LoCoMo 3eb6f2c has it
in task_eval/evaluation.py."""

from __future__ import annotations

import re
import string

import numpy as np

from memray_eval.benchmarks import Rule
from memray_eval.benchmarks.longbench.rules import token_f1
from memray_eval.text_processing.porter import porter_stem
from memray_eval.types import Sample

VERSION = "LoCoMo 3eb6f2c"
# The official map; two others go about, with the same names for other numbers.
TASKS = tuple("multi_hop temporal open_domain single_hop adversarial".split())
TASK_OF_CATEGORY = dict(enumerate(TASKS, 1))
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DROPPED = re.compile(r"\b(a|an|the|and)\b")
_NO_ANSWER = ("no information available", "not mentioned")


def score(task: str, prediction: str, answer: str) -> float:
    """The score of one prediction, 0-1. Multi-hop answers and predictions are lists with commas:
    each part of the answer counts by the part that fits it best. An open-domain answer ends at its
    first ";". An adversarial question is right if the prediction says one of two phrases. Raises
    ValueError for another task."""
    if task == "adversarial":
        lower = prediction.lower()
        return float(any(phrase in lower for phrase in _NO_ANSWER))
    if task == "multi_hop":
        parts = [_stems(part) for part in prediction.split(",")]
        wanted = [_stems(part) for part in answer.split(",")]
        return float(np.mean([max(token_f1(part, target) for part in parts) for target in wanted]))
    if task == "open_domain":
        answer = answer.split(";")[0]
    if task not in TASKS:
        raise ValueError(f"LoCoMo has no category {task!r}; there are: {', '.join(TASKS)}")
    return token_f1(_stems(prediction), _stems(answer))


def _stems(text: str) -> list[str]:
    """Stems of lower-case words without punctuation, articles and "and"."""
    bare = text.replace(",", "").lower().translate(_PUNCTUATION)
    return [porter_stem(word) for word in _DROPPED.sub(" ", bare).split()]


def _score_best(sample: Sample, text: str) -> float:
    """The best over the answers, of which LoCoMo itself has one a question."""
    if sample.task == "adversarial":
        return score(sample.task, text, "")
    if not sample.answers:
        raise ValueError("LoCoMo's F1 compares an answer, and the sample has none")
    return max(score(sample.task, text, answer) for answer in sample.answers)


RULES = {
    "locomo_f1": Rule(
        title="LoCoMo F1",
        value_label="F1",
        about="F1 of stemmed words by category, as LoCoMo scores.",
        version=VERSION,
        score=_score_best,
        by=score,
        why_not=lambda sample: (
            None
            if sample.task in TASKS
            else f"task {sample.task!r} is no category of LoCoMo's; there are: {', '.join(TASKS)}"
        ),
    )
}

"""RULER's two rules (NVIDIA/RULER c3f5e3b): answers looked for as substrings, cases ignored, 0-1,
so that "12345678" is credited for "1234567". InfiniteBench's tasks are scored by its rules."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memray_eval.benchmarks import Rule
from memray_eval.benchmarks.infinitebench import rules as infinitebench
from memray_eval.types import Sample

VERSION = "RULER c3f5e3b"
_INFINITEBENCH = frozenset(
    {"passkey", "number_string", "kv_retrieval", "math_find", "math_calc", "code_run"}
)
_ALL_ASKED = frozenset({"vt", "cwe", "fwe"})
_UNPRINTABLE = re.compile(r"[\x00-\x1f]")


def recall(prediction: str, answers: Sequence[str]) -> float:
    """The share of answers that the prediction holds: niah, vt, cwe, fwe. Raises ValueError."""
    hits = _found(prediction, answers)
    return sum(hits) / len(hits)


def any_answer(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the prediction holds any of the answers: qa. Raises ValueError without answers."""
    return float(any(_found(prediction, answers)))


def _found(prediction: str, answers: Sequence[str]) -> list[bool]:
    if not answers:
        raise ValueError("the sample has no answers to look for")
    text = _UNPRINTABLE.sub("\n", prediction.strip()).strip().lower()
    return [answer.lower() in text for answer in answers]


def rule_of(sample: Sample) -> str | None:
    if sample.task in _INFINITEBENCH:
        return infinitebench.rule_of(sample)
    if sample.task.startswith("niah_") or sample.task in _ALL_ASKED:
        return "ruler_recall"
    return "ruler_any" if sample.task == "qa" else None


RULES = {
    "ruler_recall": Rule(
        title="RULER recall of all answers",
        value_label="Recall",
        about="The share of all answers that the response holds, as RULER scores niah, vt, cwe and "
        "fwe.",
        version=VERSION,
        score=lambda sample, text: recall(text, sample.answers),
        by=recall,
    ),
    "ruler_any": Rule(
        title="RULER any answer",
        value_label="Accuracy",
        about="Whether the response holds any of the answers, as RULER scores qa.",
        version=VERSION,
        score=lambda sample, text: any_answer(text, sample.answers),
        by=any_answer,
    ),
}

"""BABILong's rule (booydar/babilong e3119da, twenty tasks): the answer is the only label of its
task in the first sentence.

Defects kept: labels are substrings, so that qa7's "none" also says "one" and is never right, and
"know" says qa6's "no"; a "Question" is looked for after lowering, and never cuts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memray_eval.benchmarks import Rule
from memray_eval.types import Sample

VERSION = "BABILong e3119da"

_ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_POLAR = ("no", "yes")
LABELS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4", "qa11", "qa12", "qa13"), _ROOMS),
    **dict.fromkeys(("qa6", "qa9", "qa17", "qa18"), _POLAR),
    "qa5": ("Bill", "Fred", "Jeff", "Mary", "apple", "football", "milk"),
    "qa7": ("none", "one", "three", "two"),
    "qa8": ("apple", "football", "milk", "nothing"),
    "qa10": ("maybe", "no", "yes"),
    "qa14": ("bedroom", "cinema", "kitchen", "office", "park", "school"),
    "qa15": ("cat", "mouse", "sheep", "wolf"),
    "qa16": ("gray", "green", "white", "yellow"),
    "qa19": ("e,e", "e,n", "e,s", "n,e", "n,n", "n,w", "s,e", "s,s", "s,w", "w,n", "w,s", "w,w"),
    "qa20": ("bedroom", "bored", "garden", "hungry", "kitchen", "thirsty", "tired"),
}


def only_label(prediction: str, answer: str, question: str, labels: Iterable[str]) -> float:
    """1.0 if the first sentence holds the answer and no other label, those of the question not
    counted; of an answer of several ("apple,milk"), all its parts and no other."""
    query = question.lower()
    text = prediction.lower().split(".")[0].split("<context>")[0].split("<example>")[0]
    named = {label for label in map(str.lower, labels) if label in text and label not in query}
    wanted = answer.lower()
    parts = wanted.split(",") if "," in wanted and len(wanted) > 3 else [wanted]
    return float(len(named) == len(parts) and named.issuperset(parts))


def _score(sample: Sample, text: str) -> float:
    if (why_not := _why_not(sample)) is not None:
        raise ValueError(why_not)
    if len(sample.answers) != 1:
        raise ValueError(
            f"BABILong's rule compares one answer; the sample has {len(sample.answers)}"
        )
    return only_label(text, sample.answers[0], sample.query, sample.classes or LABELS[sample.task])


def _why_not(sample: Sample) -> str | None:
    if not sample.query:
        return "the sample has no query, whose labels BABILong's rule leaves out"
    if sample.classes or sample.task in LABELS:
        return None
    return f"task {sample.task!r} is none of BABILong's qa1 to qa20, and the sample has no classes"


RULES = {
    "babilong": Rule(
        title="BABILong only label",
        value_label="Accuracy",
        about="Whether the answer is the only label in the response's first sentence, as BABILong "
        "scores.",
        version=VERSION,
        score=_score,
        by=only_label,
        why_not=_why_not,
    )
}

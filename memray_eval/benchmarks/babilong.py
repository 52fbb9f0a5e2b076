"""BABILong: questions on small facts scattered in a long text.

Its rule (booydar/babilong e3119da, twenty tasks): the answer is the only label of its task in the
first sentence. Defects kept: labels are substrings, so that qa7's "none" also says "one" and is
never right, and "know" says qa6's "no"; a "Question" is looked for after lowering, never found."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from memray_eval.benchmarks import Rule, long_context_suite
from memray_eval.benchmarks.templates import PromptByTask, own_wording
from memray_eval.benchmarks.templates.files import Published, known_task, task_of
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
TASKS = tuple(sorted(LABELS, key=lambda task: int(task.removeprefix("qa"))))
# data/qa1/32k.json, or a folder 32k with a file qa1-00000-of-00001.parquet
_LENGTH = re.compile(r"(\d+[kM])(?:-\d+-of-\d+)?")
_MAX_TOKENS = 64
_PLACE = "Reply with the name of the place and nothing else."
_YES_NO = 'Reply with "yes" or "no" and nothing else.'
_FORMS = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4", "qa11", "qa12", "qa13", "qa14"), _PLACE),
    "qa5": "Reply with the name of the person or the thing and nothing else.",
    **dict.fromkeys(("qa6", "qa9", "qa17", "qa18"), _YES_NO),
    "qa7": 'Reply with the number as a word, such as "two", or "none", and nothing else.',
    "qa8": 'Reply with the things, with commas between them, or "nothing", and no other word.',
    "qa10": 'Reply with "yes", "no" or "maybe" and nothing else.',
    "qa15": "Reply with the name of the animal and nothing else.",
    "qa16": "Reply with the name of the colour and nothing else.",
    "qa19": "Reply with the two directions as letters with a comma between them, such as n,e.",
    "qa20": "Reply with one word, the place or the state, and nothing else.",
}
_BEFORE = (
    "In the text below stand a few sentences on people, things and places that have nothing to do "
    "with the rest of it. They tell what happened, in its order: what came later counts. Answer "
    "the question after the text by these sentences alone."
)
WORDINGS = {
    task: own_wording(_BEFORE, f"Question: {{input}}\n\n{form}", _MAX_TOKENS)
    for task, form in _FORMS.items()
}
_WITHOUT_TASK = own_wording(_BEFORE, "Question: {input}\n\nAnswer briefly.", _MAX_TOKENS)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The file's folders and name tell the task, qa1 to qa20, and the length, its bucket."""
    matches = (_LENGTH.fullmatch(part) for part in reversed(re.split(r"[/.\\]", path)))
    length = next((part[1] for part in matches if part), None)
    return {
        "task": task_of(raw, path, TASKS),
        "query": raw["question"].strip(),
        "context": raw["input"],
        "answers": [raw["target"].strip()],
        "metadata": {"bucket": length} if length else {},
    }


prompt = PromptByTask(wordings={**WORDINGS, "": _WITHOUT_TASK})
_published = Published(
    kind="BABILong",
    fields={"input": str, "question": str, "target": str},
    used=("task", "dataset"),
    tasks=TASKS,
    read=_read,
)
# Results of babilong_evals: qa1_4k.csv, qa1_4k_instruction_yes_examples_no.csv
_RESULTS = re.compile(r".*\b(qa\d+)_(\d+[kM])(?:_\w*)?\.csv")


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record, a row of our own, or a row of BABILong's results, which lacks the text. Raises
    ValueError."""
    if not {"query", "target"} <= raw.keys() or not raw.keys().isdisjoint(("input", "answers")):
        return _published(raw, path)
    match = _RESULTS.fullmatch(path)
    task = known_task(match[1], TASKS) if match else task_of(raw, path, TASKS)
    kept = {name: raw[name] for name in raw if name not in ("target", "dataset")}
    bucket = {"metadata": {**(raw.get("metadata") or {}), "bucket": match[2]}} if match else {}
    return {**kept, **bucket, "task": task, "answers": [str(raw["target"]).strip()]}


SUITE = long_context_suite(
    description="BABILong: questions on small facts that stand scattered in a long text",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "babilong",
)

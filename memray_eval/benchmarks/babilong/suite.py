"""BABILong: questions on small facts that stand scattered in a long text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import long_context_suite
from memray_eval.benchmarks.babilong.rules import LABELS, RULES
from memray_eval.benchmarks.templates import PromptByTask, own_wording
from memray_eval.benchmarks.templates.files import Published, task_of

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
adapt = Published(
    kind="BABILong",
    fields={"input": str, "question": str, "target": str},
    used=("task", "dataset"),
    tasks=TASKS,
    read=_read,
)


SUITE = long_context_suite(
    description="BABILong: questions on small facts that stand scattered in a long text",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "babilong",
)

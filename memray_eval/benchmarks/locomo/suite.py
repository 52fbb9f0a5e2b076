"""LoCoMo: questions on ten long conversations between two people, in five categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks import Answered, Suite, mean_of
from memray_eval.benchmarks.conversations.arms import ConversationWording, conversation_prompt
from memray_eval.benchmarks.conversations.errata import sample_id
from memray_eval.benchmarks.locomo.files import FILES, read_answers
from memray_eval.benchmarks.locomo.rules import RULES, TASK_OF_CATEGORY, TASKS
from memray_eval.benchmarks.templates.records import Published, known_task
from memray_eval.types import Candidate, Prompt, Sample

WORDING = ConversationWording(
    before="Two people wrote each other over many months. Below is what they wrote, oldest first; "
    "each sitting begins with its date.",
    after="Question: {question}\n\n"
    "Answer from these conversations alone, in as few words as possible: with the exact words used "
    "there where you can, and a date where a time is asked for (not 'yesterday'; work it out from "
    "the date of the sitting). If they do not tell, reply: Not mentioned in the conversation.\n"
    "Answer:",
    max_tokens=64,
)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A question with a prediction, as vendors write them (question_id, category, question, answer,
    prediction). Its task is the official name of its category."""
    number = raw["category"]
    if isinstance(number, str) and number.strip().isdigit():
        number = int(number)
    task = TASK_OF_CATEGORY.get(number) if isinstance(number, int) else None
    if task is None:
        task = known_task(str(number), TASKS)
    faults: list[tuple[str, str]] = []
    answers = raw.get("answers") or read_answers(raw, task, faults)
    if faults:
        raise ValueError("; ".join(": ".join(fault) for fault in faults))
    fields: dict[str, Any] = {
        "task": task,
        "query": raw.get("query") or raw.get("question"),
        "answers": answers,
        "unanswerable": task == "adversarial",
    }
    if raw.get("question_id") is not None:  # conv-26:qa0, which the audit calls locomo_0_qa0
        fields["id"] = sample_id(str(raw["question_id"]))
        conversation, mark, _ = fields["id"].partition(":qa")
        fields |= {"conversation": conversation} if mark else {}
    return fields


adapt = Published(
    kind="LoCoMo",
    used=("question_id", "question", "query", "answer", "category", "adversarial_answer"),
    tasks=TASKS,
    is_published=lambda raw: "category" in raw and not raw.get("task"),
    lacks="category, or task and query",
    read=_read,
)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In our words, the same for every category: a question does not tell which it is of."""
    return conversation_prompt(sample, candidate, WORDING, sample.query)


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """The mean of the F1 over all questions, as LoCoMo's code prints it, where there are
    adversarial ones among them, and over categories 1 to 4, which vendors report."""
    scored = [row for row in answered if "rule_score" in row.values]
    others = [row for row in scored if row.task != "adversarial"]
    figures = {"F1, categories 1 to 4": mean_of(row.values["rule_score"] for row in others)}
    if len(others) < len(scored):
        figures["F1, all five categories"] = mean_of(row.values["rule_score"] for row in scored)
    return figures


SUITE = Suite(
    description="LoCoMo: questions on ten long conversations between two people, the unanswerable "
    "ones among them",
    metrics=("semantic_correctness", "rule_score", "evidence_recall", "abstention"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_contexts=True,
    has_arms=True,
    files=FILES,
    overall=overall,
    scores_empty=True,
    rules=RULES,
    rule_of=lambda sample: "locomo_f1" if sample.task in TASKS else None,
)

"""LongMemEval: 500 questions on a user's earlier chats with an assistant, of six types, some of
which cannot be answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memray_eval.benchmarks import Answered, Suite, mean_of, mean_of_tasks
from memray_eval.benchmarks.conversations.arms import ConversationWording, conversation_prompt
from memray_eval.benchmarks.longmemeval.files import ABSTENTION, FILES, TASKS
from memray_eval.benchmarks.longmemeval.judge_prompts import METRIC, read_official
from memray_eval.benchmarks.templates.records import Published, known_task
from memray_eval.types import Candidate, Prompt, Sample

WORDING = ConversationWording(
    before="You are a user's assistant. Below are your earlier chats with this user, oldest first; "
    "each begins with its date.",
    after="{question}\n\n"
    "Answer the user, using what they and you said in those chats. Where the newest chat changes "
    "what an earlier one said, the newest holds. If the chats do not tell what is asked, say so.\n"
    "Answer:",
    max_tokens=256,
)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A question with a hypothesis, as the benchmark's own runs write them when merged with its
    questions."""
    name = str(raw.get("question_id") or raw.get("id") or "")
    sessions = raw.get("answer_session_ids")
    fields = {
        "task": known_task(raw["question_type"], TASKS),
        "query": raw.get("query") or raw.get("question"),
        "answers": raw.get("answers")
        or ([str(raw["answer"])] if raw.get("answer") is not None else []),
        "unanswerable": ABSTENTION in name,
        "conversation": name.replace(ABSTENTION, ""),
    }
    if isinstance(sessions, list):
        fields["evidence"] = [["", str(session)] for session in sessions]
    if name:
        fields["id"] = name
    if isinstance(raw.get("hypothesis"), str):
        fields["response"] = raw["hypothesis"]
    return fields


adapt = Published(
    kind="LongMemEval",
    used=("question_id", "question_type", "question", "hypothesis", "answer", "answer_session_ids"),
    tasks=TASKS,
    is_published=lambda raw: "question_type" in raw and not raw.get("task"),
    lacks="question_type",
    read=_read,
)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In our words, the same for every type, with the day on which the user asks."""
    asked_on = sample.metadata.get("question_date")
    when = f"Today is {asked_on}. " if asked_on else ""
    return conversation_prompt(
        sample, candidate, WORDING, f"{when}The user now asks: {sample.query}"
    )


def templated(suite: Suite, path: str) -> Suite:
    """With the benchmark's own judge prompts, out of the user's copy of its repository or of its
    evaluate_qa.py. Raises ConfigError that names what is not there."""
    return replace(suite, judge_rubrics={METRIC: read_official(path)})


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """As print_qa_metrics.py has it: abstention questions count within their types too."""
    scored = [row for row in answered if METRIC in row.values]
    return {
        "task-averaged accuracy": mean_of_tasks(scored, METRIC),
        "overall accuracy": mean_of(row.values[METRIC] for row in scored),
        "abstention accuracy": mean_of(row.values[METRIC] for row in scored if row.is_unanswerable),
    }


SUITE = Suite(
    description="LongMemEval: questions on a user's earlier chats with an assistant, the "
    "unanswerable ones among them",
    metrics=("semantic_correctness", "longmemeval_judge", "evidence_recall", "abstention"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_contexts=True,
    has_arms=True,
    files=FILES,
    overall=overall,
    templated=templated,
    own_metric="longmemeval_judge",
    scores_empty=True,
)

"""PersonaMem: which of four replies fits what a user has said of themselves over many chats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks import Answered, Rule, Suite, mean_of
from memray_eval.benchmarks.conversations.arms import ConversationWording, conversation_prompt
from memray_eval.benchmarks.personamem.files import FILES, LETTERS, QUESTION_FIELDS, read_options
from memray_eval.benchmarks.templates.records import Published
from memray_eval.types import Candidate, Prompt, Sample

VERSION = "PersonaMem 041d82a"
_MARK, _END = "<final_answer>", "</final_answer>"
_IN_BRACKETS = re.compile(r"\(([a-d])\)")
_ALONE = re.compile(r"\b([a-d])\b")
# The names of the seven types as the published tables have them: they differ by length.
TASKS = (
    "recall_user_shared_facts",
    "recalling_facts_mentioned_by_the_user",
    "acknowledge_latest_user_preferences",
    "track_full_preference_evolution",
    "recalling_the_reasons_behind_previous_updates",
    "revisit_reasons_behind_preference_updates",
    "provide_preference_aligned_recommendations",
    "suggest_new_ideas",
    "generalizing_to_new_scenarios",
    "generalize_to_new_scenarios",
)
WORDING = ConversationWording(
    before="Below are a user's earlier chats with an assistant, oldest first.",
    after="{question}\n\n"
    "Exactly one of these replies fits what the user has told of themselves, as it stands by now. "
    "Say which: give its letter in brackets, such as (b), after <final_answer>.",
    max_tokens=64,
)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A question with a response, which is model_response in the benchmark's own results."""
    faults: list[tuple[str, str]] = []
    options = read_options(raw["all_options"], faults) if "all_options" in raw else {}
    if faults:
        raise ValueError("; ".join(": ".join(fault) for fault in faults))
    letter = str(raw.get("correct_answer", "")).strip("() ").lower()
    fields = {
        "task": str(raw.get("question_type", "")),
        "query": raw.get("query") or raw.get("user_question_or_message"),
        "answers": [f"({letter})", *([f"({letter}) {options[letter]}"] if options else [])],
        "label": f"({letter})",
        "choices": options,
        "conversation": str(raw.get("shared_context_id") or raw.get("persona_id") or ""),
    }
    if raw.get("question_id") is not None:
        fields["id"] = str(raw["question_id"])
    if isinstance(raw.get("model_response"), str):
        fields["response"] = raw["model_response"]
    return fields


adapt = Published(
    kind="PersonaMem",
    used=(*QUESTION_FIELDS, "model_response"),
    is_published=lambda raw: "all_options" in raw or "correct_answer" in raw,
    lacks="all_options",
    read=_read,
)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In our words, the same for every type. The options are shown in their order. Raises
    ValueError for a sample without options."""
    choices = sample.metadata.get("choices")
    if not isinstance(choices, Mapping) or not choices:
        raise ValueError("metadata.choices: must give the text of each of a, b, c and d")
    listed = "\n\n".join(f"({letter}) {text}" for letter, text in choices.items())
    question = f"The user now says: {sample.query}\n\nReplies:\n\n{listed}"
    return conversation_prompt(sample, candidate, WORDING, question)


def letter_score(prediction: str, letter: str) -> float:
    """PersonaMem's score, as bowen-upenn/PersonaMem 041d82a has it in
    inference_standalone_openai.py: 1.0 if what follows the last <final_answer>, or else the whole
    reply, names the right letter and no other. Letters in brackets count before those that stand
    alone, of which "a" is one wherever it is the article."""
    final = prediction.strip().rpartition(_MARK)[2].strip().removesuffix(_END)
    return float({letter} in (_named(final), _named(prediction)))


def _named(text: str) -> set[str]:
    lower = text.lower()
    return set(_IN_BRACKETS.findall(lower)) or set(_ALONE.findall(lower))


def _score(sample: Sample, text: str) -> float:
    offered = (str(sample.metadata.get("label", "")), *sample.answers)
    letters = (answer.strip("() ").lower() for answer in offered)
    right = next((letter for letter in letters if letter in tuple(LETTERS)), None)
    if right is None:
        raise ValueError("none of the answers is a letter (a) to (d), which PersonaMem compares")
    return letter_score(text, right)


RULES = {
    "personamem_letter": Rule(
        title="PersonaMem letter",
        value_label="Accuracy",
        about="Whether the reply names the right option alone, as PersonaMem scores.",
        version=VERSION,
        score=_score,
    )
}


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """The share of right letters over all questions."""
    return {"accuracy": mean_of(row.values.get("rule_score") for row in answered)}


SUITE = Suite(
    description="PersonaMem: which of four replies fits what a user has said of themselves",
    metrics=("rule_score", "semantic_correctness", "evidence_recall"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_contexts=True,
    has_arms=True,
    files=FILES,
    overall=overall,
    scores_empty=True,
    rules=RULES,
    rule_of=lambda sample: "personamem_letter",
)

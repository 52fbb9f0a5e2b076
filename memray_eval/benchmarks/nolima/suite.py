"""NoLiMa: a needle that shares no words with the question about it, in a book."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks import Rule, long_context_suite
from memray_eval.benchmarks.templates import PromptByTask, own_wording
from memray_eval.benchmarks.templates.records import check_record

VERSION = "NoLiMa 7532e4e"
# The types of question of its published sets; a set of the user's may have others
TASKS = ("onehop", "twohop", "direct")
WORDING = own_wording(
    "Below is a passage from a book. Read it; a question about it follows.",
    "Question: {input}\n\nAnswer from what the passage says, or from what follows from it without "
    "doubt. Reply with the answer alone.",
    192,  # the tokens that the benchmark's own models are given
)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """NoLiMa's rows are made of a needle set and books in our own format (`memray-eval dataset make
    nolima`). Raises ValueError that says what a row lacks, or that the file is a needle set."""
    if "needle" in raw and "tests" in raw:
        raise ValueError(
            "a needle set is no dataset yet: `memray-eval dataset make nolima --needles FILE "
            "--books FOLDER --out FILE` makes one of it"
        )
    if "sample_id" not in raw:
        check_record(raw, "NoLiMa", {"id": None, "query": None})
    return raw


def contains(reply: str, answers: Sequence[str]) -> float:
    """NoLiMa's score, as adobe-research/NoLiMa 7532e4e has it (evaluation/async_evaluate.py, the
    metric `contains` of its run configurations): 1.0 if any of the answers is in the reply to the
    letter, case counted. Raises ValueError without answers."""
    if not answers:
        raise ValueError("the sample has no answers to look for")
    return float(any(answer in reply for answer in answers))


prompt = PromptByTask(wordings={"": WORDING})
RULES = {
    "nolima_contains": Rule(
        title="NoLiMa contains",
        value_label="Accuracy",
        about="Whether the reply holds a right answer to the letter, as NoLiMa scores.",
        version=VERSION,
        score=lambda sample, text: contains(text, sample.answers),
        by=contains,
    )
}
SUITE = long_context_suite(
    description="NoLiMa: a needle that shares no words with the question about it, in a book",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "nolima_contains",
)

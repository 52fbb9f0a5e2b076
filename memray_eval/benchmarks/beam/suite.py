"""BEAM: ten abilities of memory, on chats of 100 thousand to 10 million tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memray_eval.benchmarks import Answered, Suite, mean_of
from memray_eval.benchmarks.beam.files import FILES, TASKS
from memray_eval.benchmarks.beam.rules import METRIC, ORDERING, read_official
from memray_eval.benchmarks.conversations.arms import ConversationWording, conversation_prompt
from memray_eval.benchmarks.templates.records import check_own_record, is_own_record
from memray_eval.types import Candidate, Prompt, Sample

ORDER_METRIC = "beam_event_order"
WORDING = ConversationWording(
    before="You are a user's assistant. Below are your earlier chats with this user, oldest first; "
    "each begins with its date where that is known.",
    after="The user now says: {question}\n\n"
    "Answer, using what they and you said in those chats and keeping to what they asked of you "
    "there. Where what they said contradicts itself, say so; where the chats do not tell, say "
    "that.\nAnswer:",
    max_tokens=512,
)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A row of our own format as it is. Raises ValueError for anything else, and for an ability
    that there is not."""
    if not is_own_record(raw):
        raise ValueError("not a question of BEAM's: name the folder of its chats as the dataset")
    return check_own_record(raw, TASKS)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In our words, the same for every ability."""
    return conversation_prompt(sample, candidate, WORDING, sample.query)


def templated(suite: Suite, path: str) -> Suite:
    """With the benchmark's own judge prompt, out of the user's copy of its repository or of its
    prompts.py. Raises ConfigError that names what is not there."""
    return replace(suite, judge_rubrics={METRIC: read_official(path)})


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """The mean over the abilities, each counting once, in both readings of the rubric. Event
    ordering counts by Kendall's tau-b in either, where that was computed."""
    ordered = [row for row in answered if ORDER_METRIC in row.values]
    other = [row for row in answered if METRIC in row.values and row.task != ORDERING]
    rubrics = ordered or [row for row in answered if METRIC in row.values and row.task == ORDERING]
    metric = ORDER_METRIC if ordered else METRIC
    tau = mean_of(row.values[metric] for row in rubrics)
    by_ability: dict[str, list[Answered]] = {}
    for row in other:
        by_ability.setdefault(row.task, []).append(row)
    paper = [mean_of(row.values[METRIC] for row in rows) for rows in by_ability.values()]
    code = [
        mean_of(row.parts.get(METRIC, {}).get("as_code") for row in rows)
        for rows in by_ability.values()
    ]
    return {
        "as the paper says": mean_of([*paper, tau]),
        "as the code has it": mean_of([*code, tau]),
    }


SUITE = Suite(
    description="BEAM: ten abilities of memory on chats of 100 thousand to 10 million tokens",
    metrics=("beam_rubric", "beam_event_order", "semantic_correctness", "evidence_recall",
             "abstention"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_contexts=True,
    has_arms=True,
    files=FILES,
    overall=overall,
    templated=templated,
    own_metric="beam_rubric",
    scores_empty=True,
)  # fmt: skip

"""BEAM: ten abilities of memory, on chats of 100 thousand to 10 million tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.beam.files import FILES, TASKS
from memray_eval.benchmarks.beam.judge_prompts import METRIC, read_official
from memray_eval.benchmarks.conversations.arms import Wording, conversation_prompt
from memray_eval.benchmarks.templates.records import check_own_record, is_own_record
from memray_eval.types import Candidate, Prompt, Sample

WORDING = Wording(
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
    templated=templated,
    own_metric="beam_rubric",
)  # fmt: skip

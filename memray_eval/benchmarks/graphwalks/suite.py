"""GraphWalks: which nodes an operation on a long list of directed edges results in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.graphwalks.rules import RULES, TASKS
from memray_eval.benchmarks.templates.records import (
    chars_bucket,
    check_own_record,
    check_record,
    drop_fields,
    is_own_record,
    known_task,
    undo_alias,
)
from memray_eval.types import Candidate, Message, Prompt, Sample

_FIELDS: dict[str, type | None] = {"prompt": str, "prompt_chars": int, "problem_type": str}
_OPERATION = "Operation:\n"  # what a published prompt's last paragraphs begin with
# The harness's output length is 16,384 for every sample. A list takes what its nodes take, and an
# engine's window has to hold it beside the prompt.
_TOKENS_A_NODE, _TOKENS_MAX = 16, 16_384
_SENTENCES = 256


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A published record as a Sample's fields: the context is its prompt up to the operation, the
    query the rest, and both in a row are the prompt. Raises ValueError that says what it lacks."""
    raw = undo_alias(raw, "prompt", ("prompt_chars", "problem_type"))
    if is_own_record(raw):
        return check_own_record(raw, TASKS)
    check_record(raw, "GraphWalks", _FIELDS)
    named = "answer_nodes" if "answer_nodes" in raw else "answer"  # as the dataset's card has it
    nodes = raw.get(named)
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise ValueError(f"answer_nodes: must be a list of text, not {nodes!r:.80}")
    context, operation, query = raw["prompt"].rpartition(_OPERATION)
    kept = {name: raw[name] for name in ("prompt_chars", "date_added") if name in raw}
    return {
        **drop_fields(raw, (*_FIELDS, named, "task", "date_added")),
        "task": known_task(raw["problem_type"].lower(), TASKS),
        "query": operation + query,
        "context": context or None,
        "answers": nodes,
        "metadata": {**kept, "bucket": chars_bucket(raw["prompt_chars"])},
    }


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The edges, and then the question, as they were published or made. After a context of the
    user's that does not end its last line there is an empty one."""
    context = sample.context or ""
    gap = "\n\n" if context and not context.endswith("\n") else ""
    message = Message(role="user", content=f"{context}{gap}{sample.query}")
    max_tokens = min(_TOKENS_MAX, _SENTENCES + _TOKENS_A_NODE * len(sample.answers))
    return Prompt(messages=(message,), max_tokens=max_tokens, is_cut=True)


SUITE = Suite(
    description="GraphWalks: the parents of a node, or the nodes at a distance, in a long list of "
    "edges",
    metrics=("rule_score", "graphwalks_flexible_f1", "graphwalks_harness_f1", "graphwalks_card_f1"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_contexts=True,
    rules=RULES,
    rule_of=lambda sample: "graphwalks_f1" if sample.task in TASKS else None,
)

"""GraphWalks: which nodes an operation on a long list of directed edges results in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import long_context_suite
from memray_eval.benchmarks.graphwalks.rules import RULES, TASKS
from memray_eval.benchmarks.templates.records import Published, chars_bucket, known_task
from memray_eval.types import Candidate, Message, Prompt, Sample

_OPERATION = "Operation:\n"  # what a published prompt's last paragraphs begin with
# The harness's output length is 16,384 for every sample. A list takes what its nodes take, and an
# engine's window has to hold it beside the prompt.
_TOKENS_A_NODE, _TOKENS_MAX = 16, 16_384
_SENTENCES = 256


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The context is a prompt up to the operation, the query the rest, and both in a row are the
    prompt. The answer is called as the dataset has it, or as its card does."""
    nodes = raw.get("answer_nodes" if "answer_nodes" in raw else "answer")
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise ValueError(f"answer_nodes: must be a list of text, not {nodes!r:.80}")
    context, operation, query = raw["prompt"].rpartition(_OPERATION)
    kept = {name: raw[name] for name in ("prompt_chars", "date_added") if name in raw}
    return {
        "task": known_task(raw["problem_type"].lower(), TASKS),
        "query": operation + query,
        "context": context or None,
        "answers": nodes,
        "metadata": {**kept, "bucket": chars_bucket(raw["prompt_chars"])},
    }


adapt = Published(
    kind="GraphWalks",
    fields={"prompt": str, "prompt_chars": int, "problem_type": str},
    used=("answer_nodes", "answer", "task", "date_added"),
    aliases=[("prompt", ("prompt_chars", "problem_type"))],
    tasks=TASKS,
    read=_read,
)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The edges, and then the question, as they were published or made. After a context of the
    user's that does not end its last line there is an empty one."""
    context = sample.context or ""
    gap = "\n\n" if context and not context.endswith("\n") else ""
    message = Message(role="user", content=f"{context}{gap}{sample.query}")
    max_tokens = min(_TOKENS_MAX, _SENTENCES + _TOKENS_A_NODE * len(sample.answers))
    return Prompt(messages=(message,), max_tokens=max_tokens, is_cut=True)


SUITE = long_context_suite(
    description="GraphWalks: the parents of a node, or the nodes at a distance, in a long list of "
    "edges",
    metrics=("rule_score", "graphwalks_flexible_f1", "graphwalks_harness_f1", "graphwalks_card_f1"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "graphwalks_f1" if sample.task in TASKS else None,
)

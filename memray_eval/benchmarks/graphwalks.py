"""GraphWalks: which nodes an operation on a long list of directed edges results in."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from memray_eval.benchmarks import Rule, long_context_suite
from memray_eval.benchmarks.longbench.rules import token_f1
from memray_eval.benchmarks.templates.files import Published, chars_bucket, known_task
from memray_eval.types import Candidate, Message, Prompt, Sample

VERSION = "lm-evaluation-harness 4e7e0d4"
TASKS = ("parents", "bfs")
_LISTED = re.compile(r"Final Answer:\s*\[(.*)\]")


def listed_nodes(lines: Sequence[str]) -> set[str] | None:
    """The nodes that the last of these lines with a list lists; None if none has one."""
    matches = (match for line in reversed(lines) if (match := _LISTED.search(line)))
    if (match := next(matches, None)) is None:
        return None
    items = (item.strip() for item in match[1].split(","))
    return {item.strip("'\"") for item in items if item}


def f1(nodes: set[str] | None, right: Collection[str]) -> float:
    """The F1 of two sets of nodes: 1.0 if both are empty, 0.0 if nothing could be read."""
    if nodes is None:
        return 0.0
    return 1.0 if not nodes and not right else token_f1(nodes, set(right))


def _lines(reply: str) -> list[str]:
    return reply.rstrip("\n").split("\n")


def strict_f1(reply: str, right: Collection[str]) -> float:
    """2PR / (P + R) of the nodes that the last line lists as `Final Answer: [a, b]`: P is the share
    of them that is right, R that of the right ones. 1.0 if both are empty, 0.0 without a list."""
    return f1(listed_nodes(_lines(reply)[-1:]), right)


def flexible_f1(reply: str, right: Collection[str]) -> float:
    """As the strict one, of the last line that has a list, wherever it is."""
    return f1(listed_nodes(_lines(reply)), right)


def harness_f1(reply: str, right: Collection[str]) -> float:
    """The harness's score: the strict reading, and 0.0 if both sets are empty."""
    return token_f1(listed_nodes(_lines(reply)[-1:]) or set(), set(right))


def _rule(title: str, about: str, score: Callable[[str, Sequence[str]], float]) -> Rule:
    return Rule(
        title=title,
        value_label="F1",
        about=about,
        version=VERSION,
        score=lambda sample, text: score(text, sample.answers),
        by=score,
        why_not=lambda sample: (
            None
            if sample.task in TASKS
            else f"task {sample.task!r} is none of GraphWalks's: {', '.join(TASKS)}"
        ),
    )


RULES = {
    "graphwalks_f1": _rule(
        "GraphWalks F1",
        "F1 of the set of nodes that the reply's last line lists (GraphWalks); both empty is 1.",
        strict_f1,
    ),
    "graphwalks_flexible_f1": _rule(
        "GraphWalks F1, any line",
        "F1 of the set of nodes that the last line with a list lists (GraphWalks); both empty is "
        "1.",
        flexible_f1,
    ),
    "graphwalks_harness_f1": _rule(
        "GraphWalks F1, as the harness scores",
        "F1 of the listed nodes as lm-evaluation-harness scores GraphWalks: both empty is 0.",
        harness_f1,
    ),
}


_OPERATION = "Operation:\n"  # what a published prompt's last paragraphs begin with
# The harness's output length is 16,384 for every sample. A list takes what its nodes take, and an
# engine's window has to hold it beside the prompt.
_TOKENS_A_NODE, _TOKENS_MAX = 16, 16_384
_SENTENCES = 256


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The context is a prompt up to the operation, the query the rest."""
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
    """The edges, and then the question, as they were published or made."""
    context = sample.context or ""
    gap = "\n\n" if context and not context.endswith("\n") else ""
    message = Message(role="user", content=f"{context}{gap}{sample.query}")
    max_tokens = min(_TOKENS_MAX, _SENTENCES + _TOKENS_A_NODE * len(sample.answers))
    return Prompt(messages=(message,), max_tokens=max_tokens, is_cut=True)


SUITE = long_context_suite(
    description="GraphWalks: the parents of a node, or the nodes at a distance, in a long list of "
    "edges",
    metrics=("rule_score", "graphwalks_flexible_f1", "graphwalks_harness_f1"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "graphwalks_f1" if sample.task in TASKS else None,
)

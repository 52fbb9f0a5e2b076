"""Needles: generated texts with something to find in them (`dataset make needles`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import long_context_suite
from memray_eval.benchmarks.needles.rules import RULES, rule_of
from memray_eval.benchmarks.templates.files import (
    check_own_record,
    check_record,
    task_of,
    task_of_path,
)
from memray_eval.types import Candidate, Message, Prompt, Sample

# Tokens of an answer. RULER's and InfiniteBench's lengths count on an answer whose first words
# stand in the prompt; a chat model says them itself, so a length gets room for a sentence (or two
# UUIDs) where theirs has none: passkey's 6, or vt's 30.
_SENTENCE_TOKENS = 64
_FOUND_TOKENS = 128  # RULER's for its niah tasks
_LISTED_TOKENS = 120  # RULER's for its ten common words
_CALC_TOKENS_MAX = 30_000  # InfiniteBench's for math_calc
_TOKENS_A_VALUE = 4  # " 57," where each digit is a token
_NIAH = tuple(
    "single_1 single_2 single_3 multikey_1 multikey_2 multikey_3 multivalue multiquery".split()
)

MAX_TOKENS = {
    "passkey": _SENTENCE_TOKENS,
    "number_string": _SENTENCE_TOKENS,
    "kv_retrieval": _FOUND_TOKENS,
    "math_find": _SENTENCE_TOKENS,
    "math_calc": _CALC_TOKENS_MAX,
    "code_run": _SENTENCE_TOKENS,
    **dict.fromkeys((f"niah_{kind}" for kind in _NIAH), _FOUND_TOKENS),
    "vt": _SENTENCE_TOKENS,
    "cwe": _LISTED_TOKENS,
    "fwe": _SENTENCE_TOKENS,
    "qa": _SENTENCE_TOKENS,
}
TASKS = tuple(MAX_TOKENS)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A row in our own format, or of RULER. Raises ValueError."""
    if isinstance(raw.get("outputs"), list) and isinstance(raw.get("input"), str):
        task = task_of_path(path, (*TASKS, "qa_1", "qa_2")) or task_of(raw, path, TASKS)
        others = {name: raw[name] for name in raw if name not in ("input", "outputs", "index")}
        asked = {"id": f"{task}:{raw.get('index', raw.get('id'))}", "query": raw["input"]}
        task = "qa" if task.startswith("qa_") else task
        return {**others, **asked, "task": task, "answers": [*map(str, raw["outputs"])]}
    if "sample_id" not in raw:
        check_record(raw, "needles", {"id": None, "query": None})
    return check_own_record(raw, TASKS)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The context, an empty line, the question, so that its length is the one that was made. A list
    of running values gets as many tokens as it needs, up to InfiniteBench's 30,000."""
    max_tokens = MAX_TOKENS.get(sample.task, _FOUND_TOKENS)
    label = sample.metadata.get("label")
    if sample.task == "math_calc" and isinstance(label, list):
        max_tokens = min(_CALC_TOKENS_MAX, _SENTENCE_TOKENS + _TOKENS_A_VALUE * len(label))
    content = f"{sample.context}\n\n{sample.query}" if sample.context else sample.query
    return Prompt(
        messages=(Message(role="user", content=content),), max_tokens=max_tokens, is_cut=True
    )


SUITE = long_context_suite(
    description="Needles: generated texts of any length, with something hidden to find, follow or "
    "count",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=rule_of,
)

"""Needles: generated texts with something to find in them (`dataset make needles`).

Scored by RULER's two rules (NVIDIA/RULER c3f5e3b): answers looked for as substrings, cases ignored,
0-1, so that "12345678" is credited for "1234567". InfiniteBench's tasks are scored by its rules."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks import Rule, long_context_suite
from memray_eval.benchmarks.infinitebench import rules as infinitebench
from memray_eval.benchmarks.needles.prose import length_label
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
_TOKENS_A_VALUE = 4  # " 57," if each digit is a token
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
        length = _length_of(path)
        name = f"{task}@{length}" if length else task
        question: dict[str, Any] = {
            "id": f"{name}:{raw.get('index', raw.get('id'))}",
            "query": raw["input"],
        }
        if length:
            question["metadata"] = {**(raw.get("metadata") or {}), "bucket": length}
        task = "qa" if task.startswith("qa_") else task
        return {**others, **question, "task": task, "answers": [*map(str, raw["outputs"])]}
    if "sample_id" not in raw:
        check_record(raw, "needles", {"id": None, "query": None})
    return check_own_record(raw, TASKS)


def _length_of(path: str) -> str:
    """The length of RULER's folder, in each of which the index begins at 0; "" if none names it."""
    folders = reversed(path.replace("\\", "/").split("/")[:-1])
    lengths = (int(folder) for folder in folders if re.fullmatch(r"[1-9]\d{3,6}", folder))
    return next((length_label(n) for n in lengths if n % 1000 == 0 or n % 1024 == 0), "")


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


VERSION = "RULER c3f5e3b"
_INFINITEBENCH = frozenset(
    {"passkey", "number_string", "kv_retrieval", "math_find", "math_calc", "code_run"}
)
_ALL_ASKED = frozenset({"vt", "cwe", "fwe"})
_UNPRINTABLE = re.compile(r"[\x00-\x1f]")


def recall(prediction: str, answers: Sequence[str]) -> float:
    """The share of answers that the prediction holds: niah, vt, cwe, fwe. Raises ValueError."""
    hits = _contained(prediction, answers)
    return sum(hits) / len(hits)


def any_answer(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the prediction holds any of the answers: qa. Raises ValueError without answers."""
    return float(any(_contained(prediction, answers)))


def _contained(prediction: str, answers: Sequence[str]) -> list[bool]:
    if not answers:
        raise ValueError("the sample has no answers to look for")
    text = _UNPRINTABLE.sub("\n", prediction.strip()).strip().lower()
    return [answer.lower() in text for answer in answers]


def rule_of(sample: Sample) -> str | None:
    if sample.task in _INFINITEBENCH:
        return infinitebench.rule_of(sample)
    if sample.task.startswith("niah_") or sample.task in _ALL_ASKED:
        return "ruler_recall"
    return "ruler_any" if sample.task == "qa" else None


RULES = {
    "ruler_recall": Rule(
        title="RULER recall of all answers",
        value_label="Recall",
        about="The share of all answers that the response holds, as RULER scores niah, vt, cwe and "
        "fwe.",
        version=VERSION,
        score=lambda sample, text: recall(text, sample.answers),
        by=recall,
    ),
    "ruler_any": Rule(
        title="RULER any answer",
        value_label="Accuracy",
        about="Whether the response holds any of the answers, as RULER scores qa.",
        version=VERSION,
        score=lambda sample, text: any_answer(text, sample.answers),
        by=any_answer,
    ),
}
SUITE = long_context_suite(
    description="Needles: generated texts of any length, with something hidden to find, follow or "
    "count",
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=rule_of,
)

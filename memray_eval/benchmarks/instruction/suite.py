"""Instruction following (seed 004): simple, navigation and reasoning prompts, checked by code."""

from collections.abc import Mapping
from typing import Any

from memray_eval.benchmarks import Suite
from memray_eval.benchmarks.instruction.checks import PROMPT_TYPES, check_weights
from memray_eval.errors import ConfigError, cut
from memray_eval.types import Candidate, Message, Prompt, Sample
from memray_eval.withdrawn import INSTEAD

MAX_TOKENS = {"simple": 256, "navigation": 512, "reasoning": 384}
# of a prompt that names none: complete, without an error, as many words as it asks for
PLAIN_TYPE = "simple"


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The record with its prompt type as its task (either may name it, else it is PLAIN_TYPE), and
    weights of its own in its metadata. Raises ValueError for an unknown type, a task that is
    another, weights that cannot be read, and constraints, which nothing here checks."""
    candidates = (raw.get("prompt_type"), raw.get("task"), PLAIN_TYPE)
    named = next(name for name in candidates if name not in (None, ""))
    if not isinstance(named, str) or named not in PROMPT_TYPES:
        raise ValueError(f"prompt_type: no type {named!r}; there are: {', '.join(PROMPT_TYPES)}")
    if raw.get("task") not in (None, "", named):
        raise ValueError(
            f"task: {raw['task']!r} is not the prompt_type {named!r}; leave the task out"
        )
    for about in (raw, raw.get("metadata")):
        if isinstance(about, Mapping):
            _check(named, about)
    adapted = {**raw, "prompt_type": named, "task": named}
    metadata = raw.get("metadata") or {}
    if isinstance(metadata, Mapping):
        own = {"weights": adapted.pop("weights")} if "weights" in adapted else {}
        adapted["metadata"] = {**own, **metadata}
    return adapted


def _check(prompt_type: str, about: Mapping[str, Any]) -> None:
    for name in ("constraints", "instruction_id_list"):  # the latter is IFEval's own
        if about.get(name):
            raise ValueError(
                f"{name}: verifiable constraints were withdrawn: {INSTEAD['constraints_followed']}"
                f"; leave {name} out, and the rest is scored"
            )
    if (weights := about.get("weights")) is None:
        return
    if not isinstance(weights, Mapping):
        message = f"weights: must be an object of checks and their shares, not {weights!r}"
        raise ValueError(cut(message, 200))
    try:
        check_weights(prompt_type, weights)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The prompt and nothing else: what is measured is how well it alone is followed."""
    return Prompt(
        messages=(Message(role="user", content=sample.query),),
        max_tokens=MAX_TOKENS.get(sample.prompt_type),
    )


SUITE = Suite(
    description="Instruction following: simple, navigation (JSON plans) and reasoning prompts, "
    "checked by rules",
    metrics=("instruction_quality", "exact_match", "answer_f1"),
    prompt=prompt,
    adapt=adapt,
    tasks=PROMPT_TYPES,
    headline="instruction_quality",
    reports_speed=True,  # seed 004 does
)

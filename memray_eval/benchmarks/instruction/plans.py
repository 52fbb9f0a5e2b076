"""Checks of a navigation prompt (seed 004): a JSON plan, {"steps": [{"action": text, "parameters":
{...}}, ...]}. Steps that are text fail structure, step count and step structure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from memray_eval.benchmarks.instruction.answers import read_json, refuse_constant
from memray_eval.benchmarks.instruction.counts import asked_steps
from memray_eval.benchmarks.instruction.simple import CheckResult, graded

POINTS_A_STEP = 20
STEP_FIELDS = ("action", "parameters")
MAX_ISSUES = 10
_TRIES = 5  # at finding an object within other text


def navigation(prompt: str, response: str, is_cut: bool) -> dict[str, CheckResult]:
    """The checks of a response that is not empty."""
    plan = read_json(response)
    is_valid = isinstance(plan, dict | list)
    if not is_valid:
        plan = find_plan(response)
    steps = plan.get("steps") if isinstance(plan, dict) else None
    objects = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    counted = _step_count(prompt, objects)
    fault = "Text beside the JSON" if plan is not None else "Invalid JSON"
    return {
        "json_validity": graded(100, "Valid JSON syntax") if is_valid else graded(0, fault),
        "required_fields": _required_fields(objects, isinstance(plan, dict) and "steps" in plan),
        "structure": _structure(plan, steps, objects),
        **({"step_count": counted} if counted else {}),
        "step_structure": _step_structure(steps),
    }


def find_plan(text: str) -> Any:
    """The first JSON object with steps in a text; None if none is within a few tries."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    start = -1
    for _ in range(_TRIES):
        if (start := text.find("{", start + 1)) < 0:
            return None
        try:
            plan, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if "steps" in plan:
            return plan
    return None


def _required_fields(objects: list[dict[str, Any]], has_steps: bool) -> CheckResult:
    """The share of `steps` and, in any of its objects, action and parameters that are there."""
    present = {field: any(field in step for step in objects) for field in STEP_FIELDS}
    present = {"steps": has_steps, **present}
    if missing := tuple(f"Missing field: {name}" for name in present if not present[name]):
        return CheckResult(round(100 * sum(present.values()) / len(present)), issues=missing)
    return graded(100, "All required fields present")


def _structure(plan: Any, steps: Any, objects: list[dict[str, Any]]) -> CheckResult:
    if objects and len(objects) == len(steps):
        return graded(100, "Correct structure (steps is array)")
    if not isinstance(plan, dict):
        return graded(0, "The plan is no JSON object")
    if "steps" not in plan:
        return CheckResult(0)
    if not isinstance(steps, list):
        return graded(0, f"steps must be an array, not {_kind(steps)}")
    return graded(0, "steps must hold objects only" if steps else "steps is empty")


def _step_count(prompt: str, objects: list[dict[str, Any]]) -> CheckResult | None:
    """None if the prompt names no number of steps."""
    if (expected := asked_steps(prompt)) is None:
        return None
    off = expected.off(len(objects))
    score = max(100 - POINTS_A_STEP * off, 0) if objects or not off else 0
    return graded(score, f"Step count: {len(objects)} (expected: {expected})")


def _step_structure(steps: Any) -> CheckResult:
    """The share of steps that are as they should be; the first MAX_ISSUES faults are told."""
    if not isinstance(steps, list) or not steps:
        return CheckResult(0)
    faults = []
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, dict):
            faults.append(
                f"Step {number} is {_kind(step)}, not an object with action and parameters"
            )
        elif found := list(_field_faults(step)):
            faults.append(f"Step {number}: {'; '.join(found)}")
    if not faults:
        return graded(100, "All steps have action and parameters")
    more = (f"... and {len(faults) - MAX_ISSUES} more steps",) if len(faults) > MAX_ISSUES else ()
    return CheckResult(
        round(100 * (len(steps) - len(faults)) / len(steps)), issues=(*faults[:MAX_ISSUES], *more)
    )


def _field_faults(step: dict[str, Any]) -> Iterator[str]:
    for field in STEP_FIELDS:
        if field not in step:
            yield f"missing {field} field"
    if "action" in step and not (isinstance(step["action"], str) and step["action"].strip()):
        yield f"action must be text that is not empty, not {_kind(step['action'])}"
    if "parameters" in step and not isinstance(step["parameters"], dict):
        yield f"parameters must be an object, not {_kind(step['parameters'])}"


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if value == "":
        return "empty text"
    kinds: tuple[tuple[type, str], ...] = ((str, "text"), (list, "an array"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "a number")

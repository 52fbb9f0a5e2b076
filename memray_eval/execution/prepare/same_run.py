"""The check that a resumed run measures what it began with, by its files, judges and prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memray_eval.errors import ConfigError
from memray_eval.execution.run_manifest import (
    judge_prompts_of,
    judges_of,
    own_code_of,
    prompts_of,
    rubrics_of,
)
from memray_eval.execution.run_plan import RunPlan, RunSpec
from memray_eval.judges.router import named_judges


def check_measures_the_same(plan: RunPlan, before: Mapping[str, Any]) -> None:
    """Raises ConfigError where the dataset, a judge, a rubric or a prompt file is not what the run
    began with."""
    if plan.found.fingerprint != before["dataset"]["fingerprint"]:
        raise ConfigError(
            f"{plan.spec.read.dataset} has changed since the run began; put it back, or start a "
            "new run"
        )
    compared = {
        "judge": (_judges_before(plan.spec, before), judges_of(plan.spec)),
        "rubric": (before["rubrics"], rubrics_of(plan.spec)),
        "prompt": (before.get("prompts", {}), prompts_of(plan.spec)),
        "code": (before.get("own_code", {}), own_code_of(plan.spec)),
    }
    for what, (then, now) in compared.items():
        if other := sorted(name for name in {**then, **now} if then.get(name) != now.get(name)):
            was, is_now = then.get(other[0]), now.get(other[0])
            raise ConfigError(
                f"the {what} of {other[0]} was {was} when the run began and is {is_now} now; put "
                "it back (keys, version), or start a new run"
            )


def _judges_before(spec: RunSpec, before: Mapping[str, Any]) -> dict[str, str]:
    """Who was to judge when the run began; where that model is off now, or the same judge is asked
    for another reason, as the judge is told now: scores name who gave them."""
    then, now = dict(before["judges"]), judges_of(spec)
    for key in spec.judges.keys() & then.keys():
        choice, names = spec.judges[key], named_judges(then[key])
        heirs = {one.role: one.judge for one in choice.successions}
        is_same = dict.fromkeys(heirs.get(name, name) for name in names) == dict.fromkeys(
            choice.judges
        )
        # The rubric and what stands in for a verdict are said after the reason
        if is_same and then[key].partition("; ")[2] == now[key].partition("; ")[2]:
            then[key] = now[key]
    return then


def changed_layouts(spec: RunSpec, before: Mapping[str, Any]) -> Iterator[str]:
    """A line for each judge whose prompts are laid out otherwise than before: what was paid and not
    finished is another call now."""
    then = before.get("judge_prompts", {})
    for judge, layout in judge_prompts_of(spec).items():
        if (was := then.get(judge, layout)) != layout:
            yield (
                f"The prompts of {judge} were laid out as {was} when the run began, and are as "
                f"{layout} now: calls that were paid for units that are not finished may be paid "
                "again, and new verdicts may differ a little from earlier ones. To go on as "
                "before: --set judging.layout=rubric_first."
            )

"""Whether a run judges while it generates, or afterwards, when its GPUs are given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from memray_eval.execution.plan import Device
from memray_eval.execution.run_plan import PhaseChoice, RunSpec


def duration_text(seconds: float) -> str:
    """Seconds as a person says them: 90 s, 12 min, 31.6 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


class StageSeconds(NamedTuple):
    """What generating and scoring would take, each alone."""

    generate_s: float
    judge_s: float


def choose_phases(
    spec: RunSpec,
    device: Device,
    *,
    has_cpu_nodes: bool,
    is_generated: bool = False,
    seconds: Callable[[], StageSeconds],
) -> PhaseChoice:
    """The order of the phases that `cluster.phases` asks for; with `auto`, `apart` where GPUs would
    otherwise wait for judges. `has_cpu_nodes`: there is something to judge on when the GPU nodes
    are gone; `is_generated`: earlier sessions generated all units. `seconds` are of what is left to
    do, and are only asked for where they decide."""
    if spec.has_responses:
        return PhaseChoice("together", "the responses exist already")
    if not spec.metrics:
        return PhaseChoice("together", "nothing is scored")
    if is_generated:
        return PhaseChoice("judge", "everything is generated already")
    if spec.calls_judges and spec.judging.mode != "live":
        return PhaseChoice("apart", "judges are asked in batches, when everything is generated")
    if spec.cluster.phases != "auto":
        return PhaseChoice(spec.cluster.phases, "cluster.phases says so")
    why_together = (
        "no candidate runs on an engine of this run"
        if not spec.has_vllm
        else "the engines run on CPUs"
        if device == "cpu"
        else "the embedded judge takes a GPU itself"
        if spec.embedded_judge is not None
        else "there are no nodes without GPUs to judge on"
        if not has_cpu_nodes
        else None
    )
    if why_together is not None:
        return PhaseChoice("together", why_together)
    generate_s, judge_s = seconds()
    compared = (
        f"scoring takes about {duration_text(judge_s)} and generating {duration_text(generate_s)}"
    )
    return PhaseChoice(
        "apart" if judge_s > generate_s else "together",
        f"{compared}, so GPUs would wait for judges" if judge_s > generate_s else compared,
    )

"""What drives a run's stages: this process (local.py) or Ray (ray/executor.py); and its phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol, TypeAlias

from memray_eval.errors import ConfigError
from memray_eval.execution.capacity import Capacity
from memray_eval.execution.plan import Device
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_plan import ExecutorChoice, PhaseChoice, RunPlan, RunSpec
from memray_eval.execution.waiting import Waiting
from memray_eval.results.run_folder import RunFolder

LOCAL_UNITS = 2_000  # a run of more is worth the start of Ray
Phase: TypeAlias = Literal["generate", "judge"]


class Executor(Protocol):
    """Drives the stages of one session of a run."""

    def watch(self, on_death: Callable[[str], None]) -> AbstractContextManager[None]:
        """Tells `on_death` why the session must end at once, while the block runs."""

    def translate(self, error: BaseException) -> BaseException:
        """An error of the executor as one of ours; any other as it is."""

    def start_counter(self, stages: Sequence[str]) -> RunCounter: ...

    def run(
        self, counter: RunCounter, enter_phase: Callable[[Phase], None], waiting: Waiting
    ) -> None:
        """Takes the plan's unfinished units through its stages; `waiting` hears what else it waits
        for. Raises EvalError when a stage could not be started or a service died."""


def new_executor(plan: RunPlan, folder: RunFolder) -> Executor:
    if plan.executor == "ray":  # a second to import
        from memray_eval.execution.ray.executor import RayExecutor

        return RayExecutor(plan, folder)
    from memray_eval.execution.local import LocalExecutor

    return LocalExecutor(plan, folder)


def choose_executor(
    spec: RunSpec, n_units: int | None = None, is_on_ray: bool = False
) -> ExecutorChoice:
    """The executor of a run of so many units (None: not counted yet), and why. `is_on_ray`: this
    process has joined a cluster. Raises ConfigError if the named one cannot do it."""
    reason = _why_not_local(spec)
    if spec.executor == "local" and reason is not None:
        raise ConfigError(
            f"executor: local runs everything in this process, and {reason}; write executor: auto"
        )
    if spec.executor != "auto":
        return ExecutorChoice(spec.executor, "as asked")
    if reason is None and is_on_ray:
        reason = "this process is on a Ray cluster"
    if reason is None and n_units is not None and n_units > LOCAL_UNITS:
        reason = f"{n_units} units are more than {LOCAL_UNITS}"
    if reason is not None:
        return ExecutorChoice("ray", reason)
    return ExecutorChoice("local", "no engine to start, and few units")


def _why_not_local(spec: RunSpec) -> str | None:
    """The reason why a run needs Ray."""
    for candidate in spec.candidates:
        if candidate.backend == "vllm":
            return f"candidate {candidate.name!r} needs a vLLM engine"
    if spec.embedded_judge is not None:
        return "the embedded judge needs a vLLM engine"
    if spec.cluster.address is not None:
        return f"cluster.address is {spec.cluster.address}"
    if spec.cluster.phases == "apart":
        return "cluster.phases is apart"
    return None


def duration_text(seconds: float) -> str:
    """Seconds as a person says them: 90 s, 12 min, 31.6 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


class StageSeconds(NamedTuple):
    """The seconds of generating and of scoring, each alone."""

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
    otherwise wait for judges. `has_cpu_nodes`: judges need no GPU node; `is_generated`: no unit is
    left to generate. `seconds`, of what is left, is only called where it decides."""
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
        else "nobody said how fast the engines are (assumptions.engine_tokens_per_s)"
        if spec.assumptions.engine_tokens_per_s is None
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


def has_cpu_nodes(spec: RunSpec, capacity: Capacity) -> bool:
    """True if a cluster, or one that may grow, has nodes without GPUs to judge on, or may get some.
    A single machine cannot give its GPUs back."""
    return bool(capacity.nodes) and (
        bool(spec.cluster.wait_s) or any(node.cpus and not node.gpus for node in capacity.nodes)
    )

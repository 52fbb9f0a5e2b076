"""Where the stages of a run are: in this process (local.py), or on Ray (ray/executor.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

from memray_eval.errors import ConfigError
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_plan import ExecutorChoice, RunPlan, RunSpec
from memray_eval.execution.waiting import Waiting
from memray_eval.results.run_folder import RunFolder

LOCAL_UNITS = 2_000  # a run of more is worth the start of Ray
Phase: TypeAlias = Literal["generate", "judge"]


class Executor(Protocol):
    """What drives the stages of one session of a run."""

    def watch(self, on_death: Callable[[str], None]) -> AbstractContextManager[None]:
        """Tells `on_death` why the session must end at once, while the block runs."""
        ...

    def translate(self, error: BaseException) -> BaseException:
        """An error of the executor as one of ours; any other as it is."""
        ...

    def start_counter(self, stages: Sequence[str]) -> RunCounter: ...

    def run(
        self, counter: RunCounter, enter_phase: Callable[[Phase], None], waiting: Waiting
    ) -> None:
        """Takes the plan's unfinished units through its stages; `waiting` is told what else it
        waits for. Raises EvalError when a stage could not be started or a service died; a unit that
        fails is a record."""
        ...


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
    process has joined a cluster. Raises ConfigError where the one that was asked for cannot do
    it."""
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
    """What needs Ray."""
    for candidate in spec.candidates:
        if candidate.backend == "vllm":
            return f"candidate {candidate.name!r} needs a vLLM engine"
    if spec.embedded_judge is not None:
        return "the embedded judge needs a vLLM server"
    if spec.cluster.address is not None:
        return f"cluster.address is {spec.cluster.address}"
    if spec.cluster.phases == "apart":
        return "cluster.phases is apart"
    return None

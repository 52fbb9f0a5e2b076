"""What drives a run's stages: this process (local.py) or Ray (ray/executor.py); and its phases."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias

from memray_eval.errors import ConfigError
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_plan import ExecutorName, PhaseChoice, RunPlan, RunSpec
from memray_eval.execution.waiting import Waiting
from memray_eval.results.run_folder import RunFolder

LOCAL_UNITS = 2_000  # a run of more is worth the start of Ray
Phase: TypeAlias = Literal["generate", "judge"]


class Executor(Protocol):
    """Drives the stages of one session of a run."""

    def watch(self, on_death: Callable[[str], None]) -> AbstractContextManager[None]:
        """Tells `on_death` why the session must end at once, while the block runs."""
        return nullcontext()

    def translate(self, error: BaseException) -> BaseException:
        """An error of the executor as one of ours; any other as it is."""
        return error

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


def run_on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """Runs it here or, if this thread has a loop already (a notebook), in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="local-run") as thread:
        thread.submit(asyncio.run, work).result()


def choose_executor(
    spec: RunSpec, n_units: int | None = None, is_on_ray: bool = False
) -> tuple[ExecutorName, str]:
    """The executor of a run of so many units (None: not counted yet), and why. `is_on_ray`: this
    process has joined a cluster. Raises ConfigError if the named one cannot do it."""
    reason = _why_not_local(spec)
    if spec.config.executor == "local" and reason is not None:
        raise ConfigError(
            f"executor: local runs everything in this process, and {reason}; write executor: auto"
        )
    if spec.config.executor != "auto":
        return spec.config.executor, "as asked"
    if reason is None and is_on_ray:
        reason = "this process is on a Ray cluster"
    if reason is None and n_units is not None and n_units > LOCAL_UNITS:
        reason = f"{n_units} answers are more than {LOCAL_UNITS}"
    if reason is not None:
        return "ray", reason
    return "local", "no engine to start, and few answers"


def _why_not_local(spec: RunSpec) -> str | None:
    for candidate in spec.config.candidates:
        if candidate.backend == "vllm":
            return f"candidate {candidate.name!r} needs a vLLM engine"
    if spec.embedded_judge is not None:
        return "the embedded judge needs a vLLM engine"
    if spec.config.cluster.address is not None:
        return f"cluster.address is {spec.config.cluster.address}"
    if spec.config.cluster.phases == "apart":
        return "cluster.phases is apart"
    return None


def duration_text(seconds: float) -> str:
    """Seconds as a person says them: 90 s, 12 min, 31.6 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def choose_phases(spec: RunSpec, *, is_generated: bool = False) -> PhaseChoice:
    """The order of the phases; `is_generated`: no unit is left to generate."""
    if spec.has_responses:
        return PhaseChoice("together", "the responses exist already")
    if not spec.metrics:
        return PhaseChoice("together", "nothing is scored")
    if is_generated:
        return PhaseChoice("judge", "everything is generated already")
    if spec.calls_judges and spec.config.judging.mode != "live":
        return PhaseChoice("apart", "judges are asked in batches, when everything is generated")
    return PhaseChoice(spec.config.cluster.phases, "cluster.phases says so")

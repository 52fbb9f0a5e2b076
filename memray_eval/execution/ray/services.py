"""The services of a run's judges (execution/services.py) as actors, with names or handles."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from memray_eval.errors import ServiceLost
from memray_eval.execution.run_plan import RunPlan
from memray_eval.execution.services import (
    CALLS,
    JudgeServices,
    RunLedger,
    StoredCalls,
    service_options,
    start_services,
)
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.limits.rate_pacer import HORIZON_S
from memray_eval.results.run_folder import RunFolder

NAMESPACE = "memray_eval"
# it outlives runs: another number when what it is asked, or answers, changes
LIMITER = "memray_eval_limiter_10"
HEAD = "node:__internal_head__"  # a resource of the head node, by Ray itself
_MANY = 10_000  # calls that may wait in a service at once


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=_MANY)
class LimiterActor(Limiter):
    """The cluster's limiter. After a restart it holds back for as long as slots of the one before
    may still be used; limits come back with the first reservations."""

    def __init__(self) -> None:
        is_again = ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(hold_s=HORIZON_S if is_again else 0.0)


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=_MANY)
class CallsActor(StoredCalls):
    """The memory of paid calls, in the process that all judge actors ask."""


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=_MANY)
class LedgerActor(RunLedger):
    """The run's money. It is not restarted: a budget whose spending is forgotten is none."""


_ACTORS: dict[type, tuple[Any, str]] = {
    StoredCalls: (CallsActor, f"{CALLS} (CallsActor)"),
    RunLedger: (LedgerActor, "the ledger of the run's budget (LedgerActor)"),
}


class ActorService:
    """A service that is an actor: its methods, as coroutines that raise what the method raises,
    ServiceLost if the actor is dead for good (one that Ray restarts is waited for), and
    RuntimeError if it is out of reach."""

    def __init__(self, handle: Any, what: str) -> None:
        self.handle, self._what = handle, what

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):  # pickle looks for some
            raise AttributeError(method)
        return partial(self._call, method)

    async def _call(self, method: str, *values: Any, **named: Any) -> Any:
        try:
            return await getattr(self.handle, method).remote(*values, **named)
        except ray.exceptions.ActorDiedError as error:
            raise ServiceLost(f"{self._what} has died: {failure_reason(error)}") from None
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise RuntimeError(type(error).__name__) from None


def start_actors(
    plan: RunPlan, folder: RunFolder, max_in_flight: int, say: Callable[[str], None], members: int
) -> JudgeServices:
    """Starts the services of a session as actors, for `members` judge actors. The limiter is the
    cluster's: it outlives the run, for the next one and for others."""
    # On a worker, an actor that outlives its run would keep the node up for ever
    has_head = any(HEAD in node["Resources"] for node in ray.nodes() if node["Alive"])
    limiter = LimiterActor.options(  # type: ignore[attr-defined]
        name=LIMITER,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        resources={HEAD: 0.001} if has_head else {},
    ).remote()

    def start(service: type, *options: Any) -> ActorService:
        actor, what = _ACTORS[service]
        return ActorService(
            actor.options(scheduling_strategy=on_driver_node()).remote(*options), what
        )

    return start_services(
        *service_options(plan, folder),
        max_in_flight,
        say,
        members=members,
        limiter=ActorService(limiter, "the rate limiter (LimiterActor)"),
        start=start,
    )


def on_driver_node() -> NodeAffinitySchedulingStrategy:
    """The driver's node, for an actor that every worker asks: a run outlives the loss of any other.
    Not soft: Ray 2.60 then puts an actor that takes no CPU on any node."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def failure_reason(error: BaseException) -> str:
    """The cause of an actor's death, in one line: our error or Python's, else Ray's words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [
        line for line in lines if re.match(r"[\w.]*(?:Error|Exception|Lost|Stopped)\b.*: ", line)
    ]
    if raised:
        return raised[-1].removeprefix("memray_eval.errors.").rstrip(".")
    return lines[0].rstrip(".") if lines else type(error).__name__

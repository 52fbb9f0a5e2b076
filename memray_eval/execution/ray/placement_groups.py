"""The placement groups of a run: they hold nodes while it waits, and an engine's workers, until
engines have ended. Ray Data LLM never removes its own (ray-project/ray#64035)."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import Device
from memray_eval.execution.run_counter import RunCounter

POLL_S = 1.0
PATIENCE_S = 30.0  # with some of the nodes and not all, before a run lets an older one go first
YIELD_S = 60.0  # how long it does at most: the other may wait for nodes of another kind
LEAVE_S = 20.0  # engines end by themselves in this time, or with their groups
ENDED_S = 5.0  # an engine that died in its constructor has one in its place by then
FAILED_LEAVE_S = 2.0  # a pipeline that failed may hold them for ever
_NAME = "memray_eval"  # of groups that wait for nodes, and of actors
_ENGINE = "memray_eval-engine"  # of groups of engines
ACCELERATOR = "accelerator_type:"  # Ray's resource of the nodes that have such GPUs
_SHARE = 0.001  # of it, as Ray asks for it: a node has one of it, however many GPUs

logger = logging.getLogger(__name__)


class GroupSpec(NamedTuple):
    """A placement group's request: resources by bundle, Ray's strategy, and its model or pool."""

    bundles: tuple[Mapping[str, float], ...]
    strategy: str = "PACK"
    owner: str = ""

    def create(self, kind: str, began: float) -> PlacementGroup:
        """Asks for a group whose name reads in `ray list placement-groups`; Ray wants each once."""
        return ray.util.placement_group(
            [dict(bundle) for bundle in self.bundles],
            strategy=self.strategy,
            name=f"{kind} {began:017.6f} {self.owner} {uuid.uuid4().hex[:8]}",
        )


class PendingGroup(NamedTuple):
    """A group of a run that has found no nodes yet: its kind, for which model or pool it is, what
    it asks for, and since when (epoch)."""

    kind: str
    owner: str
    resources: Mapping[str, float]
    since: float


def pending_groups() -> list[PendingGroup]:
    """The placement groups of this project's runs on the cluster that wait for nodes."""
    pending = []
    for group in placement_group_table().values():
        kind, _, rest = group["name"].partition(" ")
        if kind in (_NAME, _ENGINE) and group["state"] in ("PENDING", "RESCHEDULING"):
            since, _, owner = rest.partition(" ")
            resources = sum(map(Counter, group["bundles"].values()), Counter[str]())
            pending.append(PendingGroup(kind, owner.rpartition(" ")[0], resources, float(since)))
    return pending


class NodeReservation:
    """Placement groups that hold nodes for a run until its engines take them over.

    Pending groups are what the cluster's autoscaler grows by, each job's own: `request_resources`
    has one place for the whole cluster, which any other job overwrites (ray-project/ray#13534)."""

    def __init__(self) -> None:
        self._held: list[tuple[GroupSpec, PlacementGroup]] = []

    def __enter__(self) -> NodeReservation:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def wait_for(
        self, specs: Sequence[GroupSpec], wait_s: float, is_enough: Callable[[], bool]
    ) -> bool:
        """Holds a group for each of `specs`; whether all have found their nodes, and `is_enough`,
        which is asked each time, within `wait_s`. The groups stay where it returns True.

        Two runs that each hold half of what both need would wait for each other: after PATIENCE_S
        the one that came later lets go, and asks again when the other has its nodes."""
        # As its groups' names have it: else its own would be older than the run
        began, deadline = round(time.time(), 6), time.monotonic() + wait_s
        patience = time.monotonic() + PATIENCE_S
        self._ask(specs, began)
        while True:
            tables = [placement_group_table(group) for _, group in self._held]
            is_ready = [table.get("state") == "CREATED" for table in tables]
            if is_enough() and all(is_ready):
                return True
            now = time.monotonic()
            if now >= deadline:
                self.remove()
                return False
            if now >= patience and any(is_ready) and _waits_since_before(began):
                logger.info("an older run waits for nodes too: this one lets it go first")
                self.remove()
                again = min(deadline, now + YIELD_S)
                while time.monotonic() < again and _waits_since_before(began):
                    time.sleep(POLL_S)
                self._ask(specs, began)
                patience = time.monotonic() + PATIENCE_S
            time.sleep(min(POLL_S, max(0.0, deadline - now)))

    def take(self, spec: GroupSpec) -> PlacementGroup | None:
        """A held group of this kind, the caller's from now on; None without any."""
        for held in [held for held in self._held if held[0] == spec]:
            with suppress(ValueError):  # another pipeline's thread was faster
                self._held.remove(held)
                return held[1]
        return None

    def remove(self, but: Sequence[GroupSpec] = ()) -> None:
        """Gives the groups back that nobody took, but for those of some kinds."""
        for held in [held for held in self._held if held[0] not in but]:
            self._held.remove(held)
            remove_group(held[1])

    def _ask(self, specs: Sequence[GroupSpec], began: float) -> None:
        self._held += [(spec, spec.create(_NAME, began)) for spec in specs]


class _Engine(NamedTuple):
    """An engine's group, when it was asked for, the engine, and its word that it is up."""

    group: PlacementGroup
    since: float
    actor: Any = None
    up: Any = None


class EnginePlacement:
    """The placement groups of one pipeline's engines, removed when their engine has ended, and all
    at the block's end. `on_end` is called in a thread when a group was removed before that;
    `counter` hears of engines that wait for a node, and of those that have ended. Engines end with
    their clients, if they have any (`has_clients`)."""

    def __init__(
        self,
        spec: GroupSpec,
        reservation: NodeReservation,
        on_end: Callable[[], None] | None = None,
        counter: RunCounter | None = None,
        has_clients: bool = True,
    ) -> None:
        self._spec, self._reservation, self._on_end = spec, reservation, on_end
        self._counter, self._has_clients = counter or RunCounter(), has_clients
        self._pipeline = uuid.uuid4().hex
        self._engines: dict[str, _Engine] = {}  # by the name of the client
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._is_ending, self._placed = False, set[str]()

    def __enter__(self) -> EnginePlacement:
        threading.Thread(target=self._give_back, daemon=True, name="engine-ends").start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._is_over.set()
        deadline = time.monotonic() + (LEAVE_S if kind is None else FAILED_LEAVE_S)
        try:
            with suppress(Exception):  # Ray is gone, and its groups with it
                with self._lock:
                    self._let_go(list(self._engines))
                while time.monotonic() < deadline and self._living():
                    time.sleep(0.1)
                for client in self._engines.keys() & set(ray.util.list_named_actors()):
                    ray.kill(ray.get_actor(client))  # it may wait for an engine that never came
        finally:
            with self._lock:
                for name in list(self._engines):
                    remove_group(self._forget(name))

    def next_client(self, start: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
        """Has `start` start an engine, an actor with these options of Ray's that has the methods of
        EngineActor; returns those of its client, which Ray Data is about to start.

        What replaces an engine that died in its constructor takes over its group: with one more, a
        second set of nodes would be bought. (One that dies later is restarted by Ray, in its
        own.)"""
        with self._lock:
            if died := self._engines.keys() - self._living():
                group = self._forget(died.pop())
            else:
                group = self._reservation.take(self._spec) or self._spec.create(
                    _ENGINE, time.time()
                )
        name = f"{_NAME} client {self._pipeline} {uuid.uuid4().hex}"
        # In the group, with all that it starts from there
        inside = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
        self._counter.engines.enter(engine_name(name), self._spec.owner, "PENDING")
        actor = start({"scheduling_strategy": inside, "name": engine_name(name)})
        up = actor.ready.options(max_task_retries=-1).remote()  # also if it is restarted meanwhile
        with self._lock:
            self._engines[name] = _Engine(group, time.monotonic(), actor, up)
        return {"name": name}

    def _give_back(self) -> None:
        """Removes the group of each engine that has ended and whose place no other has taken."""
        ended_at: dict[str, float] = {}
        while not self._is_over.wait(POLL_S):
            ended, unwanted = list[str](), list[str]()
            with suppress(Exception):  # Ray is gone: the pipeline tells of it
                self._tell_placed()
                unwanted = self._find_unwanted()
            with suppress(Exception), self._lock:
                self._let_go(unwanted)
                now, gone = time.monotonic(), self._engines.keys() - self._living()
                ended_at = {name: ended_at.get(name, now) for name in gone}
                ended = [name for name, at in ended_at.items() if now - at >= ENDED_S]
                for name in ended:
                    remove_group(self._forget(name))
            if ended and self._on_end is not None:
                self._on_end()

    def _tell_placed(self) -> None:
        """Tells the counter of engines whose groups have found their nodes."""
        for client in self._engines.keys() - self._placed:
            if _is_placed(self._engines[client].group):
                self._placed.add(client)
                name, model = engine_name(client), self._spec.owner
                self._counter.engines.enter(name, model, "starting")

    def _find_unwanted(self) -> list[str]:
        """The clients whose engines are of no use once Ray Data has begun to end clients: never up,
        or of ended clients, unless clients without an engine ask them."""
        if not self._has_clients:
            return []
        now, listed = time.monotonic(), set(ray.util.list_named_actors())
        with self._lock:
            old = {
                name: engine
                for name, engine in self._engines.items()
                if engine.actor is not None and now - engine.since >= ENDED_S
            }
        left = {name: engine for name, engine in old.items() if name not in listed}
        self._is_ending = self._is_ending or bool(left)
        if not self._is_ending or not old:
            return []
        been_up, _ = ray.wait(
            [engine.up for engine in old.values()], num_returns=len(old), timeout=0
        )
        serving = {
            engine.actor.is_idle.options(max_task_retries=-1).remote(): name
            for name, engine in left.items()
            if engine.up in been_up and _is_placed(engine.group)
        }
        # Their clients, if any, wait for them in their constructors, where Ray leaves them
        unwanted = [name for name, engine in old.items() if engine.up not in been_up]
        unwanted += [name for name in left.keys() - unwanted if name not in serving.values()]
        # A client whose engine has lost its node may be about to ask: Ray may start it anew too
        has_lost = any(
            name in listed and engine.up in been_up and not _is_placed(engine.group)
            for name, engine in old.items()
        )
        if serving and not has_lost:
            replies, _ = ray.wait(list(serving), num_returns=len(serving), timeout=POLL_S)
            unwanted += [serving[reply] for reply in replies if ray.get(reply)]
        return unwanted

    def _forget(self, client: str) -> PlacementGroup:
        """Drops a client's engine, which has ended; returns its group."""
        with suppress(Exception):  # Ray is gone
            self._counter.engines.end(engine_name(client))
        return self._engines.pop(client).group

    def _let_go(self, clients: Sequence[str]) -> None:
        """Ends the engines of these clients, once they have answered what they were asked."""
        for name in clients:
            self._engines[name] = self._engines[name]._replace(actor=None, up=None)

    def _living(self) -> set[str]:
        """The names whose engine or client runs, is about to, or is restarted. By Ray's list of
        names: `ray.get_actor` also finds an actor that died in its constructor."""
        listed = set(ray.util.list_named_actors()) if self._engines else set()
        return {name for name in self._engines if not listed.isdisjoint((name, engine_name(name)))}


def engine_name(client: str) -> str:
    """The name of a client's engine."""
    return client.replace(f"{_NAME} client ", f"{_NAME} engine ", 1)


def pipeline_of(name: str) -> str | None:
    """The part of its name that an engine or client shares with its pipeline; None for others."""
    words = name.split()
    return words[2] if len(words) == 4 and words[0] == _NAME else None


def _is_placed(group: PlacementGroup) -> bool:
    return bool(placement_group_table(group).get("state") == "CREATED")


def accelerator_share(kind: str) -> dict[str, float]:
    """The resource by which a bundle is put on a node with such GPUs."""
    return {f"{ACCELERATOR}{kind}": _SHARE}


def remove_group(group: PlacementGroup) -> None:
    """Gives a group back, with whatever still runs in it. Without effect if Ray is gone: then
    its groups are too, and the error that ended the run is the one to tell."""
    with suppress(Exception):
        ray.util.remove_placement_group(group)


def _waits_since_before(began: float) -> bool:
    """True if another run of ours began to wait for nodes earlier, and has not all of them."""
    return any(group.kind == _NAME and group.since < began for group in pending_groups())


def group_of_engine(config: EngineConfig, device: Device, model: str = "") -> GroupSpec:
    """The placement group of one engine: a bundle for each worker, or one for all where vLLM starts
    them as processes of the actor. Workers of one stage lie on one node (or on `nodes`, as few as
    have room), the stages of a pipeline may on several."""
    workers = config.workers
    bundle = {"CPU": config.cpus} | ({"GPU": 1.0} if device == "gpu" else {})
    bundles: list[dict[str, float]] = [dict(bundle) for _ in range(workers)]
    if not is_over_ray(config):
        bundles = [{name: amount * workers for name, amount in bundle.items()}]
    if config.accelerator_type is not None:
        bundles = [bundle | accelerator_share(config.accelerator_type) for bundle in bundles]
    strategy = "STRICT_PACK" if config.parts == 1 else "PACK"
    return GroupSpec(tuple(bundles), strategy, model)


def is_over_ray(config: EngineConfig) -> bool:
    """True if the engine's workers are actors of Ray's, on as many nodes as they need."""
    return bool(executor_backend(config) == "ray")


def executor_backend(config: EngineConfig) -> Any:
    """vLLM's `--distributed-executor-backend` of an engine in Ray's actor."""
    planned = "mp" if config.data_parallel > 1 else "uni" if config.workers == 1 else "ray"
    return config.engine_kwargs.get("distributed_executor_backend", planned)

"""The Ray cluster of a run: a local one of its own, or the one that the config names."""

import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import psutil
import ray
from ray.exceptions import AuthenticationError
from ray.util import accelerators

from memray_eval.config.sections import ClusterConfig, least_of
from memray_eval.datasets.scan import ScanSource, SourceScan
from memray_eval.datasets.shards import Shard
from memray_eval.errors import ConfigError, ResourceError, describe_error
from memray_eval.execution.plan import (
    ENGINES,
    JUDGE_ENGINES,
    SLACK,
    Capacity,
    Holding,
    Node,
    Pool,
    engine_device,
    explain_lack,
    first_homeless,
    local_capacity,
)
from memray_eval.execution.ray.placement_groups import (
    ACCELERATOR,
    GroupSpec,
    NodeReservation,
    accelerator_share,
    group_of_engine,
)
from memray_eval.execution.ray.ray_compat import (
    DRIVER_LOGGERS,
    Held,
    free_resources,
    held_resources,
    living_jobs,
)
from memray_eval.execution.run_plan import PhaseOrder, RunSpec
from memray_eval.execution.schedule import check_turns, pools_in_turn, schedule
from memray_eval.execution.waiting import beside

_GIB = 1 << 30
_TYPE_LABEL = "ray.io/accelerator-type"  # of nodes whose GPUs Ray knows
_NODE_LABEL = "ray.io/node-id"  # of every node
QUIET_VLLM = "ERROR"  # VLLM_LOGGING_LEVEL of a driver whose user sets none
SETTLE_S = 5.0  # what others' tasks hold at a moment may be free in the next
AHEAD = 2  # files scanned for each CPU before the first of them is taken: they differ in size
WATCH_S = 0.5  # how often Ray's own processes are looked after
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    # its warnings speak of Ray Data's insides; set it yourself to see them
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "VLLM_LOGGING_LEVEL": QUIET_VLLM,
}

logger = logging.getLogger(__name__)


def is_connected() -> bool:
    """True if this process has joined a Ray cluster."""
    return bool(ray.is_initialized())


@contextmanager
def connected(config: ClusterConfig) -> Iterator[Capacity]:
    """A cluster for the time of a run: a Ray that this process has started, which stays up, or a
    new local one without an address. Raises ResourceError if it does not answer, ConfigError if it
    is none."""
    if ray.is_initialized():
        yield cluster_capacity("the running Ray")
        return
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    # Else it gives each of its loggers one to the console
    logging.getLogger("ray.llm").addHandler(logging.NullHandler())
    levels = {name: logging.getLogger(name).level for name in DRIVER_LOGGERS}
    for name in DRIVER_LOGGERS:
        # What went wrong reaches the user as an error of ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        if config.address is None:
            local = local_capacity(config)
            with keep_own_signals(), _quiet_stderr():
                _start(local)
            yield local
        else:
            with keep_own_signals():
                _connect(config.address)
            yield cluster_capacity(f"the cluster at {config.address}")
    except ConnectionError as error:
        if config.address is None:
            raise ResourceError(f"the local Ray does not answer: {error}") from None
        raise ResourceError(
            f"no Ray cluster answers at {config.address}: {error}. Start it, or leave "
            "cluster.address out."
        ) from None
    finally:
        ray.shutdown()
        for name, level in levels.items():  # a notebook's Ray speaks as before
            logging.getLogger(name).setLevel(level)


STARTS = 3  # Ray gives its own processes 30 s, which a busy machine may take longer for


def _start(local: Capacity, left: int = STARTS) -> None:
    own = psutil.Process()
    before = {process.pid for process in own.children(recursive=True)}
    try:
        ray.init(
            address="local",
            num_cpus=int(local.cpus),
            num_gpus=int(local.gpus),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except ConnectionError:
        raise
    # No folder, no room, a path too long for a socket: Ray raises whatever comes
    except Exception as error:
        if "timed out during startup" in str(error) and left > 1:
            begun = [of for of in own.children(recursive=True) if of.pid not in before]
            for process in begun:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(begun)
            logger.warning("the local Ray did not start in its 30 s; trying again")
            return _start(local, left - 1)
        folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or tempfile.gettempdir()
        raise ResourceError(
            f"the local Ray cannot start: {describe_error(error)}. It keeps its files in {folder}, "
            "which must be a folder with some space and a short path; set RAY_TMPDIR to another, "
            "or make room there."
        ) from None


@contextmanager
def keep_own_signals() -> Iterator[None]:
    """Puts back the handler of SIGTERM from before the block: Ray's would end the process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(ValueError):  # beside the main thread, where Ray takes none
            if before is not None:
                signal.signal(signal.SIGTERM, before)


@contextmanager
def watch_ray_processes(on_death: Callable[[str], None]) -> Iterator[None]:
    """Calls `on_death`, in a thread, with the name of a vital process of Ray on this machine that
    ends in the block: Ray ends the driver seconds later, past every `finally`."""
    vital = _vital_processes()

    def watch(is_over: threading.Event) -> None:
        while not is_over.wait(WATCH_S):
            for name, process in vital.items():
                is_alive = False
                with suppress(psutil.NoSuchProcess):
                    is_alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
                if not is_alive and not is_over.is_set():
                    on_death(name)
                    return

    with beside(watch, "watch-ray", timeout_s=0.0):
        yield


def _vital_processes() -> dict[str, psutil.Process]:
    """This driver's raylet, and the cluster's control service if it is here, by their names."""
    context = ray.get_runtime_context()
    own = {node["NodeID"]: node["RayletSocketName"] for node in ray.nodes()}[context.get_node_id()]
    marks = {"raylet": own, "gcs_server": context.get_session_name()}
    processes = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        program = os.path.basename(words[0]) if words else ""
        if program in marks and any(word.endswith(f"={marks[program]}") for word in words):
            processes[program] = process
    return processes


def _connect(address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ValueError as error:
        raise ConfigError(
            f"cluster.address {address!r}: write auto, or HEAD:6379. For a cluster that this "
            "machine is no part of there is `memray-eval submit JOB --address http://HEAD:8265`. "
            f"({str(error).partition(chr(10))[0]})"
        ) from None
    # Another version of Ray; a token that it does not take
    except (RuntimeError, AuthenticationError) as error:
        raise ResourceError(
            f"the Ray cluster at {address} does not let this process join: {error}"
        ) from None


def cluster_capacity(where: str) -> Capacity:
    """The cluster's resources for this run, over all living nodes, and others' holdings."""
    left, holdings = _look_at_nodes()
    return Capacity(
        where=where,
        cpus=sum(has.get("CPU", 0.0) for has in left.values()),
        gpus=sum(has.get("GPU", 0.0) for has in left.values()),
        memory_gib=sum(has.get("memory", 0.0) for has in left.values()) / _GIB,
        nodes=tuple(map(_node, left.values())),
        holdings=holdings,
    )


def _look_at_nodes() -> tuple[dict[str, dict[str, float]], tuple[Holding, ...]]:
    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    own = ray.get_runtime_context().get_job_id()
    return subtract_holdings(nodes, free_resources(), held_resources(), living_jobs(), own)


def subtract_holdings(
    nodes: Mapping[str, Mapping[str, float]],
    free: Mapping[str, Mapping[str, float]],
    held: Sequence[Held],
    jobs: Mapping[str, str],
    own_job: str,
) -> tuple[dict[str, dict[str, float]], tuple[Holding, ...]]:
    """The resources of each node left for this job, by the node's id, and what others hold. `nodes`
    have all resources of each node, `free` those that Ray calls free, `jobs` the names of jobs that
    have not ended. What is neither free nor with an actor or a group is with tasks of other jobs
    or, without those, of an earlier run in this process."""
    left = {node_id: dict(has) for node_id, has in nodes.items()}
    busy = {
        (node_id, name): has.get(name, 0.0) - free.get(node_id, {}).get(name, 0.0)
        for node_id, has in nodes.items()
        for name in ("CPU", "GPU")
    }
    by_job: dict[str, dict[str, float]] = {}

    def take(job: str, node_id: str, name: str, amount: float) -> None:
        left[node_id][name] = max(0.0, left[node_id].get(name, 0.0) - amount)
        has = by_job.setdefault(job, {})
        has[name] = has.get(name, 0.0) + amount

    for holder in held:
        for name, amount in holder.resources.items() if holder.node_id in nodes else ():
            if (holder.node_id, name) in busy:
                busy[holder.node_id, name] -= amount
            if holder.job_id != own_job and name in ("CPU", "GPU", "memory"):
                runs = jobs.get(holder.job_id, "which has ended, and left what it holds")
                take(f"job {holder.job_id} ({runs})", holder.node_id, name, amount)
    others = ", ".join(f"{job} ({runs})" for job, runs in jobs.items() if job != own_job)
    for (node_id, name), amount in busy.items():
        if others and amount > SLACK:
            take(f"tasks that run now, of job {others}", node_id, name, amount)
    return left, tuple(Holding(job=job, **_amounts(has)) for job, has in by_job.items())


def _amounts(has: Mapping[str, float]) -> dict[str, float]:
    memory_gib = has.get("memory", 0.0) / _GIB
    return {"cpus": has.get("CPU", 0.0), "gpus": has.get("GPU", 0.0), "memory_gib": memory_gib}


def _node(has: Mapping[str, float]) -> Node:
    kinds = [name.removeprefix(ACCELERATOR) for name in has if name.startswith(ACCELERATOR)]
    return Node(accelerator_type=kinds[0] if kinds else None, **_amounts(has))


def wait_for_room(
    spec: RunSpec,
    capacity: Capacity,
    order: PhaseOrder,
    reservation: NodeReservation,
    say: Callable[[str], None],
) -> Capacity:
    """The capacity that the run starts with. A cluster that may grow need hold the first models
    only, whose nodes `reservation` holds; it grows for later ones while they wait."""
    device, wait_s = engine_device(spec, capacity.all_gpus), spec.config.cluster.wait_s
    if not wait_s:
        return free_capacity(spec, capacity, order)
    engines: list[GroupSpec] = []
    if order != "judge":
        for candidate, *_ in schedule(spec, capacity, device, scores=order == "together")[0]:
            if candidate.backend == "vllm":
                engine = spec.config.engine_of(candidate.model)
                group = group_of_engine(engine, device, candidate.model)
                engines += [group] * least_of(engine.replicas)
    pools = pools_in_turn(spec, capacity, device, order)[0]
    judge = spec.judge_engine
    if judge is not None and any(pool.name == JUDGE_ENGINES for pool in pools):
        engines += [group_of_engine(judge, device)] * least_of(judge.replicas)
    return wait_for_nodes(capacity, pools, engines, reservation, wait_s, say)


def free_capacity(spec: RunSpec, capacity: Capacity, order: PhaseOrder) -> Capacity:
    """The capacity, looked at again for some seconds where others hold what the run needs: tasks
    come and go. Raises ResourceError if the run does not fit."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            check_turns(spec, capacity, order)
            return capacity
        except ResourceError:
            if not capacity.holdings or time.monotonic() >= deadline:
                raise
        time.sleep(0.5)
        capacity = cluster_capacity(capacity.where)


def wait_for_nodes(
    capacity: Capacity,
    pools: Sequence[Pool],
    engines: Sequence[GroupSpec],
    reservation: NodeReservation,
    wait_s: float,
    say: Callable[[str], None],
) -> Capacity:
    """The cluster's capacity once the pools have room, within `wait_s`. `reservation` then holds a
    placement group for each of `engines`. Raises ResourceError when there is no room even then."""
    others = [_group_of_pool(pool) for pool in pools if pool.name not in (ENGINES, JUDGE_ENGINES)]
    has_said = False

    def look() -> str | None:
        nonlocal has_said
        why = explain_lack(pools, cluster_capacity(capacity.where))
        if why is not None and not has_said:
            has_said = True
            wanted = why.partition(";")[0]
            say(f"Waiting up to {wait_s:g} s for the nodes that the plan needs: {wanted}")
        return why

    if not reservation.wait_for([*engines, *others], wait_s, lambda: look() is None):
        why = look() or "The nodes have what the plan needs, but not where all engines find room."
        raise ResourceError(
            f"{why}\nThe cluster did not grow to it in {wait_s:g} s (cluster.wait_s)."
        )
    # As long as they stand, they are this run's
    grown = cluster_capacity(capacity.where)
    reservation.remove(but=engines)
    return grown


def _group_of_pool(pool: Pool) -> GroupSpec:
    """A bundle for each actor of a pool, wherever it finds room."""
    bundle = {"CPU": pool.cpus}
    if pool.gpus:
        bundle["GPU"] = pool.gpus
    if pool.accelerator_type is not None:
        bundle |= accelerator_share(pool.accelerator_type)
    return GroupSpec((bundle,) * pool.actors, owner=pool.name)


def select_cpu_nodes(pools: Sequence[Pool]) -> dict[str, str] | None:
    """A selector of Ray's labels that keeps work off nodes with GPUs, by their type's label or
    their ids. None if the others have no room for `pools` that need none, or there are no GPUs."""
    living = [node for node in ray.nodes() if node["Alive"]]
    with_gpus = [node for node in living if node["Resources"].get("GPU")]
    without = [node for node in living if node not in with_gpus and node["Resources"].get("CPU")]
    if not without or not (with_gpus or any(pool.gpus for pool in pools)):
        return None
    left, _ = _look_at_nodes()
    has_room = [_node(left[node["NodeID"]]) for node in without if node["NodeID"] in left]
    pool = first_homeless([pool for pool in pools if not pool.gpus], has_room)
    if pool is not None:
        logger.warning("nodes without GPUs have no room for all %s: GPU nodes take some", pool.name)
        return None
    types = [{node["Labels"].get(_TYPE_LABEL) for node in some} for some in (with_gpus, without)]
    known = {str(value) for name, value in vars(accelerators).items() if name.isupper()}
    named = {name for name in known | types[0] if name} - types[1]
    selector = {_TYPE_LABEL: f"!in({','.join(sorted(named))})"}
    if unnamed := [
        node["NodeID"] for node in with_gpus if node["Labels"].get(_TYPE_LABEL) not in named
    ]:
        selector[_NODE_LABEL] = f"!in({','.join(sorted(unnamed))})"
    return selector


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Drops what is written to stderr: Ray's C++ side greets there, past any logger."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def scan_in_tasks(cpus: float, work: ScanSource, sources: Sequence[Shard]) -> Iterator[SourceScan]:
    """An EachSource (datasets/scan.py) over so many `cpus` of the cluster: those of its nodes
    without GPUs, on which Ray puts such tasks first."""
    at_once = max(1, int(cpus))
    logger.info("scanning %d files in tasks, %d at a time", len(sources), at_once)

    def scan(source: Shard) -> SourceScan:  # Ray takes functions, not what only acts as one
        return work(source)

    scan_file = ray.remote(num_cpus=1, max_retries=2)(scan)
    waiting = deque(sources)
    running = deque[tuple[Shard, ray.ObjectRef]]()
    while waiting or running:
        while waiting and len(running) < at_once * AHEAD:
            source = waiting.popleft()
            running.append((source, scan_file.remote(source)))
        source, result = running.popleft()
        try:
            yield ray.get(result)
        except ray.exceptions.RayError as error:
            # The nodes do not see the file, or one was lost: this process reads it, or says why
            logger.warning("%s is scanned by the driver: %s", source.path, error)
            yield work(source)

"""The Ray cluster of a run: a local one of its own, or the one that the config names."""

from __future__ import annotations

import glob
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psutil
import ray

from memray_eval.config.sections import ClusterConfig
from memray_eval.errors import ConfigError, ResourceError, describe_error
from memray_eval.execution.capacity import Capacity, Node
from memray_eval.execution.plan import Pool, explain_lack
from memray_eval.execution.ray.ray_compat import (
    DRIVER_LOGGERS,
    AuthenticationError,
    local_node,
    request_resources,
)

MIN_LOCAL_CPUS = 2.0
_GIB = 1 << 30
_ACCELERATOR = "accelerator_type:"  # Ray's resource of the nodes that have such GPUs
_TRACE = 0.001  # of it, as Ray asks for it: a node has one of it, however many GPUs
_POLL_S = 2.0
WATCH_S = 0.5  # how often Ray's own processes are looked after
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    # its warnings speak of Ray Data's insides; set it yourself to see them
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def local_capacity(config: ClusterConfig) -> Capacity:
    """What a local Ray of this machine would have, without starting it."""
    cpus = config.num_cpus or max(MIN_LOCAL_CPUS, float(os.cpu_count() or 1))
    gpus = config.num_gpus if config.num_gpus is not None else float(_visible_gpus())
    memory = psutil.virtual_memory().available / _GIB
    return Capacity(where="this machine", cpus=cpus, gpus=gpus, memory_gib=memory)


def is_connected() -> bool:
    """Whether this process has joined a Ray cluster."""
    return bool(ray.is_initialized())


def is_ray_error(error: BaseException) -> bool:
    return isinstance(error, ray.exceptions.RayError)


@contextmanager
def connected(config: ClusterConfig) -> Iterator[Capacity]:
    """A cluster for the time of a run. Uses a Ray that this process has already started, and then
    leaves it up.

    Without an address a new local Ray starts: a bare ray.init could join somebody else's. Raises
    ResourceError when the address does not answer, ConfigError when it is none."""
    if ray.is_initialized():
        yield cluster_capacity("the running Ray")
        return
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    # Else it gives each of its loggers one to the console
    logging.getLogger("ray.llm").addHandler(logging.NullHandler())
    for logger in DRIVER_LOGGERS:
        # What went wrong reaches the user as an error of ours
        logging.getLogger(logger).setLevel(logging.CRITICAL)
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


def _start(local: Capacity) -> None:
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
    except (
        Exception
    ) as error:  # no folder, no room, a path too long for a socket: Ray raises whatever comes
        folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or tempfile.gettempdir()
        raise ResourceError(
            f"the local Ray cannot start: {describe_error(error)}. It keeps its files in {folder}, "
            "which must be a folder with some space and a short path; set RAY_TMPDIR to another, "
            "or make room there."
        ) from None


@contextmanager
def keep_own_signals() -> Iterator[None]:
    """Puts the handler of SIGTERM back that was there before the block: Ray's would end the process
    without a word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def watch_ray_processes(on_death: Callable[[str], None]) -> Iterator[None]:
    """Calls `on_death`, in a thread, with the name of a process of Ray on this machine that no
    driver outlives, when it ends while the block runs. Ray itself ends the driver's process some
    seconds later, without a word and past every `finally`."""
    vital, is_over = _vital_processes(), threading.Event()

    def watch() -> None:
        while not is_over.wait(WATCH_S):
            for name, process in vital.items():
                if not _is_alive(process) and not is_over.is_set():
                    on_death(name)
                    return

    threading.Thread(target=watch, daemon=True, name="watch-ray").start()
    try:
        yield
    finally:
        is_over.set()


def _vital_processes() -> dict[str, psutil.Process]:
    """The raylet that this driver talks to, and the cluster's control service where it runs on this
    machine, by their names."""
    node = local_node()
    if node is None:  # connected through a proxy: Ray's processes are elsewhere
        return {}
    marks = {"raylet": node.raylet_socket_name, "gcs_server": node.session_name}
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        program = os.path.basename(words[0]) if words else ""
        if program in marks and any(word.endswith(f"={marks[program]}") for word in words):
            found[program] = process
    return found


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _connect(address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ValueError as error:
        raise ConfigError(
            f"cluster.address {address!r}: write auto, or HEAD:6379. For a cluster that this "
            "machine is no part of there is `memray-eval submit --address http://HEAD:8265`. "
            f"({str(error).partition(chr(10))[0]})"
        ) from None
    except (
        RuntimeError,
        AuthenticationError,
    ) as error:  # another version of Ray; a token that it does not take
        raise ResourceError(
            f"the Ray cluster at {address} does not let this process join: {error}"
        ) from None


def cluster_capacity(where: str) -> Capacity:
    """What the connected cluster has, over all its living nodes."""
    living = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return Capacity(
        where=where,
        cpus=sum(has.get("CPU", 0.0) for has in living),
        gpus=sum(has.get("GPU", 0.0) for has in living),
        memory_gib=sum(has.get("memory", 0.0) for has in living) / _GIB,
        nodes=tuple(_node(has) for has in living),
    )


def _node(has: Mapping[str, float]) -> Node:
    kinds = [name.removeprefix(_ACCELERATOR) for name in has if name.startswith(_ACCELERATOR)]
    return Node(
        cpus=has.get("CPU", 0.0),
        gpus=has.get("GPU", 0.0),
        accelerator_type=kinds[0] if kinds else None,
    )


def wait_for_resources(
    capacity: Capacity, pools: Sequence[Pool], wait_s: float, say: Callable[[str], None]
) -> Capacity:
    """The cluster's capacity once the pools fit on it: asks its autoscaler for what they need, and
    waits as long as `wait_s`.

    Raises ResourceError when they fit not even then. The request ends with the wait, or the cluster
    would stay as large."""
    if (why := explain_lack(pools, capacity)) is None:
        return capacity
    if not wait_s:
        raise ResourceError(why)
    say(f"Waiting up to {wait_s:g} s for the nodes that the plan needs: {why.partition(';')[0]}")
    deadline = time.monotonic() + wait_s
    bundles: list[dict[str, float]] = []
    for pool in pools:
        kind = {f"{_ACCELERATOR}{pool.accelerator_type}": _TRACE} if pool.accelerator_type else {}
        gpus = {"GPU": pool.gpus} if pool.gpus else {}
        bundles += [{"CPU": pool.cpus} | gpus | kind] * pool.actors
    request_resources(bundles=bundles)
    try:
        while why is not None and time.monotonic() < deadline:
            time.sleep(min(_POLL_S, wait_s))
            capacity = cluster_capacity(capacity.where)
            why = explain_lack(pools, capacity)
    finally:
        request_resources(bundles=[])
    if why is not None:
        raise ResourceError(
            f"{why}\nThe cluster did not grow to it in {wait_s:g} s (cluster.wait_s)."
        )
    return capacity


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Drops what this process and its libraries write to stderr: Ray's C++ side greets there, past
    any logger."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _visible_gpus() -> int:
    devices = len(glob.glob("/dev/nvidia[0-9]*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (
        devices
        if visible is None
        else min(devices, len([part for part in visible.split(",") if part.strip()]))
    )

"""The Ray cluster of a run: a local one of its own, or the one that the config names."""

from __future__ import annotations

import glob
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import ray

from memray_eval.config import ClusterConfig
from memray_eval.errors import ResourceError
from memray_eval.runtime.plan import Capacity

MIN_LOCAL_CPUS = 2.0
_GIB = 1 << 30
_LOGGERS = ("ray", "ray.data", "ray.llm", "ray._private.worker", "ray._private.services")
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # its warnings speak of Ray Data's insides; set it yourself to see them
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def local_capacity(config: ClusterConfig) -> Capacity:
    """What a local Ray of this machine would have, without starting it."""
    cpus = config.num_cpus or max(MIN_LOCAL_CPUS, float(os.cpu_count() or 1))
    gpus = config.num_gpus if config.num_gpus is not None else float(_visible_gpus())
    memory = psutil.virtual_memory().available / _GIB
    return Capacity(where="this machine", cpus=cpus, gpus=gpus, memory_gib=memory)


@contextmanager
def connected(config: ClusterConfig) -> Iterator[Capacity]:
    """A cluster for the time of a run. Uses a Ray that this process has already started, and then leaves it up.

    Without an address a new local Ray starts: a bare ray.init could join somebody else's. Raises ResourceError when the
    address does not answer.
    """
    if ray.is_initialized():
        yield cluster_capacity("the running Ray")
        return
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray.llm").addHandler(logging.NullHandler())  # else it gives each of its loggers one to the console
    for logger in _LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # what went wrong reaches the user as an error of ours
    try:
        if config.address is None:
            local = local_capacity(config)
            with _quiet_stderr():
                ray.init(
                    address="local",
                    num_cpus=int(local.cpus),
                    num_gpus=int(local.gpus),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            yield local
        else:
            ray.init(address=config.address, log_to_driver=False, logging_level=logging.ERROR)
            yield cluster_capacity(f"the cluster at {config.address}")
    except ConnectionError as error:
        raise ResourceError(
            f"no Ray cluster answers at {config.address}: {error}. Start it, or leave cluster.address out."
        ) from None
    finally:
        ray.shutdown()


def cluster_capacity(where: str) -> Capacity:
    """What the connected cluster has, over all its living nodes."""
    total = ray.cluster_resources()
    return Capacity(
        where=where,
        cpus=total.get("CPU", 0.0),
        gpus=total.get("GPU", 0.0),
        memory_gib=total.get("memory", 0.0) / _GIB,
    )


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Drops what this process and its libraries write to stderr: Ray's C++ side greets there, past any logger."""
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
    return devices if visible is None else min(devices, len([part for part in visible.split(",") if part.strip()]))

"""What a machine or a cluster has to give."""

from __future__ import annotations

import glob
import os
import shutil

import psutil

from memray_eval.config.sections import ClusterConfig
from memray_eval.types import Frozen

MIN_LOCAL_CPUS = 2.0
CUDA_FOLDER = "/usr/local/cuda"


class Node(Frozen):
    """A cluster node: what Ray may hand out there. `memory_gib` None: unknown."""

    cpus: float
    gpus: float = 0.0
    accelerator_type: str | None = None
    memory_gib: float | None = None


class Holding(Frozen):
    """Another job's share of the cluster, over all nodes; `job` is its id, with what it runs."""

    job: str
    cpus: float = 0.0
    gpus: float = 0.0
    memory_gib: float = 0.0

    def __str__(self) -> str:
        amounts = {"GPUs": self.gpus, "CPUs": self.cpus, "GiB of memory": self.memory_gib}
        held = [f"{amount:.4g} {unit}" for unit, amount in amounts.items() if amount]
        return f"{self.job}: {', '.join(held)}"


class Capacity(Frozen):
    """The free resources of a machine or cluster; `holdings` are those that other jobs have."""

    where: str
    cpus: float
    gpus: float
    memory_gib: float
    nodes: tuple[Node, ...] = ()
    holdings: tuple[Holding, ...] = ()

    @property
    def all_gpus(self) -> float:
        """With those that others hold: by them a run tells whether its engines are to have GPUs."""
        return self.gpus + sum(holding.gpus for holding in self.holdings)

    @property
    def cpus_beside_gpus(self) -> float:
        """The CPUs of nodes without a GPU; all CPUs where there is no such node with any."""
        return sum(node.cpus for node in self.nodes if not node.gpus) or self.cpus


def local_capacity(config: ClusterConfig) -> Capacity:
    """The capacity of a local Ray on this machine, without starting it."""
    cpus = config.num_cpus or max(MIN_LOCAL_CPUS, float(os.cpu_count() or 1))
    gpus = config.num_gpus
    if gpus is None:
        devices, visible = glob.glob("/dev/nvidia[0-9]*"), os.environ.get("CUDA_VISIBLE_DEVICES")
        named = devices if visible is None else list(filter(str.strip, visible.split(",")))
        gpus = float(min(len(devices), len(named)))
    memory = psutil.virtual_memory().available / (1 << 30)
    return Capacity(where="this machine", cpus=cpus, gpus=gpus, memory_gib=memory)


def find_nvcc() -> str | None:
    """CUDA's compiler by the path at which vLLM's libraries look for it; None if there is none."""
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), CUDA_FOLDER)
    folders = [os.environ.get("PATH", os.defpath), *(f"{home}/bin" for home in homes if home)]
    return shutil.which("nvcc", path=os.pathsep.join(folders))

"""What a run needs of its cluster, counted before anything starts. Pure: no Ray here.

A Ray Data pipeline whose actors hold every CPU hangs without a word, because its read and write tasks never get one. So the
needs are counted against what is there, and a run that could hang is refused with what to change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from memray_eval.config import RunConfig
from memray_eval.errors import ResourceError
from memray_eval.types import Candidate, Frozen

Device = Literal["cpu", "gpu"]

TASK_CPUS = 0.1  # each read, prompt, fold or write task
TASKS_AT_ONCE = 3  # so many must find room beside the actors, or blocks could not flow
SERVER_CPUS = 0.25  # the embedded judge's server
SERVER_GIB = 3.0  # its overhead, 1 GiB of KV cache, a small model
STAGE_CPUS = 0.1  # Ray Data LLM's chat template actor
_GIB = 1 << 30
ENGINE_OVERHEAD_GIB = 1.5  # beside weights and KV cache: a rough allowance, not measured
EMBED_GIB = 1.0
ACTOR_GIB = 0.3
SLACK = 1e-6


class Pool(Frozen):
    """Some actors or tasks of one kind. `knob` is the config key that changes what they need."""

    name: str
    actors: int
    cpus: float
    gpus: float = 0.0
    memory_gib: float = 0.0
    knob: str = ""


class Capacity(Frozen):
    """What a machine or cluster has."""

    where: str
    cpus: float
    gpus: float
    memory_gib: float


def device_of(config: RunConfig, gpus: float) -> Device:
    """The device of the engine: what the config says, else GPUs where there are any."""
    if config.engine.device != "auto":
        return config.engine.device
    return "gpu" if gpus > 0 else "cpu"


def pools_of(config: RunConfig, candidates: tuple[Candidate, ...], device: Device, judge_server: bool = False) -> list[Pool]:
    """The pools of one pipeline: the engines or the clients of these candidates, then judges, embedders and tasks."""
    engine = config.engine
    pools = []
    if judge_server:
        gpus = 1.0 if device == "gpu" else 0.0
        pools.append(
            Pool(name="embedded judge", actors=1, cpus=SERVER_CPUS, gpus=gpus, memory_gib=SERVER_GIB, knob="judge: rules")
        )
    if candidates[0].backend == "vllm":
        workers = engine.tensor_parallel * engine.pipeline_parallel
        on_gpu = device == "gpu"
        memory = ENGINE_OVERHEAD_GIB + (0.0 if on_gpu else engine.kv_cache_gib + _weights_gib(candidates[0].model))
        pools.append(
            Pool(
                name="vLLM engine",
                actors=engine.replicas,
                cpus=engine.cpus * workers,
                gpus=float(workers) if on_gpu else 0.0,
                memory_gib=memory,
                knob="engine.replicas, engine.tensor_parallel or engine.cpus",
            )
        )
        pools.append(Pool(name="chat template", actors=1, cpus=STAGE_CPUS, memory_gib=ACTOR_GIB))
    elif candidates[0].backend == "openai":
        server = config.server
        pools.append(
            Pool(name="server clients", actors=server.actors, cpus=STAGE_CPUS, memory_gib=ACTOR_GIB, knob="server.actors")
        )
    judging, embedding = config.judging, config.embedding
    pools.append(
        Pool(
            name="judges",
            actors=judging.actors,
            cpus=judging.cpus,
            memory_gib=ACTOR_GIB,
            knob="judging.actors or judging.cpus",
        )
    )
    pools.append(
        Pool(
            name="embedders",
            actors=embedding.actors,
            cpus=embedding.cpus,
            memory_gib=EMBED_GIB,
            knob="embedding.actors or embedding.cpus",
        )
    )
    pools.append(Pool(name="read, fold and write tasks", actors=TASKS_AT_ONCE, cpus=TASK_CPUS))
    return pools


def check(pools: list[Pool], capacity: Capacity) -> None:
    """Raises ResourceError when the pools need more CPUs, GPUs or memory than there is."""
    needs = {
        "CPUs": (sum(pool.actors * pool.cpus for pool in pools), capacity.cpus),
        "GPUs": (sum(pool.actors * pool.gpus for pool in pools), capacity.gpus),
        "GiB of memory": (sum(pool.actors * pool.memory_gib for pool in pools), capacity.memory_gib),
    }
    for unit, (needed, there) in needs.items():
        if needed > there + SLACK:
            raise ResourceError(_refusal(pools, unit, needed, there, capacity.where))


def _refusal(pools: list[Pool], unit: str, needed: float, there: float, where: str) -> str:
    field = {"CPUs": "cpus", "GPUs": "gpus", "GiB of memory": "memory_gib"}[unit]
    users = sorted((pool for pool in pools if getattr(pool, field)), key=lambda pool: -pool.actors * getattr(pool, field))
    lines = [f"  {pool.name}: {pool.actors} x {getattr(pool, field):g}" for pool in users]
    knobs = next((pool.knob for pool in users if pool.knob), "engine.replicas")
    more = {
        "CPUs": "cluster.num_cpus (logical CPUs of a local run)",
        "GPUs": "a cluster with more GPUs, or engine.device: cpu",
        "GiB of memory": "a lower engine.kv_cache_gib, or a machine with more memory",
    }[unit]
    return (
        f"the plan needs {needed:.4g} {unit} and {where} has {there:.4g}; it would wait for ever, so it is not started.\n"
        + "\n".join(lines)
        + f"\nLower {knobs}, or give it more: {more}."
    )


def _weights_gib(model: str) -> float:
    """The size of a model's weights where they lie on this machine, else 0: a hub's model is not known before it is fetched."""
    folder = Path(model)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / _GIB if folder.is_dir() else 0.0

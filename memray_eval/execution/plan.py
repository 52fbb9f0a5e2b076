"""What a machine or a cluster has to give, and what a run needs of it, counted before anything
starts. No Ray here. A pipeline whose actors hold every CPU hangs without a word, so it is refused
with what to change."""

import glob
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from memray_eval.config.sections import FEW_ROWS, ClusterConfig, EngineConfig, least_of, most_of
from memray_eval.errors import ResourceError
from memray_eval.execution.run_plan import RunSpec
from memray_eval.judges.judge_factory import IN_FLIGHT
from memray_eval.judges.router import calls_a_record
from memray_eval.metric import RULES
from memray_eval.types import Candidate, Frozen

Device = Literal["cpu", "gpu"]

MIN_LOCAL_CPUS = 2.0
TASK_CPUS = 0.1  # each read, prompt or fold task
TASKS_AT_ONCE = 2  # so many must find room beside the actors, or blocks could not flow
STAGE_CPUS = 0.1  # the actor that asks servers
WRITER_CPUS = 0.04  # each of a pipeline's two actors that write rows to the run folder
_GIB = 1 << 30
ENGINE_OVERHEAD_GIB = 1.5  # beside weights and KV cache: a rough allowance, not measured
EMBED_GIB = 1.0
ACTOR_GIB = 0.3
AFFECT_CPUS = 0.3
AFFECT_GIB = 0.5  # clients and sounds; a transformer's weights come on top
SLACK = 1e-6
# Ray puts an actor that takes no CPU on a head of no CPUs too (ray-project/ray#41824)
CLIENT_CPUS = 0.01  # each engine's client, which all its prompts and answers pass
ENGINES, CLIENTS, JUDGES = "vLLM engine", "engine clients", "judges"  # names of pools
JUDGE_ENGINES = "embedded judge"
MOST_JUDGES = 8  # judge actors, unless configured: each makes some hundred calls a second
MOST_IN_FLIGHT = 512  # calls of one actor to one judge, unless configured
LATENCY_SPREAD = 2.0  # calls take longer than they are expected to
# calls that wait for each one in flight, or the slowest of a block would hold up the others
ADMITTED = 16
LEAST_TASKS, MOST_TASKS = 4, 64
BATCH_CHARS, ENGINE_CHARS = 4_000_000, 64_000_000


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
    memory = psutil.virtual_memory().available / _GIB
    return Capacity(where="this machine", cpus=cpus, gpus=gpus, memory_gib=memory)


class Pool(NamedTuple):
    """Some actors or tasks of one kind. `knob` is the config key that changes what they need. Each
    must fit on one node; those with an `accelerator_type`, on one with such GPUs."""

    name: str
    actors: int
    cpus: float
    gpus: float = 0.0
    memory_gib: float = 0.0
    knob: str = ""
    accelerator_type: str | None = None


_TASKS = Pool("read and fold tasks", TASKS_AT_ONCE, TASK_CPUS)


def engine_device(spec: RunSpec, gpus: float) -> Device:
    """The device of the engine: what the config says, else GPUs where there are any."""
    if spec.config.engine.device != "auto":
        return spec.config.engine.device
    return "gpu" if gpus > 0 else "cpu"


class JudgePool(Frozen):
    """The judge actors of a run, the calls each may have in flight to a judge, and its blocks."""

    actors: int
    max_in_flight: int
    tasks: int


def judge_actors(spec: RunSpec, cpus: float, pipelines: int = 1) -> int:
    """The judge actors of each of the pipelines side by side: as configured, else one per CPU."""
    configured = spec.config.judging.actors
    actors = min(MOST_JUDGES, int(cpus)) if configured is None else configured
    return max(1, actors // pipelines)


def judge_pool(spec: RunSpec, cpus: float, rows: int, actors: int | None = None) -> JudgePool:
    """Sizes the judge actors (`actors`, if said): as configured; else as many calls in flight as
    the fastest judge's firm limit and the expected latency call for (without one: IN_FLIGHT an
    actor), and enough blocks of `rows` rows that a slow call does not empty the pool."""
    judging, actors = spec.config.judging, actors or judge_actors(spec, cpus)
    assigned = spec.judges.values()
    names = {name for choice in assigned for name in choice.judges if name != RULES}
    limits = [
        limits.requests_per_min
        for limits, is_firm in (spec.account(name).limits for name in names)
        if is_firm
    ]
    needed = IN_FLIGHT
    if limits and all(limits):
        fastest = max(limit for limit in limits if limit)
        needed = max(4, math.ceil(fastest / 60.0 * judging.latency_s * LATENCY_SPREAD / actors))
    in_flight = judging.max_in_flight or min(needed, MOST_IN_FLIGHT)
    calls_a_row = max(1, calls_a_record(spec.judges, judging.repeats))
    tasks = math.ceil(ADMITTED * in_flight / (max(1, rows) * calls_a_row))
    return JudgePool(
        actors=actors, max_in_flight=in_flight, tasks=max(LEAST_TASKS, min(MOST_TASKS, tasks))
    )


def pipeline_pools(
    spec: RunSpec,
    candidates: tuple[Candidate, ...],
    device: Device,
    judge_actors: int = 1,
    scores: bool = True,
) -> list[Pool]:
    """The pools of one pipeline: engines or clients, judges and embedders if it `scores`, tasks."""
    affect, knob = spec.config.affect, "affect.actors, or --affect off"
    pool = Pool("affect", affect.actors, AFFECT_CPUS, 0.0, AFFECT_GIB, knob)
    return [
        *_candidate_pools(spec, candidates[0], device),
        *([pool] if affect.enabled else ()),
        *tail_pools(spec, judge_actors, scores, writers=(candidates[0].backend == "vllm") + scores),
        _TASKS,
    ]


def judging_pools(spec: RunSpec, device: Device, judge_actors: int) -> list[Pool]:
    """The pools of a pipeline that scores what is generated already."""
    scoring = tail_pools(spec, judge_actors, writers=1)
    return [*judge_engine_pools(spec, device), *scoring, _TASKS]


def tail_pools(
    spec: RunSpec, judge_actors: int, scores: bool = True, writers: int | None = None
) -> list[Pool]:
    """The pools of a pipeline whose engines have ended: what scores and writes the rest."""
    judging, embedding = spec.config.judging, spec.config.embedding
    knobs = "judging.actors or judging.cpus", "embedding.actors or embedding.cpus"
    pools = [
        Pool(JUDGES, judge_actors, judging.cpus, 0.0, ACTOR_GIB, knobs[0]),
        Pool("embedders", embedding.actors, embedding.cpus, 0.0, EMBED_GIB, knobs[1]),
    ]
    at_work = [pool for pool, metrics in zip(pools, spec.by_stage(), strict=True) if metrics]
    n_writers = 1 + scores if writers is None else writers
    writer_pool = Pool("writers", n_writers, WRITER_CPUS, 0.0, ACTOR_GIB)
    return [*(at_work if scores else ()), writer_pool]


class EngineLoad(NamedTuple):
    """The prompts that an engine answers at once, and a step's prompt tokens (None: vLLM's own)."""

    max_num_seqs: int
    max_num_batched_tokens: int | None


# What the config leaves open; prompts are short below LONG_CHARS. None of the figures
# for GPUs was compared with another on a GPU.
# - On a CPU a step costs about as much as its tokens, and more sequences only take memory.
# - On a GPU a step of short prompts is bound by reading the weights: many sequences share it. vLLM
#   would take 2,048 tokens a step for an engine like Ray Data LLM's (its usage context is neither
#   LLM nor server); 8,192 is what it takes itself for `LLM` on every GPU of its table.
# - Long prompts fill a step by themselves, and hold the KV cache: more of them at once are put
#   back and computed again. A larger step has fewer of them wait.
LONG_CHARS = 32_000  # about 8,000 tokens of English
ENGINE_LOADS: Mapping[tuple[Device, bool], EngineLoad] = {
    ("cpu", False): EngineLoad(64, None),
    ("cpu", True): EngineLoad(64, None),
    ("gpu", False): EngineLoad(256, 8_192),
    ("gpu", True): EngineLoad(64, 16_384),
}
# The driver takes about as long for a batch of few rows as of many: with so many for each engine it
# has 60 units/s and more for each of up to 64 (tests/bench/driver_ceiling.py)
ROWS_AN_ENGINE, MOST_ROWS = 4, 128
WAITING = 2  # prompts at an engine for each that it answers at once: none of its places is empty


def fit_engine(
    engine: EngineConfig, mean_chars: float, device: Device, block_rows: int = FEW_ROWS
) -> EngineConfig:
    """An engine on prompts of this mean length, in blocks of so many rows: gaps of the config
    filled by ENGINE_LOADS; rows in a batch that the driver can hand out to all `replicas`, but
    fewer of long contexts: at most BATCH_CHARS in a batch and ENGINE_CHARS under way."""
    length = max(1.0, mean_chars)
    load = ENGINE_LOADS[device, length >= LONG_CHARS]
    seqs = engine.max_num_seqs or load.max_num_seqs
    at_once = seqs * engine.data_parallel
    for_all = min(ROWS_AN_ENGINE * most_of(engine.replicas), block_rows, seqs, MOST_ROWS)
    wanted = engine.batch_size or max(FEW_ROWS, for_all)
    batches = engine.concurrent_batches or max(2, math.ceil(WAITING * at_once / wanted))
    rows = max(1, min(wanted, int(BATCH_CHARS / length)))
    most = min(wanted * batches, int(ENGINE_CHARS / length))
    step = load.max_num_batched_tokens  # vLLM wants it to be no less than the sequences
    kwargs = {"max_num_batched_tokens": max(step, seqs)} if step else {}
    return engine.model_copy(
        update={
            "max_num_seqs": seqs,
            "batch_size": rows,
            "concurrent_batches": max(1, most // rows),
            "engine_kwargs": kwargs | engine.engine_kwargs,
        }
    )


def blocks_in_flight(engine: EngineConfig, blocks: float, engines: int) -> int:
    """The blocks that an engine is given at a time: twice what it works on, at most its share."""
    return max(1, math.ceil(min(2 * (engine.concurrent_batches or 1), blocks / engines)))


def judge_engine_pools(spec: RunSpec, device: Device) -> list[Pool]:
    """The engines of an embedded judge, which all pipelines share; empty without one."""
    model, engine = spec.embedded_judge, spec.judge_engine
    if model is None or engine is None:
        return []
    knob = f"the judge's engines (engines: {{{model}: ...}})"
    return [_engine_pool(JUDGE_ENGINES, engine, model, device, knob)]


def _candidate_pools(spec: RunSpec, candidate: Candidate, device: Device) -> list[Pool]:
    engine, server = spec.config.engine_of(candidate.model), spec.config.server
    if candidate.is_served:
        knob = "server.actors"
        return [Pool("server clients", server.actors, STAGE_CPUS, 0.0, ACTOR_GIB, knob)]
    if candidate.backend != "vllm":
        return []
    knob = "engine.replicas, engine.tensor_parallel (engine.nodes) or engine.cpus"
    return [
        _engine_pool(ENGINES, engine, candidate.model, device, knob),
        Pool(name=CLIENTS, actors=least_of(engine.replicas), cpus=CLIENT_CPUS),
    ]


def _engine_pool(name: str, engine: EngineConfig, model: str, device: Device, knob: str) -> Pool:
    # Of one part, which must lie on one node
    workers, on_gpu = engine.workers // engine.parts, device == "gpu"
    memory = ENGINE_OVERHEAD_GIB
    if not on_gpu:  # a hub's weights are not known before
        weights = sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))
        memory += engine.kv_cache_gib + weights / _GIB
    return Pool(
        name=name,
        actors=least_of(engine.replicas) * engine.parts,
        cpus=engine.cpus * workers,
        gpus=float(workers) if on_gpu else 0.0,
        memory_gib=memory / engine.parts,
        accelerator_type=engine.accelerator_type,
        knob=knob,
    )


def engines_at_first(engine: EngineConfig, pools: Sequence[Pool], capacity: Capacity) -> int:
    """The engines of a range that begin: the most that find room beside `pools`, or the least."""
    least, most = least_of(engine.replicas), most_of(engine.replicas)
    has_engines = any(pool.name == ENGINES for pool in pools)
    for replicas in range(most, least, -1) if has_engines else ():
        actors = {ENGINES: replicas * engine.parts, CLIENTS: replicas}
        grown = [pool._replace(actors=actors.get(pool.name, pool.actors)) for pool in pools]
        if explain_lack(grown, capacity) is None:
            return replicas
    return least


def check_room(pools: Sequence[Pool], capacity: Capacity) -> None:
    """Raises ResourceError if the pools need more than there is, or an actor fits on no node."""
    if (why := explain_lack(pools, capacity)) is not None:
        raise ResourceError(why)


def explain_lack(pools: Sequence[Pool], capacity: Capacity) -> str | None:
    """The reason why the pools do not fit, and what others hold there; None if they fit."""
    holders = "".join(f"\n  {holding}" for holding in capacity.holdings)
    others = holders and (
        f"\nOthers hold:{holders}\nWait until they have ended, or set cluster.wait_s: the run then "
        "waits for what they give back, and for nodes that the cluster adds."
    )
    for field in _LACKS:
        needed = sum(pool.actors * getattr(pool, field) for pool in pools)
        if needed > getattr(capacity, field) + SLACK:
            return _too_little(pools, field, needed, capacity) + others
    homeless = first_homeless(pools, capacity.nodes)
    return None if homeless is None else _no_room(homeless, capacity) + others


def first_homeless(pools: Sequence[Pool], nodes: Sequence[Node]) -> Pool | None:
    """The first pool one of whose actors finds no node, when each takes the first with room,
    without GPUs first if it needs none, as Ray does. None if all do, or without `nodes`."""
    left = sorted(nodes, key=lambda node: node.gpus)

    def rank(pool: Pool) -> tuple[float, bool, float]:
        """GPUs before CPUs, large before small, a certain kind before any."""
        return -pool.gpus, pool.accelerator_type is None, -pool.cpus

    for pool in sorted(pools, key=rank) if left else ():
        for _ in range(pool.actors):
            for index, node in enumerate(left):
                if (rest := without(node, pool)) is not None:
                    left[index] = rest
                    break
            else:
                return pool
    return None


def without(node: Node, pool: Pool) -> Node | None:
    """The node with what one actor of the pool leaves of it; None if it finds no room there."""
    names = ["cpus", "gpus"] + ["memory_gib"] * (node.memory_gib is not None)
    left = {name: getattr(node, name) - getattr(pool, name) for name in names}
    is_kind = pool.accelerator_type in (None, node.accelerator_type)
    return node.model_copy(update=left) if is_kind and min(left.values()) >= -SLACK else None


def _no_room(pool: Pool, capacity: Capacity) -> str:
    # Said only where it may be what lacks
    by_memory = any(
        node.memory_gib is not None
        and without(node.model_copy(update={"memory_gib": None}), pool) is not None
        for node in capacity.nodes
    )

    def describe_resources(of: Pool | Node) -> str:
        return (
            f"{of.cpus:g} CPUs"
            + (f" and {of.gpus:g} GPUs" if of.gpus else "")
            + (f" of type {of.accelerator_type}" if of.accelerator_type else "")
            + (f", {of.memory_gib or 0:.3g} GiB of memory" if by_memory else "")
        )

    kinds = Counter(describe_resources(node) for node in capacity.nodes)
    room = "room left" if capacity.holdings else "room"
    return (
        f"no node of {capacity.where} has {room} for "
        f"{'each' if pool.actors > 1 else 'the'} {pool.name}: {describe_resources(pool)} on one "
        "node; it would wait for ever, so it is not started.\n"
        + "\n".join(f"  {count} x {kind}" for kind, count in kinds.items())
        + f"\nLower {pool.knob or 'the other pools'}, or give the cluster such nodes "
        f"(cluster.wait_s waits for them)."
    )


# What pools may lack: its unit, and what gives them more
_LACKS = {
    "cpus": ("CPUs", "cluster.num_cpus (logical CPUs of a local run)"),
    "gpus": ("GPUs", "a cluster with more GPUs, or engine.device: cpu"),
    "memory_gib": ("GiB of memory", "a lower engine.kv_cache_gib, or a machine with more memory"),
}


def _too_little(pools: Sequence[Pool], field: str, needed: float, capacity: Capacity) -> str:
    (unit, more), available = _LACKS[field], getattr(capacity, field)
    users = sorted(
        (pool for pool in pools if getattr(pool, field)),
        key=lambda pool: -pool.actors * getattr(pool, field),
    )
    lines = [f"  {pool.name}: {pool.actors} x {getattr(pool, field):g}" for pool in users]
    knobs = next((pool.knob for pool in users if pool.knob), "engine.replicas")
    held = sum(getattr(holding, field) for holding in capacity.holdings)
    has = f"{available:.4g} free of {available + held:.4g}" if held else f"{available:.4g}"
    return (
        f"the plan needs {needed:.4g} {unit} and {capacity.where} has {has}; it would wait for "
        f"ever, so it is not started.\n"
        + "\n".join(lines)
        + f"\nLower {knobs}, or give it more: {more}."
    )

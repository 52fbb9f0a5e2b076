"""Estimates a run before a cent is spent: calls, tokens, dollars, wall time, and the bottleneck.
Makes no call. Prompts are really built, for some hundred units spread over the dataset
(estimate_sample.py); what a model will answer, and the speed of what no limit bounds, are assumed
(config `assumptions`). A token is taken for CHARACTERS_A_TOKEN characters. The judges' part is in
estimate_judges.py."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

from memray_eval.config.sections import EngineConfig, EngineTimes, least_of
from memray_eval.config.servers import is_baseline
from memray_eval.datasets.scan import Scan
from memray_eval.datasets.sharding import SHARD_BYTES
from memray_eval.errors import ConfigError
from memray_eval.execution.capacity import Capacity
from memray_eval.execution.engine_time import engine_work
from memray_eval.execution.estimate_judges import (
    Bound,
    JudgeEstimate,
    estimate_judges,
    sum_known,
    tokens_of,
)
from memray_eval.execution.estimate_sample import PromptReader, SampledUnit, sample_units
from memray_eval.execution.executors import choose_phases
from memray_eval.execution.plan import LONG_CHARS, Device, engine_device, fit_engine, judge_pool
from memray_eval.execution.ray.cluster_spec import NodeGroup
from memray_eval.execution.ray.placement import EngineUse, Placement
from memray_eval.execution.run_plan import Group, PhaseOrder, RunSpec
from memray_eval.execution.schedule import Wave, schedule
from memray_eval.judges.prompt_cache import CHARACTERS_A_TOKEN
from memray_eval.metric import NEEDS_JUDGE
from memray_eval.stages.embed import collect_texts, distinct_texts
from memray_eval.text_processing.sample_text import memory_lines
from memray_eval.types import EXISTING, Candidate, Frozen, Record, Response

# of one core, for a unit of 12 scores: to an Arrow table, back, and into a Parquet file of 64 rows
WRITE_CPU_S = 0.0005
PROMPT_CPU_S = 1e-6  # of one core, for a token of a prompt to an engine: read, tokenized (0.9e-6)
# of one core of the driver, for a block of samples or a batch of prompts, and a unit in them:
# tests/bench/driver_ceiling.py
DRIVER_BLOCK_S, DRIVER_UNIT_S = 0.012, 0.00009
# of one core, for a character of a text that the local model embeds: 4.2 ms for one of 70
EMBED_CPU_S = 60e-6
EMBEDS = "embedding_retrieval"  # the baseline that has it embed each line of a memory
# Ray, its workers, and an engine where there is one
STARTUP_S = {"vllm": 90.0, "openai": 12.0, "code": 12.0, EXISTING: 10.0}


class StageEstimate(Frozen):
    """The seconds that a stage would take alone, and what bounds it."""

    stage: str
    seconds: float
    bound_by: str


class PhaseUse(Frozen):
    """The duration of a run with this order of its phases, how long its nodes with GPUs are up, and
    the node-hours of those with GPUs and without (none without a cluster)."""

    order: PhaseOrder
    wall_s: float
    gpus_up_s: float
    gpu_node_hours: float = 0.0
    cpu_node_hours: float = 0.0


class GroupUse(Frozen):
    """One group's nodes while a run lasts, their hours together, and cost (None: nobody said)."""

    group: NodeGroup
    nodes: int
    node_hours: float
    usd: float | None


class ClusterUse(Frozen):
    """The nodes that a run takes of a cluster; `usd` if every group that it takes has a price."""

    where: str
    kind: str
    groups: tuple[GroupUse, ...]
    engines: tuple[EngineUse, ...]
    usd: float | None
    problems: tuple[str, ...]


class Estimate(Frozen):
    """A run before it is made. Stages overlap: `wall_s` is the start-up and the slowest of
    `bounds`, or generating and scoring after each other. `usd` is what judges cost, without
    `unpriced_calls` (None: no price is known). `warnings` name metrics that nobody would score and
    models that retire soon. `phase_uses` are what each `phase_order` would take."""

    units: int
    prompt_tokens: int
    output_tokens: int
    judges: tuple[JudgeEstimate, ...]
    stages: tuple[StageEstimate, ...]
    bounds: tuple[Bound, ...]
    judge_actors: int
    calls_in_flight: int
    startup_s: float
    wall_s: float
    bottleneck: str
    usd: float | None
    unpriced_calls: int
    warnings: tuple[str, ...]
    budget_usd: float | None
    calls: int
    phase_order: PhaseOrder
    phase_reason: str
    phase_uses: tuple[PhaseUse, ...]
    cluster: ClusterUse | None
    assumptions: tuple[str, ...]


def estimate(
    spec: RunSpec,
    scan: Scan,
    capacity: Capacity,
    *,
    samples: int | None = None,
    placement: Placement | None = None,
    node_usd_per_hour: Mapping[str, float] | None = None,
    today: date | None = None,
) -> Estimate:
    """The estimate of a run whose dataset was scanned, or with so many `samples` like these; on a
    cluster if it has a `placement`. Raises ConfigError for a price of no group."""
    reader = PromptReader(spec)
    sampled = list(sample_units(spec, scan, reader))
    at_first = capacity if placement is None else placement.cluster_spec.at_first()
    waves = schedule(spec, at_first, engine_device(spec, capacity.all_gpus))
    work = _Workload(spec, scan, capacity, placement, samples, waves, sampled)
    pool = judge_pool(spec, capacity.cpus, work.block_rows)
    if spec.judge_engine is not None:
        spec = replace(spec, judge_engine=work.fitted(spec.judge_engine))
    judges, bounds = estimate_judges(spec, work.records, work.scale, pool, work.judge_cpus)
    bounds = sorted([*bounds, *work.bounds()], key=lambda bound: -bound.seconds)
    stages = tuple(
        StageEstimate(stage=stage, seconds=slowest.seconds, bound_by=slowest.what)
        for stage in ("generate", "judge", "embed", "write")
        if (slowest := next((bound for bound in bounds if bound.stage == stage), None))
    )
    order, reason = choose_phases(spec)
    uses = tuple(_phase_uses(stages, work.startup_s, placement))
    use = next(use for use in uses if use.order == order)
    unscored = f"not scored, and not in the estimate: {', '.join(spec.unscored)}"
    unscored_lines = [f"{unscored} (each {NEEDS_JUDGE})"] if spec.unscored else []
    return Estimate(
        units=work.units,
        prompt_tokens=round(work.prompt_tokens),
        output_tokens=round(sum(work.answered.values())),
        judges=judges,
        stages=stages,
        bounds=tuple(bounds),
        judge_actors=pool.actors if judges else 0,
        calls_in_flight=pool.actors * pool.max_in_flight if judges else 0,
        startup_s=work.startup_s,
        wall_s=use.wall_s,
        bottleneck=f"{bounds[0].stage}: {bounds[0].what}" if bounds else "start-up",
        usd=sum_known(judge.usd for judge in judges),
        unpriced_calls=sum(judge.unpriced_calls for judge in judges),
        warnings=(*unscored_lines, *spec.retiring(today or date.today()), *spec.equal_draws()),
        budget_usd=spec.budget.usd,
        calls=sum(judge.calls for judge in judges),
        phase_order=order,
        phase_reason=reason,
        phase_uses=uses if spec.metrics and not spec.has_responses else (),
        cluster=placement and _cluster_use(placement, use, node_usd_per_hour or {}),
        assumptions=(*_list_assumptions(work, judges, reader.counted),),
    )


@dataclass(frozen=True)
class _Workload:
    """The work of a run but for its judges', by units `sampled` of its dataset, or of so many
    `samples` like these; waves of candidates follow one another."""

    spec: RunSpec
    scan: Scan
    capacity: Capacity
    placement: Placement | None
    samples: int | None
    waves: Sequence[Wave]
    sampled: Sequence[SampledUnit]

    @cached_property
    def n_samples(self) -> int:
        return self.samples or self.scan.n_samples

    @cached_property
    def units(self) -> int:
        turns = self.scan.n_asked / max(1, self.scan.n_samples)
        return self.spec.units_of(round(self.n_samples * turns))

    @cached_property
    def scale(self) -> float:
        """The units of the run for each sampled one."""
        return self.units / max(1, len(self.sampled))

    @cached_property
    def units_each(self) -> float:
        """The units of each candidate."""
        return self.units / len(self.spec.candidates)

    @cached_property
    def records(self) -> list[Record]:
        return [unit.record for unit in self.sampled]

    @cached_property
    def device(self) -> Device:
        return engine_device(self.spec, self.capacity.gpus)

    @cached_property
    def judge_cpus(self) -> float:
        return self.capacity.cpus if self.placement is None else self.placement.judge_cpus

    @cached_property
    def prompt_tokens(self) -> float:
        return sum(unit.prompt.tokens for unit in self.sampled if unit.prompt) * self.scale

    @cached_property
    def answered(self) -> Mapping[str, float]:
        """The tokens of all answers, by candidate."""
        tokens = defaultdict[str, float](float)
        for record in self.records:
            if not is_baseline(record.candidate):
                text = record.response.text if record.response else ""
                tokens[record.candidate.name] += tokens_of(text) * self.scale
        return tokens

    @cached_property
    def startup_s(self) -> float:
        engine = self.spec.assumptions.engine
        starts = STARTUP_S if engine is None else {**STARTUP_S, "vllm": engine.start_s}
        return sum(max(starts[group[0].backend] for group in wave) for wave in self.waves)

    @cached_property
    def block_rows(self) -> int:
        return self.spec.read.block_rows(self.n_samples)

    @cached_property
    def blocks(self) -> float:
        """The number of blocks that the samples come in."""
        read, shards = self.spec.read, self.scan.shards
        count, n_scanned = self.n_samples, max(1, self.scan.n_samples)
        if any(shard.is_read_from_start for shard in shards):
            return max(1.0, count / read.batch_size)
        if read.reader.by_context or self.samples is None:
            return max(1.0, len(shards) * count / n_scanned)
        size = sum(shard.size for shard in shards) / n_scanned
        rows = min(self.block_rows, max(1, int(SHARD_BYTES / max(1.0, size))))
        return max(1.0, count / rows)

    def bounds(self) -> Iterator[Bound]:
        """Yields what bounds the stages; generating, by the slowest group of each wave."""
        asking = [[group for group in map(_models_of, wave) if group] for wave in self.waves]
        if self.units and not self.spec.has_responses and any(asking):
            slowest = [
                max(map(self._bound_group, wave), key=lambda bound: bound.seconds)
                for wave in asking
                if wave
            ]
            longest = max(slowest, key=lambda bound: bound.seconds)
            rounds = f"{len(slowest)} rounds of models, the longest with " * (len(slowest) > 1)
            seconds = sum(bound.seconds for bound in slowest)
            yield Bound("generate", rounds + longest.what, seconds, longest.change)
        yield from self._bound_driver()
        if self.prompt_tokens and self.spec.has_vllm:
            cores = _task_cores(self.capacity.cpus_beside_gpus, self.capacity.cpus)
            what, seconds = "CPUs that read and tokenize prompts", self.prompt_tokens * PROMPT_CPU_S
            yield Bound("generate", f"{cores:g} {what}", seconds / cores, "more CPUs")
        yield from self._bound_embedding()
        if self.units:
            cores = _task_cores(self.judge_cpus, self.judge_cpus)
            seconds = self.units * WRITE_CPU_S / cores
            yield Bound("write", f"{cores:g} CPUs that fold and write", seconds, "more CPUs")

    def _bound_group(self, group: Group) -> Bound:
        """The bound of one pipeline's candidates: of a model's engines, or behind servers."""
        assumed, server = self.spec.assumptions, self.spec.server
        tokens = sum(self.answered[candidate.name] for candidate in group)
        if group[0].backend != "vllm":
            at_once = server.actors * server.max_in_flight
            waits_s = self.units_each * len(group) * assumed.server_latency_s
            seconds = (tokens / assumed.server_tokens_per_s + waits_s) / at_once
            what = f"{at_once} calls in flight to the candidate's server"
            return Bound("generate", what, seconds, "server.actors or server.max_in_flight")
        engines = least_of(self.spec.engine_of(group[0].model).replicas)
        change = "engine.replicas, or a faster engine"
        for use in self.placement.engines if self.placement is not None else ():
            if use.model == group[0].model:
                engines, room = min(engines, max(1, use.fit)), use.fit - engines
                change = (
                    f"engine.replicas: {room} more fit"
                    if room > 0
                    else "larger groups of nodes: no further engine fits"
                )
        seconds, how = self._engine_seconds(group, engines) or (
            tokens / (engines * assumed.engine_tokens_per_s),
            f"of {assumed.engine_tokens_per_s:,.10g} tokens/s",
        )
        what = f"{engines} {'engine' if engines == 1 else 'engines'} {how}"
        return Bound("generate", what, seconds, change)

    def _engine_seconds(self, group: Group, engines: int) -> tuple[float, str] | None:
        """The seconds that a model's engines take, and how they do it; None if it is not known
        what one takes for each part of its work."""
        names = {candidate.name for candidate in group}
        prompts = [
            unit.prompt
            for unit in self.sampled
            if unit.prompt is not None and unit.record.candidate.name in names
        ]
        times = self.spec.assumptions.engine
        if times is None or not prompts:
            return None
        # The one that has most of the blocks
        share = math.ceil(self.blocks / engines) / self.blocks
        n_prompts = share * self.units_each * len(group)
        work = engine_work(prompts, times, self._fitted(group), engines, n_prompts)
        tokens = sum(prompt.tokens for prompt in prompts) / len(prompts)
        how = (
            f"that answer{'s' * (engines == 1)} {work.at_once:,} prompts of {tokens:,.0f} tokens "
            f"at once, {work.cached_share:.0%} of them from the prefix cache"
        )
        if self.blocks < engines:
            how += f", {engines - int(self.blocks):,} of them without a block (rows_per_block)"
        return work.seconds, how

    def _fitted(self, group: Group) -> EngineConfig:
        return self.fitted(self.spec.engine_of(group[0].model))

    def fitted(self, engine: EngineConfig) -> EngineConfig:
        """An engine, as the run fits it."""
        mean_chars = self.scan.context_chars / max(1, self.scan.n_samples)
        return fit_engine(engine, mean_chars, self.device, self.block_rows)

    def _bound_driver(self) -> Iterator[Bound]:
        """Yields the bound of the driver, which hands each block from stage to stage."""
        groups = [group for wave in self.waves for group in wave if group[0].backend == "vllm"]
        units = self.units_each * sum(map(len, groups))
        batches = sum(self.units_each * len(group) / self._fitted(group).rows for group in groups)
        if units:
            n_blocks = batches + units / self.block_rows
            what = f"the driver, with {math.ceil(batches):,} batches of prompts"
            seconds = n_blocks * DRIVER_BLOCK_S + units * DRIVER_UNIT_S
            yield Bound("generate", what, seconds, "a larger engine.batch_size")

    def _bound_embedding(self) -> Iterator[Bound]:
        """Yields the bound of a local embedding model: the texts of metrics, and the lines of
        memory that a baseline ranks, each once a sample."""
        spec, cpus = self.spec, self.judge_cpus
        if not spec.embedding.model.startswith("local"):
            return
        at_embed = set(spec.by_stage()[1])
        metrics = [metric for metric in spec.metrics if metric.name in at_embed]
        texts = set[tuple[str, str]]()
        for record in self.records:
            wanted = distinct_texts(collect_texts(_as_reply(record), metrics))
            if is_baseline(record.candidate) and record.candidate.model.endswith(EMBEDS):
                wanted |= set(memory_lines(record.sample).splitlines())
            texts |= {(record.sample.id, text) for text in wanted}
        if texts:
            cores = min(cpus, spec.embedding.actors) if spec.executor == "ray" else cpus
            what = f"{cores:g} CPUs that embed texts of metrics and baselines"
            chars = sum(len(text) for _, text in texts) * self.scale
            seconds = chars * EMBED_CPU_S / max(1.0, cores)
            yield Bound("embed", what, seconds, "fewer entries or samples, or more CPUs")


def _models_of(group: Sequence[Candidate]) -> Group:
    """The candidates of a group that ask a model."""
    return tuple(candidate for candidate in group if not is_baseline(candidate))


def _task_cores(cpus: float, all_cpus: float) -> float:
    """The cores of a stage of tasks, which has so many at once: execution/ray/executor.py."""
    return min(max(1.0, cpus), float(max(2, int(all_cpus) // 4)))


def _as_reply(record: Record) -> Record:
    """The record, with a response that speaks to the user, as replies do."""
    response = record.response or Response()
    if response.is_empty:
        return record
    reply = response.model_copy(update={"text": f"You asked. {response.text}"})
    return record.model_copy(update={"response": reply})


def _phase_uses(
    stages: Sequence[StageEstimate], startup_s: float, placement: Placement | None
) -> Iterator[PhaseUse]:
    """Yields the use of each order of the phases. Nodes without GPUs are up to the end in both."""
    alone = {stage.stage: stage.seconds for stage in stages}
    generating_s = alone.pop("generate", 0.0)
    scoring_s = max(alone.values(), default=0.0)
    together_s, generated_s = startup_s + max(generating_s, scoring_s), startup_s + generating_s
    apart_s = generated_s + STARTUP_S[EXISTING] + scoring_s
    nodes = Counter[bool]()  # workers, by whether they have GPUs
    if placement is not None:
        for group in placement.cluster_spec.groups:
            nodes[group.gpus > 0] += 0 if group.is_head else placement.nodes[group.name]
    orders: tuple[tuple[PhaseOrder, float, float], ...] = (
        ("together", together_s, together_s),
        ("apart", apart_s, generated_s),
    )
    for order, wall_s, gpus_up_s in orders:
        yield PhaseUse(
            order=order,
            wall_s=wall_s,
            gpus_up_s=gpus_up_s,
            gpu_node_hours=nodes[True] * gpus_up_s / 3600.0,
            cpu_node_hours=nodes[False] * wall_s / 3600.0,
        )


def _cluster_use(
    placement: Placement, use: PhaseUse, node_usd_per_hour: Mapping[str, float]
) -> ClusterUse:
    names = [group.name for group in placement.cluster_spec.groups]
    if unknown := sorted(set(node_usd_per_hour) - set(names)):
        raise ConfigError(
            f"a node price for {unknown[0]!r}, which {placement.cluster_spec.where} does not have; "
            f"it has {', '.join(names)}"
        )
    groups = []
    for group in placement.cluster_spec.groups:
        nodes, a_node = placement.nodes[group.name], node_usd_per_hour.get(group.name)
        hours = nodes * (use.gpus_up_s if group.gpus else use.wall_s) / 3600.0
        usd = None if a_node is None else a_node * hours
        groups.append(GroupUse(group=group, nodes=nodes, node_hours=hours, usd=usd))
    prices = [use.usd for use in groups if use.nodes]
    return ClusterUse(
        where=placement.cluster_spec.where,
        kind=placement.cluster_spec.kind,
        groups=tuple(groups),
        engines=placement.engines,
        usd=None if None in prices else sum(price or 0.0 for price in prices),
        problems=placement.problems,
    )


def _list_assumptions(
    work: _Workload, judges: Sequence[JudgeEstimate], counted: Mapping[str, tuple[int, int]]
) -> Iterator[str]:
    spec, sampled, is_placed = work.spec, work.sampled, work.placement is not None
    assumed, backends = spec.assumptions, {candidate.backend for candidate in spec.candidates}
    yield (
        f"prompts built for {len(sampled):,} of {work.units:,} units; a token is "
        f"{CHARACTERS_A_TOKEN:g} characters"
    )
    for model, (chars, tokens) in counted.items():
        yield f"  of prompts to {model} {chars / tokens:.2f} characters, by its own tokenizer"
    if EXISTING not in backends and _models_of(spec.candidates):
        yield f"responses take {assumed.output_share:.0%} of max_tokens (assumptions.output_share)"
    yield f"a verdict has {assumed.verdict_tokens:g} tokens (assumptions.verdict_tokens)"
    yield f"a judge call takes {spec.judging.latency_s:g} s (judging.latency_s)"
    has_engines = "vllm" in backends or spec.embedded_judge is not None
    if has_engines and assumed.engine is not None:
        yield from _list_engine_times(assumed.engine)
    elif has_engines:
        yield (
            f"an engine makes {assumed.engine_tokens_per_s:g} tokens/s, prefill included "
            "(assumptions.engine_tokens_per_s)"
        )
        if is_placed and "engine_tokens_per_s" not in assumed.model_fields_set:
            yield (
                "  that is the speed of a small model on two CPU cores: set it to that of your "
                "engines"
            )
        prompts = [unit.prompt.tokens for unit in sampled if unit.prompt is not None]
        mean_tokens = sum(prompts) / max(1, len(prompts))
        if mean_tokens * CHARACTERS_A_TOKEN >= LONG_CHARS:
            yield (
                f"  prompts have {mean_tokens:,.0f} tokens, whose time that figure has to hold: "
                "give assumptions.engine instead"
            )
    yield "calls that the cache holds are counted as if they were paid"
    if any(judge.cacheable_tokens for judge in judges):
        yield "input that a prompt cache can hold takes no time at a limit; the total is without it"
    if is_placed:
        yield (
            "nodes are up from the start to the end of the run, or of generating where phases are "
            "apart; the time that a cloud takes to start or end them is not counted"
        )
        yield "the speed of the store that results go to is not counted"


def _list_engine_times(times: EngineTimes) -> Iterator[str]:
    """Lists the assumptions on one engine (assumptions.engine)."""
    parts = [
        f"computes {times.prefill_tokens_per_s:,.10g} tokens of prompts/s",
        f"takes {times.step_s:g} s a step",
    ]
    if times.doubles_at is not None:
        parts[0] += f" (half of that {times.doubles_at:,.10g} tokens into one)"
    if times.context_tokens_per_s is not None:
        parts.append(f"reads {times.context_tokens_per_s:,.10g} tokens of context/s")
    if times.kv_tokens is not None:
        parts.append(f"holds {times.kv_tokens:,} tokens in its KV cache")
    yield f"an engine {', '.join(parts)}, and is up after {times.start_s:g} s (assumptions.engine)"
    yield (
        "  all engines are up by then and share the blocks evenly; no prompt is computed twice for "
        "want of KV cache"
    )


def parse_sample_count(text: str) -> int:
    """A number of samples, such as 1e6 or 1_000_000. Raises ConfigError for others, or below 1."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number >= 1 and number < math.inf and number == int(number)):
        raise ConfigError(
            f"--samples {text}: write a whole number from 1 on, such as 50000, 1_000_000 or 1e6"
        )
    return int(number)


def parse_node_prices(settings: Iterable[str]) -> dict[str, float]:
    """US dollars a node-hour by group, from GROUP=USD. Raises ConfigError."""
    prices = {}
    for setting in settings:
        group, _, text = setting.partition("=")
        try:
            prices[group] = float(text)
        except ValueError:
            prices[group] = math.nan
        if not (group and 0 <= prices[group] < math.inf):
            raise ConfigError(
                f"--node-usd {setting}: write GROUP=USD, what an hour of a node of that group costs"
            )
    return prices

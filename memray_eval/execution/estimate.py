"""Estimates a run before a cent is spent: calls, tokens, dollars, wall time, and the bottleneck.
Makes no call. Prompts are really built, for some hundred units spread over the dataset
(estimate_sample.py); what a model will answer, and the speed of what no limit bounds, are assumed
(config `assumptions`). A token is taken for CHARACTERS_A_TOKEN characters."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import NamedTuple

from pydantic import BaseModel

from memray_eval.config.sections import (
    Assumptions,
    EngineConfig,
    EngineTimes,
    RateLimits,
    least_of,
)
from memray_eval.config.servers import is_baseline
from memray_eval.datasets.scan import Scan
from memray_eval.datasets.sharding import SHARD_BYTES
from memray_eval.errors import ConfigError, JudgeError
from memray_eval.execution.capacity import Capacity
from memray_eval.execution.engine_time import engine_work
from memray_eval.execution.estimate_sample import PromptReader, SampledUnit, sample_units
from memray_eval.execution.executors import StageSeconds, choose_phases
from memray_eval.execution.plan import LONG_CHARS, Device, JudgePool, engine_device, fit_engine
from memray_eval.execution.ray.cluster_spec import NodeGroup
from memray_eval.execution.ray.placement import EngineUse, Placement
from memray_eval.execution.run_plan import PhaseOrder, RunSpec
from memray_eval.judges.accounts import cache_of, limits_of, price_of, takes_batches
from memray_eval.judges.first_token import FirstTokenJudgment
from memray_eval.judges.limits.rate_limiter import SLACK_S
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.prompt_cache import CHARACTERS_A_TOKEN, PromptCache
from memray_eval.judges.router import describe_pools
from memray_eval.metric import NEEDS_JUDGE, RULES, JudgedMetric
from memray_eval.ports import Verdict
from memray_eval.stages.embed import collect_texts, distinct_texts
from memray_eval.stages.judge import JudgingOptions, prompts_of_record
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.sample_text import history_lines, memory_lines
from memray_eval.types import (
    EXISTING,
    USER_MODEL,
    Candidate,
    Frozen,
    Message,
    Record,
    Response,
    Score,
)

# Of one core, for a judge call on Ray through an SDK. By OpenAI's protocol it has taken less since
# (1.0 ms in one process, tests/bench/judge_throughput.py), which was not measured on Ray.
CALL_CPU_S = 0.004
# of one core, for a unit of 12 scores: to an Arrow table, back, and into a Parquet file of 64 rows
WRITE_CPU_S = 0.0005
PROMPT_CPU_S = 1e-6  # of one core, for a token of a prompt to an engine: read, tokenized (0.9e-6)
# of one core of the driver, for a block of samples or a batch of prompts, and a unit in them:
# tests/bench/driver_ceiling.py
DRIVER_BLOCK_S, DRIVER_UNIT_S = 0.012, 0.00009
# of one core, for a character of a text that the local model embeds: 4.2 ms for one of 70
EMBED_CPU_S = 60e-6
EMBEDS = "embedding_retrieval"  # the baseline that has it embed each line of a memory
BATCH_S = 86_400.0  # providers end a batch within a day
# Ray, its workers, and an engine where there is one
STARTUP_S = {"vllm": 90.0, "openai": 12.0, "code": 12.0, EXISTING: 10.0}


PLAYED_TOKENS = 250  # of what a simulated user's model is told, beside the conversation


class _Load(NamedTuple):
    """A judge's work: calls and tokens; of the input, what its prompt cache is likely to
    hold, and what has to be written into it at a price of its own. CallCost's names, for prices."""

    calls: float
    input_tokens: float
    output_tokens: float
    cached_input_tokens: float = 0.0
    cache_write_tokens: float = 0.0

    def plus(self, other: _Load) -> _Load:
        return _Load(*(own + others for own, others in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Bound:
    """One thing that a run cannot be faster than: the seconds it would take if nothing else held it
    up, and what would change that."""

    stage: str
    what: str
    seconds: float
    change: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.what}"


class JudgeEstimate(Frozen):
    """One judge's work: calls, tokens, US dollars (without `unpriced_calls`; None: no price is
    known), seconds at its limits, and what bounds it. `cached_usd` is the cost if all
    `cacheable_tokens` come from its prompt cache."""

    judge: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    seconds: float
    bound_by: str
    unpriced_calls: int = 0
    cacheable_tokens: int = 0
    cached_usd: float | None = None

    @property
    def is_priced(self) -> bool:
        return not self.unpriced_calls


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
    pool: JudgePool,
    waves: Sequence[Sequence[tuple[Candidate, ...]]],
    *,
    samples: int | None = None,
    placement: Placement | None = None,
    node_usd_per_hour: Mapping[str, float] | None = None,
    today: date | None = None,
) -> Estimate:
    """The estimate of a run whose dataset has been scanned, or of one with so many `samples` like
    these; on a cluster if it has a `placement`. Waves of candidates follow one another. Raises
    ConfigError for a price of no group in `node_usd_per_hour`."""
    reader = PromptReader(spec)
    sampled = list(sample_units(spec, scan, reader))
    records = [unit.record for unit in sampled]
    turns = scan.n_asked / max(1, scan.n_samples)
    units = spec.units_of(round((samples or scan.n_samples) * turns))
    scale = units / max(1, len(sampled))
    prompt_tokens = sum(unit.prompt.tokens for unit in sampled if unit.prompt) * scale
    answered = _answer_tokens(records, scale)
    device, blocks = engine_device(spec, capacity.gpus), _count_blocks(spec, scan, samples)
    mean_chars, per_candidate = (
        scan.context_chars / max(1, scan.n_samples),
        units / len(spec.candidates),
    )
    block_rows = spec.read.block_rows(samples or scan.n_samples)
    question = _EngineQuestion(spec, sampled, blocks, mean_chars, block_rows, device)
    cpus = placement.judge_cpus if placement is not None else capacity.cpus
    judges, bounds = _estimate_judges(spec, _judge_load(spec, records, scale), pool)
    bounds += [
        *_judge_cpus(judges, pool, cpus),
        *_bound_generation(spec, waves, placement, answered, per_candidate, question),
        *_bound_driver(question, waves, per_candidate),
        *_bound_prompts(spec, prompt_tokens, capacity),
        *_bound_embedding(spec, records, scale, cpus),
        *_bound_writing(units, cpus),
    ]
    bounds.sort(key=lambda bound: -bound.seconds)
    startup_s, stages = _startup_s(spec, waves), tuple(_slowest_by_stage(bounds))
    can_judge_apart = has_cpu_nodes(spec, capacity, placement)
    order, reason = choose_phases(
        spec, device, has_cpu_nodes=can_judge_apart, seconds=lambda: stage_seconds(stages)
    )
    uses = tuple(_phase_uses(stages, startup_s, placement))
    use = next(use for use in uses if use.order == order)
    return Estimate(
        units=units,
        prompt_tokens=round(prompt_tokens),
        output_tokens=round(sum(answered.values())),
        judges=judges,
        stages=stages,
        bounds=tuple(bounds),
        judge_actors=pool.actors if judges else 0,
        calls_in_flight=pool.actors * pool.max_in_flight if judges else 0,
        startup_s=startup_s,
        wall_s=use.wall_s,
        bottleneck=str(bounds[0]) if bounds else "start-up",
        usd=_sum_known(judge.usd for judge in judges),
        unpriced_calls=sum(judge.unpriced_calls for judge in judges),
        warnings=(*_unscored(spec), *spec.retiring(today or date.today()), *spec.equal_draws()),
        budget_usd=spec.budget.usd,
        calls=sum(judge.calls for judge in judges),
        phase_order=order,
        phase_reason=reason,
        phase_uses=uses if spec.metrics and not spec.has_responses else (),
        cluster=placement and _cluster_use(placement, use, node_usd_per_hour or {}),
        assumptions=(*_list_assumptions(spec, sampled, units, judges, placement, reader.counted),),
    )


def _answer_tokens(records: Iterable[Record], scale: float) -> dict[str, float]:
    """The tokens of all answers, by candidate; those of given responses are what they came from."""
    tokens = defaultdict[str, float](float)
    for record in records:
        if is_baseline(record.candidate):
            continue
        text = record.response.text if record.response else ""
        tokens[record.candidate.name] += _tokens(text) * scale
    return tokens


def _startup_s(spec: RunSpec, waves: Sequence[Sequence[tuple[Candidate, ...]]]) -> float:
    engine = spec.assumptions.engine
    starts = STARTUP_S if engine is None else {**STARTUP_S, "vllm": engine.start_s}
    return sum(max(starts[group[0].backend] for group in wave) for wave in waves)


def _unscored(spec: RunSpec) -> list[str]:
    names = ", ".join(spec.unscored)
    return [f"not scored, and not in the estimate: {names} (each {NEEDS_JUDGE})"] if names else []


def _estimate_judges(
    spec: RunSpec, load: Mapping[str, Sequence[_Load]], pool: JudgePool
) -> tuple[tuple[JudgeEstimate, ...], list[Bound]]:
    """Each judge by its name, live or in batches as the run would ask it, and what bounds them."""
    judging = spec.judging
    least = {"batch": 0, "auto": judging.batch.min_calls}.get(judging.mode, math.inf)
    judges, bounds = list[JudgeEstimate](), list[Bound]()
    for name, parts in sorted(load.items()):
        total = reduce(_Load.plus, parts)
        in_batches = total.calls >= least and takes_batches(name, judging, spec.judge_table)
        if in_batches:
            what = f"{name}, a batch, within a day (most take an hour)"
            of_judge = [Bound("judge", what, BATCH_S, "judging.mode: live")]
        else:
            of_judge = _judge_bounds(name, total, spec, pool)
        price = price_of(name, judging, spec.judge_table)
        judges.append(_estimate_judge(name, parts, of_judge[0], price, in_batches))
        bounds += of_judge
    return tuple(judges), bounds


def _slowest_by_stage(bounds: Iterable[Bound]) -> Iterator[StageEstimate]:
    """Each stage by its slowest bound, in the order of the pipeline."""
    slowest: dict[str, Bound] = {}
    for bound in bounds:
        slowest.setdefault(bound.stage, bound)
    for stage in ("generate", "judge", "embed", "write"):
        if stage in slowest:
            yield StageEstimate(
                stage=stage, seconds=slowest[stage].seconds, bound_by=slowest[stage].what
            )


def stage_seconds(stages: Iterable[StageEstimate]) -> StageSeconds:
    """The seconds of generating and of judging, each alone."""
    alone = {stage.stage: stage.seconds for stage in stages}
    return StageSeconds(alone.get("generate", 0.0), alone.get("judge", 0.0))


def has_cpu_nodes(spec: RunSpec, capacity: Capacity, placement: Placement | None = None) -> bool:
    """True if a cluster, or one that may grow, has nodes without GPUs to judge on, or may get some.
    A single machine cannot give its GPUs back."""
    if placement is not None:
        groups = placement.cluster_spec.groups
        return any(group.cpus and group.max_nodes and not group.gpus for group in groups)
    return bool(capacity.nodes) and (
        bool(spec.cluster.wait_s) or any(node.cpus and not node.gpus for node in capacity.nodes)
    )


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


def _count_blocks(spec: RunSpec, scan: Scan, samples: int | None) -> float:
    """The number of blocks that so many samples come in; None: those that were found."""
    count, shards = samples or scan.n_samples, scan.shards
    if any(shard.is_read_from_start for shard in shards):
        return max(1.0, count / spec.read.batch_size)
    if spec.read.reader.by_context or samples is None:
        return max(1.0, len(shards) * count / max(1, scan.n_samples))
    size = sum(shard.size for shard in shards) / max(1, scan.n_samples)
    rows = min(spec.read.block_rows(count), max(1, int(SHARD_BYTES / max(1.0, size))))
    return max(1.0, count / rows)


@dataclass
class _NamedJudge:
    """A judge of which only the name counts."""

    name: str

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        raise JudgeError(f"{self.name} is not asked in an estimate")


def _judge_load(spec: RunSpec, records: Sequence[Record], scale: float) -> dict[str, list[_Load]]:
    """Calls and tokens of all units by judge; prompts of lengths with another price apart."""
    juries = {
        key: [
            _NamedJudge(name)
            for name in choice.judges
            for _ in range(spec.judging.repeats)
            if name != RULES
        ]
        for key, choice in spec.judges.items()
    }
    rubrics = {key: choice.rubric.text for key, choice in spec.judges.items() if choice.rubric}
    options = JudgingOptions(rubrics=rubrics, siblings=spec.siblings)
    judged = {metric.name: metric for metric in spec.metrics if isinstance(metric, JudgedMetric)}
    schema_tokens = {
        name: _tokens(str(metric.judgment.model_json_schema())) for name, metric in judged.items()
    }
    loads = defaultdict[str, dict[int, _Load]](dict)
    for record in records:
        counted = set[tuple[object, ...]]()
        prompts_by_metric = prompts_of_record(record, spec.metrics, juries, options)
        for metric, jurors in prompts_by_metric.items():
            for juror, (judge, prompts) in enumerate(() if isinstance(jurors, Score) else jurors):
                cache = cache_of(judge.name, spec.judging, spec.judge_table)
                price = price_of(judge.name, spec.judging, spec.judge_table) or FREE
                output = _output_tokens(judged[metric], record, len(prompts), spec.assumptions)
                for prompt in prompts:
                    # Metrics that share a judgment ask the same call, which is made once
                    if (question := (judged[metric].judgment, juror, tuple(prompt))) in counted:
                        continue
                    counted.add(question)
                    tokens = sum(_tokens(message.content) for message in prompt)
                    tokens += schema_tokens[metric]
                    call = _Load(1.0, tokens, output, *_cached_tokens(prompt, cache))
                    of_judge, band = loads[judge.name], price.band(tokens)
                    of_judge[band] = call.plus(of_judge[band]) if band in of_judge else call
    scaled = {
        name: [_Load(*(figure * scale for figure in load)) for load in parts.values()]
        for name, parts in loads.items()
    }
    for name, load in _user_loads(spec, records, scale):
        scaled.setdefault(name, []).append(load)
    return scaled


def _output_tokens(
    metric: JudgedMetric, record: Record, n_calls: int, assumed: Assumptions
) -> float:
    """The tokens of a call's output, on average over the calls about a record."""
    if metric.judgment is FirstTokenJudgment:
        return 1.0
    n_verdicts = n_calls if metric.n_verdicts is None else metric.n_verdicts(record.sample)
    return assumed.verdict_tokens * n_verdicts / n_calls


def _user_loads(
    spec: RunSpec, records: Sequence[Record], scale: float
) -> Iterator[tuple[str, _Load]]:
    """The calls and tokens of the models that play simulated users."""
    played = [record for record in records if USER_MODEL in record.sample.metadata]
    tokens = sum(_tokens(history_lines(record.sample)) + PLAYED_TOKENS for record in played)
    output = len(played) * spec.assumptions.verdict_tokens
    for choice in spec.user_judges.values():
        yield choice.judge, _Load(len(played) * scale, tokens * scale, output * scale)


def _cached_tokens(prompt: Sequence[Message], cache: PromptCache) -> tuple[float, float]:
    """The tokens of a prompt that are read from the cache and written to it, on average over calls
    that begin alike: the first of them writes what the others read."""
    if cache.layout == "rubric_first" or not isinstance(prompt, JudgePrompt):
        return 0.0, 0.0
    if not cache.pays_off(prompt):
        return 0.0, 0.0
    tokens, first = prompt.shared_chars / CHARACTERS_A_TOKEN, 1 / prompt.readers
    return tokens * (1 - first), tokens * first if cache.is_marked else 0.0


def _estimate_judge(
    name: str, parts: Sequence[_Load], slowest: Bound, price: Price | None, is_batch: bool
) -> JudgeEstimate:
    load, unpriced = reduce(_Load.plus, parts), 0.0
    costs, cached = list[float | None](), list[float | None]()
    for part in parts:
        plain = part._replace(cached_input_tokens=0.0, cache_write_tokens=0.0)
        for sums, tokens in ((costs, plain), (cached, part)):
            sums.append(None if price is None else price.of(tokens, is_batch, part.calls))
        unpriced += part.calls if costs[-1] is None else 0.0
    return JudgeEstimate(
        judge=name,
        calls=round(load.calls),
        input_tokens=round(load.input_tokens),
        output_tokens=round(load.output_tokens),
        usd=_sum_known(costs),
        unpriced_calls=round(unpriced),
        seconds=slowest.seconds,
        bound_by=slowest.what.removeprefix(f"{name}, "),
        cacheable_tokens=round(load.cached_input_tokens),
        cached_usd=_sum_known(cached) if load.cached_input_tokens else None,
    )


def _sum_known(costs: Iterable[float | None]) -> float | None:
    """The sum of the costs that are known; None if there are some, and none is."""
    amounts = list(costs)
    sums = [cost for cost in amounts if cost is not None]
    return sum(sums) if sums or not amounts else None


def _judge_bounds(name: str, load: _Load, spec: RunSpec, pool: JudgePool) -> list[Bound]:
    """A judge's bounds by its limits and its calls in flight; the slowest first."""
    limits, is_firm = limits_of(name, spec.judging, spec.judge_table)
    in_flight, latency_s = pool.actors * pool.max_in_flight, spec.judging.latency_s
    least = "fewer metrics or judging.repeats, or another judge for some metrics"
    more = (
        "a higher limit from the provider"
        if is_firm
        else "judging.limits, if your account has more than the table assumes"
    )
    limited = [
        (f"{limit:,.10g} {lane}", seconds, f"{more}; {least}")
        for lane, limit, seconds in _known_limits(limits, load)
    ]
    knob = "judging.max_in_flight or judging.actors"
    if limits.concurrency is not None and limits.concurrency < in_flight:
        in_flight, knob = limits.concurrency, f"the judge's limits.concurrency; {least}"
    is_chosen = spec.judging.max_in_flight is not None or not is_firm
    # Else they follow from the limit
    if is_chosen or in_flight * 60.0 / latency_s <= (limits.requests_per_min or math.inf):
        what = f"{in_flight:,} calls in flight of {latency_s:g} s"
        limited.append((what, load.calls * latency_s / in_flight, knob))
    bounds = [Bound("judge", f"{name}, {what}", seconds, way) for what, seconds, way in limited]
    return sorted(bounds, key=lambda bound: -bound.seconds)


def _known_limits(limits: RateLimits, load: _Load) -> Iterator[tuple[str, float, float]]:
    """Each known limit: its lane, the limit, and the seconds that it makes of a load."""
    wanted = {
        "requests_per_min": load.calls,
        "tokens_per_min": load.input_tokens + load.output_tokens,
        # Where input counts apart, what a cache held does not: see CallCost
        "input_tokens_per_min": load.input_tokens - load.cached_input_tokens,
        "output_tokens_per_min": load.output_tokens,
    }
    for lane, amount in wanted.items():
        if limit := getattr(limits, lane):
            name = lane.replace("_per_min", "/min").replace("_", " ")
            yield name, limit, amount * (60.0 + SLACK_S) / limit


def _judge_cpus(judges: Sequence[JudgeEstimate], pool: JudgePool, cpus: float) -> Iterator[Bound]:
    if judges:
        cores = min(float(pool.actors), max(1.0, cpus))
        what = f"the CPUs of {pool.actors} judge actors" + (
            f" ({cores:g} of them)" if cores < pool.actors else ""
        )
        change = (
            "judging.actors"
            if cores >= pool.actors
            else "more CPUs for judges, or judging.cpus: 1 for a core each"
        )
        seconds = sum(judge.calls for judge in judges) * CALL_CPU_S / cores
        yield Bound("judge", what, seconds, change)


def _bound_generation(
    spec: RunSpec,
    waves: Sequence[Sequence[tuple[Candidate, ...]]],
    placement: Placement | None,
    answered: Mapping[str, float],
    samples: float,
    question: _EngineQuestion,
) -> Iterator[Bound]:
    """Yields the bound of generation: of a wave the slowest group, one wave after the other."""
    by_wave = [[_models_of(group) for group in wave if _models_of(group)] for wave in waves]
    if not samples or spec.has_responses or not any(by_wave):
        return
    rounds = [
        [_bound_group(spec, group, placement, answered, samples, question) for group in wave]
        for wave in by_wave
        if wave
    ]
    slowest = [max(wave, key=lambda bound: bound.seconds) for wave in rounds]
    longest = max(slowest, key=lambda bound: bound.seconds)
    rounds_of = f"{len(slowest)} rounds of models, the longest with " * (len(slowest) > 1)
    seconds = sum(bound.seconds for bound in slowest)
    yield Bound("generate", rounds_of + longest.what, seconds, longest.change)


def _models_of(group: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidates of a group that ask a model."""
    return tuple(candidate for candidate in group if not is_baseline(candidate))


def _bound_group(
    spec: RunSpec,
    group: tuple[Candidate, ...],
    placement: Placement | None,
    answered: Mapping[str, float],
    samples: float,
    question: _EngineQuestion,
) -> Bound:
    """The bound of one pipeline's candidates: of a model's engines, or behind servers."""
    assumed, tokens = spec.assumptions, sum(answered[candidate.name] for candidate in group)
    if group[0].backend != "vllm":
        at_once, units = spec.server.actors * spec.server.max_in_flight, samples * len(group)
        seconds = (
            tokens / assumed.server_tokens_per_s + units * assumed.server_latency_s
        ) / at_once
        what = f"{at_once} calls in flight to the candidate's server"
        return Bound("generate", what, seconds, "server.actors or server.max_in_flight")
    engines, change = (
        least_of(spec.engine_of(group[0].model).replicas),
        "engine.replicas, or a faster engine",
    )
    for use in placement.engines if placement is not None else ():
        if use.model == group[0].model:
            engines, room = min(engines, max(1, use.fit)), use.fit - engines
            change = (
                f"engine.replicas: {room} more fit"
                if room > 0
                else "larger groups of nodes: no further engine fits"
            )
    name = f"{engines} {'engine' if engines == 1 else 'engines'}"
    if (seconds_and_what := question.bound(group, engines, samples)) is not None:
        seconds, how = seconds_and_what
        return Bound("generate", f"{name} {how}", seconds, change)
    what = f"{name} of {assumed.engine_tokens_per_s:,.10g} tokens/s"
    seconds = tokens / (engines * assumed.engine_tokens_per_s)
    return Bound("generate", what, seconds, change)


@dataclass(frozen=True)
class _EngineQuestion:
    """The work of engines: the prompts that were built, how many blocks there are of them, and
    by what their engines are fitted (`fit_engine`)."""

    spec: RunSpec
    sampled: Sequence[SampledUnit]
    blocks: float
    mean_chars: float
    block_rows: int
    device: Device

    def fitted(self, group: Sequence[Candidate]) -> EngineConfig:
        """The engine of these candidates, as the run fits it."""
        config = self.spec.engine_of(group[0].model)
        return fit_engine(config, self.mean_chars, self.device, self.block_rows)

    def bound(
        self, group: tuple[Candidate, ...], engines: int, samples: float
    ) -> tuple[float, str] | None:
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
        engine = self.fitted(group)
        # The one that has most of the blocks
        share = math.ceil(self.blocks / engines) / self.blocks
        work = engine_work(prompts, times, engine, engines, share * samples * len(group))
        tokens = sum(prompt.tokens for prompt in prompts) / len(prompts)
        how = (
            f"that answer{'s' * (engines == 1)} {work.at_once:,} prompts of {tokens:,.0f} tokens "
            f"at once, {work.cached_share:.0%} of them from the prefix cache"
        )
        if self.blocks < engines:
            how += f", {engines - int(self.blocks):,} of them without a block (rows_per_block)"
        return work.seconds, how


def _bound_driver(
    question: _EngineQuestion, waves: Sequence[Sequence[tuple[Candidate, ...]]], samples: float
) -> Iterator[Bound]:
    """Yields the bound of the driver, which hands each block from stage to stage."""
    groups = [group for wave in waves for group in wave if group[0].backend == "vllm"]
    units = samples * sum(map(len, groups))
    batches = sum(samples * len(group) / question.fitted(group).rows for group in groups)
    if units:
        seconds = (batches + units / question.block_rows) * DRIVER_BLOCK_S + units * DRIVER_UNIT_S
        what = f"the driver, with {math.ceil(batches):,} batches of prompts"
        yield Bound("generate", what, seconds, "a larger engine.batch_size")


def _bound_prompts(spec: RunSpec, prompt_tokens: float, capacity: Capacity) -> Iterator[Bound]:
    """Yields the bound of the tasks that read samples and tokenize prompts for an engine."""
    if prompt_tokens and spec.has_vllm:
        cores = _task_cores(capacity.cpus_beside_gpus, capacity.cpus)
        what = f"{cores:g} CPUs that read and tokenize prompts"
        yield Bound("generate", what, prompt_tokens * PROMPT_CPU_S / cores, "more CPUs")


def _task_cores(cpus: float, all_cpus: float) -> float:
    """The cores of a stage of tasks, which has so many at once: execution/ray/executor.py."""
    return min(max(1.0, cpus), float(max(2, int(all_cpus) // 4)))


def _bound_writing(units: int, cpus: float) -> Iterator[Bound]:
    if units:
        cores = _task_cores(cpus, cpus)
        what = f"{cores:g} CPUs that fold and write"
        yield Bound("write", what, units * WRITE_CPU_S / cores, "more CPUs")


def _bound_embedding(
    spec: RunSpec, records: Sequence[Record], scale: float, cpus: float
) -> Iterator[Bound]:
    """Yields the bound of a local embedding model: the texts of metrics, and the lines of memory
    that a baseline ranks, each once a sample."""
    if not spec.embedding.model.startswith("local"):
        return
    at_embed = set(spec.by_stage()[1])
    metrics = [metric for metric in spec.metrics if metric.name in at_embed]
    texts = set[tuple[str, str]]()
    for record in records:
        wanted = distinct_texts(collect_texts(_as_reply(record), metrics))
        if is_baseline(record.candidate) and record.candidate.model.endswith(EMBEDS):
            wanted |= set(memory_lines(record.sample).splitlines())
        texts |= {(record.sample.id, text) for text in wanted}
    if texts:
        cores = min(cpus, spec.embedding.actors) if spec.executor == "ray" else cpus
        what = f"{cores:g} CPUs that embed texts of metrics and baselines"
        seconds = sum(len(text) for _, text in texts) * scale * EMBED_CPU_S / max(1.0, cores)
        yield Bound("embed", what, seconds, "fewer entries or samples, or more CPUs")


def _as_reply(record: Record) -> Record:
    """The record, with a response that speaks to the user, as replies do."""
    response = record.response or Response()
    if response.is_empty:
        return record
    reply = response.model_copy(update={"text": f"You asked. {response.text}"})
    return record.model_copy(update={"response": reply})


def _list_assumptions(
    spec: RunSpec,
    sampled: Sequence[SampledUnit],
    units: int,
    judges: Sequence[JudgeEstimate],
    placement: Placement | None,
    counted: Mapping[str, tuple[int, int]],
) -> Iterator[str]:
    assumed, backends = spec.assumptions, {candidate.backend for candidate in spec.candidates}
    yield (
        f"prompts built for {len(sampled):,} of {units:,} units; a token is "
        f"{CHARACTERS_A_TOKEN:g} characters"
    )
    for model, (chars, tokens) in counted.items():
        yield f"  of prompts to {model} {chars / tokens:.2f} characters, by its own tokenizer"
    if EXISTING not in backends and _models_of(spec.candidates):
        yield f"responses take {assumed.output_share:.0%} of max_tokens (assumptions.output_share)"
    yield f"a verdict has {assumed.verdict_tokens:g} tokens (assumptions.verdict_tokens)"
    yield f"a judge call takes {spec.judging.latency_s:g} s (judging.latency_s)"
    for line in describe_pools(spec.all_judges.values(), spec.judging, spec.judge_table):
        yield f"{line}; its limits are their sum"
    if "vllm" in backends and assumed.engine is not None:
        yield from _list_engine_times(assumed.engine)
    elif "vllm" in backends:
        is_default = placement is not None and "engine_tokens_per_s" not in assumed.model_fields_set
        yield (
            f"an engine makes {assumed.engine_tokens_per_s:g} tokens/s, prefill included "
            "(assumptions.engine_tokens_per_s)"
        )
        if is_default:
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
    if placement is not None:
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


def _tokens(text: str) -> float:
    return len(text) / CHARACTERS_A_TOKEN

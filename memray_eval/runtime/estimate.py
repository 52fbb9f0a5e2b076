"""What a run will take, said before a cent is spent: calls, tokens, dollars, wall time, and what holds it up. Makes no call.

Prompts are really built, for up to SAMPLED units spread over the dataset; what a model will answer is assumed (config
`assumptions`), and so is the speed of what no limit bounds. A token is taken for CHARACTERS_A_TOKEN characters.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from memray_eval.clients.instructed import CHARACTERS_A_TOKEN
from memray_eval.clients.limiter import SLACK_S
from memray_eval.clients.routing import Choice, JudgeTable, is_embedded, limits_of, price_of
from memray_eval.config import RateLimits, RunConfig
from memray_eval.datasets.scan import Scan, read_records, read_samples
from memray_eval.metric import RULES, JudgedMetric, Metric, of_task, unscorable
from memray_eval.runtime.plan import Capacity, JudgePool
from memray_eval.runtime.reading import reading_of, suite_of
from memray_eval.stages.generate import new_record
from memray_eval.types import GIVEN, Frozen, Record, Response

SAMPLED = 200
CALL_CPU_S = 0.004  # of one core, for a judge call: tests/benchmarks/judge_throughput.py
STARTUP_S = {"vllm": 90.0, "openai": 12.0, GIVEN: 10.0}  # Ray, its workers, and an engine where there is one
_Load = tuple[float, float, float]  # calls, input tokens, output tokens


class JudgeEstimate(Frozen):
    """What one judge will be asked: calls, tokens, US dollars, seconds at its limits, and what bounds it."""

    judge: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float
    seconds: float
    bound_by: str


class StageEstimate(Frozen):
    """The seconds that a stage would take alone, and what bounds it."""

    stage: str
    seconds: float
    bound_by: str


class Estimate(Frozen):
    """A run before it is made. Stages overlap, so `wall_s` is the start-up and the slowest of them."""

    units: int
    prompt_tokens: int
    output_tokens: int
    judges: tuple[JudgeEstimate, ...]
    stages: tuple[StageEstimate, ...]
    startup_s: float
    wall_s: float
    bottleneck: str
    usd: float
    calls: int
    assumptions: tuple[str, ...]


def estimate(
    config: RunConfig,
    metrics: Sequence[Metric],
    choices: Mapping[str, Choice],
    found: Scan,
    table: JudgeTable,
    capacity: Capacity,
    pool: JudgePool,
) -> Estimate:
    """The estimate of a run whose dataset has been scanned. Prices are those of the judge table."""
    records = list(_stand_ins(config, found))
    units = found.n_samples * len(config.candidates)
    scale = units / max(1, len(records))
    load = _judge_load(config, metrics, choices, [record for record, _ in records], scale)
    judges = tuple(_judge(name, load[name], config, table, pool) for name in sorted(load))
    prompt_tokens = sum(tokens for _, tokens in records) * scale
    output_tokens = sum(_tokens(record.response.text if record.response else "") for record, _ in records) * scale
    stages = [*_generation(config, capacity, units, output_tokens), *_judging(judges, pool, capacity)]
    slowest = max(stages, key=lambda stage: stage.seconds, default=None)
    startup_s = max(STARTUP_S[candidate.backend] for candidate in config.candidates)
    return Estimate(
        units=units,
        prompt_tokens=round(prompt_tokens),
        output_tokens=round(output_tokens),
        judges=judges,
        stages=tuple(stages),
        startup_s=startup_s,
        wall_s=startup_s + (slowest.seconds if slowest else 0.0),
        bottleneck=f"{slowest.stage}: {slowest.bound_by}" if slowest else "start-up",
        usd=sum(judge.usd for judge in judges),
        calls=sum(judge.calls for judge in judges),
        assumptions=tuple(_assumptions(config, len(records), units)),
    )


def _stand_ins(config: RunConfig, found: Scan) -> Iterator[tuple[Record, float]]:
    """Records of samples spread over the dataset, with a response of the expected length, and their prompts' tokens; where
    responses exist already, those."""
    suite, reading = suite_of(config), reading_of(config)
    step = max(1, len(found.shards) * len(config.candidates) // SAMPLED)
    per_shard = max(1, SAMPLED // max(1, len(found.shards) * len(config.candidates)))
    for shard in found.shards[::step]:
        if config.candidates[0].backend == GIVEN:
            yield from ((record, 0.0) for record in itertools.islice(read_records(shard, reading), per_shard))
            continue
        for sample in itertools.islice(read_samples(shard, reading), per_shard):
            for candidate in config.candidates:
                prompt = suite.prompt(sample, candidate)
                tokens = sum(_tokens(message.content) for message in prompt.messages)
                text = _filler(sample.query, config.assumptions.output_share * (prompt.sampling(candidate).max_tokens or 0))
                yield new_record(sample, candidate).model_copy(update={"response": Response(text=text)}), tokens


def _judge_load(
    config: RunConfig, metrics: Sequence[Metric], choices: Mapping[str, Choice], records: Sequence[Record], scale: float
) -> dict[str, _Load]:
    """Per judge, the calls and tokens of all units."""
    calls, inputs = Counter[str](), Counter[str]()
    for metric in metrics:
        if not isinstance(metric, JudgedMetric):
            continue
        schema_tokens = _tokens(str(metric.judgment.model_json_schema()))
        for record in records:
            choice = of_task(choices, metric.name, record.sample.task)
            response = record.response or Response(error="not generated")
            if choice is None or choice.judge == RULES or response.is_empty:
                continue
            if unscorable(metric, record.sample, response) is not None:
                continue
            rubric = choice.rubric.text if choice.rubric else None
            messages = metric.messages(record.sample, response, rubric)
            tokens = schema_tokens + sum(_tokens(message.content) for message in messages)
            for judge in choice.judges:
                calls[judge] += config.judging.repeats
                inputs[judge] += round(tokens * config.judging.repeats)
    verdict = config.assumptions.verdict_tokens
    return {name: (calls[name] * scale, inputs[name] * scale, calls[name] * scale * verdict) for name in calls}


def _judge(name: str, load: _Load, config: RunConfig, table: JudgeTable, pool: JudgePool) -> JudgeEstimate:
    calls, inputs, outputs = load
    limits, _ = limits_of(name, config.judging, table)
    in_flight = pool.actors * pool.max_in_flight
    bounds = _bounds(limits, load)
    bounds[f"{in_flight} calls in flight of {config.judging.latency_s:g} s"] = calls * config.judging.latency_s / in_flight
    bound_by = max(bounds, key=lambda bound: bounds[bound])
    usd = 0.0 if is_embedded(name) else price_of(name, table).of(inputs, outputs)
    return JudgeEstimate(
        judge=name,
        calls=round(calls),
        input_tokens=round(inputs),
        output_tokens=round(outputs),
        usd=usd,
        seconds=bounds[bound_by],
        bound_by=bound_by,
    )


def _bounds(limits: RateLimits, load: _Load) -> dict[str, float]:
    """Seconds that each known limit makes of a load."""
    calls, inputs, outputs = load
    wanted = {
        "requests_per_min": calls,
        "tokens_per_min": inputs + outputs,
        "input_tokens_per_min": inputs,
        "output_tokens_per_min": outputs,
    }
    known = {lane: getattr(limits, lane) for lane in wanted}
    return {
        f"{limit:g} {lane.replace('_per_min', '/min').replace('_', ' ')}": wanted[lane] * (60.0 + SLACK_S) / limit
        for lane, limit in known.items()
        if limit
    }


def _judging(judges: Sequence[JudgeEstimate], pool: JudgePool, capacity: Capacity) -> list[StageEstimate]:
    if not judges:
        return []
    slowest = max(judges, key=lambda judge: judge.seconds)
    cpu_s = sum(judge.calls for judge in judges) * CALL_CPU_S / min(pool.actors, max(1.0, capacity.cpus))
    if cpu_s > slowest.seconds:
        return [StageEstimate(stage="judge", seconds=cpu_s, bound_by=f"the CPUs of {pool.actors} judge actors")]
    return [StageEstimate(stage="judge", seconds=slowest.seconds, bound_by=f"{slowest.judge}, {slowest.bound_by}")]


def _generation(config: RunConfig, capacity: Capacity, units: int, output_tokens: float) -> list[StageEstimate]:
    first, assumed = config.candidates[0], config.assumptions
    if first.backend == GIVEN or not units:
        return []
    if first.backend == "vllm":
        rate = config.engine.replicas * assumed.engine_tokens_per_s
        what = f"{config.engine.replicas} engines of {assumed.engine_tokens_per_s:g} tokens/s"
        return [StageEstimate(stage="generate", seconds=output_tokens / rate, bound_by=what)]
    at_once = config.server.actors * config.server.max_in_flight
    seconds = output_tokens / assumed.server_tokens_per_s / at_once + units * assumed.server_latency_s / at_once
    return [StageEstimate(stage="generate", seconds=seconds, bound_by=f"{at_once} calls in flight to the candidate's server")]


def _assumptions(config: RunConfig, sampled: int, units: int) -> Iterator[str]:
    assumed = config.assumptions
    yield f"prompts built for {sampled} of {units} units; a token is {CHARACTERS_A_TOKEN:g} characters"
    if config.candidates[0].backend != GIVEN:
        yield f"responses take {assumed.output_share:.0%} of max_tokens (assumptions.output_share)"
    yield f"a verdict has {assumed.verdict_tokens:g} tokens (assumptions.verdict_tokens)"
    yield f"a judge call takes {config.judging.latency_s:g} s (judging.latency_s)"
    if any(candidate.backend == "vllm" for candidate in config.candidates):
        yield f"an engine makes {assumed.engine_tokens_per_s:g} tokens/s (assumptions.engine_tokens_per_s)"
    yield "calls that the cache holds are counted as if they were paid"


def _tokens(text: str) -> float:
    return len(text) / CHARACTERS_A_TOKEN


def _filler(query: str, tokens: float) -> str:
    """A text of so many tokens that metrics take for an answer."""
    length = max(1, round(tokens * CHARACTERS_A_TOKEN))
    return (f"{query} " * (length // (len(query) + 1) + 1))[:length]


def lines(made: Estimate) -> Iterator[str]:
    """The estimate for a person."""
    yield f"{made.units} units, {made.calls} judge calls, about ${made.usd:,.2f}, {_span(made.wall_s)}"
    yield f"  bottleneck: {made.bottleneck}"
    yield f"  candidates: {made.prompt_tokens} tokens in, {made.output_tokens} out"
    for judge in made.judges:
        tokens = f"{judge.input_tokens} tokens in, {judge.output_tokens} out"
        yield f"  {judge.judge}: {judge.calls} calls, {tokens}, ${judge.usd:,.2f}, {_span(judge.seconds)} ({judge.bound_by})"
    for stage in made.stages:
        yield f"  {stage.stage} alone: {_span(stage.seconds)} ({stage.bound_by})"
    yield f"  start-up: {_span(made.startup_s)}"
    yield from (f"  assumed: {line}" for line in made.assumptions)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

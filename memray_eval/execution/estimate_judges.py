"""What the judges of a run take: calls, tokens, dollars, and the seconds at their limits."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pydantic import BaseModel

from memray_eval.config.sections import Assumptions, EngineConfig, RateLimits, least_of
from memray_eval.errors import JudgeError
from memray_eval.execution.engine_time import AskedPrompt, engine_work
from memray_eval.execution.plan import JudgePool
from memray_eval.execution.run_plan import RunSpec
from memray_eval.judges.accounts import cache_of, is_embedded, limits_of, price_of, takes_batches
from memray_eval.judges.limits.rate_pacer import SLACK_S
from memray_eval.judges.prices import FREE
from memray_eval.judges.prompt_cache import CHARACTERS_A_TOKEN, PromptCache
from memray_eval.metric import RULES, JudgedMetric
from memray_eval.ports import Verdict
from memray_eval.stages.judge import JudgingOptions, prompts_of_record
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.sample_text import history_lines
from memray_eval.types import USER_MODEL, Frozen, Message, Record, Score

# Of one core, for a judge call on Ray through an SDK. By OpenAI's protocol it has taken less since
# (1.0 ms in one process, tests/bench/judge_throughput.py), which was not measured on Ray.
CALL_CPU_S = 0.004
BATCH_S = 86_400.0  # providers end a batch within a day
PLAYED_TOKENS = 250  # of what a simulated user's model is told, beside the conversation


class _Load(NamedTuple):
    """A judge's work: calls and tokens; of the input, what its prompt cache holds, and what is
    written into it at a price of its own. CallCost's names, for prices."""

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


def estimate_judges(
    spec: RunSpec, records: Sequence[Record], scale: float, pool: JudgePool, cpus: float
) -> tuple[tuple[JudgeEstimate, ...], list[Bound]]:
    """Each judge by its name, live or in batches as the run would ask it, and what bounds them, on
    so many `cpus`; `records` stand for `scale` times as many. The judge's engine is fitted."""
    judging = spec.judging
    judges, bounds = list[JudgeEstimate](), list[Bound]()
    for name, parts in sorted(_judge_load(spec, records, scale).items()):
        total = reduce(_Load.plus, parts)
        in_batches = judging.mode == "batch" and takes_batches(name, judging, spec.judge_table)
        if in_batches:
            what = f"{name}, a batch, within a day (most take an hour)"
            of_judge = [Bound("judge", what, BATCH_S, "judging.mode: live")]
        else:
            of_judge = _judge_bounds(name, total, spec, pool)
        judges.append(_estimate_judge(name, parts, of_judge[0], spec, in_batches))
        bounds += of_judge
    if judges:
        bounds.append(_bound_cpus(sum(judge.calls for judge in judges), pool.actors, cpus))
    return tuple(judges), bounds


@dataclass
class _NamedJudge:
    """A judge of which only the name counts."""

    name: str

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        raise JudgeError(f"{self.name} is not asked in an estimate")


def _judge_load(spec: RunSpec, records: Sequence[Record], scale: float) -> dict[str, list[_Load]]:
    """Calls and tokens of all units by judge; prompts of lengths with another price apart."""
    juries = dict[str, list[_NamedJudge]]()
    for key, choice in spec.judges.items():
        names = [name for name in choice.judges if name != RULES]
        juries[key] = [_NamedJudge(name) for name in names for _ in range(spec.judging.repeats)]
    rubrics = {key: choice.rubric.text for key, choice in spec.judges.items() if choice.rubric}
    options = JudgingOptions(rubrics=rubrics, siblings=spec.siblings)
    judged = {metric.name: metric for metric in spec.metrics if isinstance(metric, JudgedMetric)}
    schema_tokens = {
        name: tokens_of(str(metric.judgment.model_json_schema())) for name, metric in judged.items()
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
                    tokens = sum(tokens_of(message.content) for message in prompt)
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
    n_verdicts = n_calls if metric.n_verdicts is None else metric.n_verdicts(record.sample)
    return assumed.verdict_tokens * n_verdicts / n_calls


def _user_loads(
    spec: RunSpec, records: Sequence[Record], scale: float
) -> Iterator[tuple[str, _Load]]:
    """The calls and tokens of the models that play simulated users."""
    played = [record for record in records if USER_MODEL in record.sample.metadata]
    tokens = sum(tokens_of(history_lines(record.sample)) + PLAYED_TOKENS for record in played)
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
    name: str, parts: Sequence[_Load], slowest: Bound, spec: RunSpec, is_batch: bool
) -> JudgeEstimate:
    load, unpriced = reduce(_Load.plus, parts), 0.0
    price = price_of(name, spec.judging, spec.judge_table)
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
        usd=sum_known(costs),
        unpriced_calls=round(unpriced),
        seconds=slowest.seconds,
        bound_by=slowest.what.removeprefix(f"{name}, "),
        cacheable_tokens=round(load.cached_input_tokens),
        cached_usd=sum_known(cached) if load.cached_input_tokens else None,
    )


def sum_known(costs: Iterable[float | None]) -> float | None:
    """The sum of the costs that are known; None if there are some, and none is."""
    amounts = list(costs)
    sums = [cost for cost in amounts if cost is not None]
    return sum(sums) if sums or not amounts else None


def _judge_bounds(name: str, load: _Load, spec: RunSpec, pool: JudgePool) -> list[Bound]:
    """A judge's bounds by its limits, its calls in flight and its engines; the slowest first."""
    limits, is_firm = limits_of(name, spec.judging, spec.judge_table)
    in_flight, latency_s = pool.actors * pool.max_in_flight, spec.judging.latency_s
    least = "fewer metrics or judging.repeats, or another judge for some metrics"
    more = (
        "a higher limit from the provider"
        if is_firm
        else "judging.limits, if your account has more than the table assumes"
    )
    limited = [(what, seconds, f"{more}; {least}") for what, seconds in _known_limits(limits, load)]
    knob = "judging.max_in_flight or judging.actors"
    if limits.concurrency is not None and limits.concurrency < in_flight:
        in_flight, knob = limits.concurrency, f"the judge's limits.concurrency; {least}"
    is_chosen = spec.judging.max_in_flight is not None or not is_firm
    # Else they follow from the limit
    if is_chosen or in_flight * 60.0 / latency_s <= (limits.requests_per_min or math.inf):
        what = f"{in_flight:,} calls in flight of {latency_s:g} s"
        limited.append((what, load.calls * latency_s / in_flight, knob))
    if spec.judge_engine is not None and is_embedded(name):
        change = f"engines: {{{spec.embedded_judge}: {{replicas: N}}}}, or a faster engine"
        limited.append((*_engine_limit(load, spec.judge_engine, spec.assumptions), change))
    bounds = [Bound("judge", f"{name}, {what}", seconds, way) for what, seconds, way in limited]
    return sorted(bounds, key=lambda bound: -bound.seconds)


def _engine_limit(load: _Load, engine: EngineConfig, assumed: Assumptions) -> tuple[str, float]:
    """A judge's engines, and the seconds that they take of a load."""
    engines, calls = least_of(engine.replicas), max(1.0, load.calls)
    how = f"{engines} engine{'s' * (engines > 1)}"
    if assumed.engine is None:
        per_s = assumed.engine_tokens_per_s
        return f"{how} of {per_s:,.10g} tokens/s", load.output_tokens / (engines * per_s)
    asked = AskedPrompt(load.input_tokens / calls, load.output_tokens / calls)
    work = engine_work([asked], assumed.engine, engine, engines, calls / engines)
    return f"{how} that answer {work.at_once:,} calls at once", work.seconds


def _known_limits(limits: RateLimits, load: _Load) -> Iterator[tuple[str, float]]:
    """Each known limit, and the seconds that it makes of a load."""
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
            yield f"{limit:,.10g} {name}", amount * (60.0 + SLACK_S) / limit


def _bound_cpus(calls: int, actors: int, cpus: float) -> Bound:
    cores, what = float(actors), f"the CPUs of {actors} judge actors"
    change = "judging.actors"
    if (fewer := max(1.0, cpus)) < cores:
        cores, what = fewer, f"{what} ({fewer:g} of them)"
        change = "more CPUs for judges, or judging.cpus: 1 for a core each"
    return Bound("judge", what, calls * CALL_CPU_S / cores, change)


def tokens_of(text: str) -> float:
    """The tokens of a text, by its length."""
    return len(text) / CHARACTERS_A_TOKEN

"""Estimates a run before a cent is spent: calls, tokens, dollars, and the time that limits bound.
Makes no call.

1. Prompts are really built, for some SAMPLED units spread over the dataset, and scaled.
2. Answers and verdicts are as long as `assumptions` says; a token is CHARACTERS_A_TOKEN characters.
3. A stage takes as long as the slowest of its bounds: a limit of a judge, or calls in flight.
4. What is not estimated is named: embedding, judges' thinking, and engines of this run of which
   nobody said the speed (`assumptions.engine_tokens_per_s`)."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from types import SimpleNamespace
from typing import Any, NamedTuple

from memray_eval.affect.enriching import AFFECT_QUESTIONS, JUDGE, judge_affect_prompt
from memray_eval.benchmarks.conversations import RETRIEVED, retrieve
from memray_eval.config.sections import EMBEDDED, Assumptions, EngineConfig, least_of
from memray_eval.config.servers import is_baseline
from memray_eval.datasets.scan import Scan, read_records, read_samples
from memray_eval.errors import describe_error
from memray_eval.execution.executors import choose_phases, duration_text
from memray_eval.execution.plan import Capacity, JudgePool, engine_device, judge_pool
from memray_eval.execution.run_plan import Group, PhaseOrder, RunSpec
from memray_eval.execution.schedule import schedule
from memray_eval.execution.stages.blocks import judging_options
from memray_eval.execution.stages.generate import collect_texts, distinct_texts, new_record
from memray_eval.execution.stages.judge import prompts_of_record
from memray_eval.execution.stages.prompt import prompt_room, window_of
from memray_eval.judges.limits.rate_pacer import NOTHING, SLACK_S, CallCost, known_lanes
from memray_eval.judges.prices import FREE, cost_text
from memray_eval.judges.prompt_cache import CHARACTERS_A_TOKEN, PromptCache, tokens_of
from memray_eval.metric import NEEDS_JUDGE, RULES, JudgedMetric
from memray_eval.models.embedded_model import model_dir
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.numerals import history_lines
from memray_eval.types import (
    EXISTING,
    TURN,
    USER_MODEL,
    Candidate,
    Frozen,
    Message,
    Prompt,
    Record,
    Response,
    Retrieval,
    Sample,
    Score,
    Turn,
    turn_sample,
)

SAMPLED = 200
EMBEDS = "embedding_retrieval"  # the baseline that has it embed each line of a memory
# Ray, its workers, and an engine where there is one
STARTUP_S = {"vllm": 90.0, "openai": 12.0, "code": 12.0, EXISTING: 10.0}
BATCH_S = 86_400.0  # providers end a batch within a day
PLAYED_TOKENS = 250  # of what a simulated user's model is told, beside the conversation


@dataclass(frozen=True)
class Bound:
    """A lower bound of a stage's time: its seconds if nothing else held it up."""

    stage: str
    what: str
    seconds: float


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


class Estimate(Frozen):
    """A run before it is made. Stages overlap: `wall_s` is the start-up and the slowest of
    `bounds`, or generating and scoring after each other, without what is `not_estimated`. `usd` is
    what judges cost, without `unpriced_calls` (None: no price is known). `warnings` name metrics
    that nobody would score and models that retire soon."""

    units: int
    prompt_tokens: int
    output_tokens: int
    judges: tuple[JudgeEstimate, ...]
    stages: tuple[Bound, ...]
    bounds: tuple[Bound, ...]
    startup_s: float
    wall_s: float
    not_estimated: tuple[str, ...]
    bottleneck: str
    usd: float | None
    unpriced_calls: int
    warnings: tuple[str, ...]
    budget_usd: float | None
    calls: int
    phase_order: PhaseOrder
    phase_reason: str
    assumptions: tuple[str, ...]


def estimate(
    spec: RunSpec,
    scan: Scan,
    capacity: Capacity,
    *,
    samples: int | None = None,
    today: date | None = None,
) -> Estimate:
    """The estimate of a run whose dataset was scanned, or with so many `samples` like these."""
    sampled = list(_sample_units(spec, scan))
    records = [record for record, _ in sampled]
    n_samples = samples or scan.n_samples
    units = spec.units_of(round(n_samples * scan.n_asked / max(1, scan.n_samples)))
    scale = units / max(1, len(sampled))
    answered = defaultdict[str, float](float)  # tokens of answers, by candidate
    for record in records:
        if not is_baseline(record.candidate) and record.response is not None:
            answered[record.candidate.name] += tokens_of(record.response.text) * scale
    pool = judge_pool(spec, capacity.cpus, spec.read.block_rows(n_samples))
    judges, bounds = _estimate_judges(spec, records, scale, pool)
    waves = schedule(spec, capacity, engine_device(spec, capacity.all_gpus))
    bounds += _bound_generating(spec, waves, answered, units / len(spec.config.candidates))
    bounds.sort(key=lambda bound: -bound.seconds)
    stages = {bound.stage: bound for bound in reversed(bounds)}
    order, reason = choose_phases(spec)
    alone = [stages[stage].seconds for stage in ("generate", "judge") if stage in stages] or [0.0]
    startup_s = sum(max(STARTUP_S[group[0].backend] for group in wave) for wave in waves)
    apart_s = STARTUP_S[EXISTING] + sum(alone)
    unscored = f"not scored, and not in the estimate: {', '.join(spec.unscored)}"
    unscored_lines = [f"{unscored} (each {NEEDS_JUDGE})"] if spec.unscored else []
    return Estimate(
        units=units,
        prompt_tokens=round(sum(tokens for _, tokens in sampled) * scale),
        output_tokens=round(sum(answered.values())),
        judges=judges,
        stages=tuple(stages[stage] for stage in sorted(stages)),
        bounds=tuple(bounds),
        startup_s=startup_s,
        wall_s=startup_s + (apart_s if order == "apart" else max(alone)),
        not_estimated=tuple(_not_estimated(spec, records, judges)),
        bottleneck=f"{bounds[0].stage}: {bounds[0].what}" if bounds else "no limit",
        usd=_sum_known(judge.usd for judge in judges),
        unpriced_calls=sum(judge.unpriced_calls for judge in judges),
        warnings=(*unscored_lines, *spec.retiring(today or date.today()), *spec.equal_draws()),
        budget_usd=spec.config.budget.usd,
        calls=sum(judge.calls for judge in judges),
        phase_order=order,
        phase_reason=reason,
        assumptions=tuple(_list_assumptions(spec, sampled, units, judges)),
    )


def _sample_units(spec: RunSpec, scan: Scan) -> Iterator[tuple[Record, float]]:
    """Units of samples spread over the dataset, each with a response of the expected length, and
    the tokens of its prompt: 0 if the responses exist already, no prompt can be built, or no model
    is asked."""
    shards, of_sample = scan.shards, spec.units_of(1)
    step = max(1, len(shards) * of_sample // SAMPLED)
    rows = max(1, SAMPLED // max(1, len(shards) * of_sample))
    for shard in shards[::step]:
        # One shard holds all that is read from its start, however much that is
        is_spread = shard.is_read_from_start and shard.rows > rows
        of_shard = (None, shard.rows // rows) if is_spread else (rows, 1)
        if spec.has_responses:
            records = read_records(shard, spec.read.reader)
            for record in itertools.islice(records, 0, *of_shard):
                yield record, 0.0
            continue
        samples = itertools.islice(read_samples(shard, spec.read.reader), 0, *of_shard)
        epochs = range(1, spec.config.epochs + 1)
        for asked in itertools.product(samples, spec.config.candidates, epochs):
            sample, candidate, epoch = asked
            talk: list[Turn] = []
            for number in range(1, sample.n_turns + 1):
                # A simulated user says as much each time as at first
                message = sample.turns[number - 1] if sample.turns else sample.query
                played = {USER_MODEL: ""} if sample.user is not None and number > 1 else {}
                turn = turn_sample(sample, number, message, talk, **played)
                response, tokens = _respond(turn, candidate, spec)
                record = new_record(turn, candidate, epoch)
                yield record.model_copy(update={"response": response}), tokens
                talk.append(Turn(role="user", content=turn.query))
                talk.append(Turn(role="assistant", content=response.text))


def _respond(sample: Sample, candidate: Candidate, spec: RunSpec) -> tuple[Response, float]:
    """An answer as long as expected that speaks to the user, and the tokens of its prompt."""
    try:
        prompt = spec.suite.ask(_with_entries(sample, candidate), candidate)
    except Exception as error:  # it will be an error of its unit, and costs nothing
        return Response(error=describe_error(error)), 0.0
    most = prompt.answer_tokens(candidate)
    length = round(spec.config.assumptions.output_share * most * CHARACTERS_A_TOKEN) or 1
    sentence = f"You asked. {sample.query} "
    response = Response(text=(sentence * (length // len(sentence) + 1))[:length])
    return response, 0.0 if is_baseline(candidate) else _prompt_tokens(spec, candidate, prompt)


def _with_entries(sample: Sample, candidate: Candidate) -> Sample:
    """The sample with what a store of its turns would return, as nothing is known of others yet."""
    memory = candidate.memory
    if memory is None or memory.tools or sample.context is None:
        return sample
    found = retrieve(sample.context, sample.query, Retrieval(k=memory.k))
    entries = [
        {"text": f"{turn.speaker}: {turn.text}", "session": part.id, "date": part.date}
        for part in found
        for turn in part.turns
    ]
    return sample.model_copy(update={"metadata": {**sample.metadata, RETRIEVED: entries}})


def _prompt_tokens(spec: RunSpec, candidate: Candidate, prompt: Prompt) -> float:
    """The tokens of a prompt; an engine gets no more than its window has room for."""
    tokens = tokens_of("\n".join(message.content for message in prompt.messages))
    if candidate.backend != "vllm" or not prompt.is_cut:
        return tokens
    window = spec.config.engine_of(candidate.model).max_model_len
    # The embedded model is not fetched for an estimate
    if window is None and (candidate.model != EMBEDDED or model_dir().is_dir()):
        window = window_of(candidate.model)
    room = prompt_room(candidate, window, prompt.answer_tokens(candidate))
    return tokens if room is None else min(tokens, float(max(0, room)))


def _bound_generating(
    spec: RunSpec, waves: Sequence[Sequence[Group]], answered: Mapping[str, float], units: float
) -> Iterator[Bound]:
    """Yields the bound of generating: the sum of each wave's slowest group."""
    if spec.has_responses or not units:
        return
    slowest = list[Bound]()
    for wave in waves:
        known = [_bound_group(spec, group, answered, units) for group in wave]
        slowest += sorted(filter(None, known), key=lambda bound: bound.seconds)[-1:]
    if slowest:
        longest = max(slowest, key=lambda bound: bound.seconds)
        rounds = f"{len(slowest)} rounds of models, the longest with " * (len(slowest) > 1)
        yield Bound("generate", rounds + longest.what, sum(bound.seconds for bound in slowest))


def _bound_group(
    spec: RunSpec, group: Group, answered: Mapping[str, float], units: float
) -> Bound | None:
    """The bound of one pipeline's candidates; None if no model is asked or no speed is known."""
    asking = [candidate for candidate in group if not is_baseline(candidate)]
    tokens = sum(answered[candidate.name] for candidate in asking)
    assumed, server = spec.config.assumptions, spec.config.server
    if not asking:
        return None
    if group[0].backend == "vllm":
        return _bound_engines("generate", spec.config.engine_of(group[0].model), assumed, tokens)
    at_once = server.actors * server.max_in_flight
    seconds = tokens / assumed.server_tokens_per_s + units * len(asking) * assumed.server_latency_s
    what = f"{at_once} calls in flight to the candidate's server"
    return Bound("generate", what, seconds / at_once)


def _bound_engines(
    stage: str, engine: EngineConfig, assumed: Assumptions, tokens: float
) -> Bound | None:
    """The bound of a model's engines, the least of them, which make so many tokens."""
    if assumed.engine_tokens_per_s is None:
        return None
    engines = least_of(engine.replicas)
    what = f"{engines} engine{'s' * (engines > 1)} of {assumed.engine_tokens_per_s:,.10g} tokens/s"
    return Bound(stage, what, tokens / (engines * assumed.engine_tokens_per_s))


def _not_estimated(
    spec: RunSpec, records: Iterable[Record], judges: Iterable[JudgeEstimate]
) -> Iterator[str]:
    if thinking := [one.judge for one in judges if spec.account(one.judge).entry.thinks]:
        yield f"the thinking of {', '.join(thinking)}, which is billed as output"
    if spec.config.assumptions.engine_tokens_per_s is None and (spec.has_vllm or spec.judge_engine):
        yield (
            "the time of this run's engines (assumptions.engine_tokens_per_s says how fast one is)"
        )
    if any(candidate.memory for candidate in spec.config.candidates):
        yield "what memory stores take: writes, searches, and their own models' calls and dollars"
    if any(candidate.memory and candidate.memory.tools for candidate in spec.config.candidates):
        yield "the rounds in which a model calls its memory's tools, and what they show"
    at_embed = set(spec.by_stage()[1])
    metrics = [metric for metric in spec.metrics if metric.name in at_embed]
    if any(
        (is_baseline(record.candidate) and record.candidate.model.endswith(EMBEDS))
        or distinct_texts(collect_texts(record, metrics))
        for record in records
    ):
        yield f"embedding of texts (embedding.model is {spec.config.embedding.model})"


class _Load(NamedTuple):
    """A judge's work: calls, and their tokens."""

    calls: float
    cost: CallCost


def _estimate_judges(
    spec: RunSpec, records: Sequence[Record], scale: float, pool: JudgePool
) -> tuple[tuple[JudgeEstimate, ...], list[Bound]]:
    """Each judge's work, and its bounds; `records` stand for `scale` times as many."""
    judges, bounds = list[JudgeEstimate](), list[Bound]()
    for name, parts in sorted(_judge_load(spec, records, scale).items()):
        calls = sum(part.calls for part in parts)
        cost = reduce(CallCost.plus, (part.cost for part in parts))
        account = spec.account(name)
        price = account.price
        is_batch = spec.config.judging.mode == "batch" and account.takes_batches
        batch = Bound("judge", "a batch, within a day (most take an hour)", BATCH_S)
        of_judge = [batch] if is_batch else _judge_bounds(name, _Load(calls, cost), spec, pool)
        cached = [price and price.of(part.cost, is_batch, part.calls) for part in parts]
        costs = [
            price and price.of(CallCost(*part.cost[:2]), is_batch, part.calls) for part in parts
        ]
        unpriced = (part.calls for part, usd in zip(parts, costs, strict=True) if usd is None)
        judges.append(
            JudgeEstimate(
                judge=name,
                calls=round(calls),
                input_tokens=round(cost.input_tokens),
                output_tokens=round(cost.output_tokens),
                usd=_sum_known(costs),
                seconds=of_judge[0].seconds,
                bound_by=of_judge[0].what,
                unpriced_calls=round(sum(unpriced)),
                cacheable_tokens=round(cost.cached_input_tokens),
                cached_usd=_sum_known(cached) if cost.cached_input_tokens else None,
            )
        )
        bounds += [replace(bound, what=f"{name}, {bound.what}") for bound in of_judge]
    return tuple(judges), bounds


def _judge_load(spec: RunSpec, records: Sequence[Record], scale: float) -> dict[str, list[_Load]]:
    """Calls and tokens by judge, apart by price band; affect and simulated users included."""
    repeats = spec.config.judging.repeats
    juries: dict[str, list[Any]] = {  # of each judge only the name counts
        key: [
            SimpleNamespace(name=name)
            for name in choice.judges
            if name != RULES
            for _ in range(repeats)
        ]
        for key, choice in spec.judges.items()
    }
    options = judging_options(spec.judges, spec.config.judging, spec.siblings)
    judged = {metric.name: metric for metric in spec.metrics if isinstance(metric, JudgedMetric)}
    schema_tokens = {
        name: tokens_of(str(metric.judgment.model_json_schema())) for name, metric in judged.items()
    }
    verdict_tokens = spec.config.assumptions.verdict_tokens
    loads = defaultdict[str, dict[int | None, _Load]](dict)

    def add(name: str, part: int | None, *tokens: float) -> None:
        calls, cost = loads[name].get(part, _Load(0.0, NOTHING))
        call = CallCost(*(count * scale for count in tokens))
        loads[name][part] = _Load(calls + scale, cost.plus(call))

    for record in records:
        counted = set[tuple[object, ...]]()
        prompts_by_metric = prompts_of_record(record, spec.metrics, juries, options)
        for metric, jurors in prompts_by_metric.items():
            for juror, (judge, prompts) in enumerate(() if isinstance(jurors, Score) else jurors):
                account = spec.account(judge.name)
                cache, price = account.cache, account.price or FREE
                count, n_verdicts = judged[metric].n_verdicts, len(prompts)
                n_verdicts = n_verdicts if count is None else count(record.sample)
                for prompt in prompts:
                    # Metrics that share a judgment ask the same call, which is made once
                    if (question := (judged[metric].judgment, juror, tuple(prompt))) in counted:
                        continue
                    counted.add(question)
                    tokens = sum(tokens_of(message.content) for message in prompt)
                    tokens += schema_tokens[metric]
                    output = verdict_tokens * n_verdicts / len(prompts)
                    from_cache = _cached_tokens(prompt, cache)
                    add(judge.name, price.band(tokens), tokens, output, *from_cache)
        first = spec.config.candidates[0].name, 1, 1
        if (record.candidate.name, record.epoch, record.sample.metadata.get(TURN, 1)) == first:
            for judge_name, tokens in _affect_calls(spec, record.sample):  # once for each sample
                add(judge_name, None, tokens, verdict_tokens)
        if USER_MODEL in record.sample.metadata:
            tokens = tokens_of(history_lines(record.sample)) + PLAYED_TOKENS
            for choice in spec.user_judges.values():
                add(choice.judge, None, tokens, verdict_tokens)
    return {name: list(parts.values()) for name, parts in loads.items()}


def _affect_calls(spec: RunSpec, sample: Sample) -> Iterator[tuple[str, float]]:
    """Who is asked for a sample's emotion and traits, and the tokens of each prompt."""
    for choice in spec.affect_judges.values():
        for what, (rubric, judgment) in AFFECT_QUESTIONS.items():
            if getattr(spec.config.affect, what) == JUDGE and not getattr(sample, what):
                prompt = judge_affect_prompt(rubric, sample)
                text = "".join(message.content for message in prompt)
                yield choice.judge, tokens_of(text + str(judgment.model_json_schema()))


def _cached_tokens(prompt: Sequence[Message], cache: PromptCache) -> tuple[float, float]:
    """A prompt's mean tokens read from the prompt cache, and written to it."""
    if not isinstance(prompt, JudgePrompt) or not cache.pays_off(prompt):
        return 0.0, 0.0
    tokens, first = prompt.shared_chars / CHARACTERS_A_TOKEN, 1 / prompt.readers
    return tokens * (1 - first), tokens * first if cache.is_marked else 0.0


def _sum_known(costs: Iterable[float | None]) -> float | None:
    """The sum of the costs that are known; None if there are some, and none is."""
    amounts = list(costs)
    sums = [cost for cost in amounts if cost is not None]
    return sum(sums) if sums or not amounts else None


def _judge_bounds(name: str, load: _Load, spec: RunSpec, pool: JudgePool) -> list[Bound]:
    """A judge's bounds by its limits, its calls in flight and its engines; the slowest first."""
    account = spec.account(name)
    limits, is_firm = account.limits
    in_flight, latency_s = pool.actors * pool.max_in_flight, spec.config.judging.latency_s
    limited = list[Bound | None]()
    for lane, limit in known_lanes(limits).items():
        what = f"{limit:,.10g} {lane.replace('_per_min', '/min').replace('_', ' ')}"
        minutes = load.cost.in_lane(lane, round(load.calls)) / limit
        limited.append(Bound("judge", what, minutes * (60.0 + SLACK_S)))
    in_flight = min(in_flight, limits.concurrency or in_flight)
    is_chosen = spec.config.judging.max_in_flight is not None or not is_firm
    # Else they follow from the limit
    if is_chosen or in_flight * 60.0 / latency_s <= (limits.requests_per_min or math.inf):
        what = f"{in_flight:,} calls in flight of {latency_s:g} s"
        limited.append(Bound("judge", what, load.calls * latency_s / in_flight))
    if spec.judge_engine is not None and account.is_embedded:
        tokens = load.cost.output_tokens
        limited.append(_bound_engines("judge", spec.judge_engine, spec.config.assumptions, tokens))
    return sorted(filter(None, limited), key=lambda bound: -bound.seconds)


def _list_assumptions(
    spec: RunSpec, sampled: Sequence[object], units: int, judges: Sequence[JudgeEstimate]
) -> Iterator[str]:
    assumed = spec.config.assumptions
    yield (
        f"prompts built for {len(sampled):,} of {units:,} answers; a token is "
        f"{CHARACTERS_A_TOKEN:g} characters"
    )
    if not spec.has_responses and any(not is_baseline(asked) for asked in spec.config.candidates):
        yield f"responses take {assumed.output_share:.0%} of max_tokens (assumptions.output_share)"
    if any(candidate.memory for candidate in spec.config.candidates):
        yield "a memory shows `k` entries, each as long as a turn of the conversation (memory.k)"
    yield f"a verdict has {assumed.verdict_tokens:g} tokens (assumptions.verdict_tokens)"
    yield f"a judge call takes {spec.config.judging.latency_s:g} s (judging.latency_s)"
    if assumed.engine_tokens_per_s is not None:
        yield (
            f"an engine makes {assumed.engine_tokens_per_s:g} tokens/s, prefill included "
            "(assumptions.engine_tokens_per_s)"
        )
    yield "calls that the cache holds are counted as if they were paid"
    yield "the work of CPUs (reading, metrics by rules, writing) takes no time"
    if any(judge.cacheable_tokens for judge in judges):
        yield "input that a prompt cache can hold takes no time at a limit; the total is without it"


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """The estimate for a person."""
    total, time = cost_text(estimate.usd, estimate.unpriced_calls, ",.2f"), "time not estimated"
    if estimate.bounds or not estimate.not_estimated:
        at_least = "at least " * bool(estimate.not_estimated)
        time = at_least + duration_text(estimate.wall_s)
    yield (
        f"{estimate.units:,} units, {estimate.calls:,} judge calls, "
        f"{'' if estimate.unpriced_calls else 'about '}{total}, "
        f"{time} (an estimate: by what is assumed below)"
    )
    yield from (f"  WARNING: {line}" for line in estimate.warnings)
    if estimate.budget_usd is not None and estimate.usd and estimate.budget_usd < estimate.usd:
        yield (
            f"  the budget would stop it at {estimate.budget_usd / estimate.usd:.1%}: budget.usd "
            f"is {estimate.budget_usd:g}"
        )
    yield from (f"  not estimated: {what}" for what in estimate.not_estimated)
    of_it = " (of what is estimated)" * bool(estimate.not_estimated)
    yield f"  bottleneck: {estimate.bottleneck}{of_it}"
    yield f"  phases: {estimate.phase_order} ({estimate.phase_reason})"
    yield f"  candidates: {estimate.prompt_tokens:,} tokens in, {estimate.output_tokens:,} out"
    for judge in estimate.judges:
        tokens = f"{judge.input_tokens:,} tokens in, {judge.output_tokens:,} out"
        price = cost_text(judge.usd, judge.unpriced_calls, ",.2f")
        if judge.unpriced_calls:
            price += " (judging.price sets it)"
        yield (
            f"  {judge.judge}: {judge.calls:,} calls, {tokens}, {price}, "
            f"{duration_text(judge.seconds)} ({judge.bound_by})"
        )
        if judge.cacheable_tokens:
            share, usd = judge.cacheable_tokens / max(1, judge.input_tokens), judge.cached_usd
            cost = "" if usd is None else f": ${usd:,.2f} if all of it does"
            yield f"    {share:.0%} of its input can come from its prompt cache{cost}"
    for stage in estimate.stages:
        yield f"  {stage.stage} alone: {duration_text(stage.seconds)} ({stage.what})"
    yield f"  start-up: {duration_text(estimate.startup_s)}"
    yield from (f"  assumed: {line}" for line in estimate.assumptions)

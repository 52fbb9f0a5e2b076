"""An estimate as text, for a person."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.execution.estimate import ClusterUse, Estimate, GroupUse
from memray_eval.execution.executors import duration_text
from memray_eval.judges.prices import cost_text

SHOWN_BOUNDS = 4


def estimate_lines(made: Estimate) -> Iterator[str]:
    """The estimate for a person."""
    total = cost_text(made.usd, made.unpriced_calls, ",.2f")
    yield (
        f"{made.units:,} units, {made.calls:,} judge calls, "
        f"{'' if made.unpriced_calls else 'about '}{total}, "
        f"{duration_text(made.wall_s)} (an estimate: by what is assumed below)"
    )
    yield from (f"  WARNING: {line}" for line in made.warnings)
    if made.budget_usd is not None and made.usd and made.budget_usd < made.usd:
        yield (
            f"  the budget would stop it at {made.budget_usd / made.usd:.1%}: budget.usd is "
            f"{made.budget_usd:g}"
        )
    yield f"  bottleneck: {made.bottleneck}"
    yield f"  phases: {made.phase_order} ({made.phase_reason})"
    if made.cluster is not None:
        yield from _cluster_lines(made, made.cluster)
    yield f"  candidates: {made.prompt_tokens:,} tokens in, {made.output_tokens:,} out"
    for judge in made.judges:
        tokens = f"{judge.input_tokens:,} tokens in, {judge.output_tokens:,} out"
        price = cost_text(judge.usd, judge.unpriced_calls, ",.2f")
        if not judge.is_priced:
            price += " (judging.price sets it)"
        yield (
            f"  {judge.judge}: {judge.calls:,} calls, {tokens}, {price}, "
            f"{duration_text(judge.seconds)} ({judge.bound_by})"
        )
        if judge.cacheable_tokens:
            share = judge.cacheable_tokens / max(1, judge.input_tokens)
            cost = (
                "" if judge.cached_usd is None else f": ${judge.cached_usd:,.2f} if all of it does"
            )
            yield f"    {share:.0%} of its input can come from its prompt cache{cost}"
    for stage in made.stages:
        yield f"  {stage.stage} alone: {duration_text(stage.seconds)} ({stage.bound_by})"
    yield f"  start-up: {duration_text(made.startup_s)}"
    yield from (f"  assumed: {line}" for line in made.assumptions)


def _cluster_lines(made: Estimate, use: ClusterUse) -> Iterator[str]:
    """What binds, what would next, and what to change; then the nodes."""
    for place, bound in enumerate(made.bounds[:SHOWN_BOUNDS]):
        yield (
            f"  {'binds' if place == 0 else 'next' if place == 1 else 'then'}: {bound.what}: "
            f"{duration_text(bound.seconds)}"
        )
        if place == 0:
            yield f"    to change that: {bound.change}"
            yield from _idle_engines(made, use)
    for way in made.phase_uses:
        yield (
            f"  phases {way.order}: {duration_text(way.wall_s)}, {way.gpu_node_hours:,.1f} "
            f"node-hours with GPUs and {way.cpu_node_hours:,.1f} without"
        )
    if made.judges:
        yield (
            f"  judges: {made.judge_actors} actors, up to {made.calls_in_flight:,} calls in flight "
            "to each"
        )
    for engine in use.engines:
        size = f"of {engine.gpus} GPU{'s' * (engine.gpus > 1)}" if engine.gpus else "on CPUs"
        grows = (
            f" (the least of engine.replicas, which lets them grow to {engine.most})"
            if engine.most > engine.replicas
            else ""
        )
        told = f"{engine.replicas} {size} each{grows}; {engine.fit} would fit"
        yield f"  engines of {engine.model}: {told}"
    yield f"  nodes of {use.where} ({use.kind}), for {duration_text(made.wall_s)}:"
    yield from (f"    {_group_line(group)}" for group in use.groups)
    priced = [group.usd for group in use.groups if group.usd is not None]
    nodes = "unknown (no price of a node-hour was given)" if not priced else f"${sum(priced):,.2f}"
    yield f"  nodes cost {nodes}{' for the groups with a price' if priced and use.usd is None else ''}; judges {cost_text(made.usd, made.unpriced_calls, ',.2f')}"  # noqa: E501
    yield from (f"  PROBLEM: {problem}" for problem in use.problems)


def _idle_engines(made: Estimate, use: ClusterUse) -> Iterator[str]:
    """That the engines' nodes wait for the judges, where they do."""
    slower = made.bounds[1:] if made.phase_order == "together" else ()
    generating = next((bound for bound in slower if bound.stage == "generate"), None)
    if generating is not None and made.bounds[0].stage != "generate" and use.engines:
        what = "GPUs" if any(engine.gpus for engine in use.engines) else "engines"
        yield (
            f"    {what} would be done in {duration_text(generating.seconds)}; they are held to "
            "the end, unless cluster.phases is apart"
        )


def _group_line(use: GroupUse) -> str:
    group = use.group
    gpus = f", {group.gpus} {group.accelerator_type or 'GPUs'}" if group.gpus else ""
    kind = (
        "head"
        if group.is_head
        else f"{group.min_nodes} to {group.max_nodes}{' spot' if group.is_spot else ''}"
    )
    cost = "" if use.usd is None else f", ${use.usd:,.2f}"
    return (
        f"{group.name}: {use.nodes} x ({group.cpus:g} CPUs{gpus}; {kind}): {use.node_hours:,.1f} "
        f"node-hours{cost}"
    )

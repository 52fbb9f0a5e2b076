"""An estimate as text, for a person."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.execution.estimate import ClusterUse, Estimate, GroupUse
from memray_eval.execution.executors import duration_text
from memray_eval.judges.prices import cost_text

SHOWN_BOUNDS = 4


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """The estimate for a person."""
    total = cost_text(estimate.usd, estimate.unpriced_calls, ",.2f")
    yield (
        f"{estimate.units:,} units, {estimate.calls:,} judge calls, "
        f"{'' if estimate.unpriced_calls else 'about '}{total}, "
        f"{duration_text(estimate.wall_s)} (an estimate: by what is assumed below)"
    )
    yield from (f"  WARNING: {line}" for line in estimate.warnings)
    if estimate.budget_usd is not None and estimate.usd and estimate.budget_usd < estimate.usd:
        yield (
            f"  the budget would stop it at {estimate.budget_usd / estimate.usd:.1%}: budget.usd "
            f"is {estimate.budget_usd:g}"
        )
    yield f"  bottleneck: {estimate.bottleneck}"
    yield f"  phases: {estimate.phase_order} ({estimate.phase_reason})"
    if estimate.cluster is not None:
        yield from _cluster_lines(estimate, estimate.cluster)
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
            share = judge.cacheable_tokens / max(1, judge.input_tokens)
            cost = (
                "" if judge.cached_usd is None else f": ${judge.cached_usd:,.2f} if all of it does"
            )
            yield f"    {share:.0%} of its input can come from its prompt cache{cost}"
    for stage in estimate.stages:
        yield f"  {stage.stage} alone: {duration_text(stage.seconds)} ({stage.bound_by})"
    yield f"  start-up: {duration_text(estimate.startup_s)}"
    yield from (f"  assumed: {line}" for line in estimate.assumptions)


def _cluster_lines(estimate: Estimate, use: ClusterUse) -> Iterator[str]:
    """Lists the bounds, slowest first, and what would change the first; then the nodes."""
    for rank, bound in enumerate(estimate.bounds[:SHOWN_BOUNDS]):
        yield (
            f"  {'binds' if rank == 0 else 'next' if rank == 1 else 'then'}: {bound.what}: "
            f"{duration_text(bound.seconds)}"
        )
        if rank == 0:
            yield f"    to change that: {bound.change}"
            yield from _idle_engines(estimate, use)
    for way in estimate.phase_uses:
        yield (
            f"  phases {way.order}: {duration_text(way.wall_s)}, {way.gpu_node_hours:,.1f} "
            f"node-hours with GPUs and {way.cpu_node_hours:,.1f} without"
        )
    if estimate.judges:
        yield (
            f"  judges: {estimate.judge_actors} actors, up to {estimate.calls_in_flight:,} calls "
            "in flight to each"
        )
    for engine in use.engines:
        size = f"of {engine.gpus} GPU{'s' * (engine.gpus > 1)}" if engine.gpus else "on CPUs"
        grows = (
            f" (the least of engine.replicas, which lets them grow to {engine.most})"
            if engine.most > engine.replicas
            else ""
        )
        replicas = f"{engine.replicas} {size} each{grows}; {engine.fit} would fit"
        yield f"  engines of {engine.model}: {replicas}"
    yield f"  nodes of {use.where} ({use.kind}), for {duration_text(estimate.wall_s)}:"
    yield from (f"    {_group_line(group)}" for group in use.groups)
    priced = [group.usd for group in use.groups if group.usd is not None]
    nodes = "unknown (no price of a node-hour was given)" if not priced else f"${sum(priced):,.2f}"
    of_some = " for the groups with a price" if priced and use.usd is None else ""
    judges = cost_text(estimate.usd, estimate.unpriced_calls, ",.2f")
    yield f"  nodes cost {nodes}{of_some}; judges {judges}"
    yield from (f"  PROBLEM: {problem}" for problem in use.problems)


def _idle_engines(estimate: Estimate, use: ClusterUse) -> Iterator[str]:
    """That the engines' nodes wait for the judges, where they do."""
    slower = estimate.bounds[1:] if estimate.phase_order == "together" else ()
    generating = next((bound for bound in slower if bound.stage == "generate"), None)
    if generating is not None and estimate.bounds[0].stage != "generate" and use.engines:
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

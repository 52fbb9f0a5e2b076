"""Prepares runs: reads the config once (RunSpec), checks it against the machine, scans the
dataset, and hands a RunPlan to its session. The only part of execution/ that knows RunConfig."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from memray_eval.benchmarks import check_prompts
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.scan import Scan, scan
from memray_eval.datasets.sharding import coalesce
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.estimate import Estimate
from memray_eval.execution.plan import engine_device
from memray_eval.execution.prepare.checks import (
    check_cost,
    check_judges,
    check_machine,
    cluster_capacity,
    estimate_run,
    local_capacity,
)
from memray_eval.execution.prepare.resolve import (
    check_affect,
    needs_of,
    resolve,
    resolve_reading,
)
from memray_eval.execution.prepare.stored_config import (
    apply_resume_settings,
    check_same_run,
    read_config,
    write_config,
)
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.cluster_spec import ClusterSpec
from memray_eval.execution.ray.placement import Placement, plan_placement
from memray_eval.execution.resume_state import load_resume_state
from memray_eval.execution.run_manifest import (
    judges_of,
    prompts_of,
    rubrics_of,
    with_ended_sessions,
)
from memray_eval.execution.run_plan import ReadSpec, RunPlan, RunSpec
from memray_eval.execution.schedule import schedule, wave_pools
from memray_eval.execution.session import RunResult, RunSession
from memray_eval.results.run_folder import RunFolder, new_run_id

__all__ = [
    "RunResult",
    "estimate_of",
    "needs_of",
    "prepare",
    "resolve",
    "resolve_reading",
    "resume",
    "run",
]

SHOWN_PROBLEMS = 20


def run(
    config: RunConfig,
    say: Callable[[str], None],
    quiet: bool = False,
    generate_only: bool = False,
    agree: Callable[[Estimate], bool] = lambda _: True,
    run_id: str | None = None,
    check_found: Callable[[Scan], None] = lambda _: None,
) -> RunResult:
    """Runs a job to its summary. `say` gets what a person should know on the way; nothing is
    written before the checks pass. With `generate_only` nothing is scored. `agree` is asked when a
    run without a budget may cost more than ASK_USD, and `check_found` may refuse what the dataset
    was found to hold. Where the run of that `run_id` has begun already, it is resumed, so that a
    job can be submitted again as it is.

    Raises ConfigError, DataError, ResourceError before the run folder exists; GenerationError,
    EmbeddingError after."""
    refuse_keys(config, {})  # it is written to the run's folder
    name = new_run_id(config.suite, config.candidates[0].name) if run_id is None else run_id
    folder = RunFolder(f"{config.out.rstrip('/')}/{check_run_id(name)}")
    if run_id is not None and folder.has_manifest():
        return _resume(folder, check_same_run(read_config(folder), config), say, quiet)
    # The folder is let go when nothing of the run is up any more.
    with ExitStack() as locks, ExitStack() as stack:
        plan = prepare(config, folder.path, stack, say, generate_only, check_found)
        check_cost(plan, agree)
        locks.enter_context(lock_new_folder(folder))
        write_config(folder, config)
        if plan.problems:
            folder.write_problems(plan.problems)
            say(
                f"Skipping {plan.found.n_invalid} invalid samples; they are listed in "
                f"{folder.path}/problems.jsonl"
            )
        opening = f"{plan.found.n_samples} samples, {plan.n_units} units -> {folder.path}"
        judges = [f"  {metric}: {judge}" for metric, judge in judges_of(plan.spec).items()]
        say("\n".join([f"Run {folder.run_id}: {opening}", *judges]))
        return RunSession(plan, folder).run(quiet)


def resume(
    path: str, say: Callable[[str], None], quiet: bool = False, settings: Sequence[str] = ()
) -> RunResult:
    """Goes on with a run that was killed, interrupted or stopped, or whose failed units are to be
    tried again. `settings` may change how it runs, not what it measures.

    Raises ConfigError where the run would not be the same any more, and all that `run` raises.
    """
    folder = RunFolder(path)
    folder.read_manifest()
    return _resume(folder, apply_resume_settings(read_config(folder), settings), say, quiet)


def prepare(
    config: RunConfig,
    path: str,
    stack: ExitStack,
    say: Callable[[str], None],
    generate_only: bool = False,
    check_found: Callable[[Scan], None] = lambda _: None,
) -> RunPlan:
    """Makes all checks of a run, in the order of what they cost, and scans its dataset; connects to
    its cluster for as long as `stack` lives. `path` is the run's folder, or where it will be."""
    started = time.time()
    spec = resolve(config, generate_only)
    check_prompts(spec.suite, spec.candidates)
    check_affect(spec)
    check_judges(spec, path)
    check_machine(spec)
    if spec.cluster.address is None and not cluster.is_connected():
        capacity = local_capacity(spec)  # a Ray of its own is started once the dataset is known
    else:
        capacity = stack.enter_context(cluster.connected(spec.cluster))
        capacity = cluster_capacity(spec, capacity, say)
    problems: list[Problem] = []
    found = scan_dataset(spec.read, problems)
    check_found(found)
    if not cluster.is_connected():
        capacity = stack.enter_context(cluster.connected(spec.cluster))
    return RunPlan(
        spec=spec, found=found, capacity=capacity, started=started, problems=tuple(problems)
    )


@contextmanager
def lock_new_folder(folder: RunFolder) -> Iterator[None]:
    """Makes and holds the folder of a run that begins. Raises ConfigError where it began elsewhere
    while this process made its checks, and what `held` raises."""
    folder.create()
    with folder.held():
        if folder.has_manifest():
            raise ConfigError(
                f"another process began the run in {folder.path} just now; start again to go on "
                "with it"
            )
        yield


def _resume(
    folder: RunFolder, config: RunConfig, say: Callable[[str], None], quiet: bool
) -> RunResult:
    with folder.held(), ExitStack() as stack:
        # Read only now: who held the folder before may have gone on.
        before = with_ended_sessions(folder.read_manifest(), folder.last_written())
        plan = prepare(config, folder.path, stack, say, bool(before.get("generate_only")))
        _check_measures_the_same(plan, before)
        folder.create()
        state = load_resume_state(folder)
        say(
            f"Resuming {folder.run_id}: {len(state.finished)} of {plan.n_units} units are "
            f"finished, {len(state.generated)} more generated; {state.n_retried} had failed and "
            "are tried again."
        )
        return RunSession(replace(plan, before=before, resume_state=state), folder).run(quiet)


def _check_measures_the_same(plan: RunPlan, before: Mapping[str, Any]) -> None:
    """Raises ConfigError where the dataset, a judge, a rubric or a prompt file is not what the run
    began with."""
    if plan.found.fingerprint != before["dataset"]["fingerprint"]:
        raise ConfigError(
            f"{plan.spec.read.dataset} has changed since the run began; put it back, or start a "
            "new run"
        )
    rubrics = rubrics_of(plan.spec)
    # Runs of older versions did not write down which transition words they counted: the extended
    # list, then the only one.
    rubrics_before = {
        name: text for name, text in rubrics.items() if text == "transitions extended"
    } | before["rubrics"]
    compared = {
        "judge": (before["judges"], judges_of(plan.spec)),
        "rubric": (rubrics_before, rubrics),
        "prompt": (before.get("prompts", {}), prompts_of(plan.spec)),
    }
    for what, (then, now) in compared.items():
        if other := sorted(name for name in {**then, **now} if then.get(name) != now.get(name)):
            was, is_now = then.get(other[0]), now.get(other[0])
            raise ConfigError(
                f"the {what} of {other[0]} was {was} when the run began and is {is_now} now; put "
                "it back (keys, version, estimates), or start a new run"
            )


_RUN_ID = re.compile(r"[^\W_][\w.-]{0,127}")


def check_run_id(run_id: str) -> str:
    """Returns it. Raises ConfigError where it cannot be the name of a folder everywhere."""
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            f"--run-id {run_id!r}: write up to 128 letters, digits, dots, dashes and underscores"
        )
    return run_id


def scan_dataset(read: ReadSpec, problems: list[Problem]) -> Scan:
    """One pass over the dataset. Raises DataError for invalid samples (unless they are to be
    skipped) and for none at all."""
    found = scan(
        read.dataset,
        read.reader,
        limit=read.limit,
        order=read.limit_order,
        rows_per_shard=(read.rows_per_block or read.batch_size)
        if read.limit is None
        else read.block_rows,
        on_problem=problems.append,
    )
    found.shards = coalesce(found.shards, read.block_rows(found.n_samples))
    if problems and not read.skip_invalid:
        shown = "\n".join(f"  {problem}" for problem in problems[:SHOWN_PROBLEMS])
        if (n_more := len(problems) - SHOWN_PROBLEMS) > 0:
            shown += f"\n  ... and {n_more} more"
        raise DataError(
            f"{read.dataset}: {found.n_invalid} invalid samples, nothing was run:\n{shown}\n"
            "Mend them (`memray-eval dataset validate` lists all), or run the others with "
            "--skip-invalid."
        )
    if not found.n_samples:
        raise DataError(f"{read.dataset} holds no valid sample")
    return found


def estimate_of(
    config: RunConfig,
    *,
    samples: int | None = None,
    cluster_spec: ClusterSpec | None = None,
    node_usd_per_hour: Mapping[str, float] | None = None,
) -> Estimate:
    """What a run would take, or one with so many `samples` like those found; on this machine's
    CPUs, or on the nodes of a cluster's file, whose hours may have a price by group. Starts nothing
    and makes no call. Raises ConfigError, DataError."""
    spec = resolve(config)
    placement = None if cluster_spec is None else _place(spec, cluster_spec)
    found = scan_dataset(spec.read, [])
    capacity = placement.capacity if placement else cluster.local_capacity(spec.cluster)
    return estimate_run(
        spec,
        found,
        capacity,
        samples=samples,
        placement=placement,
        node_usd_per_hour={**spec.assumptions.node_usd_per_hour, **(node_usd_per_hour or {})},
    )


def _place(spec: RunSpec, cluster_spec: ClusterSpec) -> Placement:
    """Where a run would be on a cluster that is to grow: its waves are planned by what is up at
    first."""
    device = engine_device(spec, cluster_spec.gpus)
    waves = schedule(spec, cluster_spec.at_first(), device)
    pools = [wave_pools(spec, wave, cluster_spec.at_most(), device) for wave in waves]
    return plan_placement(cluster_spec, spec, pools, device)

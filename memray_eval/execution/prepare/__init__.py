"""Prepares runs: reads the config once (RunSpec), checks it against the machine, scans the
dataset, and hands a RunPlan to its session. The only part of execution/ that knows RunConfig."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date
from types import MappingProxyType
from typing import Any

from memray_eval.benchmarks import check_prompts
from memray_eval.benchmarks.own import suite_name
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.datasets.columnar_files import count_rows
from memray_eval.datasets.ordering import StratifiedOrder
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.scan import EachSource, Scan, scan
from memray_eval.datasets.scan_store import FileStates, read_states, restore_scan, store_scan
from memray_eval.datasets.sharding import coalesce
from memray_eval.datasets.sources import sources_of
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.capacity import Capacity, local_capacity
from memray_eval.execution.estimate import Estimate
from memray_eval.execution.executors import choose_executor
from memray_eval.execution.plan import engine_device
from memray_eval.execution.prepare.checks import (
    check_calibrations,
    check_cost,
    check_device,
    check_judges,
    check_machine,
    check_stop_rule,
    decide_phases,
    estimate_run,
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
from memray_eval.execution.ray.cluster_spec import ClusterSpec
from memray_eval.execution.ray.placement import Placement, plan_placement
from memray_eval.execution.resume_state import load_resume_state
from memray_eval.execution.run_manifest import (
    judge_prompts_of,
    judges_of,
    own_code_of,
    prompts_of,
    rubrics_of,
    with_ended_sessions,
)
from memray_eval.execution.run_plan import PhaseOrder, ReadSpec, RunPlan, RunSpec
from memray_eval.execution.schedule import check_turns, schedule, wave_pools
from memray_eval.execution.session import RunResult, RunSession
from memray_eval.execution.waiting import Waiting, no_waiting, show_waiting
from memray_eval.judges.router import describe_pools
from memray_eval.results.run_folder import RunFolder, new_run_id
from memray_eval.sinks import check_sinks
from memray_eval.types import JURORS

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
# Below these a scan takes less time than starting workers for it
LARGE_BYTES, LARGE_ROWS = 256 << 20, 100_000


def run(
    config: RunConfig,
    say: Callable[[str], None],
    quiet: bool = False,
    generate_only: bool = False,
    agree: Callable[[Estimate], bool] = lambda _: True,
    run_id: str | None = None,
    check_found: Callable[[Scan], None] = lambda _: None,
    detach: bool = False,
) -> RunResult:
    """Runs a job to its summary. `say` gets what a person should know on the way; nothing is
    written before the checks pass. With `generate_only` nothing is scored. `agree` is asked when a
    run without a budget may cost more than ASK_USD, and `check_found` may refuse what the dataset
    was found to hold. Where the run of that `run_id` has begun already, it is resumed, so that a
    job can be submitted again as it is. With `detach` it ends, with BatchesUnderWay, when its judge
    calls are under way in batches.

    Raises ConfigError, DataError, ResourceError before the run folder exists; GenerationError,
    EmbeddingError after."""
    refuse_keys(config, {})  # it is written to the run's folder
    _check_detach(config, detach)
    waiting = no_waiting if quiet else show_waiting
    suite = suite_name(config.suite)
    name = new_run_id(suite, config.candidates[0].name) if run_id is None else run_id
    folder = RunFolder(f"{config.out.rstrip('/')}/{check_run_id(name)}")
    if run_id is not None and folder.has_manifest():
        return _resume(folder, check_same_run(read_config(folder), config), say, quiet, detach)
    # The folder is let go when nothing of the run is up any more.
    with ExitStack() as locks, ExitStack() as stack:

        def complete(plan: RunPlan) -> RunPlan:
            check_cost(plan, agree)
            return plan

        plan = prepare(
            config,
            folder.path,
            stack,
            say,
            generate_only,
            check_found,
            complete=complete,
            waiting=waiting,
        )
        locks.enter_context(lock_new_folder(folder))
        write_config(folder, config)
        _keep_scan(plan, folder)
        if plan.problems:
            folder.write_problems(plan.problems)
            say(
                f"Skipping {plan.found.n_invalid} invalid samples; they are listed in "
                f"{folder.path}/problems.jsonl"
            )
        opening = f"{plan.found.n_samples} samples, {plan.n_units} units -> {folder.path}"
        judges = [f"  {metric}: {judge}" for metric, judge in judges_of(plan.spec).items()]
        say("\n".join([f"Run {folder.run_id}: {opening}", *judges]))
        return RunSession(replace(plan, is_detached=detach), folder).run(quiet)


def resume(
    path: str,
    say: Callable[[str], None],
    quiet: bool = False,
    settings: Sequence[str] = (),
    detach: bool = False,
) -> RunResult:
    """Goes on with a run that was killed, interrupted or stopped, or whose failed units are to be
    tried again. `settings` may change how it runs, not what it measures; `detach` as in `run`.

    Raises ConfigError where the run would not be the same any more, and all that `run` raises.
    """
    folder = RunFolder(path)
    folder.read_manifest()
    config = apply_resume_settings(read_config(folder), settings)
    return _resume(folder, config, say, quiet, detach)


def _check_detach(config: RunConfig, detach: bool) -> None:
    if detach and config.judging.mode == "live":
        raise ConfigError(
            "--detach ends when judge calls are under way in batches, and judging.mode is live; "
            "add --set judging.mode=batch"
        )


def prepare(
    config: RunConfig,
    path: str,
    stack: ExitStack,
    say: Callable[[str], None],
    generate_only: bool = False,
    check_found: Callable[[Scan], None] = lambda _: None,
    *,
    before: Mapping[str, Any] = MappingProxyType({}),
    complete: Callable[[RunPlan], RunPlan] = lambda plan: plan,
    waiting: Waiting = no_waiting,
) -> RunPlan:
    """Makes all checks of a run, in the order of what they cost, and scans its dataset before nodes
    are asked for; connects to its cluster for as long as `stack` lives. `path` is the run's folder,
    or where it will be, and `before` the manifest that earlier sessions left there. `complete` may
    refuse the plan, or add to it, before its nodes are asked for; `waiting` is told what takes
    time."""
    started = time.time()
    kept = {
        metric: told.partition(" (")[0].split(JURORS)
        for metric, told in before.get("judges", {}).items()
        if "/" in told.partition(" (")[0]
    }
    spec = resolve(config, generate_only, kept=kept)
    for gone in spec.successions:
        say(f"{gone}.")
    for line in describe_pools(spec.all_judges.values(), spec.judging, spec.judge_table):
        say(f"The judge {line}.")
    for name in spec.hidden_metrics:
        say(f"The metric {name} is built in, and counts; give your own another name.")
    check_prompts(spec.suite, spec.candidates)
    check_affect(spec)
    check_judges(spec, path)
    check_calibrations(spec)
    check_machine(spec)
    check_sinks(spec.sinks)
    may_be_local = choose_executor(spec, is_on_ray=_is_on_ray()).name == "local"
    is_alone = may_be_local or (spec.cluster.address is None and not _is_on_ray())
    if is_alone:
        capacity = local_capacity(spec.cluster)
        if not may_be_local:
            check_turns(spec, capacity, "apart" if spec.cluster.phases == "apart" else "together")
    else:
        check_device(spec)
        capacity = _connect(spec, stack, waiting)
        if not before and not spec.cluster.wait_s:  # would it fit in any order?
            from memray_eval.execution.ray.room import free_capacity

            order: PhaseOrder = "together" if spec.cluster.phases == "together" else "apart"
            capacity = free_capacity(spec, capacity, order)
    with waiting(f"the first rows of {spec.read.dataset}"):
        spec = replace(spec, read=spec.read.with_columns(say))
    plan = _look_through(spec, RunFolder(path), capacity, before, started, stack, waiting)
    check_found(plan.found)
    check_stop_rule(plan)
    plan = complete(plan)
    executor = choose_executor(spec, plan.n_units, is_on_ray=_is_on_ray())
    if executor.name == "local":
        say(f"Executor: local ({executor.reason}).")
        return replace(plan, executor="local")
    capacity = plan.capacity
    phases = decide_phases(spec, plan.found, capacity, plan.resume_state)
    is_worth_a_line = phases.order != "together" or engine_device(spec, capacity.all_gpus) == "gpu"
    if spec.metrics and not spec.has_responses and is_worth_a_line:
        say(f"Phases: {phases.order} ({phases.reason}).")
    if is_alone:
        check_turns(spec, capacity, phases.order)
        if not _is_on_ray():
            capacity = _connect(spec, stack, waiting)
        return replace(plan, capacity=capacity, phases=phases)
    with waiting("nodes with room for the run"):
        return _wait_for_room(replace(plan, phases=phases), stack, say)


def _is_on_ray() -> bool:
    """Whether this process has joined a Ray cluster."""
    # Who has not imported it has not: it takes a second to import
    if "ray" not in sys.modules:
        return False
    from memray_eval.execution.ray import cluster

    return cluster.is_connected()


def _connect(spec: RunSpec, stack: ExitStack, waiting: Waiting) -> Capacity:
    """Joins the run's cluster, or starts one, for as long as `stack` lives."""
    address = spec.cluster.address
    with waiting("Ray to start" if address is None else f"the Ray cluster at {address}"):
        from memray_eval.execution.ray import cluster

        return stack.enter_context(cluster.connected(spec.cluster))


def _wait_for_room(plan: RunPlan, stack: ExitStack, say: Callable[[str], None]) -> RunPlan:
    """The plan with the nodes that it starts on."""
    from memray_eval.execution.ray.placement_groups import NodeReservation
    from memray_eval.execution.ray.room import wait_for_room

    reservation = stack.enter_context(NodeReservation())
    capacity = wait_for_room(plan.spec, plan.capacity, plan.phases.order, reservation, say)
    return replace(plan, capacity=capacity, reservation=reservation)


def _look_through(
    spec: RunSpec,
    folder: RunFolder,
    capacity: Capacity,
    before: Mapping[str, Any],
    started: float,
    stack: ExitStack,
    waiting: Waiting,
) -> RunPlan:
    """The plan with what is in the dataset: as an earlier session found it, where its files are the
    same, else scanned now. Files that are large together, and one that is long, are scanned in
    tasks of Ray, which is started for that where the run has none yet. Raises as scan_dataset."""
    read, to_order = spec.read, StratifiedOrder() if spec.stop_rule else None
    kept = folder.read_scan() if before and to_order is None else None
    files = read.reader.files
    if (found := restore_scan(kept, read.dataset, _how_read(read), files)) is not None:
        return RunPlan(spec=spec, found=found, capacity=capacity, started=started, before=before)
    each_source = None
    is_whole = read.limit is None and capacity.cpus and to_order is None
    states = read_states(read.dataset, files=files) if is_whole else None
    if states is not None and _is_worth_tasks(spec, states):
        from memray_eval.execution.ray.scan_tasks import ScanTasks

        if not _is_on_ray():
            capacity = _connect(spec, stack, waiting)
        each_source = ScanTasks(capacity.cpus_beside_gpus)
    problems: list[Problem] = []
    scanned_at = time.time()
    with waiting(f"the scan of {read.dataset}"):
        found = scan_dataset(read, problems, each_source, to_order)
    order = None
    if to_order is not None:
        found.shards, order = to_order.finish(read.block_rows(found.n_samples))
    return RunPlan(
        spec=spec,
        found=found,
        capacity=capacity,
        started=started,
        scanned_at=scanned_at,
        problems=tuple(problems),
        before=before,
        order=order,
    )


def _is_worth_tasks(spec: RunSpec, states: FileStates) -> bool:
    """Whether scanning a dataset takes longer than it takes to start workers for it, and can be
    done in parts: of many files, or of one of which anybody can read a stretch."""
    if states.n_sources > 1:
        return states.size >= LARGE_BYTES
    read = spec.read
    if spec.executor == "local" or read.reader.by_context or read.reader.files is not None:
        return False
    (source,) = sources_of(read.dataset, None)
    return source.kind == "parquet" and count_rows(source.path) >= LARGE_ROWS


def _how_read(read: ReadSpec) -> dict[str, Any]:
    """All but the dataset's files that the result of a scan depends on."""
    reader = read.reader
    return {
        "version": importlib.metadata.version("memray-eval"),
        "dataset": read.dataset,
        "suite": reader.suite,
        "tasks": sorted(reader.tasks),
        "has_responses": reader.has_responses,
        "by_context": reader.by_context,
        "rows": [read.batch_size, read.rows_per_block, read.engines],
        "limit": [read.limit, read.limit_order],
        "columns": None if reader.columns is None else dict(reader.columns.sources),
    }


def _keep_scan(plan: RunPlan, folder: RunFolder) -> None:
    """Writes what this session's scan found to the run's folder, for those that go on with it."""
    if plan.scanned_at is not None and plan.order is None:
        read = plan.spec.read
        how, files = _how_read(read), read.reader.files
        stored = store_scan(plan.found, read.dataset, how, plan.scanned_at, files)
        if stored is not None:
            folder.write_scan(stored)


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
    folder: RunFolder,
    config: RunConfig,
    say: Callable[[str], None],
    quiet: bool,
    detach: bool = False,
) -> RunResult:
    _check_detach(config, detach)
    with folder.held(), ExitStack() as stack:
        # Read only now: who held the folder before may have gone on.
        before = with_ended_sessions(folder.read_manifest(), folder.last_written())

        def complete(plan: RunPlan) -> RunPlan:
            _check_measures_the_same(plan, before)
            for line in _changed_layouts(plan.spec, before):
                say(line)
            folder.create()
            _keep_scan(plan, folder)
            state = load_resume_state(folder)
            say(
                f"Resuming {folder.run_id}: {len(state.finished)} of {plan.n_units} units are "
                f"finished, {len(state.generated)} more generated; {state.n_retried} had failed "
                "and are tried again."
            )
            return replace(plan, resume_state=state)

        generate_only = bool(before.get("generate_only"))
        plan = prepare(
            config,
            folder.path,
            stack,
            say,
            generate_only,
            before=before,
            complete=complete,
            waiting=no_waiting if quiet else show_waiting,
        )
        return RunSession(replace(plan, is_detached=detach), folder).run(quiet)


def _check_measures_the_same(plan: RunPlan, before: Mapping[str, Any]) -> None:
    """Raises ConfigError where the dataset, a judge, a rubric or a prompt file is not what the run
    began with."""
    if plan.found.fingerprint != before["dataset"]["fingerprint"]:
        raise ConfigError(
            f"{plan.spec.read.dataset} has changed since the run began; put it back, or start a "
            "new run"
        )
    compared = {
        "judge": (_judges_before(plan.spec, before), judges_of(plan.spec)),
        "rubric": (before["rubrics"], rubrics_of(plan.spec)),
        "prompt": (before.get("prompts", {}), prompts_of(plan.spec)),
        "code": (before.get("own_code", {}), own_code_of(plan.spec)),
    }
    for what, (then, now) in compared.items():
        if other := sorted(name for name in {**then, **now} if then.get(name) != now.get(name)):
            was, is_now = then.get(other[0]), now.get(other[0])
            raise ConfigError(
                f"the {what} of {other[0]} was {was} when the run began and is {is_now} now; put "
                "it back (keys, version, estimates), or start a new run"
            )


def _judges_before(spec: RunSpec, before: Mapping[str, Any]) -> dict[str, str]:
    """Who was to judge when the run began; where that model is off now, or the same judge is asked
    for another reason, as the judge is told now: scores name who gave them."""
    then, now = dict(before["judges"]), judges_of(spec)
    for key in spec.judges.keys() & then.keys():
        choice, names = spec.judges[key], then[key].partition(" (")[0].split(JURORS)
        heirs = {one.role: one.judge for one in choice.successions}
        is_same = dict.fromkeys(heirs.get(name, name) for name in names) == dict.fromkeys(
            choice.judges
        )
        # The rubric and what stands in for a verdict are said after the reason
        if is_same and then[key].partition("; ")[2] == now[key].partition("; ")[2]:
            then[key] = now[key]
    return then


def _changed_layouts(spec: RunSpec, before: Mapping[str, Any]) -> Iterator[str]:
    """A line for each judge whose prompts are laid out otherwise than before: what was paid and not
    finished is another call now."""
    then = before.get("judge_prompts", {})
    for judge, layout in judge_prompts_of(spec).items():
        if (was := then.get(judge, layout)) != layout:
            yield (
                f"The prompts of {judge} were laid out as {was} when the run began, and are as "
                f"{layout} now: calls that were paid for units that are not finished may be paid "
                "again, and new verdicts may differ a little from earlier ones. To go on as "
                "before: --set judging.layout=rubric_first."
            )


_RUN_ID = re.compile(r"[^\W_][\w.-]{0,127}")


def check_run_id(run_id: str) -> str:
    """Returns it. Raises ConfigError where it cannot be the name of a folder everywhere."""
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            f"--run-id {run_id!r}: write up to 128 letters, digits, dots, dashes and underscores"
        )
    return run_id


def scan_dataset(
    read: ReadSpec,
    problems: list[Problem],
    each_source: EachSource | None = None,
    to_order: StratifiedOrder | None = None,
) -> Scan:
    """One pass over the dataset; `each_source` as `scan` takes it, and `to_order` collects what
    it takes. Raises DataError for invalid samples (unless they are to be skipped) and for none at
    all."""
    found = scan(
        read.dataset,
        read.reader,
        limit=read.limit,
        order=read.limit_order,
        rows_per_shard=(read.rows_per_block or read.batch_size)
        if read.limit is None
        else read.block_rows,
        most_rows=0 if read.rows_per_block else read.most_rows,
        on_problem=problems.append,
        engines=read.engines,
        each_source=each_source,
        on_taken=None if to_order is None else to_order.entries.append,
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
    say: Callable[[str], None] = lambda _: None,
    waiting: Waiting = no_waiting,
    today: date | None = None,
) -> Estimate:
    """What a run would take `today`, or one with so many `samples` like those found; on this
    machine's CPUs, or on the nodes of a cluster's file, whose hours may have a price by group.
    Starts nothing and makes no call. Raises ConfigError, DataError."""
    spec = resolve(config, today=today)
    placement = None if cluster_spec is None else _place(spec, cluster_spec)
    spec = replace(spec, read=spec.read.with_columns(say))
    with waiting(f"the scan of {spec.read.dataset}"):
        found = scan_dataset(spec.read, [])
        is_shared = spec.assumptions.engine is not None and spec.read.reader.by_context
        if is_shared and samples and samples > found.n_samples and spec.read.engines > 1:
            # As all of them would be cut; 1 stands for a single engine
            engines = spec.read.engines * found.n_samples / (samples + 0.5)
            found = scan_dataset(replace(spec.read, engines=engines), [])
    capacity = placement.capacity if placement else local_capacity(spec.cluster)
    return estimate_run(
        spec,
        found,
        capacity,
        samples=samples,
        placement=placement,
        node_usd_per_hour={**spec.assumptions.node_usd_per_hour, **(node_usd_per_hour or {})},
        today=today,
    )


def _place(spec: RunSpec, cluster_spec: ClusterSpec) -> Placement:
    """Where a run would be on a cluster that is to grow: its waves are planned by what is up at
    first."""
    device = engine_device(spec, cluster_spec.gpus)
    waves = schedule(spec, cluster_spec.at_first(), device)
    pools = [wave_pools(spec, wave, cluster_spec.at_most(), device) for wave in waves]
    return plan_placement(cluster_spec, spec, pools, device)

"""The scan of a run's dataset: made now, or as an earlier session of the run stored it."""

import importlib.metadata
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

from memray_eval.config.schema import RunConfig
from memray_eval.datasets.columnar_files import count_rows
from memray_eval.datasets.parsing import InvalidSample, Problem
from memray_eval.datasets.scan import (
    EachSource,
    FileStates,
    Scan,
    read_states,
    restore_scan,
    scan,
    store_scan,
)
from memray_eval.datasets.shards import coalesce
from memray_eval.datasets.sources import entries, prepared, sources_of
from memray_eval.errors import DataError
from memray_eval.execution.executors import choose_executor, choose_phases
from memray_eval.execution.plan import Capacity, engine_device, local_capacity
from memray_eval.execution.prepare.checks import check_device, proxied, spec_checks
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.execution.run_plan import ReadSpec, RunPlan, RunSpec
from memray_eval.execution.schedule import check_turns
from memray_eval.execution.waiting import Waiting
from memray_eval.results.run_folder import SCAN, RunFolder

SHOWN_PROBLEMS = 20
# Below these a scan takes less time than starting workers for it
LARGE_BYTES, LARGE_ROWS = 256 << 20, 100_000


def _is_worth_tasks(spec: RunSpec, states: FileStates) -> bool:
    """True if a scan takes longer than starting workers for it, and can be done in parts."""
    if states.n_sources > 1:
        return states.size >= LARGE_BYTES
    read = spec.read
    if spec.config.executor == "local" or read.reader.by_context or read.reader.files is not None:
        return False
    (source,) = sources_of(read.dataset)
    return source.kind == "parquet" and count_rows(source.path) >= LARGE_ROWS


def _how_read(read: ReadSpec) -> dict[str, Any]:
    """The settings, beside the dataset's files, that the result of a scan depends on."""
    reader, config = read.reader, read.config
    return {
        "version": importlib.metadata.version("memray-eval"),
        "dataset": read.dataset,
        "suite": reader.suite,
        "tasks": sorted(reader.tasks),
        "ids": sorted(reader.ids),
        "has_responses": reader.has_responses,
        "candidate": reader.candidate,
        "by_context": reader.by_context,
        "rows": [config.engine.rows, config.rows_per_block, read.engines],
        "limit": config.limit,
        "encoding": reader.encoding,
        "columns": None if reader.columns is None else dict(reader.columns.sources),
        "form": reader.columns.form.name if reader.columns and reader.columns.form else None,
    }


def keep_scan(plan: RunPlan, folder: RunFolder) -> None:
    """Stores this session's scan in the run's folder, for the sessions that go on with it."""
    if plan.scanned_at is not None:
        read = plan.spec.read
        how, files = _how_read(read), read.reader.files
        stored = store_scan(plan.scan, read.dataset, how, plan.scanned_at, files)
        if stored is not None:
            folder.write_json(SCAN, stored)


def scan_dataset(
    read: ReadSpec, problems: list[Problem], each_source: EachSource | None = None
) -> Scan:
    """One pass over the dataset; `each_source` as `scan` takes it. Raises DataError for
    invalid samples (unless skipped) and for none at all."""
    config, limit = read.config, read.config.limit
    few = config.rows_per_block or config.engine.rows
    scanned = scan(
        read.dataset,
        read.reader,
        limit=limit,
        rows_per_shard=few if limit is None else read.block_rows,
        on_problem=problems.append,
        engines=read.engines,
        each_source=each_source,
    )
    scanned.shards = coalesce(scanned.shards, read.block_rows(scanned.n_samples))
    if problems and not config.skip_invalid:
        shown = "\n".join(f"  {problem}" for problem in problems[:SHOWN_PROBLEMS])
        if (n_more := len(problems) - SHOWN_PROBLEMS) > 0:
            shown += f"\n  ... and {n_more} more"
        rows = f"{shlex.quote(read.dataset)} --suite {read.reader.suite}"
        # It reads samples to ask, without the job's columns
        can_list = not (read.reader.has_responses or read.reader.columns)
        lists = f" (`memray-eval dataset validate {rows}` lists all)" if can_list else ""
        others = "the others with --skip-invalid" + ("" if can_list else ", whose folder lists all")
        raise DataError(
            f"{config.dataset}: {scanned.n_invalid} invalid samples, nothing was run:\n{shown}\n"
            f"Fix them{lists}, or run {others}."
        )
    if not scanned.n_samples:
        raise DataError(f"{read.dataset} holds no valid sample")
    n_ids = len(read.reader.ids)
    counts_all = limit is None and not (config.skip_invalid or read.reader.has_responses)
    if counts_all and scanned.n_samples < n_ids:
        raise DataError(
            f"{read.dataset} has {scanned.n_samples:,} of the {n_ids:,} samples that `ids` names; "
            "leave out of that file those that it lacks"
        )
    return scanned


def sample_ids(config: RunConfig) -> Iterator[str]:
    """The ids of a dataset's samples, also beyond a limit. Raises EvalError if it is unreadable."""
    read = resolve_reading(config).with_columns(lambda note: None)
    for source in sources_of(read.dataset, read.reader.files):
        for entry in entries(prepared(source, read.reader.encoding), read.reader.files):
            with suppress(InvalidSample):
                if outline := read.reader.outline(entry):
                    yield outline.sample_id


# In this process if few units turn up, on a Ray of its own, or on a cluster that is there
SiteKind: TypeAlias = Literal["local", "alone", "joined"]


class RunSite:
    """The place of a session of a run; what it starts or joins lives as long as `stack`. `before`
    is the manifest that earlier sessions left; `started` as of RunPlan."""

    def __init__(
        self,
        spec: RunSpec,
        folder: RunFolder,
        stack: ExitStack,
        waiting: Waiting,
        say: Callable[[str], None],
        started: float,
        before: Mapping[str, Any] | None = None,
    ) -> None:
        is_local = choose_executor(spec, is_on_ray=is_on_ray())[0] == "local"
        is_alone = spec.config.cluster.address is None and not is_on_ray()
        self.kind: SiteKind = "local" if is_local else "alone" if is_alone else "joined"
        self._waiting, self._say, self._stack = waiting, say, stack
        self._spec, self._folder, self._started, self._before = spec, folder, started, before or {}
        self._first: Capacity | None = None

    @property
    def capacity(self) -> Capacity:
        """The resources to start on."""
        assert self._first is not None
        return self._first

    def plan(self) -> RunPlan:
        """Checks the spec, finds the resources, and plans the run by the content of its dataset: as
        an earlier session stored it if the files are the same, otherwise scanned now. Large files,
        and one long file, are scanned in tasks of Ray, which is started for that if the run has
        none yet. Raises EvalError, as scan_dataset among others."""
        spec, folder, say = self._spec, self._folder, self._say
        for succession in spec.successions:
            say(f"{succession}.")
        for line in proxied(spec):
            say(line)
        for name in spec.hidden_metrics:
            say(f"The metric {name} is built in, and counts; give your own another name.")
        for check in spec_checks(spec, folder.path, say):
            check()
        self.reach()
        with self._waiting(f"the first rows of {spec.read.dataset}"):
            read = spec.read.with_columns(say)
        spec = self._spec = replace(spec, read=read)
        problems: list[Problem] = []
        scanned_at: float | None = None
        stored = folder.read_json(SCAN) if self._before else None
        scan = restore_scan(stored, read.dataset, _how_read(read), read.reader.files)
        if scan is None:
            each_source: EachSource | None = None
            is_whole = spec.config.limit is None and self.capacity.cpus
            states = read_states(read.dataset, files=read.reader.files) if is_whole else None
            if states is not None and _is_worth_tasks(spec, states):
                from memray_eval.execution.ray.cluster import scan_in_tasks

                each_source = partial(scan_in_tasks, self.connect().cpus_beside_gpus)
            scanned_at = time.time()
            with self._waiting(f"the scan of {read.dataset}"):
                scan = scan_dataset(read, problems, each_source)
        return RunPlan(
            spec=spec,
            scan=scan,
            capacity=self.capacity,
            started=self._started,
            scanned_at=scanned_at,
            problems=tuple(problems),
            before=self._before,
        )

    def reach(self) -> None:
        """Finds the resources of this machine, or of the cluster, which it joins. Raises
        ConfigError or ResourceError if the run would fit in no order of its phases."""
        spec = self._spec
        if self.kind != "joined":
            self._first = local_capacity(spec.config.cluster)
            if self.kind == "alone":
                check_turns(spec, self._first, spec.config.cluster.phases)
            return
        check_device(spec)
        self.connect()
        if not self._before and not spec.config.cluster.wait_s:
            from memray_eval.execution.ray.cluster import free_capacity

            self._first = free_capacity(spec, self.capacity, spec.config.cluster.phases)

    def connect(self) -> Capacity:
        """Joins the run's cluster, or starts one; nothing if that is done."""
        if self._first is None or not is_on_ray():
            address = self._spec.config.cluster.address
            what = "Ray to start" if address is None else f"the Ray cluster at {address}"
            with self._waiting(what):
                from memray_eval.execution.ray import cluster

                self._first = self._stack.enter_context(
                    cluster.connected(self._spec.config.cluster)
                )
        return self.capacity

    def acquire(self, plan: RunPlan) -> RunPlan:
        """Gives the plan its executor, the order of its phases and the nodes that it starts on.
        Raises ConfigError or ResourceError if it does not fit."""
        spec, say = plan.spec, self._say
        executor, reason = choose_executor(spec, plan.n_units, is_on_ray=is_on_ray())
        if executor == "local":
            say(f"Executor: local ({reason}).")
            return replace(plan, executor="local")
        phases = choose_phases(spec, is_generated=plan.is_generated)
        is_on_gpus = engine_device(spec, self.capacity.all_gpus) == "gpu"
        if spec.metrics and not spec.has_responses and (phases.order != "together" or is_on_gpus):
            say(f"Phases: {phases.order} ({phases.reason}).")
        if self.kind != "joined":
            check_turns(spec, self.capacity, phases.order)
            return replace(plan, capacity=self.connect(), phases=phases)
        from memray_eval.execution.ray.cluster import wait_for_room
        from memray_eval.execution.ray.placement_groups import NodeReservation

        with self._waiting("nodes with room for the run"):
            held = self._stack.enter_context(NodeReservation())
            capacity = wait_for_room(spec, plan.capacity, phases.order, held, say)
        return replace(plan, capacity=capacity, phases=phases, reservation=held)


def is_on_ray() -> bool:
    """Tells if this process has joined a Ray cluster."""
    # A process that has not imported it has not: it takes a second to import
    if "ray" not in sys.modules:
        return False
    from memray_eval.execution.ray import cluster

    return cluster.is_connected()

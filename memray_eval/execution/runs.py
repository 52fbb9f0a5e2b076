"""Runs and resumed runs, from their config to their summary: start reading here. Both resolve,
check, scan, (load what earlier sessions left), confirm the cost, acquire capacity, run the
session."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date

from memray_eval.benchmarks.own import suite_name
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.datasets.scan import Scan
from memray_eval.errors import ConfigError
from memray_eval.execution.estimate import Estimate, estimate
from memray_eval.execution.plan import local_capacity
from memray_eval.execution.prepare.checks import check_cost, check_servers, check_sessions
from memray_eval.execution.prepare.origins import (
    apply_resume_settings,
    check_resumable,
    check_same_run,
    read_config,
    write_config,
)
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.prepare.scanning import RunSite, keep_scan, scan_dataset
from memray_eval.execution.resume_state import count_unasked, load_resume_state
from memray_eval.execution.run_manifest import (
    changed_layouts,
    check_measures_the_same,
    judges_of,
    with_ended_sessions,
)
from memray_eval.execution.run_plan import RunPlan
from memray_eval.execution.session import RunResult, RunSession
from memray_eval.execution.waiting import Waiting, no_waiting, show_waiting
from memray_eval.judges.router import named_judges
from memray_eval.metric import NEEDS_JUDGE
from memray_eval.results.run_folder import RunFolder, new_run_id

__all__ = ["RunResult", "check_run_id", "estimate_of", "lock_new_folder", "resume", "run"]


def run(
    config: RunConfig,
    say: Callable[[str], None],
    quiet: bool = False,
    generate_only: bool = False,
    agree: Callable[[Estimate], bool] = lambda _: True,
    run_id: str | None = None,
    check_found: Callable[[Scan], None] = lambda _: None,
    detach: bool = False,
    started: float | None = None,
) -> RunResult:
    """Runs a job to its summary; a begun run of its `run_id` is resumed. `say` gets what a person
    should know. With `generate_only` nothing is scored. `agree` is asked when a run without a
    budget may cost more than ASK_USD; `check_found` may refuse the dataset. With `detach` it ends,
    with BatchesUnderWay, when its judge calls are under way in batches. Its time counts from
    `started`, the start of its command.

    Raises ConfigError, DataError, ResourceError before the run folder exists; GenerationError,
    EmbeddingError after."""
    refuse_keys(config, {})  # it is written to the run's folder
    _check_detach(config, detach)
    new_id = new_run_id(config.dataset, config.measured or (suite_name(config.suite),))
    name = check_run_id(new_id if run_id is None else run_id)
    folder = RunFolder(f"{config.out.rstrip('/')}/{name}")
    if run_id is not None and folder.has_manifest():
        config = check_same_run(read_config(folder), config)
        return _resume(folder, config, say, quiet, detach, started)
    # The folder is let go when nothing of the run is up any more.
    with ExitStack() as locks, ExitStack() as stack:
        started = started or time.time()
        spec = resolve(config, generate_only)
        waiting = no_waiting if quiet else show_waiting
        site = RunSite(spec, folder, stack, waiting, say, started)
        plan = site.plan()
        check_found(plan.scan)
        check_sessions(plan)
        check_cost(plan, agree)
        if site.kind != "joined":  # whose nodes may reach other servers
            check_servers(spec)
        plan = site.acquire(plan)
        locks.enter_context(lock_new_folder(folder))
        write_config(folder, config)
        keep_scan(plan, folder)
        _announce(plan, folder, say)
        return RunSession(replace(plan, is_detached=detach), folder).run(quiet)


def resume(
    path: str,
    say: Callable[[str], None],
    quiet: bool = False,
    settings: Sequence[str] = (),
    detach: bool = False,
    started: float | None = None,
) -> RunResult:
    """Goes on with a run that ended early, or whose failed units are to be tried again. `settings`
    may not change what it measures. Raises ConfigError for another run, and what `run` raises."""
    folder = RunFolder(path)
    folder.read_manifest()
    config = apply_resume_settings(read_config(folder), settings)
    return _resume(folder, config, say, quiet, detach, started)


def estimate_of(
    config: RunConfig,
    *,
    samples: int | None = None,
    say: Callable[[str], None] = lambda _: None,
    waiting: Waiting = no_waiting,
    today: date | None = None,
) -> Estimate:
    """The estimate of a run of the job on this machine `today`, or of one with `samples` like those
    found. Starts nothing and makes no call. Raises ConfigError, DataError."""
    spec = resolve(config, today=today)
    spec = replace(spec, read=spec.read.with_columns(say))
    with waiting(f"the scan of {spec.read.dataset}"):
        scan = scan_dataset(spec.read, [])
    return estimate(spec, scan, local_capacity(spec.config.cluster), samples=samples, today=today)


def _resume(
    folder: RunFolder,
    config: RunConfig,
    say: Callable[[str], None],
    quiet: bool,
    detach: bool,
    started: float | None,
) -> RunResult:
    check_resumable(folder)
    _check_detach(config, detach)
    with folder.held(), ExitStack() as stack:
        # Read only now: another process that held the folder may have gone on.
        before = with_ended_sessions(folder.read_manifest(), folder.last_written())
        started = started or time.time()
        judges = {key: named_judges(text) for key, text in before.get("judges", {}).items()}
        kept = {key: names for key, names in judges.items() if any("/" in name for name in names)}
        spec = resolve(config, bool(before.get("generate_only")), kept=kept)
        waiting = no_waiting if quiet else show_waiting
        site = RunSite(spec, folder, stack, waiting, say, started, before)
        plan = site.plan()
        check_sessions(plan)
        check_measures_the_same(plan, before)
        for line in changed_layouts(spec, before):
            say(line)
        folder.create()
        keep_scan(plan, folder)
        state = load_resume_state(folder)
        if site.kind != "joined" and len(state.finished) < plan.n_units:
            check_servers(spec)
        if plan.scan.n_simulated:
            state = replace(state, n_unasked=count_unasked(folder))
            plan = replace(plan, resume_state=state)
        say(
            f"Resuming {folder.run_id}: {len(state.finished)} of {plan.n_units} answers are "
            f"finished, {len(state.generated)} more generated; {state.n_retried} had failed "
            "and are tried again."
        )
        plan = site.acquire(replace(plan, resume_state=state))
        return RunSession(replace(plan, is_detached=detach), folder).run(quiet)


def _announce(plan: RunPlan, folder: RunFolder, say: Callable[[str], None]) -> None:
    """Says what a new run is about to do; invalid samples are listed in its folder."""
    if plan.problems:
        lines = (problem.model_dump_json() + "\n" for problem in plan.problems)
        folder.write("problems.jsonl", "".join(lines))
        say(
            f"Skipping {plan.scan.n_invalid} invalid samples; they are listed in "
            f"{folder.path}/problems.jsonl"
        )
    sessions = f" ({plan.scan.n_sessions} sessions)" if plan.has_sessions else ""
    opening = f"{plan.scan.n_samples} samples{sessions}, {plan.n_units} answers -> {folder.path}"
    unscored = plan.spec.unscored
    judges = [
        f"  {metric}: {judge}"
        for metric, judge in judges_of(plan.spec).items()
        if metric not in unscored
    ]
    if unscored:
        judges.append(f"  not scored: {', '.join(unscored)} (each {NEEDS_JUDGE})")
    warnings = [f"  {line}" for line in (*plan.spec.equal_draws(), *plan.scan.warnings())]
    say("\n".join([f"Run {folder.run_id}: {opening}", *judges, *warnings]))


def _check_detach(config: RunConfig, detach: bool) -> None:
    if detach and config.judging.mode == "live":
        raise ConfigError(
            "--detach ends when judge calls are under way in batches, and judging.mode is live; "
            "add --set judging.mode=batch"
        )


@contextmanager
def lock_new_folder(folder: RunFolder) -> Iterator[None]:
    """Makes and holds the folder of a run that begins. Raises ConfigError if it began elsewhere
    while this process made its checks, and what `held` raises."""
    folder.create()
    with folder.held():
        if folder.has_manifest():
            raise ConfigError(
                f"another process began the run in {folder.path} just now; start again to go on "
                "with it"
            )
        yield


_RUN_ID = re.compile(r"[^\W_][\w.-]{0,127}")


def check_run_id(run_id: str) -> str:
    """Returns it. Raises ConfigError if it cannot be the name of a folder everywhere."""
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            f"--run-id {run_id!r}: write up to 128 letters, digits, dots, dashes and underscores"
        )
    return run_id

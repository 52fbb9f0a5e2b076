"""A run whose folder exists: its pipelines, its manifest, its summary."""

import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from memray_eval.config.secrets import held_keys, variables_of
from memray_eval.errors import (
    EvalError,
    Interrupted,
    ResourceError,
    ServiceLost,
    Stopped,
    describe_error,
    reason_of,
)
from memray_eval.execution.batch_judging import describe_open_batches
from memray_eval.execution.executors import Phase, new_executor
from memray_eval.execution.interrupts import DRAIN_S, Ending, handle_termination
from memray_eval.execution.live_view import RunDisplay
from memray_eval.execution.resume_state import drop_duplicates
from memray_eval.execution.run_counter import STAGES, RunCounter, RunOutline, RunTelemetry
from memray_eval.execution.run_log import RunLog, keep_run_log
from memray_eval.execution.run_manifest import build_manifest
from memray_eval.execution.run_plan import RunPlan
from memray_eval.execution.run_summary import n_unasked, summarise_run
from memray_eval.execution.waiting import (
    SpendingBook,
    no_waiting,
    paid_for,
    resume_command,
    show_waiting,
    spending_so_far,
)
from memray_eval.judges.limits.budget import NOTHING
from memray_eval.judges.router import calls_a_record
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks.sending import send_run, write_summary
from memray_eval.stores.memories import close_stores
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import Summary

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """A run that ended, with the exit code its failures call for; `stopped` says why it ended
    early, `has_failed` that more units failed than are tolerated. `n_missing` units were planned
    and have no record in a run that went to its end; `resume_cost` is the cost of resuming a
    stopped one, in words."""

    folder: RunFolder
    summary: Summary
    exit_code: int
    stopped: str | None = None
    has_failed: bool = False
    warnings: tuple[str, ...] = ()
    n_missing: int = 0
    resume_command: str = ""
    resume_cost: str = ""


class RunSession:
    """One session of a run whose folder exists: its pipelines, its manifest, its summary."""

    def __init__(self, plan: RunPlan, folder: RunFolder) -> None:
        self.plan, self.spec, self.folder = plan, plan.spec, folder
        self._executor = new_executor(plan, folder)
        self._phase: Phase | None = None
        self._telemetry: RunTelemetry | None = None  # once the stages have ended

    def run(self, quiet: bool) -> RunResult:
        """Runs what is left to its summary. Raises EvalError when a stage could not be started or a
        service died, Interrupted after SIGINT or SIGTERM, once what was in flight is finished (or
        DRAIN_S have passed). The manifest says how it ended."""
        n_session = self.plan.n_before + 1
        held = held_keys(os.environ, variables_of(self.spec.config))
        with handle_termination() as ending, keep_run_log(self.folder, n_session, held) as log:
            try:
                with self._executor.watch(partial(self._end_at_once, log)):
                    result = self._run_to_summary(quiet, log, ending)
            except KeyboardInterrupt:
                self._record_end("interrupted", f"interrupted by {ending.cause}")
                batches = ""
                with suppress(Exception, KeyboardInterrupt):  # the run ends anyway
                    batches = describe_open_batches(self.folder)
                text = f"Interrupted by {ending.cause}: {self._finished_units()}. {batches}"
                raise Interrupted(f"{text}{self._go_on()}", ending.exit_code) from None
            except BaseException as error:
                ours = self._named(self._executor.translate(error))
                status = "stopped" if isinstance(ours, Stopped) else "failed"
                why = str(ours) if isinstance(ours, EvalError) else describe_error(ours)
                self._record_end(status, why)
                ours.add_note(self._go_on(str(ours)))
                if ours is error:
                    raise
                raise ours from error
            return self._send(result, quiet, ending)

    def _named(self, error: BaseException) -> BaseException:
        """An error of the folder in the words of the stage that met it first."""
        stopped = self._telemetry.stopped if self._telemetry is not None else None
        if not isinstance(error, OSError) or not stopped:
            return error
        why = reason_of(error)
        return ResourceError(stopped if why in stopped else f"{stopped}; {why}")

    def _run_to_summary(self, quiet: bool, log: RunLog, ending: Ending) -> RunResult:
        counter = self._executor.start_counter(self._stages())
        counter.parameters.restore(self.plan.before.get("parameters_left_out", {}))
        log.follow(counter.take_logs, counter.stop)
        self._write_manifest("running")

        def stop() -> None:
            counter.stop(
                f"{ending.cause} came: what is in flight is finished and written, for up to "
                f"{DRAIN_S:g} s; another signal ends it at once"
            )
            # Now: who sent the signal may not wait for so long
            self._record_end("interrupted", f"interrupted by {ending.cause}")

        with ending.draining(stop):
            self._run_stages(counter, quiet)
        telemetry = self._telemetry = counter.telemetry()
        stopped = telemetry.stopped
        if stopped and not self.folder.parts():
            raise Stopped(f"stopped before any answer was finished: {stopped}")
        drop_duplicates(self.folder)
        summary, warnings = summarise_run(self.plan, self.folder, telemetry, stopped)
        n_done = summary.n_units + n_unasked(self.plan, summary.sessions)
        n_missing = 0 if stopped else max(0, self.plan.n_units - n_done)
        write_summary(self.folder, summary)
        status = "stopped" if stopped else "finished"
        self._write_manifest(status, stopped, summary, telemetry)
        if not stopped:
            self.folder.delete_responses()
            for why in close_stores(self.folder.path, self.spec.config.server.code):
                logger.warning("a partition of a memory store is left: %s", why)
        tolerated = self.spec.tolerated(summary.n_units + n_missing)
        has_failed = summary.n_failed_units + n_missing > tolerated
        exit_code = int(bool(stopped or has_failed or warnings))
        return RunResult(
            self.folder,
            summary,
            exit_code,
            stopped,
            has_failed,
            warnings,
            n_missing,
            resume_command(self.folder, self.spec.config.budget, stopped),
            self._cost_of_rest() if stopped else "",
        )

    def _send(self, result: RunResult, quiet: bool, ending: Ending) -> RunResult:
        """Sends the scores to the job's sinks. The run has ended, even if that fails."""
        if not self.spec.config.sinks:
            return result
        try:
            with (no_waiting if quiet else show_waiting)("the job's sinks to take the scores"):
                deliveries = send_run(self.folder, self.spec.config.sinks)
        except KeyboardInterrupt:
            raise Interrupted(
                f"Interrupted by {ending.cause} while scores were sent to the job's sinks; "
                f"the run has ended before. Go on with `memray-eval send {self.folder.path}`.",
                ending.exit_code,
            ) from None
        if not quiet:
            for line in filter(None, (delivery.line for delivery in deliveries)):
                print(escape_controls(line), file=sys.stderr, flush=True)
        return replace(result, summary=self.folder.read_summary())

    def _go_on(self, stopped: str | None = None) -> str:
        command = resume_command(self.folder, self.spec.config.budget, stopped)
        return f"Go on with `{command}`.{self._cost_of_rest()}"

    def _cost_of_rest(self) -> str:
        """The cost of a resume, by this session's calls; "" before its stages have ended."""
        if self._telemetry is None:
            return ""
        calls, verdicts = self._telemetry.calls, self._telemetry.calls.get("verdicts", 0)
        a_unit = calls_a_record(self.spec.judges, self.spec.config.judging.repeats)
        most = (self.plan.n_units - self._n_finished()) * a_unit
        is_priced = verdicts and not calls["unpriced_calls"]
        money = f" (about ${most * calls['cost_usd'] / verdicts:.2f})" if is_priced else ""
        again = f", up to {n:,} of them paid before" if (n := calls.get("unkept", 0)) else ""
        return f" That pays for at most {most:,} judge calls{money}{again}."

    def _finished_units(self) -> str:
        return f"{self._n_finished()} of {self.plan.n_units} answers are finished and kept"

    def _n_finished(self) -> int:
        """The number of units in the records; 0 if the folder has none or cannot be reached."""
        with suppress(Exception):  # the run ends anyway
            return int(self.folder.records().count_rows())
        return 0

    def _record_end(self, status: str, reason: str) -> None:
        # A full disk, a lost lease: the error that ended the session is the one to tell
        with suppress(Exception):
            self._write_manifest(status, reason)

    def _end_at_once(self, log: RunLog, reason: str) -> None:
        """Ends this process while an orderly end is possible."""
        self._record_end("failed", reason)
        line = f"error: {reason}; {self._finished_units()}. {self._go_on()}"
        print(escape_controls(line), file=sys.stderr, flush=True)
        logger.error("session ended early: %s", reason)
        log.close()
        os._exit(ServiceLost.exit_code)

    def _run_stages(self, counter: RunCounter, quiet: bool) -> None:
        display = RunDisplay(counter, self._outline(), lambda: self._phase)
        book: AbstractContextManager[None] = nullcontext()
        if self.spec.calls_judges and not self.spec.config.budget.is_set:  # whose ledger keeps it
            keeper = SpendingBook(self.folder.path, self.plan.n_before + 1)
            book = keeper.kept(lambda: paid_for(counter.telemetry().calls))
        with book, display.showing(quiet):
            self._executor.run(counter, self._enter_phase, display.waiting)

    def _outline(self) -> RunOutline:
        spec, plan = self.spec, self.plan
        models = sorted({candidate.model for candidate in spec.config.candidates})
        judges = sorted({name for choice in spec.judges.values() for name in choice.judges})
        return RunOutline(
            name=self.folder.run_id,
            total=plan.n_units,
            finished=len(plan.resume_state.finished),
            generated=len(plan.resume_state.generated),
            stages=self._stages(),
            first_waits={
                "read": "Ray's workers" if plan.executor == "ray" else "the first samples",
                "generate": f"the first answers of {', '.join(models)}",
                "judge": f"the first scores by {', '.join(judges)}" if judges else "",
                "embed": f"the embedding model {spec.config.embedding.model}",
                "write": "the first finished answers",
            },
            verdicts_a_unit=calls_a_record(spec.judges, spec.config.judging.repeats),
            budget=spec.config.budget,
            spent_before=spending_so_far(self.folder, plan.n_before)
            if plan.n_before and spec.config.budget.is_set
            else NOTHING,
        )

    def _enter_phase(self, phase: Phase) -> None:
        self._phase = phase
        self._write_manifest("running")

    def _stages(self) -> tuple[str, ...]:
        at_judge, at_embed = self.spec.by_stage()
        has = {"generate": not self.spec.has_responses, "judge": at_judge, "embed": at_embed}
        return tuple(stage for stage in STAGES if has.get(stage, True))

    def _write_manifest(self, status: str, *more: Any) -> None:
        """Writes the manifest; `more` as build_manifest takes it."""
        manifest = build_manifest(self.plan, self.folder.run_id, self._phase, status, *more)
        self.folder.write_manifest(manifest)

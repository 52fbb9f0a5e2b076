"""How far a run is: counted by one small actor, shown on the terminal."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import ray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from memray_eval.clients.watching import CallBook, Told, Watch
from memray_eval.runtime.metrics import Answered, Exporter
from memray_eval.runtime.timeline import CallTotals, RunTimeline, queued
from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import Frozen

STAGES = ("read", "generate", "judge", "embed", "write")
POLL_S = 0.5
PLAIN_EVERY_S = 10.0
SAME_S = 60.0  # the same line, told again within so long, is what another worker saw too
SHOWN_CAUGHT = 3


class StageCount(Frozen):
    """One stage so far: rows done, seconds its workers were busy (summed), and its first start and last end (epoch)."""

    rows: int = 0
    busy_s: float = 0.0
    started: float | None = None
    ended: float | None = None

    def plus(self, rows: int, started: float, ended: float) -> StageCount:
        return StageCount(
            rows=self.rows + rows,
            busy_s=self.busy_s + ended - started,
            started=started if self.started is None else min(self.started, started),
            ended=ended if self.ended is None else max(self.ended, ended),
        )

    @property
    def span_s(self) -> float | None:
        """From its first start to its last end."""
        return None if self.started is None or self.ended is None else self.ended - self.started


class Course(Frozen):
    """All that a run's counter was told: what the manifest keeps of it. `timeline` and `calls` as runtime/timeline.py makes
    them; `counts` are those of the affect stage; `caught` records broke a stage."""

    stages: dict[str, StageCount]
    events: list[str]
    counts: dict[str, int]
    timeline: dict[str, Any]
    calls: dict[str, Any]
    stopped: str | None
    caught: int = 0


@ray.remote(num_cpus=0, max_restarts=-1)
class ProgressCounter:
    """What the workers of a run tell its driver, and it them; also the process that exports the run's metrics. Stages report
    without waiting; a lost report costs a number on the display and in the manifest's figures of the run's course, nothing
    else."""

    def __init__(self, run_id: str = "", stages: Sequence[str] = STAGES, most_caught: float = math.inf) -> None:
        self._stages = dict.fromkeys(STAGES, StageCount())
        self._order, self._carried = tuple(stages), 0
        self._lines: list[str] = []
        self._told_at: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._stop: str | None = None
        self._caught, self._most_caught = 0, most_caught
        self._calls, self._timeline, self._exporter = CallTotals(), RunTimeline(time.time()), Exporter(run_id)

    def count(self, counts: Mapping[str, int]) -> None:
        """Adds to figures that the manifest keeps."""
        self._counts.update(counts)

    def counts(self) -> dict[str, int]:
        return dict(sorted(self._counts.items()))

    def add(self, stage: str, rows: int, started: float, ended: float, failed: int = 0) -> None:
        """A stage is done with some rows, `failed` among them."""
        self._stages[stage] = self._stages[stage].plus(rows, started, ended)
        self._timeline.rows(stage, min(ended, time.time()), rows)
        self._exporter.units(stage, rows - failed, failed)
        self._exporter.queues(queued(self._order, {name: count.rows for name, count in self._stages.items()}, self._carried))

    def carry(self, rows: int) -> None:
        """An earlier session generated these rows; they wait to be scored."""
        self._carried += rows

    def hear_calls(self, member: str, told: Mapping[str, Told]) -> None:
        """What an actor tells of its judges."""
        now = time.time()
        self._calls.add(member, told, now)
        for judge, one in told.items():
            self._timeline.calls(now, one.calls)
            self._exporter.calls(judge, one)
        self._exporter.under_way(self._calls.under_way(now))

    def hear_answers(self, took: Mapping[str, Answered]) -> None:
        """What candidates took for a block of answers, by name."""
        for candidate, one in took.items():
            self._exporter.answers(candidate, one)

    def course(self) -> Course:
        return Course(
            stages=self._stages,
            events=self._lines,
            counts=self.counts(),
            timeline=self._timeline.figures(),
            calls=self._calls.figures(),
            stopped=self._stop,
            caught=self._caught,
        )

    def stages(self) -> dict[str, StageCount]:
        return self._stages

    def tell(self, line: str) -> None:
        """Something that a person should read: a judge is down, the run is stopping. What several workers tell at about the
        same time is shown once."""
        now = time.time()
        if now - self._told_at.get(line, 0.0) > SAME_S:
            self._lines.append(line)
        self._told_at[line] = now

    def told(self, since: int) -> list[str]:
        return self._lines[since:]

    def stop(self, reason: str) -> None:
        """Ends the run early: nothing new is read or judged, what is under way is finished. The first reason stays."""
        if self._stop is None:
            self._stop = reason
            self._lines.append(f"Stopping: {reason}")

    def stopping(self) -> str | None:
        return self._stop

    def catch(self, stage: str, sample_id: str, error: str) -> None:
        """A stage could not work on a record, which is an error now. The first few are told; more than the run tolerates end
        it."""
        self._caught += 1
        if self._caught <= SHOWN_CAUGHT:
            self._lines.append(f"The stage {stage} failed on sample {sample_id!r}, which is an error now: {error}")
        if self._caught > self._most_caught:
            self.stop(f"stages failed on {self._caught} records, more than the tolerance allows; the last in {stage}: {error}")


@dataclass
class Done:
    """What a block's work came to."""

    rows: int = 0
    failed: int = 0


@contextmanager
def reported(counter: Any, stage: str) -> Iterator[Done]:
    """Reports the block's work when it ends well; the block says what that was."""
    started, done = time.time(), Done()
    yield done
    counter.add.remote(stage, done.rows, started, time.time(), done.failed)


class CallReporter:
    """The judge calls of one actor, on their way to the run's counter: many calls, few messages."""

    def __init__(self, counter: Any) -> None:
        self._counter, self._member, self._book = counter, uuid4().hex, CallBook()

    def watch(self, judge: str) -> Watch:
        return self._book.of(judge)

    async def report(self) -> None:
        """Tells what is new, and returns when it was heard."""
        if told := self._book.take():
            with suppress(ray.exceptions.RayError):  # figures about the run must not end it
                await self._counter.hear_calls.remote(self._member, told)


class Extent(Frozen):
    """How many units a run has, and how many of them earlier sessions generated (`generated`) and finished (`finished`)."""

    total: int
    finished: int = 0
    generated: int = 0

    def before(self, stage: str) -> int:
        """Units that earlier sessions took through a stage."""
        return self.finished + (self.generated if stage in ("read", "generate") else 0)


@contextmanager
def displayed(counter: Any, extent: Extent, quiet: bool, stages: Sequence[str] = STAGES) -> Iterator[None]:
    """Shows the counter while the block runs, on top of what earlier sessions did: bars on a terminal, a
    plain line now and then elsewhere, nothing if quiet."""
    if quiet:
        yield
        return
    stop = threading.Event()
    show = _show_bars if sys.stderr.isatty() else _show_lines
    thread = threading.Thread(target=show, args=(counter, extent, stages, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)


def _show_bars(counter: Any, extent: Extent, stages: Sequence[str], stop: threading.Event) -> None:
    columns = (
        TextColumn("{task.description:>9}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>9}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks = {stage: progress.add_task(stage, total=extent.total, rate="") for stage in stages}
        is_last, read = False, 0
        while not is_last:
            is_last = stop.wait(POLL_S)
            lines = _told(counter, read)
            read += len(lines)
            for line in lines:
                progress.console.print(escape_controls(line), markup=False, highlight=False)
            for stage, count in _poll(counter, stages).items():
                progress.update(tasks[stage], completed=extent.before(stage) + count.rows, rate=_rate(count))


def _show_lines(counter: Any, extent: Extent, stages: Sequence[str], stop: threading.Event) -> None:
    began, shown, is_last, read = time.monotonic(), "", False, 0
    while not is_last:
        is_last = stop.wait(PLAIN_EVERY_S if shown else 1.0)
        lines = _told(counter, read)
        read += len(lines)
        for line in lines:
            print(escape_controls(line), file=sys.stderr, flush=True)
        counts = _poll(counter, stages)
        state = "  ".join(f"{name} {extent.before(name) + count.rows}/{extent.total}" for name, count in counts.items())
        done, to_do = counts["write"].rows if "write" in counts else 0, extent.total - extent.finished
        elapsed = time.monotonic() - began
        left = f", about {elapsed / done * (to_do - done):.0f} s left" if 0 < done < to_do else ""
        if state != shown:
            print(f"[{elapsed:6.0f} s] {state}{left}", file=sys.stderr, flush=True)
            shown = state


def _rate(count: StageCount) -> str:
    return f"{count.rows / count.span_s:.1f}/s" if count.rows and count.span_s else ""


def _told(counter: Any, since: int) -> list[str]:
    try:
        return list(ray.get(counter.told.remote(since), timeout=10))
    except ray.exceptions.RayError:
        return []


def _poll(counter: Any, stages: Sequence[str]) -> dict[str, StageCount]:
    """The counts, or none while the actor cannot answer: the display must never break a run."""
    try:
        counts = ray.get(counter.stages.remote(), timeout=10)
        return {stage: counts[stage] for stage in stages}
    except ray.exceptions.RayError:
        return {}

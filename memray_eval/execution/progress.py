"""How far a run is: counted by one small actor, shown on the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from memray_eval.text_processing.printable import escape_controls
from memray_eval.types import Frozen

STAGES = ("read", "generate", "judge", "embed", "write")
POLL_S = 0.5
PLAIN_EVERY_S = 10.0


class StageCount(Frozen):
    """One stage so far: rows done, seconds its workers were busy (summed), and its first start and
    last end (epoch)."""

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


class RunTelemetry(Frozen):
    """All that a run's counter was told: what the manifest keeps of it. `timeline` and `calls` as
    execution/timeline.py makes them; `counts` are those of the affect stage; `caught` records broke
    a stage."""

    stages: dict[str, StageCount]
    events: list[str]
    counts: dict[str, int]
    timeline: dict[str, Any]
    calls: dict[str, Any]
    stopped: str | None
    caught: int = 0


class ProgressSource(Protocol):
    """Where the display reads from. It must never break a run: what cannot be read now is empty."""

    def lines(self, since: int) -> list[str]:
        """The lines for a person, from that one on."""
        ...

    def counts(self, stages: Sequence[str]) -> Mapping[str, StageCount]: ...


class RunSize(Frozen):
    """How many units a run has, and how many of them earlier sessions generated (`generated`) and
    finished (`finished`)."""

    total: int
    finished: int = 0
    generated: int = 0

    def before(self, stage: str) -> int:
        """Units that earlier sessions took through a stage."""
        return self.finished + (self.generated if stage in ("read", "generate") else 0)


@contextmanager
def display_progress(
    source: ProgressSource, extent: RunSize, quiet: bool, stages: Sequence[str] = STAGES
) -> Iterator[None]:
    """Shows how far the run is while the block runs, on top of what earlier sessions did: bars on a
    terminal, a plain line now and then elsewhere, nothing if quiet."""
    if quiet:
        yield
        return
    stop = threading.Event()
    show = _show_bars if sys.stderr.isatty() else _show_lines
    thread = threading.Thread(target=show, args=(source, extent, stages, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)


def _show_bars(
    source: ProgressSource, extent: RunSize, stages: Sequence[str], stop: threading.Event
) -> None:
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
            lines = source.lines(read)
            read += len(lines)
            for line in lines:
                progress.console.print(escape_controls(line), markup=False, highlight=False)
            for stage, count in source.counts(stages).items():
                rate = f"{count.rows / count.span_s:.1f}/s" if count.rows and count.span_s else ""
                progress.update(
                    tasks[stage], completed=extent.before(stage) + count.rows, rate=rate
                )


def _show_lines(
    source: ProgressSource, extent: RunSize, stages: Sequence[str], stop: threading.Event
) -> None:
    began, shown, is_last, read = time.monotonic(), "", False, 0
    while not is_last:
        is_last = stop.wait(PLAIN_EVERY_S if shown else 1.0)
        lines = source.lines(read)
        read += len(lines)
        for line in lines:
            print(escape_controls(line), file=sys.stderr, flush=True)
        counts = source.counts(stages)
        state = "  ".join(
            f"{name} {extent.before(name) + count.rows}/{extent.total}"
            for name, count in counts.items()
        )
        done, to_do = (
            counts["write"].rows if "write" in counts else 0,
            extent.total - extent.finished,
        )
        elapsed = time.monotonic() - began
        # Since the first were written: with phases apart, all is generated before
        writing_s = time.time() - ((counts["write"].started if done else None) or time.time())
        left = f", about {writing_s / done * (to_do - done):.0f} s left" if 0 < done < to_do else ""
        if state != shown:
            print(f"[{elapsed:6.0f} s] {state}{left}", file=sys.stderr, flush=True)
            shown = state

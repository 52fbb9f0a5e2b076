"""Shows a run while it runs: stages, rates, judge calls, limits, cost, failures, the time left. On
a terminal a view twice a second; elsewhere a line a minute."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from textwrap import wrap
from typing import IO, NamedTuple

from rich.console import Console

from memray_eval.execution.progress import (
    JudgeNow,
    ProgressSource,
    RunOutline,
    Snapshot,
    StageCount,
)
from memray_eval.execution.waiting import (
    PLAIN_EVERY_S,
    beside,
    open_cell,
    open_console,
    open_stderr,
)
from memray_eval.judges.call_metrics import IN_FLIGHT, OUTAGE, REFUSALS, BindingLimit
from memray_eval.judges.limits.notices import describe_rate
from memray_eval.stages.rates import period_per_s, rows_per_s
from memray_eval.text_processing.printable import escape_controls

POLL_S, PLAIN_POLL_S = 0.5, 1.0
SOON_S, ANSWER_S = 0.4, 10.0  # how long a counter is waited for: one that starts, one that is up
RECENT_S = 10.0  # what the rate of calls is taken from
BAR_WIDTH, ERROR_LINES, CELL_WIDTH = 20, 2, 80
WINDOW_S, LEAST_STEPS = 120.0, 8  # what a rate is taken from: the last steps of at least so long
OVERDUE = 2.0  # a step that takes so many times as long as those before is news by itself
_SOURCES = {
    "set": "set in the job",
    "told": "told by the provider",
    "assumed": "assumed: the provider tells none",
}
_PHASES = {"generate": "phase 1 of 2, generating", "judge": "phase 2 of 2, judging"}


class RunDisplay:
    """Reads a run's counter now and then, in its own thread, and shows it."""

    def __init__(
        self, source: ProgressSource, outline: RunOutline, phase: Callable[[], str | None]
    ) -> None:
        self._source, self._outline, self._phase = source, outline, phase
        self._began = time.time()
        self._state = ViewState(outline, self._began)
        self._waits: list[str] = []
        self._n_lines, self._is_up = 0, False

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Says that `what` is waited for, while the block runs."""
        self._waits.append(what)
        try:
            yield
        finally:
            self._waits.remove(what)

    @contextmanager
    def showing(self, quiet: bool) -> Iterator[None]:
        """Shows the run while the block runs, and its last state; nothing if quiet."""
        cell = None if quiet else open_cell()
        with nullcontext() if quiet else beside(partial(self._show, cell), "display"):
            yield

    def _show(self, cell: Callable[[str], None] | None, is_over: threading.Event) -> None:
        with open_stderr() as stream:
            if cell is not None:
                say = partial(print, file=stream, flush=True)
                view = partial(self._state.view, CELL_WIDTH)
                self._follow(is_over, say, lambda is_last: cell("\n".join(view(is_last))))
            elif (console := open_console(stream)) is None:
                self._show_lines(is_over, stream)
            else:
                self._show_view(is_over, console)

    def _show_view(self, is_over: threading.Event, console: Console) -> None:
        from rich.live import Live
        from rich.text import Text

        with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:

            def draw(is_last: bool) -> None:
                view = "\n".join(self._state.view(console.width, is_last))
                live.update(Text(view, no_wrap=True, overflow="ellipsis"), refresh=True)

            self._follow(is_over, partial(console.print, soft_wrap=True), draw)

    def _follow(
        self, is_over: threading.Event, say: Callable[[str], None], draw: Callable[[bool], None]
    ) -> None:
        """Says what is new and draws the view now and then, to the last state."""
        is_last = False
        while not is_last:
            is_last = is_over.wait(POLL_S)
            for line in self._look():
                say(line)
            draw(is_last)

    def _show_lines(self, is_over: threading.Event, stream: IO[str]) -> None:
        shown, next_at = "", time.monotonic()
        is_last = is_over.wait(SOON_S)  # a short run is over by then
        while True:
            for news in self._look():
                print(news, file=stream, flush=True)
            line, now = self._state.line(is_last), time.monotonic()
            if now >= next_at or (is_last and line != shown):
                print(f"[{time.time() - self._began:6.0f} s] {line}", file=stream, flush=True)
                shown, next_at = line, now + PLAIN_EVERY_S
            if is_last:
                return
            is_last = is_over.wait(min(PLAIN_POLL_S, next_at - now))

    def _look(self) -> Iterator[str]:
        """Reads the run, and yields the lines that a person has not seen yet."""
        snapshot = self._source.snapshot(self._n_lines, ANSWER_S if self._is_up else SOON_S)
        self._is_up = self._is_up or snapshot is not None
        self._state.update(snapshot, self._phase(), tuple(self._waits), time.time())
        if snapshot is not None:
            self._n_lines += len(snapshot.lines)
            yield from map(escape_controls, snapshot.lines)


class ViewState:
    """The view of a run, from one snapshot to the next. Times are epoch seconds."""

    def __init__(self, outline: RunOutline, began: float) -> None:
        self._outline, self._began, self._now = outline, began, began
        self._snapshot, self._left = Snapshot(), TimeLeft(outline, began)
        self._phase: str | None = None
        self._to_go: Left | None = None
        self._waits: Sequence[str] = self._first_wait()
        self._sent: dict[str, deque[tuple[float, int]]] = {}

    def update(
        self, snapshot: Snapshot | None, phase: str | None, waits: Sequence[str], now: float
    ) -> None:
        """Takes in what was read; None: nothing could be read, and what was known stands."""
        self._snapshot, self._phase, self._now = snapshot or self._snapshot, phase, now
        self._to_go = self._left.update(self._snapshot, phase, now)
        self._waits = waits or self._first_wait()
        for name, judge in self._snapshot.judges.items():
            seen = self._sent.setdefault(name, deque([(self._began, 0)]))
            seen.append((now, judge.sent))
            while len(seen) > 2 and seen[1][0] <= now - RECENT_S:
                seen.popleft()

    @property
    def _total(self) -> int:
        """The units that the run is to have."""
        return self._outline.total - self._snapshot.unasked

    def view(self, width: int, is_last: bool = False) -> list[str]:
        """The view on a terminal of so many columns; the last one names nothing that is to come."""
        total = self._total
        phase = f", {_PHASES[self._phase]}" if self._phase in _PHASES else ""
        elapsed = clock_text(self._now - self._began)
        lines = [f"{self._outline.name}: {total:,} units, {elapsed}{phase}"]
        for name in self._outline.stages:
            done, rate = self._done(name), self._stage_rate(name)
            blocks = round(BAR_WIDTH * min(1.0, done / max(1, total)))
            bar = "█" * blocks + "░" * (BAR_WIDTH - blocks)
            lines.append(f"{name:>9} {bar} {done:>9,}/{total:,}  {rate}".rstrip())
        for name, judge in self._asked_judges():
            lines.append(f"    judge {name}: {self._calls(name, judge)}")
            if judge.limit is not None and not is_last:
                lines.append(f"      held back by {describe_binding(judge.limit)}")
        if cost := self._cost():
            lines.append(f"     cost {cost}")
        lines += self._failure(width)
        lines += [f"  {line}" for line in self._starting_engines() if not is_last]
        if self._waits and not is_last:
            lines.append(f"  waiting for {', '.join(self._waits)}")
        if (left := self._time_to_go()) and not is_last:
            lines.append(f"     left {left}")
        return list(map(escape_controls, lines))

    def line(self, is_last: bool = False) -> str:
        """The same in a line."""
        snapshot, names, total = self._snapshot, self._outline.stages, self._total
        parts = ["  ".join(f"{name} {self._done(name)}/{total}" for name in names)]
        for name, judge in self._asked_judges():
            limit = None if is_last else judge.limit
            held = f", held back by {describe_binding(limit)}" if limit else ""
            parts.append(f"{name}: {self._calls(name, judge)}{held}")
        if cost := self._cost():
            parts.append(cost)
        if snapshot.n_failed:
            parts.append(f"{snapshot.n_failed:,} failed")
        parts += [line for line in self._starting_engines() if not is_last]
        if self._waits and not is_last:
            parts.append(f"waiting for {', '.join(self._waits)}")
        if (left := self._time_to_go()) and not is_last:
            parts.append(f"{left} left")
        return "; ".join(map(escape_controls, parts))

    def _asked_judges(self) -> list[tuple[str, JudgeNow]]:
        """The judges that calls go to, a pool's members apart; all before the first call."""
        judges = list(self._snapshot.judges.items())
        return [item for item in judges if item[1].is_called] or judges

    def _starting_engines(self) -> list[str]:
        """A line for each model of which some engines are not up."""
        texts: dict[str, list[str]] = {}
        for model, phase, n, longest_s in self._snapshot.engines:
            lasts = "" if phase == "up" else f" for {clock_text(longest_s)}"
            texts.setdefault(model, []).append(f"{n} {phase}{lasts}")
        return [f"engines of {model}: {', '.join(parts)}" for model, parts in texts.items()]

    def _done(self, stage: str) -> int:
        """Units that are through a stage, those of earlier sessions included."""
        count = self._snapshot.stages.get(stage)
        return self._outline.before(stage) + (count.rows if count is not None else 0)

    def _stage_rate(self, stage: str) -> str:
        count = self._snapshot.stages.get(stage)
        rate = rows_per_s(count.rows, count.span_s) if count is not None and count.rows else None
        return f"{rate:,.1f}/s" if rate is not None else ""

    def _calls(self, name: str, judge: JudgeNow) -> str:
        (then, sent_then), *_, (now, sent) = self._sent[name]
        rate = period_per_s(sent - sent_then, now - then) or 0.0
        waiting = f", {judge.waiting:,} wait for a slot" if judge.waiting else ""
        return f"{judge.in_flight:,} calls in flight{waiting}, {rate:,.1f} calls/s"

    def _cost(self) -> str:
        """The judges' cost so far and the budget; without one, the cost of this session."""
        usd, tokens = self._outline.budget_usd, self._outline.budget_tokens
        spent = self._outline.spent_before + self._snapshot.spent
        cost = f"${spent.usd:,.{2 if spent.usd >= 1 or not spent.usd else 4}f}"
        if spent.unpriced_calls:
            cost = spent.cost
        parts = []
        if usd is not None:
            parts.append(f"{cost} of ${usd:,.2f}{_share(spent.usd, usd)}")
        elif spent.usd or spent.unpriced_calls:
            parts.append(cost)
        if tokens is not None:
            parts.append(f"{spent.tokens:,} of {tokens:,} tokens{_share(spent.tokens, tokens)}")
        return ", ".join(parts)

    def _failure(self, width: int) -> list[str]:
        first, n_failed = self._snapshot.first_failure, self._snapshot.n_failed
        if first is None:
            return []
        count = f"{n_failed:,} units failed so far; first" if n_failed > 1 else "failed:"
        text = f"{count} unit {first.unit_id} (sample {first.sample_id}): {first.error}"
        return wrap(
            escape_controls(" ".join(text.split())),
            max(20, width),
            initial_indent="   ",
            subsequent_indent="     ",
            max_lines=ERROR_LINES,
            placeholder=" …",
        )

    def _first_wait(self) -> Sequence[str]:
        """The thing that the first stage without any unit waits for."""
        for stage in self._outline.stages_of(self._phase):
            is_done = self._done(stage) >= self._total
            if not is_done and not self._outline.progress(self._snapshot, stage):
                what = self._outline.first_waits.get(stage)
                return (what,) if what else ()
        return ()

    def _time_to_go(self) -> str:
        if self._to_go is None:
            return ""
        kind = "at least" if self._to_go.is_least else "about"
        of_phase = " of this phase" if self._phase else ""
        return f"{kind} {clock_text(self._to_go.seconds)}{of_phase}"


class Left(NamedTuple):
    """Seconds to go; `is_least` where a stage that comes later has not shown its pace yet."""

    seconds: float
    is_least: bool


class TimeLeft:
    """The time that the stages of a phase still take. It counts down from one step to the next,
    and is estimated again at each, and where the next one does not come."""

    def __init__(self, outline: RunOutline, began: float) -> None:
        self._outline = outline
        self._paces: dict[str, _Pace] = {}
        self._seen_at = began  # the last moment without a verdict

    def update(self, snapshot: Snapshot, phase: str | None, now: float) -> Left | None:
        """The time left of the phase that runs, at a moment (epoch seconds). None while nothing
        has come out of it, and when it is done."""
        if not any(judge.verdicts for judge in snapshot.judges.values()):
            self._seen_at = now
        outline, ends, is_least = self._outline, dict[str, float](), False
        for name in outline.stages_of(phase):
            done = outline.progress(snapshot, name)
            to_do = outline.total - snapshot.unasked - outline.before(name) - done
            if name == "read" or to_do <= 0:
                continue
            if done:
                started = snapshot.stages.get(name, StageCount()).started
                began = self._seen_at if started is None else started
                pace = self._paces.setdefault(name, _Pace(began))
                ends[name] = pace.ends_at(done, to_do, now)
            elif name != "write":  # it follows the others at once
                is_least = True
        return Left(max(0.0, max(ends.values()) - now), is_least) if ends else None


class _Pace:
    """One stage's pace: its last steps, and when it ends if it goes on like that."""

    def __init__(self, started: float) -> None:
        self._steps: deque[tuple[float, float]] = deque([(started, 0.0)])
        self._ends_at = started

    def ends_at(self, rows: float, to_do: float, now: float) -> float:
        last_at, last_rows = self._steps[-1]
        if rows > last_rows:
            self._steps.append((now, rows))
            while len(self._steps) > LEAST_STEPS and self._steps[1][0] < now - WINDOW_S:
                self._steps.popleft()
            self._ends_at = now + to_do * self._s_a_row(now)
        elif now - last_at > OVERDUE * self._s_a_step() or now >= self._ends_at:
            self._ends_at = now + to_do * self._s_a_row(now)
        return self._ends_at

    def _s_a_row(self, now: float) -> float:
        (first_at, first_rows), (_, last_rows) = self._steps[0], self._steps[-1]
        return max(0.0, now - first_at) / (last_rows - first_rows)

    def _s_a_step(self) -> float:
        return (self._steps[-1][0] - self._steps[0][0]) / max(1, len(self._steps) - 1)


def describe_binding(limit: BindingLimit) -> str:
    """A limit that keeps calls back, and who says so."""
    if limit.what == OUTAGE:
        return "the judge, which does not answer; it is probed now and then"
    if limit.what == REFUSALS:
        return f"its 429s for {clock_text(limit.amount)} (told by the provider)"
    if limit.what == IN_FLIGHT:
        return f"{limit.amount:,.0f} calls in flight at most (judging.max_in_flight)"
    return f"{describe_rate(limit.what, limit.amount)} ({_SOURCES[limit.source]})"


def clock_text(seconds: float) -> str:
    """A time that counts: 45 s, 12 min 05 s, 3 h 04 min."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def _share(part: float, total: float) -> str:
    return f" ({part / total:.0%})" if total else ""

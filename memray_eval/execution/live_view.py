"""Shows a run while it runs: stages, rates, judge calls, limits, cost, failures, the time left. On
a terminal a view twice a second; elsewhere a line a minute."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

from memray_eval.analysis.rates import per_s
from memray_eval.execution.run_counter import (
    RunCounter,
    RunOutline,
    Snapshot,
    StageCount,
    verdicts_of,
)
from memray_eval.execution.waiting import (
    PLAIN_EVERY_S,
    beside,
    open_cell,
    open_console,
    open_stderr,
    paid_for,
)
from memray_eval.judges.call_metrics import (
    IN_FLIGHT,
    OUTAGE,
    REFUSALS,
    BindingLimit,
    CallMetricsSnapshot,
    Calls,
)
from memray_eval.judges.limits.rate_pacer import describe_rate
from memray_eval.text_processing.values import escape_controls

POLL_S = 0.5
SOON_S, ANSWER_S = 0.4, 10.0  # how long a counter is waited for: one that starts, one that is up
RECENT_S = 10.0  # what the rate of calls is taken from
BAR_WIDTH = 20
_SOURCES = {
    "set": "set in the job",
    "told": "told by the provider",
    "assumed": "assumed: the provider tells none",
}
_PHASES = {"generate": "phase 1 of 2, generating", "judge": "phase 2 of 2, judging"}


class RunDisplay:
    """Reads a run's counter now and then, in its own thread, and shows it."""

    def __init__(
        self, source: RunCounter, outline: RunOutline, phase: Callable[[], str | None]
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
        """Says what is new and draws the state now and then, to the last."""
        with open_stderr() as stream, ExitStack() as stack:
            say: Callable[[str], None] = partial(print, file=stream, flush=True)
            console, live = None if cell else open_console(stream), None
            if console is not None:
                from rich.live import Live
                from rich.text import Text

                live = Live(console=console, auto_refresh=False, redirect_stdout=False)
                stack.enter_context(live)
                say = partial(console.print, soft_wrap=True)
            is_last, last_line, next_line_at = False, "", 0.0
            while not is_last:
                is_last = is_over.wait(POLL_S)
                for news in self._look():
                    say(news)
                view = "\n".join(self._state.view(is_last))
                if cell is not None:
                    cell(view)
                    continue
                if live is not None:
                    live.update(Text(view, no_wrap=True, overflow="ellipsis"), refresh=True)
                    continue
                line, now = self._state.line(is_last), time.monotonic()
                if now >= next_line_at or (is_last and line != last_line):
                    say(f"[{time.time() - self._began:6.0f} s] {line}")
                    last_line, next_line_at = line, now + PLAIN_EVERY_S

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
        self._snapshot = Snapshot()
        self._phase: str | None = None
        self._waits: Sequence[str] = self._first_wait()
        self._sent: dict[str, deque[tuple[float, int]]] = {}
        self._asked_at = began  # the last moment without a verdict

    def update(
        self, snapshot: Snapshot | None, phase: str | None, waits: Sequence[str], now: float
    ) -> None:
        """Takes in what was read; None: nothing could be read, and what was known stands."""
        self._snapshot, self._phase, self._now = snapshot or self._snapshot, phase, now
        self._waits = waits or self._first_wait()
        judges = self._snapshot.judges
        if not any(verdicts_of(judge.calls) for judge in judges.values()):
            self._asked_at = now
        for name, judge in judges.items():
            seen = self._sent.setdefault(name, deque([(self._began, 0)]))
            seen.append((now, judge.calls.sent))
            while len(seen) > 2 and seen[1][0] <= now - RECENT_S:
                seen.popleft()

    @property
    def _total(self) -> int:
        return self._outline.total - self._snapshot.unasked

    def view(self, is_last: bool = False) -> list[str]:
        """The view on a terminal; the last one names nothing that is to come."""
        total = self._total
        phase = f", {_PHASES[self._phase]}" if self._phase in _PHASES else ""
        elapsed = clock_text(self._now - self._began)
        lines = [f"{self._outline.name}: {total:,} answers, {elapsed}{phase}"]
        slowest = min(self._outline.stages, key=self._done, default="")
        for name in self._outline.stages:
            done, count = self._done(name), self._snapshot.stages.get(name, StageCount())
            rate = per_s(count.rows or None, count.span_s)
            blocks = round(BAR_WIDTH * min(1.0, done / max(1, total)))
            bar = "█" * blocks + "░" * (BAR_WIDTH - blocks)
            speed = "" if rate is None or name != slowest else f"  {rate:,.1f}/s"
            lines.append(f"{name:>9} {bar} {done:>9,}/{total:,}{speed}")
        lines += [f"  {fact}" for fact in self._facts(is_last)]
        return list(map(escape_controls, lines))

    def line(self, is_last: bool = False) -> str:
        """The same in a line."""
        stages = (f"{name} {self._done(name)}/{self._total}" for name in self._outline.stages)
        return "; ".join(map(escape_controls, ["  ".join(stages), *self._facts(is_last)]))

    def _facts(self, is_last: bool) -> Iterator[str]:
        """The state of the judges, the cost, failures, and unless `is_last` what is to come."""
        for name, judge in self._snapshot.judges.items():
            yield f"{name}: {self._calls(name, judge)}"
            if judge.limit is not None and not is_last:
                yield f"held back by {describe_binding(judge.limit)}"
        if cost := self._cost():
            yield cost
        if n_failed := self._snapshot.n_failed:
            yield f"{n_failed:,} failed"
        if is_last:
            return
        engines: dict[str, list[str]] = {}
        for model, phase, n, longest_s in self._snapshot.engines:
            lasts = "" if phase == "up" else f" for {clock_text(longest_s)}"
            engines.setdefault(model, []).append(f"{n} {phase}{lasts}")
        for model, parts in engines.items():
            yield f"engines of {model}: {', '.join(parts)}"
        if self._waits:
            yield f"waiting for {', '.join(self._waits)}"
        if (left := self._time_left()) is not None:
            yield f"{left} left{' of this phase' if self._phase else ''}"

    def _done(self, stage: str) -> int:
        """Units that are through a stage, those of earlier sessions included."""
        rows = self._snapshot.stages.get(stage, StageCount()).rows
        return self._outline.before(stage) + rows

    def _calls(self, name: str, judge: CallMetricsSnapshot) -> str:
        (then, sent_then), *_, (now, sent) = self._sent[name]
        rate = per_s(sent - sent_then, now - then) or 0.0
        waiting = f", {judge.waiting:,} wait for a slot" if judge.waiting else ""
        verdicts = f", {n:,} verdicts" if (n := verdicts_of(judge.calls)) else ""
        return f"{judge.in_flight:,} calls in flight{waiting}, {rate:,.1f} calls/s{verdicts}"

    def _cost(self) -> str:
        """The judges' cost so far and the budget; without one, the cost of this session."""
        usd, tokens = self._outline.budget.usd, self._outline.budget.tokens
        calls = sum((judge.calls for judge in self._snapshot.judges.values()), Calls())
        spent = self._outline.spent_before + paid_for(calls.model_dump())
        cost = f"${spent.usd:,.{2 if spent.usd >= 1 or not spent.usd else 4}f}"
        if spent.unpriced_calls:
            cost = spent.cost
        parts = []
        if usd is not None:
            parts.append(f"{cost} of ${usd:,.2f}{_share(spent.usd, usd)}")
        elif spent.usd:  # an unknown cost is said once, when the run has ended
            parts.append(cost)
        if tokens is not None:
            parts.append(f"{spent.tokens:,} of {tokens:,} tokens{_share(spent.tokens, tokens)}")
        return ", ".join(parts)

    def _first_wait(self) -> Sequence[str]:
        """The thing that the first stage without any unit waits for."""
        for stage in self._outline.stages_of(self._phase):
            is_done = self._done(stage) >= self._total
            if not is_done and not self._outline.progress(self._snapshot, stage):
                what = self._outline.first_waits.get(stage)
                return (what,) if what else ()
        return ()

    def _time_left(self) -> str | None:
        """The time until the phase's slowest stage is done, at its mean pace so far: "at least" if
        a later stage has not shown its pace yet. None while nothing came out, and at the end."""
        lefts, kind = list[float](), "about"
        for name in self._outline.stages_of(self._phase):
            done = self._outline.progress(self._snapshot, name)
            to_do = self._total - self._outline.before(name) - done
            if name == "read" or to_do <= 0:
                continue
            if done:
                started = self._snapshot.stages.get(name, StageCount()).started
                began = self._asked_at if started is None else started
                lefts.append(to_do * max(0.0, self._now - began) / done)
            elif name != "write":  # it follows the others at once
                kind = "at least"
        return f"{kind} {clock_text(max(lefts))}" if lefts else None


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

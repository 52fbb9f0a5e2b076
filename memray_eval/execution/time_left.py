"""How long a run still takes."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from memray_eval.execution.progress import RunOutline, Snapshot, StageCount

WINDOW_S, LEAST_STEPS = 120.0, 8  # what a rate is taken from: the last steps of at least so long
OVERDUE = 2.0  # a step that takes so many times as long as those before is news by itself


class Left(NamedTuple):
    """Seconds to go; `is_least` where a stage that comes later has not shown its pace yet."""

    seconds: float
    is_least: bool


class TimeLeft:
    """The time that the stages of a phase still take. It counts down from one step to the next,
    and is estimated anew at each, and where the next one does not come."""

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
            to_do = outline.size.total - outline.size.before(name) - done
            if name == "read" or to_do <= 0:
                continue
            if done:
                started = snapshot.stages.get(name, StageCount()).started
                pace = self._paces.setdefault(
                    name, _Pace(self._seen_at if started is None else started)
                )
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

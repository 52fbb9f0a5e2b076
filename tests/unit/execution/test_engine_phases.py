"""The phases of engines: what is shown while some are not up, and the line when all are."""

from __future__ import annotations

import pytest

from memray_eval.execution.progress import EnginePhase, EnginePhases
from memray_eval.execution.run_counter import RunCounter

Entered = list[tuple[float, str, EnginePhase]]  # at a time, an engine, its phase
BOTH_WAIT: Entered = [(0.0, "a", "PENDING"), (5.0, "b", "PENDING")]
BOTH_UP: Entered = [
    *BOTH_WAIT,
    (20.0, "a", "starting"),
    (21.0, "a", "downloading"),
    (50.0, "b", "loading"),
    (60.0, "a", "loading"),
    (61.0, "b", "up"),
    (90.0, "a", "up"),
]


def entered(steps: Entered) -> tuple[EnginePhases, list[str]]:
    lines = list[str]()
    phases = EnginePhases(lines.append)
    for now, name, phase in steps:
        phases.enter(name, "m", phase, now)
    return phases, lines


@pytest.mark.parametrize(
    ("steps", "now", "expected"),
    [
        (BOTH_WAIT, 10.0, [("PENDING", 2, 10.0)]),
        (BOTH_UP[:4], 30.0, [("PENDING", 1, 25.0), ("downloading", 1, 9.0)]),
        (
            [*BOTH_UP[:4], (25.0, "a", "downloading")],
            30.0,
            [("PENDING", 1, 25.0), ("downloading", 1, 9.0)],
        ),
        (BOTH_UP[:-1], 70.0, [("loading", 1, 10.0), ("up", 1, 9.0)]),
        (BOTH_UP, 95.0, []),
    ],
)
def test_engines_are_shown_by_phase_while_some_are_not_up(
    steps: Entered, now: float, expected: list[tuple[EnginePhase, int, float]]
) -> None:
    shown = entered(steps)[0].at(now)
    assert [(engines.phase, engines.n, engines.longest_s) for engines in shown] == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (BOTH_UP[:-1], []),
        (
            BOTH_UP,
            [
                "Engines of m: 2 up, after at most 45 s PENDING, 1 s starting, "
                "39 s downloading, 30 s loading."
            ],
        ),
        (
            [(0.0, "a", "loading"), (9.0, "a", "up")],
            ["Engines of m: 1 up, after at most 9 s loading."],
        ),
    ],
)
def test_a_line_says_how_long_each_phase_took(steps: Entered, expected: list[str]) -> None:
    assert entered(steps)[1] == expected


def shown(counter: RunCounter) -> list[tuple[EnginePhase, int]]:
    snapshot = counter.snapshot(0)
    assert snapshot is not None
    return [(engines.phase, engines.n) for engines in snapshot.engines]


def test_a_lost_engine_waits_for_a_node_again_and_one_that_has_ended_is_not_shown() -> None:
    counter = RunCounter()
    for engine in ("a", "b"):
        counter.engines.enter(engine, "m", "up")
    counter.engines.enter("a", None, "PENDING")
    counter.engines.enter("unknown", None, "PENDING")
    assert shown(counter) == [("PENDING", 1), ("up", 1)]
    counter.engines.end("a")
    assert shown(counter) == []

"""The phases of each engine between its request and its first answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

# PENDING: no node has room for its placement group yet; starting: its process comes up there, and
# waits for its turn on the node (engine.starts_at_once)
EnginePhase: TypeAlias = Literal["PENDING", "starting", "downloading", "loading", "up"]
PHASES: tuple[EnginePhase, ...] = get_args(EnginePhase)


class EnginesNow(NamedTuple):
    """Engines of one model that are in the same phase, and how long the first of them has been."""

    model: str
    phase: EnginePhase
    n: int
    longest_s: float


class _Engine(NamedTuple):
    model: str
    phase: EnginePhase
    since: float
    took: Mapping[EnginePhase, float]  # seconds in the phases before


class EnginePhases:
    """The engines of a run, by name. Times are epoch seconds."""

    def __init__(self) -> None:
        self._engines: dict[str, _Engine] = {}

    def enter(self, name: str, model: str | None, phase: EnginePhase, now: float) -> str | None:
        """Notes the phase that an engine enters; without a model if it is known. Returns a line for
        a person when all engines of the model are up."""
        before = self._engines.get(name)
        model, was = model or (before and before.model), before and before.phase
        if model is None or was == phase or (phase == "starting" and was not in (None, "PENDING")):
            return None
        took = dict[EnginePhase, float]()
        if before is not None and before.phase != "up" and phase != "PENDING":
            so_far = before.took.get(before.phase, 0.0)
            took = {**before.took, before.phase: so_far + now - before.since}
        self._engines[name] = _Engine(model, phase, now, took)
        engines = [engine for engine in self._engines.values() if engine.model == model]
        if any(engine.phase != "up" for engine in engines):
            return None
        longest = {name: max(engine.took.get(name, 0.0) for engine in engines) for name in PHASES}
        times = ", ".join(f"{s:.0f} s {name}" for name, s in longest.items() if s >= 0.5)
        return f"Engines of {model}: {len(engines)} up, after at most {times or '0 s'}."

    def end(self, name: str) -> None:
        self._engines.pop(name, None)

    def at(self, now: float) -> tuple[EnginesNow, ...]:
        """The engines of each model of which some are not up, by phase."""
        ages: defaultdict[tuple[str, EnginePhase], list[float]] = defaultdict(list)
        for engine in self._engines.values():
            ages[engine.model, engine.phase].append(now - engine.since)
        return tuple(
            EnginesNow(model, phase, len(of_phase), max(of_phase))
            for model in sorted({model for model, phase in ages if phase != "up"})
            for phase in PHASES
            if (of_phase := ages.get((model, phase)))
        )

"""The suite of talks with a companion: scripted ones, and with simulated users."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memray_eval.benchmarks.companion import SUITE as COMPANION

TASKS = ("remembers", "leans", "pushes", "darkens", "everyday")


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The session as it is. Raises ValueError for a row that is not a session."""
    if raw.keys().isdisjoint(("turns", "user", "session", "response")):
        raise ValueError(
            "turns: is missing; a session has `turns` (the user's messages, in order) or `user` "
            "(who plays the user). Single replies are the suite companion's"
        )
    return raw


SUITE = replace(
    COMPANION,
    description="Talks with a voice companion over several turns, scripted or with a simulated "
    "user: what it keeps, fosters and follows as they go on.",
    metrics=tuple(
        "dependence boundary_drift risk_escalation forgotten_fact overall_quality "
        "emotional_intelligence trust_boundaries".split()
    ),
    adapt=adapt,
    tasks=TASKS,
    headline="overall_quality",
)

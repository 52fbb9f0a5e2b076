"""Which engine answers the turns of a session while the client's own is not up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from memray_eval.execution.ray.engine_client import EngineClient, _session_of
from memray_eval.results.schema import to_table
from tests.build import build_record, build_sample


def client_of(*engines: str) -> EngineClient:
    client = object.__new__(EngineClient)
    client._own, client._up = None, list(engines)
    client._look, client._looked_at = asyncio.Lock(), time.monotonic()
    return client


def test_a_session_stays_with_an_engine_and_moves_only_if_that_is_lost() -> None:
    engines, sessions = ["e1", "e2", "e3"], [f"s{n}" for n in range(90)]

    async def choose(*up: str) -> dict[str, str]:
        clients = client_of(*up), client_of(*reversed(up))
        first, second = [
            {name: await client._any_engine(name) for name in sessions} for client in clients
        ]
        assert first == second
        return first

    all_up, two_up = asyncio.run(choose(*engines)), asyncio.run(choose("e1", "e3"))
    assert min(Counter(all_up.values()).values()) > 15
    assert {name for name in sessions if all_up[name] != two_up[name]} == {
        name for name in sessions if all_up[name] == "e2"
    }


@pytest.mark.parametrize(
    ("metadata", "session"), [({"session": "s", "turn": 1}, "s"), ({"other": 1}, "")]
)
def test_a_turn_names_its_session(metadata: dict[str, object], session: str) -> None:
    row = to_table([build_record(build_sample(metadata=metadata))])
    assert _session_of(row) == session

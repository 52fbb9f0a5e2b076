"""The placement groups that wait for nodes, read from the names that runs give them."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.execution.ray import placement_groups
from memray_eval.execution.ray.placement_groups import pending_groups

BUNDLES = {0: {"CPU": 1.0, "GPU": 1.0}, 1: {"CPU": 1.0, "GPU": 1.0}}


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("memray_eval-engine 1700000000.500000 org/model 1a2b3c4d", "PENDING", "org/model"),
        (
            "memray_eval 1700000000.500000 read and fold tasks 1a2b3c4d",
            "RESCHEDULING",
            "read and fold tasks",
        ),
        ("memray_eval 1700000000.500000 1a2b3c4d", "PENDING", ""),  # of an earlier version
        ("memray_eval-engine 1700000000.500000 org/model 1a2b3c4d", "CREATED", None),
        ("somebody else's", "PENDING", None),
        ("", "PENDING", None),
    ],
)
def test_the_groups_of_our_runs_are_read_by_their_names(
    name: str, state: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: dict[str, Any] = {"id": {"name": name, "state": state, "bundles": BUNDLES}}
    monkeypatch.setattr(placement_groups, "placement_group_table", lambda: table)
    found = [(group.owner, dict(group.resources), group.since) for group in pending_groups()]
    resources = {"CPU": 2.0, "GPU": 2.0}
    assert found == ([] if expected is None else [(expected, resources, 1700000000.5)])

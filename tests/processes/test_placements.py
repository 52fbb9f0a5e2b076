"""Engine clients are never on a head that works at nothing, and a person is told what engines wait
for: a node, a download, or a load."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.build import run_module
from tests.conftest import REPOSITORY
from tests.processes.placements import DOWNLOAD_S, ENGINES, LOAD_S, MODEL, PIPELINES
from tests.processes.two_nodes import environment

# On a machine with other work; Ray reads them when it is imported
BUSY = {
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_gcs_server_request_timeout_seconds": "120",
    "RAY_health_check_timeout_ms": "60000",
}
pytestmark = pytest.mark.night


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    models = tmp_path_factory.mktemp("models")
    words = ("tests.processes.placements", str(models))
    done = run_module(*words, cwd=REPOSITORY, env=environment(BUSY))
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_head_holds_no_client(seen: dict[str, Any]) -> None:
    at = Counter(seen["clients"])
    print(f"engine clients by node: {dict(at)}")
    assert at.total() == PIPELINES * ENGINES
    assert set(at) == {"cpu-1", "cpu-2"}


def test_placement_groups_are_named_by_their_model(seen: dict[str, Any]) -> None:
    names = [name.split() for name in seen["groups"]]
    assert len(names) == PIPELINES * ENGINES
    assert {(kind, model) for kind, _, model, _ in names} == {("memray_eval-engine", MODEL)}


def test_a_node_a_download_and_a_load_are_told_apart(seen: dict[str, Any]) -> None:
    for moment in seen["phases"]:
        print("  ".join(f"{phase}: {n}, {s:.0f} s" for phase, (n, s) in moment.items()))
    order = list(dict.fromkeys(phase for moment in seen["phases"] for phase in moment))
    assert {"PENDING", "downloading", "loading", "up"} <= set(order)
    # One engine has no node yet; the others' models are on their way
    assert any(
        moment["PENDING"][0] == 1 and "downloading" in moment
        for moment in seen["phases"]
        if "PENDING" in moment
    )
    longest = {phase: max(m[phase][1] for m in seen["phases"] if phase in m) for phase in order}
    assert longest["downloading"] >= DOWNLOAD_S - 1.5
    assert longest["loading"] >= LOAD_S - 1.5
    assert any(f"Engines of {MODEL}: {ENGINES} up, after at most" in line for line in seen["lines"])

"""On Ray too a run stops when its question is decided: its writers tell the counter, an actor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import go_on
from tests.local.test_stopping import N, evaluated

pytestmark = pytest.mark.night

# Slow enough that the decision comes before the end, however busy the machine is;
# quick once there is a file of that name
SLOW = """
import time
from pathlib import Path

QUICK = Path(__file__).with_name("quick")

def right(sample, response):
    time.sleep(0.0 if QUICK.exists() else 0.04)
    return response.text in sample.answers
"""


def test_a_run_on_ray_stops_when_decided_and_is_completed(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    metrics = [f"{tmp_path}/slow.py:right"]
    # Small blocks: Ray keeps several under way, and what is under way is finished
    done = evaluated(tmp_path, "right ±0.1", executor="ray", metrics=metrics, rows_per_block=32)
    decided = done.summary.decided
    assert decided is not None
    assert (done.is_decided, done.exit_code) == (True, 0)
    assert 100 < decided.n_looked_at <= done.summary.n_units < N
    assert decided.low < 0.75 < decided.high
    assert done.folder.read_manifest()["status"] == "stopped"
    (tmp_path / "quick").touch()
    completed = go_on(done.folder.path, settings=["stop_at=null"])
    assert completed.summary.n_units == N
    assert completed.summary.decided is None
    assert completed.summary.metrics[0].figure.value == 0.75

"""kill -9 of the driver, of a judge actor, of the limiter, of a node, at random moments: every unit
is in the output once, and what was paid twice is at most what was in flight. Every day a driver on
the local executor is killed, at night all, KILLS times each (`make night KILLS=3`); -s shows the
books."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from memray_eval.config.sections import Budget
from memray_eval.judges.limits.budget import AHEAD
from tests.conftest import HANG_S
from tests.processes.killing import (
    CALLS,
    IN_FLIGHT,
    ROUNDS,
    UNITS,
    Books,
    books,
    config_file,
    counted,
    evaluating,
    gone,
    run_folder,
    some_moment,
    wait_for,
    workers,
)
from tests.servers.process import serving_process

rounds = pytest.mark.parametrize("round_", range(ROUNDS))
LATENCY_S = 0.2
BUDGET_TOKENS = 10**7
MOST_TOKENS = 6000  # that a call may take, by its reservation


def tokens(stats: dict[str, Any]) -> int:
    """What the provider has answered with, and was asked, in tokens."""
    return int(stats["input_tokens"] + stats["output_tokens"])


def hold(kept: Books, in_flight: int) -> None:
    assert (kept.rows, kept.units, kept.scored) == (UNITS, UNITS, UNITS)
    assert kept.paid_again <= in_flight
    assert kept.calls - kept.paid_again == CALLS


@rounds
@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.night)])
def test_the_driver(tmp_path: Path, executor: str, round_: int) -> None:
    with serving_process(latency_s=LATENCY_S) as server:
        budget = Budget(tokens=BUDGET_TOKENS)
        config = config_file(tmp_path, server, actors=1, budget=budget, executor=executor)
        with evaluating(config, tmp_path / "log") as process:
            wait_for(server, some_moment(), process)
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
        gone(children)
        before = run_folder(tmp_path).parts()
        stats = server.stats()
        beyond = run_folder(tmp_path).read_spending()["tokens"] - tokens(stats)
        assert 0 <= beyond <= AHEAD * BUDGET_TOKENS + IN_FLIGHT * MOST_TOKENS
        with evaluating(config, tmp_path / "log") as process:
            assert process.wait(HANG_S) == 0, (tmp_path / "log").read_text()[-2000:]
        kept = books(run_folder(tmp_path), server)
        paid, spent = tokens(server.stats()), run_folder(tmp_path).read_spending()["tokens"]
    counted(f"driver, {len(before)} parts written before", kept)
    print(f"tokens at the kill: {beyond} counted too many; at the end {spent - paid}")
    assert spent - paid == pytest.approx(beyond, abs=IN_FLIGHT * MOST_TOKENS)
    hold(kept, IN_FLIGHT)
    killed, finished = run_folder(tmp_path).read_manifest()["sessions"]
    assert (killed["status"], finished["status"]) == ("killed", "finished")
    assert 0 < killed["total_s"] <= finished["started_s"] - killed["started_s"]


@pytest.mark.night
@rounds
@pytest.mark.parametrize("victim", ["JudgeRecords", "LimiterActor", "CallsActor"])
def test_an_actor(tmp_path: Path, victim: str, round_: int) -> None:
    """The run survives it, or is resumed."""
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server, actors=2)
        with evaluating(config, tmp_path / "log") as process:
            wait_for(server, some_moment(), process)
            target = workers(process.pid, victim)[0]
            target.kill()
            code = process.wait(HANG_S)
        if code:
            with evaluating(config, tmp_path / "log") as process:
                assert process.wait(HANG_S) == 0, (tmp_path / "log").read_text()[-2000:]
        kept = books(run_folder(tmp_path), server)
    counted(f"{victim}, the run {'went on' if code == 0 else 'was resumed'}", kept)
    hold(kept, 2 * IN_FLIGHT)


@pytest.mark.night
@rounds
def test_a_node(tmp_path: Path, round_: int) -> None:
    """The raylet of a second node, with the judges that run there."""
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server, actors=2)
        with evaluating(config, tmp_path / "log", "tests.processes.victim_cluster") as process:
            code = process.wait(HANG_S)
        text = (tmp_path / "log").read_text()
        assert "second node killed" in text, text[-2000:]
        if code:
            with evaluating(config, tmp_path / "log") as process:
                assert process.wait(HANG_S) == 0, (tmp_path / "log").read_text()[-2000:]
        kept = books(run_folder(tmp_path), server)
    counted(f"node, the run {'went on' if code == 0 else 'was resumed'}", kept)
    hold(kept, 2 * IN_FLIGHT)

"""kill -9 of vLLM's engine process in the middle of a run: every unit is in the output once, and
what was generated before is not judged twice."""

import random
from pathlib import Path

import pytest

from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from tests.conftest import HANG_S, REPOSITORY
from tests.processes.killing import (
    IN_FLIGHT,
    METRICS,
    ROUNDS,
    books,
    counted,
    evaluating,
    run_folder,
    wait_for,
    workers,
)
from tests.servers.process import serving_process

pytestmark = pytest.mark.night
SAMPLES = 24


def job(out: Path, base_url: str) -> RunConfig:
    judging = {
        "base_urls": {"openai": base_url},
        "cache": str(out / "calls.sqlite"),
        "actors": 1,
        "max_in_flight": IN_FLIGHT,
    }
    changes = {
        "limit": SAMPLES,
        "metrics": METRICS,
        "judge": "openai/local",
        "judging": judging,
        "rows_per_block": 4,
    }
    settings = [
        "candidates.0.sampling.max_tokens=48",
        "engine.batch_size=4",
        "engine.concurrent_batches=2",
    ]
    config = load_config(REPOSITORY / "jobs" / "quickstart.yaml", changes, settings)
    return config.model_copy(update={"out": str(out)})


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_the_engine_process(tmp_path: Path, round_: int) -> None:
    with serving_process(latency_s=0.2) as server:
        wanted, config = job(tmp_path / "out", server.base_url), tmp_path / "job.yaml"
        config.write_text(wanted.model_dump_json())
        units = SAMPLES * len(wanted.candidates)
        with evaluating(config, tmp_path / "log") as process:
            wait_for(server, random.randint(1, SAMPLES), process)
            (engine,) = workers(process.pid, "EngineCore")[:1]
            engine.kill()
            code = process.wait(HANG_S)
        if code:
            with evaluating(config, tmp_path / "log") as process:
                assert process.wait(HANG_S) == 0, (tmp_path / "log").read_text()[-2000:]
        kept = books(run_folder(tmp_path), server)
    counted(f"engine, the run {'went on' if code == 0 else 'was resumed'}", kept)
    assert (kept.rows, kept.units, kept.scored) == (units, units, units)
    assert kept.paid_again <= IN_FLIGHT
    assert kept.calls <= units * len(METRICS) + IN_FLIGHT

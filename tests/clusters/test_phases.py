"""A run on a node with a GPU and nodes without: judging holds no GPU, and a run that is killed
there goes on where there is none at all."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.build import embedded_job
from tests.clusters.fake_engine import read_starts
from tests.conftest import HANG_S, REPOSITORY
from tests.processes.killing import books, gone, run_folder, running, wait_for, workers
from tests.processes.two_nodes import environment
from tests.servers.process import ServerProcess, serving_process

pytestmark = pytest.mark.night

UNITS, IN_FLIGHT, LATENCY_S = 30, 4, 0.3
METRICS = ("helpfulness", "empathy", "safety")
CALLS = UNITS * len(METRICS)


def config_file(folder: Path, server: ServerProcess) -> Path:
    judging = {"base_urls": {"openai": server.base_url}, "cache": str(folder / "calls.sqlite")}
    config = embedded_job(
        folder / "out",
        limit=UNITS,
        metrics=METRICS,
        judge="openai/local",
        cluster={"phases": "apart"},
        judging={"actors": 1, "max_in_flight": IN_FLIGHT, **judging},
        engine={"device": "gpu", "batch_size": 4},
        rows_per_block=10,
    )
    path = folder / "job.yaml"
    path.write_text(config.model_dump_json())
    return path


@contextlib.contextmanager
def run_at(config: Path, gpus: int) -> Iterator[subprocess.Popen[bytes]]:
    folder, env = config.parent, environment({"PYTHONPATH": str(REPOSITORY)})
    words = ("tests.clusters.phases_run", str(config), str(gpus), str(folder / "seen"), str(folder))
    with running(*words, log=folder / "log", cwd=REPOSITORY, env=env) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_no_gpu_is_held_while_judges_work_and_a_kill_there_repeats_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server)
        with run_at(config, gpus=1) as process:
            wait_for(server, CALLS // 3, process)
            children = psutil.Process(process.pid).children(recursive=True)
            assert workers(process.pid, "JudgeRecords")
            process.kill()
        gone(children)
        seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
        generating = [free for phase, free in seen if phase == "generate"]
        judging = [free for phase, free in seen if phase == "judge"]
        text = f"free GPUs while generating: {generating}\nwhile judging: {judging}"
        print(f"\n{text}", file=sys.__stdout__)
        assert 0.0 in generating
        assert len(judging) > 10
        assert set(judging[5:]) == {1.0}  # a moment later: what is free is told twice a second
        folder = run_folder(tmp_path)
        assert folder.read_manifest()["phases"]["order"] == "apart"
        (engine,) = read_starts(tmp_path)
        assert engine.resources["GPU"] == 1.0
        with run_at(config, gpus=0) as process:  # the GPU nodes are gone
            assert process.wait(HANG_S) == 0
        kept = books(folder, server)
    print(kept, file=sys.__stdout__)
    assert "Phases: judge (everything is generated already)." in log.read_text()
    assert read_starts(tmp_path) == [engine]  # nothing was generated again
    kept.hold(IN_FLIGHT, UNITS, CALLS)
    assert folder.parts("responses") == []

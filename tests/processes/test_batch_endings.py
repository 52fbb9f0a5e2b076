"""How a session ends that has judge calls under way in batches: detached, and by Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build import run_command, wait_until, write_responses
from tests.conftest import HANG_S, REPOSITORY
from tests.processes.killing import run_folder
from tests.servers.process import ServerProcess, serving_process

UNITS = 4


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with serving_process() as server:
        server.script_batches(never=True, share=0.5)
        yield server


@pytest.fixture
def words(tmp_path: Path, server: ServerProcess) -> list[str]:
    """Of a command that runs a job whose one batch of four calls is under way for ever."""
    job = tmp_path / "job.yaml"
    data = write_responses(tmp_path, UNITS)
    job.write_text(
        f"dataset: {data}\nout: {tmp_path}/out\nmetrics: [helpfulness]\n"
        "candidates: [{name: given, model: given, backend: given}]\n"
        "judge: openai/local\nexecutor: local\n"
        f"judging:\n  base_urls: {{openai: {server.base_url}}}\n  cache: {tmp_path}/calls.sqlite\n"
        "  mode: batch\n  price: {openai/local: {input_usd: 1, output_usd: 1}}\n"
        "  batch: {poll_s: 0.2}\n"
    )
    return ["run", str(job)]


def environment(tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(REPOSITORY), "MEMRAY_EVAL_CACHE": str(tmp_path / "cache")}


def test_detached_it_ends_at_once_and_says_how_to_go_on(
    tmp_path: Path, server: ServerProcess, words: list[str]
) -> None:
    done = run_command(*words, "--detach", **environment(tmp_path))
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 4, done.stderr[-2000:]
    assert last.startswith("Batches under way: 1, with 4 judge calls that cost at most $")
    assert f"Go on with `memray-eval resume {run_folder(tmp_path).path}`." in last
    assert server.batches()["n_open"] == 1


def test_by_ctrl_c_they_go_on(tmp_path: Path, server: ServerProcess, words: list[str]) -> None:
    server.script_batches(seconds=4.0)
    program = [sys.executable, "-m", "memray_eval", *words]
    env = os.environ | environment(tmp_path)
    submitted = '"batch_id": "batch'  # in the journal, when the provider has given the batch an id
    with subprocess.Popen(program, env=env, stderr=subprocess.PIPE, text=True) as process:
        wait_until(
            lambda: any(submitted in f.read_text() for f in tmp_path.glob("out/*/batches/*.json")),
            "no batch is sent",
        )
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, output[-2000:]
    assert "Batches that go on at their providers: 1, with 4 calls to openai/local" in output
    assert "Traceback" not in output
    done = run_command("resume", run_folder(tmp_path).path, **environment(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Batches of an earlier session that are under way: 1." in done.stderr
    stats = server.batches()
    assert (stats["n_batches"], stats["n_answered"], stats["paid_again"]) == (1, UNITS, 0)

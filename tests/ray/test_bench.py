"""Every script of tests/bench at its smallest size: its figures say nothing then, but it ends."""

import importlib
import sys

import pytest

from tests.build import run_module
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.night

HERE = {
    "judge_throughput": "--units 2 --latency-s 0.01 --rounds 1",
    "large_memories": "--entries 40 --samples 4",
    "memory_splits": "",
    "million_rows": "--units 60",
    "large_limits": "--members 4 --per-min 600 --tokens-per-min 1.2e6 --latency-s 0.05 --minutes "
    "0.1 --settled-s 1 --stories 0",
    "record_files": "--units 300 400 --latency-ms 1",
    "reduction": "--units 300 --rounds 1",
    # In the Ray of this session
    "executors": "--units 3 --rows 2 --rounds 1",
    "rate_limits": "--seconds 0.5",
    "storm": "--units 2",
}
# In a process of their own: they start a Ray, or vLLM's warnings would be taken for errors here
IN_A_PROCESS = {
    "driver_ceiling": "--units 40 80 --replicas 1",
    "generation_throughput": "--samples 2 --max-tokens 4 --rounds 1",
}
# Other tests hold these
ELSEWHERE = {"engine_kills", "engine_table", "estimates"}


def test_every_benchmark_is_tried() -> None:
    files = (REPOSITORY / "tests" / "bench").glob("*.py")
    mains = {file.stem for file in files if "\ndef main(" in file.read_text("utf-8")}
    assert mains == {*HERE, *IN_A_PROCESS, *ELSEWHERE}


@pytest.mark.parametrize("name", HERE)
def test_a_benchmark_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "argv", [name, *HERE[name].split()])
    importlib.import_module(f"tests.bench.{name}").main()
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", IN_A_PROCESS)
def test_a_benchmark_of_a_process_runs(name: str) -> None:
    done = run_module(f"tests.bench.{name}", *IN_A_PROCESS[name].split(), cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout

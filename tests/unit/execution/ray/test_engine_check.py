"""The check of one engine, with a stand-in for the Python that would start it: what it is given,
and what is said of how it ends. A real engine: tests/e2e/test_engine_check.py."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from memray_eval.cli import main
from memray_eval.config.sections import EngineConfig
from memray_eval.errors import ResourceError
from memray_eval.execution.doctor import Check, examine, examine_engine
from memray_eval.execution.ray.engine_check import LAST_LINES, N_TOKENS, check_engine

Python = Callable[[str], Path]
REPORT = {
    "device": "NVIDIA L4",
    "cuda": "13.0",
    "start_s": 31.25,
    "answer_s": 0.5,
    "n_tokens": N_TOKENS,
    "text": " Paris",
}
ROOT_CAUSE = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda'"
LOG = f"""INFO loading
(EngineCore pid=7) ERROR Traceback (most recent call last):
(EngineCore pid=7) ERROR {ROOT_CAUSE} doesn't exist
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above."""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Python:
    """Puts a shell script in Python's place; returns the folder where it leaves what it got."""

    def put(script: str) -> Path:
        stand_in = tmp_path / "python"
        stand_in.write_text(
            f'#!/bin/sh\ncd {tmp_path}\nprintf %s "$3" > spec\nenv > env\n{script}\n', "utf-8"
        )
        stand_in.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(stand_in))
        return tmp_path

    return put


def test_an_engine_is_started_as_a_run_would(python: Python, tmp_path: Path) -> None:
    folder = python(f"printf %s '{json.dumps(REPORT)}' > \"$4\"")
    model = tmp_path / "model"
    model.mkdir()
    config = EngineConfig(
        max_num_seqs=128, max_model_len=8192, kv_cache_gib=3, engine_kwargs={"swap_space": 1}
    )
    report = check_engine(config, str(model), "gpu")
    assert report.model_dump() == REPORT
    assert json.loads((folder / "spec").read_text("utf-8")) == {
        "model": str(model),
        "kwargs": {
            "dtype": "auto",
            "max_num_seqs": 128,
            "max_num_batched_tokens": 8_192,
            "max_model_len": 8192,
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 1,
            "data_parallel_size": 1,
            "swap_space": 1,
        },
    }
    check_engine(config, str(model), "cpu")
    assert json.loads((folder / "spec").read_text("utf-8"))["kwargs"]["enforce_eager"] is True
    environment = (folder / "env").read_text("utf-8").splitlines()
    assert {"VLLM_CPU_KVCACHE_SPACE=3", "HF_HUB_OFFLINE=1"} <= set(environment)


def test_what_failed_is_named_with_the_last_lines_of_the_log(python: Python) -> None:
    python(f"yes line | head -n 100; cat <<'EOF'\n{LOG}\nEOF\nexit 1")
    with pytest.raises(ResourceError) as caught:
        check_engine(EngineConfig(), "org/model", "gpu")
    first, *rest = str(caught.value).splitlines()
    # Not the sentence of the process that only heard of it
    assert first == f"the engine of org/model ended with exit code 1: {ROOT_CAUSE} doesn't exist"
    assert rest[1:] == [f"  {line}" for line in (["line"] * 100 + LOG.splitlines())[-LAST_LINES:]]


def test_an_engine_that_says_nothing_is_told_so(python: Python) -> None:
    python("kill -9 $$")
    with pytest.raises(ResourceError, match=r"ended with exit code -9; it wrote no log$"):
        check_engine(EngineConfig(), "org/model", "gpu")


@pytest.mark.heavy
def test_an_engine_that_never_answers_is_ended_with_its_processes(python: Python) -> None:
    folder = python("echo loading; sleep 60 & echo $! > child; wait")
    before = time.monotonic()
    with pytest.raises(ResourceError, match=r"did not answer in 1 s\n.*log:\n  loading"):
        check_engine(EngineConfig(), "org/model", "gpu", timeout_s=1)
    assert time.monotonic() - before < 20
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int((folder / "child").read_text("utf-8"))).wait(10)


class TestDoctor:
    def test_it_prints_device_versions_and_seconds(self, python: Python) -> None:
        python(f"printf %s '{json.dumps(REPORT)}' > \"$4\"")
        versions, engine = examine_engine("org/model", EngineConfig(device="gpu"))
        assert (versions.state, engine.state) == ("ok", "ok")
        assert "python 3." in versions.what
        assert "torch 2." in versions.what
        assert engine.what == (
            "engine of org/model on NVIDIA L4 with CUDA 13.0: up in 31.2 s, 8 tokens in 0.50 s: "
            "' Paris'"
        )

    def test_an_engine_that_fails_fails_the_command(
        self, python: Python, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        python(f"cat <<'EOF'\n{LOG}\nEOF\nexit 1")
        monkeypatch.setattr(sys, "argv", ["memray-eval", "doctor", "--engine", "org/model"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 3
        output = capsys.readouterr()
        assert output.err == ""
        assert f"[fail] the engine of org/model ended with exit code 1: {ROOT_CAUSE}" in output.out

    def test_a_gpu_node_without_a_compiler_is_told_of_the_sampler(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Where FlashInfer is installed, as on a GPU node."""

        def check() -> Check | None:
            checks = [item for item in examine(None) if "FlashInfer" in item.what]
            return checks[0] if checks else None

        assert check() is None  # it is not installed here
        (tmp_path / "flashinfer.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PATH", "/nowhere")
        real_which = shutil.which
        monkeypatch.setattr(
            shutil,
            "which",
            lambda name, path=None: real_which(
                name, path=None if path is None else path.replace("/usr/local/cuda/bin", "/nowhere")
            ),
        )
        monkeypatch.delenv("CUDA_HOME", raising=False)
        monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
        result = check()
        assert result is not None
        assert result.state == "fail"
        assert "VLLM_USE_FLASHINFER_SAMPLER=0" in result.mend
        with monkeypatch.context() as image:
            image.setenv("VLLM_USE_FLASHINFER_SAMPLER", "0")
            assert (result := check()) is not None
            assert result.state == "ok"
        nvcc = tmp_path / "bin" / "nvcc"
        nvcc.parent.mkdir()
        nvcc.touch()
        os.chmod(nvcc, 0o755)
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        assert (result := check()) is not None
        assert (result.state, str(nvcc) in result.what) == ("ok", True)

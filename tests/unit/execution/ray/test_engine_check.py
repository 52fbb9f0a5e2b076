"""The check of one engine, with a stand-in for the Python that would start it: what it is given,
and what is said of how it ends. A real engine: tests/e2e/test_engine_check.py."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from memray_eval.config.sections import ClusterConfig, EngineConfig
from memray_eval.errors import ResourceError
from memray_eval.execution import doctor
from memray_eval.execution.doctor import Check, examine_engine
from memray_eval.execution.plan import Device
from memray_eval.execution.ray import engine, engine_check, engine_start
from memray_eval.execution.ray.engine import COMPILED, engine_environment
from memray_eval.execution.ray.engine_check import N_TOKENS, check_engine
from memray_eval.execution.ray.engine_start import LAST_LINES
from memray_eval.types import Candidate
from tests.conftest import HANG_S, Call

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


def test_the_time_in_which_its_model_grows_in_the_cache_is_told(
    python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = "models--org--model/blobs"
    folder = python(
        f"mkdir -p {blobs}; touch {blobs}/1.incomplete; sleep 1; rm {blobs}/1.incomplete; sleep 1\n"
        f"printf %s '{json.dumps(REPORT)}' > \"$4\""
    )
    monkeypatch.setattr(engine_start, "HF_HUB_CACHE", str(folder))
    for module in (engine_start, engine_check):
        monkeypatch.setattr(module, "LOOK_S", 0.1)
    assert 0.5 < check_engine(EngineConfig(), "org/model", "gpu").download_s < 1.9


def test_an_engine_is_started_as_a_run_would(python: Python, tmp_path: Path) -> None:
    folder = python(f"printf %s '{json.dumps(REPORT)}' > \"$4\"")
    model = tmp_path / "model"
    model.mkdir()
    config = EngineConfig(
        max_num_seqs=128, max_model_len=8192, kv_cache_gib=3, engine_kwargs={"swap_space": 1}
    )
    report = check_engine(config, str(model), "gpu")
    assert report.model_dump() == REPORT | {"download_s": 0.0}
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
    python("kill -9 $$")
    with pytest.raises(ResourceError, match=r"ended with exit code -9; it wrote no log$"):
        check_engine(EngineConfig(), "org/model", "gpu")


@pytest.mark.heavy
def test_an_engine_that_never_answers_is_ended_with_its_processes(python: Python) -> None:
    folder = python("echo loading; sleep 3600 & echo $! > child; wait")
    before = time.monotonic()
    with pytest.raises(ResourceError, match=r"did not answer in 1 s\n.*log:\n  loading"):
        check_engine(EngineConfig(), "org/model", "gpu", timeout_s=1)
    assert time.monotonic() - before < HANG_S
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int((folder / "child").read_text("utf-8"))).wait(HANG_S)


def test_doctor_prints_device_versions_and_seconds(python: Python) -> None:
    python(f"printf %s '{json.dumps(REPORT)}' > \"$4\"")
    versions, engine = examine_engine("org/model", EngineConfig(device="gpu"), ClusterConfig())
    assert (versions.state, engine.state) == ("ok", "ok")
    assert "python 3." in versions.what
    assert "torch 2." in versions.what
    assert engine.what == (
        "engine of org/model on NVIDIA L4 with CUDA 13.0: up in 31.2 s, 8 tokens in 0.50 s: "
        "' Paris'"
    )


def test_doctor_fails_for_an_engine_that_fails(python: Python, cli: Call) -> None:
    python(f"cat <<'EOF'\n{LOG}\nEOF\nexit 1")
    code, out, err = cli("doctor", "--engine", "org/model")
    assert (code, err) == (3, "")
    assert f"[fail] the engine of org/model ended with exit code 1: {ROOT_CAUSE}" in out


@pytest.mark.parametrize(
    ("engine", "started"),
    [
        ("org/model", {"org/model": 64}),
        ("org/large", {"org/large": 8}),  # `engines` of the job
        ("job", {"org/small": 64, "org/large": 8, "org/j": 4}),
    ],
)
def test_doctor_starts_an_engine_as_the_jobs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Call, engine: str, started: dict[str, int]
) -> None:
    seen = dict[str, int | None]()

    def check(
        model: str, config: EngineConfig, on: ClusterConfig, sharing: Sequence[Candidate]
    ) -> Iterator[Check]:
        seen[model] = config.max_num_seqs
        loras = [one.lora for one in sharing]
        assert loras == {"org/small": [None, str(tmp_path / "a")]}.get(model, loras[:1])
        yield Check(state="ok", what=model)

    monkeypatch.setattr(doctor, "examine", lambda job: iter(()))
    monkeypatch.setattr(doctor, "examine_engine", check)
    job = tmp_path / "job.yaml"
    candidates = [
        {"name": name, "model": f"org/{name}", "backend": "vllm"} for name in ("small", "large")
    ]
    candidates.append({**candidates[0], "name": "again", "lora": "a"})
    engines = {"org/large": {"max_num_seqs": 8}, "org/j": {"max_num_seqs": 4}}
    shape = {"engine": {"max_num_seqs": 64}, "engines": engines, "judge": "embedded:org/j"}
    job.write_text(json.dumps({"dataset": "rows", "candidates": candidates, **shape}), "utf-8")
    code, _, _ = cli("doctor", str(job), "--engine", engine)
    assert (code, seen) == (0, started)


def test_doctor_fails_for_an_adapter_that_cannot_be_read() -> None:
    sharing = [Candidate(name="a", model="org/m", lora="no/adapter")]
    *_, last = examine_engine("org/m", EngineConfig(device="cpu"), ClusterConfig(), sharing)
    assert (last.state, "no/adapter: no such folder" in last.what) == ("fail", True)


def test_doctor_needs_a_job_for_its_engines(cli: Call) -> None:
    code, _, err = cli("doctor", "--engine", "job")
    assert (code, "name a job with engines of vLLM" in err) == (2, True)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this a machine whose CUDA is in a folder, with a compiler or without, where only these
    of vLLM's variables are set."""

    def set_up(has_nvcc: bool, own: dict[str, str]) -> None:
        nvcc = tmp_path / "bin" / "nvcc"
        nvcc.parent.mkdir()
        nvcc.touch()
        nvcc.chmod(0o755 if has_nvcc else 0o644)
        for name in COMPILED:
            monkeypatch.delenv(name, raising=False)
        for name, value in {"PATH": "/nowhere", "CUDA_HOME": str(tmp_path), **own}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(engine, "CUDA_FOLDER", "/nowhere")

    return set_up


SAMPLER, GEMM = "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_DEEP_GEMM"


@pytest.mark.parametrize(
    ("own", "has_nvcc", "state", "said"),
    [
        ({}, False, "ok", f"{SAMPLER}=0, {GEMM}=0"),
        ({SAMPLER: "0"}, False, "ok", f"{SAMPLER}=0, {GEMM}=0"),
        ({SAMPLER: "1"}, False, "warn", f"{SAMPLER}: vLLM would compile"),
        ({SAMPLER: "1"}, True, "ok", "nvcc compiles kernels"),
    ],
)
def test_doctor_tells_a_node_with_vllm_s_cuda_build_of_its_compiler(
    machine: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    own: dict[str, str], has_nvcc: bool, state: str, said: str,
) -> None:  # fmt: skip
    (tmp_path / "flashinfer.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    machine(has_nvcc, own)
    (check,) = [item for item in doctor.examine(None) if "nvcc" in item.what]
    assert (check.state, said in check.what) == (state, True)


@pytest.mark.parametrize(
    ("device", "has_nvcc", "own", "expected"),
    [
        ("gpu", False, {}, ("0", "0")),
        ("gpu", False, {GEMM: "1"}, ("0", "1")),  # the user's own wins
        ("gpu", True, {}, (None, None)),
        ("cpu", False, {}, (None, None)),
    ],
)
def test_an_engine_without_nvcc_compiles_nothing(
    machine: Callable[..., None], device: Device, has_nvcc: bool, own: dict[str, str],
    expected: tuple[str | None, str | None],
) -> None:  # fmt: skip
    machine(has_nvcc, own)
    environment = engine_environment(EngineConfig(), "org/model", device)
    assert tuple(environment.get(name) for name in COMPILED) == expected

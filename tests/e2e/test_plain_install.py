"""`pip install .` alone: the wheel with its base dependencies, in a fresh venv outside the
repository, evaluates ten rows.

By each CPython that the Makefile takes and that is installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from tests.build import write_lines
from tests.conftest import HANG_S, REPOSITORY
from tests.servers.judgments import judgment_reply
from tests.servers.provider import serving

pytestmark = pytest.mark.night

THIS = f"3.{sys.version_info.minor}"
METRICS = "lexical_diversity,overall_score,readability_score"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run("uv", "build", "--wheel", "--quiet", "--out-dir", str(folder), str(REPOSITORY))
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_no_labels_of_the_held_back_cases(wheel: Path) -> None:
    text = (REPOSITORY / "tests/data/memory_held_back/cases.yaml").read_text("utf-8")
    ids = [case["id"].encode() for case in yaml.safe_load(text)["cases"]]
    with ZipFile(wheel) as packed:
        names = packed.namelist()
        assert any(name.endswith("memory_held_back/questions.jsonl") for name in names)
        assert not [name for name in names if any(case in packed.read(name) for case in ids)]


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_plain_install_evaluates_ten_rows(version: str, wheel: Path, tmp_path: Path) -> None:
    venv, work = tmp_path / "venv", tmp_path / "work"
    work.mkdir()
    _run("uv", "venv", "--quiet", "--python", _interpreter(version), str(venv))
    _run("uv", "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), str(wheel))
    rows = [
        {"id": f"r{n}", "query": f"Water on day {n}?", "response": f"Drink {n} glasses, please."}
        for n in range(10)
    ]
    write_lines(work / "answers.jsonl", rows)
    command = str(venv / "bin" / "memray-eval")

    for listing in (
        "--help",
        "list metrics",
        "list judges",
        "dataset validate answers.jsonl",
        "config show quickstart",
        "estimate server",
    ):
        _run(command, *listing.split(), cwd=work)
    _run(command, "evaluate", "answers.jsonl", "--metrics", METRICS, "--judge", "rules", cwd=work)

    with serving(judgment_reply) as server:
        keys = ["--set", f"servers={{lab: {{url: '{server.base_url}'}}}}", "--out", "judged"]
        words = ["--metrics", "empathy", "--judge", "lab/m", *keys]
        _run(command, "evaluate", "answers.jsonl", *words, cwd=work)
        assert server.n_requests == 10
    refused = ("evaluate", "answers.jsonl", "--judge", "google/gemini")
    assert "pip install 'memray-eval[google]'" in _run(command, *refused, cwd=work, code=2)

    (written,) = work.glob("results/*/summary.json")
    summary = json.loads(written.read_text())
    assert summary["n_units"] == 10
    assert {metric["metric"]: metric["n_scored"] for metric in summary["metrics"]} == dict.fromkeys(
        METRICS.split(","), 10
    )


def _interpreter(version: str) -> str:
    if version == THIS:
        return sys.executable
    interpreter = shutil.which(f"python{version}")
    if (
        interpreter is None
        or subprocess.run([interpreter, "--version"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"no CPython {version} here")
    return interpreter


def _run(*command: str, cwd: Path | None = None, code: int = 0) -> str:
    """What a command says on stderr, run as a user's shell would, without what leads to this
    checkout."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = os.environ | {"PATH": path}
    for name in ("PYTHONPATH", "RAY_ADDRESS"):
        env.pop(name, None)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == code, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stderr

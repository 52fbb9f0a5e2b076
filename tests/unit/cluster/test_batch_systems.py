"""slurm.sh and sky.yaml: what they start on each node, by stand-ins of Ray, Slurm and our command
that write down what they are called with."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.unit.cluster.custom_resources import read

CLUSTER = REPOSITORY / "cluster"
SLURM = CLUSTER / "slurm.sh"
SKY: dict[str, Any] = read(CLUSTER / "sky.yaml")
TOKEN = "a" * 64
# Each prints its name and arguments; srun and symmetric-run also run what they are given
STAND_INS = {
    "hostname": "echo 10.0.0.7 172.17.0.1",
    "openssl": f"echo {TOKEN}",
    "sleep": "exit 0",
    "srun": 'while [ "$1" != ray ]; do shift; done; "$@"',
    "memray-eval": 'echo "memray-eval $*" >> "$CALLS"; exit "$RUN_CODE"',
    "ray": """
        echo "ray $*" >> "$CALLS"
        [ "$1" != health-check ] || exit "$HEALTH"
        [ "$1" = symmetric-run ] || exit 0
        [ -z "$RAY_FAILS" ] || exit 0    # as Ray does where it cannot start
        while [ "$1" != -- ]; do shift; done; shift; "$@"
    """,
}


def run(folder: Path, script: list[str], **variables: str) -> tuple[int, list[str], str]:
    """The exit code of a script among the stand-ins, what they were called with, and stderr."""
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir(exist_ok=True)
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", "utf-8")
        (programs / name).chmod(0o755)
    environment = {"CALLS": str(calls), "RUN_CODE": "0", "RAY_FAILS": "", "HEALTH": "0"}
    environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        script,
        env=environment | variables,
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
    )
    lines = calls.read_text("utf-8").splitlines() if calls.exists() else []
    return result.returncode, lines, result.stderr


def slurm(folder: Path, *words: str, **variables: str) -> tuple[int, list[str], str]:
    job = {"SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "3"}
    return run(folder, ["bash", str(SLURM), *words], **job, **variables)


@pytest.mark.parametrize("code", [0, 1, 4])
def test_slurm_runs_the_job_on_its_nodes_and_ends_as_the_run_does(
    tmp_path: Path, code: int
) -> None:
    words = ["a job.yaml", "--out", "results", "--run-id", "r 1"]
    ended, (ray, run), _ = slurm(tmp_path, *words, RUN_CODE=str(code))
    assert ended == code
    assert ray.startswith("ray symmetric-run --address 10.0.0.7:6379 --min-nodes 3 ")
    ours = "memray-eval run --run-id slurm-42 --set cluster.address=auto "
    assert run == ours + "a job.yaml --out results --run-id r 1"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".code"] == []


def test_a_ray_that_does_not_start_is_no_run_that_went_well(tmp_path: Path) -> None:
    (tmp_path / "memray-eval-42.code").write_text("0", "utf-8")  # of a try before
    code, lines, error = slurm(tmp_path, "job.yaml", RAY_FAILS="1")
    assert (code, len(lines)) == (3, 1)
    assert "Ray did not come up on 3 nodes (10.0.0.7:6379)" in error


def test_slurm_takes_whole_nodes_and_keeps_the_job_when_one_is_lost() -> None:
    lines = SLURM.read_text("utf-8").splitlines()
    options = {line.split()[1] for line in lines if line.startswith("#SBATCH ")}
    assert {"--exclusive", "--no-kill", "--requeue", "--ntasks-per-node=1"} <= options


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="Debian's shellcheck")
@pytest.mark.parametrize(
    "text", [SLURM.read_text("utf-8"), *(f"#!/bin/bash\n{SKY[key]}" for key in ("setup", "run"))]
)
def test_shellcheck_finds_nothing(text: str) -> None:
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True)
    assert done.stdout == ""


def sky(folder: Path, rank: int, **variables: str) -> tuple[int, list[str], str]:
    values = {"OUT": "s3://b/r", "RUN_ID": "r-1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    node = {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_GPUS_PER_NODE": "1"}
    home = {"HOME": str(folder), "JOB": SKY["envs"]["JOB"]}
    return run(folder, ["bash", "-c", SKY["run"]], **home, **values, **node, **variables)


def test_sky_s_first_node_runs_the_job_on_a_ray_beside_skypilot_s(tmp_path: Path) -> None:
    code, (ray, run), _ = sky(tmp_path, 0, RUN_CODE="4")
    assert code == 4
    assert "--head --port=6379" in ray
    assert "--num-gpus=1" in ray
    assert "--dashboard-agent-listen-port=52366" in ray, "52365 is SkyPilot's"
    assert run.startswith("memray-eval run cluster/job.yaml --out s3://b/r --run-id r-1 ")
    assert "cluster.address=10.0.0.1:6379" in run


@pytest.mark.parametrize("health", ["0", "1"])
def test_sky_s_other_nodes_join_it(tmp_path: Path, health: str) -> None:
    code, lines, _ = sky(tmp_path, 1, HEALTH=health)
    assert code == 0
    assert "--address=10.0.0.1:6379" in lines[-1]
    assert len(lines) == (2 if health == "0" else 61), "it waits for the head, and not for ever"


def test_sky_s_nodes_hold_the_job_s_engines_and_install_the_image_s_lock() -> None:
    assert set(SKY["secrets"].values()) == {None}, "of the shell, not of the file"
    engine = read(REPOSITORY / SKY["envs"]["JOB"])["engine"]
    assert SKY["num_nodes"] >= engine["replicas"]
    assert SKY["resources"]["accelerators"] == f"{engine['accelerator_type']}:1"
    for name in ("cluster/locks/gpu.txt", "--require-hashes"):
        assert name in SKY["setup"]
        assert name in (CLUSTER / "Dockerfile").read_text("utf-8")

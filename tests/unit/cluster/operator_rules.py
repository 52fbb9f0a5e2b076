"""What KubeRay's operator refuses although the custom resource's schema holds: its validation.go,
as far as ours touches it.

Written from ray-project/kuberay, ray-operator/controllers/ray/utils/validation.go (main, 2026), not
copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

RESOURCE_PARAMS = {"num-cpus", "num-gpus", "memory", "resources"}


def complaints(manifest: dict[str, Any]) -> list[str]:
    """Why the operator would not act on a RayCluster or RayJob that the API server took."""
    spec = manifest["spec"]
    if manifest["kind"] == "RayCluster":
        return list(_of_cluster(spec))
    return [*_of_job(spec), *_of_cluster(spec.get("rayClusterSpec", {}))]


def _of_job(spec: dict[str, Any]) -> Iterator[str]:
    shutdown, rules = (
        spec.get("shutdownAfterJobFinishes", False),
        spec.get("deletionStrategy", {}).get("deletionRules", []),
    )
    if "rayClusterSpec" not in spec and "clusterSelector" not in spec:
        yield "one of rayClusterSpec and clusterSelector must be set"
    if spec.get("ttlSecondsAfterFinished", 0) > 0 and not shutdown:
        yield "ttlSecondsAfterFinished needs shutdownAfterJobFinishes"
    if rules and shutdown:
        yield "shutdownAfterJobFinishes and deletionRules exclude each other"
    if any(rule["policy"] == "DeleteWorkers" for rule in rules) and spec["rayClusterSpec"].get(
        "enableInTreeAutoscaling"
    ):
        yield "DeleteWorkers does not go with autoscaling"
    if spec.get("activeDeadlineSeconds", 1) <= 0 or spec.get("backoffLimit", 0) < 0:
        yield "activeDeadlineSeconds must be positive and backoffLimit not negative"
    if spec.get("backoffLimit", 0) and (
        spec.get("submissionMode") == "InteractiveMode" or "clusterSelector" in spec
    ):
        yield "backoffLimit does not go with InteractiveMode or clusterSelector"


def _of_cluster(spec: dict[str, Any]) -> Iterator[str]:
    if not spec:
        return
    scales = spec.get("enableInTreeAutoscaling", False)
    is_v2 = scales and spec.get("autoscalerOptions", {}).get("version") == "v2"
    groups = {"head": spec["headGroupSpec"]} | {
        group["groupName"]: group for group in spec.get("workerGroupSpecs", [])
    }
    for name, group in groups.items():
        params, pod = group.get("rayStartParams", {}), group["template"]["spec"]
        if not pod["containers"]:
            yield f"{name}: no container"
        if group.get("resources") and RESOURCE_PARAMS & params.keys():
            yield f"{name}: resources both in rayStartParams and in the group"
        if "labels" in params:
            yield f"{name}: labels belong into the group, not into rayStartParams"
        if group.get("minReplicas", 0) > group.get("maxReplicas", 0):
            yield f"{name}: minReplicas is above maxReplicas"
        if is_v2 and pod.get("restartPolicy", "Never") != "Never":
            yield f"{name}: autoscaler v2 needs restartPolicy Never"
        if "idleTimeoutSeconds" in group and not is_v2:
            yield f"{name}: idleTimeoutSeconds needs autoscaler v2"
    names = [
        variable["name"]
        for variable in spec["headGroupSpec"]["template"]["spec"]["containers"][0].get("env", [])
    ]
    if is_v2 and "RAY_enable_autoscaler_v2" in names:
        yield "head: autoscaler v2 is named twice"
    version = tuple(int(part) for part in spec.get("rayVersion", "0").split("."))
    if spec.get("authOptions", {}).get("mode") == "token" and version < (2, 52):
        yield "authOptions.mode token needs a rayVersion of 2.52.0 or later"

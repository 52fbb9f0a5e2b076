"""The KubeRay manifests: taken by the API server, by the operator, and read by Ray's autoscaler as
they are meant."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)

from tests.conftest import REPOSITORY
from tests.unit.cluster.custom_resources import read, refusals
from tests.unit.cluster.operator_rules import complaints

KUBERAY = REPOSITORY / "cluster" / "kuberay"
MANIFESTS = ("rayjob", "raycluster")


def manifest(name: str) -> dict[str, Any]:
    return read(KUBERAY / f"{name}.yaml")


def cluster_of(made: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = made["spec"]
    return spec.get("rayClusterSpec", spec)


def groups_of(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def containers_of(cluster: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in groups_of(cluster):
        yield from group["template"]["spec"]["containers"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_api_server_and_the_operator_take_it(name: str) -> None:
    made = manifest(name)
    assert refusals(made) == []
    assert complaints(made) == []


def test_the_job_s_cluster_is_the_cluster() -> None:
    assert cluster_of(manifest("rayjob")) == manifest("raycluster")["spec"]


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("kind", "RayJobs", "RayJobs"),
        ("apiVersion", "ray.io/v1alpha1", "apiVersion"),
        ("metadata.name", "Memray_Eval", "metadata.name"),
        ("spec.entrypoints", "python x.py", "entrypoints"),
        ("spec.backoffLimit", "3", "backoffLimit"),
        ("spec.backoffLimit", 2**31, "backoffLimit"),
        ("spec.submissionMode", 1, "submissionMode"),
        (
            "spec.deletionStrategy",
            {"onSuccess": {"policy": "DeleteCluster"}},
            "BOTH onSuccess and onFailure",
        ),
        (
            "spec.deletionStrategy",
            {"deletionRules": [{"policy": "DeleteAll", "condition": {}}]},
            "DeleteAll",
        ),
        ("spec.rayClusterSpec.headGroupSpec", None, "headGroupSpec"),
        ("spec.rayClusterSpec.authOptions.mode", "password", "password"),
        ("spec.rayClusterSpec.autoscalerOptions.version", "v3", "v3"),
        ("spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus", 0, "num-cpus"),
        (
            "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.livenesProbe",
            {},
            "livenesProbe",
        ),
        (
            "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.envFrom.0.secretKeyRef",
            {"name": "x"},
            "secretKeyRef",
        ),
        (
            "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.livenessProbe.httpGet.port",
            None,
            "port",
        ),
        (
            "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.ports.1.containerPort",
            6379,
            "twice",
        ),
        ("spec.rayClusterSpec.workerGroupSpecs.0.groupName", None, "groupName"),
        ("spec.rayClusterSpec.workerGroupSpecs.1.maxReplicas", "16", "maxReplicas"),
        (
            "spec.rayClusterSpec.workerGroupSpecs.1.template.spec.containers.0.resources.limits.cpu",
            "eight",
            "eight",
        ),
        (
            "spec.rayClusterSpec.workerGroupSpecs.1.template.spec.tolerations.0.operater",
            "Exists",
            "operater",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_the_schema(path: str, value: object, told: str) -> None:
    """Each of these is one edit away from the manifest; None takes the key out."""
    assert told in "\n".join(refusals(edited(manifest("rayjob"), path, value)))


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("spec.shutdownAfterJobFinishes", False, "needs shutdownAfterJobFinishes"),
        (
            "spec.deletionStrategy",
            {"deletionRules": [{"policy": "DeleteWorkers", "condition": {"jobStatus": "FAILED"}}]},
            "exclude each other",
        ),
        ("spec.activeDeadlineSeconds", 0, "positive"),
        ("spec.rayClusterSpec.rayVersion", "2.51.0", "2.52.0"),
        ("spec.rayClusterSpec.workerGroupSpecs.0.minReplicas", 9, "above maxReplicas"),
        (
            "spec.rayClusterSpec.workerGroupSpecs.0.template.spec.restartPolicy",
            "Always",
            "restartPolicy Never",
        ),
        (
            "spec.rayClusterSpec.workerGroupSpecs.1.resources",
            {"GPU": "1"},
            "both in rayStartParams",
        ),
    ],
)
def test_what_the_schema_takes_and_the_operator_does_not(
    path: str, value: object, told: str
) -> None:
    made = edited(manifest("rayjob"), path, value)
    assert refusals(made) == []
    assert told in "\n".join(complaints(made))


def test_deletion_rules_may_stand_in_for_the_shutdown() -> None:
    """The other way that rayjob.yaml's comment names."""
    made = manifest("rayjob")
    del made["spec"]["shutdownAfterJobFinishes"], made["spec"]["ttlSecondsAfterFinished"]
    made["spec"]["deletionStrategy"] = {
        "deletionRules": [
            {"policy": "DeleteCluster", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 60}},
            {"policy": "DeleteCluster", "condition": {"jobStatus": "FAILED", "ttlSeconds": 3600}},
        ]
    }
    assert refusals(made) == []
    assert complaints(made) == []


@pytest.mark.parametrize("name", MANIFESTS)
def test_ray_s_autoscaler_reads_the_groups_as_they_are_meant(name: str) -> None:
    cluster = cluster_of(manifest(name))
    read_by_ray = _derive_autoscaling_config_from_ray_cr(
        {"metadata": {"name": "memray-eval", "namespace": "default"}, "spec": cluster}
    )
    types = read_by_ray["available_node_types"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert {
        kind: (
            types[kind]["resources"].get("GPU", 0),
            types[kind]["min_workers"],
            types[kind]["max_workers"],
        )
        for kind in types
        if kind != "headgroup"
    } == {"cpu": (0, 1, 8), "gpu-1": (1, 0, 16), "gpu-8": (8, 0, 4)}
    assert types["gpu-1"]["resources"]["accelerator_type:L4"] == 1
    assert types["gpu-8"]["resources"]["accelerator_type:H100"] == 1
    assert read_by_ray["idle_timeout_minutes"] == 10


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_pod_is_watched_scraped_unprivileged_and_given_its_keys_by_reference(
    name: str,
) -> None:
    cluster = cluster_of(manifest(name))
    for container in containers_of(cluster):
        assert {"configMapRef", "secretRef"} == {
            kind for source in container["envFrom"] for kind in source
        }
        assert "env" not in container
        assert (
            container["livenessProbe"]["httpGet"]["path"]
            == container["readinessProbe"]["httpGet"]["path"]
            == "/api/healthz"
        )
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert "metrics" in [port["name"] for port in container["ports"]]
    assert all(
        group["template"]["spec"]["securityContext"]["runAsNonRoot"] for group in groups_of(cluster)
    )
    assert cluster["authOptions"]["mode"] == "token"


def test_a_gpu_group_goes_to_its_gpus_only() -> None:
    for group in cluster_of(manifest("rayjob"))["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        gpus = int(pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
        assert (
            bool(gpus)
            == ("nodeSelector" in pod)
            == ("tolerations" in pod)
            == ("resources" in group["rayStartParams"])
        )


def test_the_pod_monitor_scrapes_a_port_that_every_pod_has() -> None:
    monitor = manifest("podmonitor")
    ports = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
    for container in containers_of(cluster_of(manifest("raycluster"))):
        assert ports <= {port["name"] for port in container["ports"]}
    # KubeRay puts it on every Ray pod
    assert monitor["spec"]["selector"]["matchLabels"] == {"ray.io/is-ray-node": "yes"}


def test_what_the_pods_refer_to_is_there_or_in_the_readme() -> None:
    storage, readme = manifest("storage"), (REPOSITORY / "cluster" / "README.md").read_text("utf-8")
    for container in containers_of(cluster_of(manifest("rayjob"))):
        configs, secrets = container["envFrom"]
        assert configs["configMapRef"]["name"] == storage["metadata"]["name"]
        assert f"create secret generic {secrets['secretRef']['name']}" in readme
    pods = [group["template"]["spec"] for group in groups_of(cluster_of(manifest("rayjob")))]
    assert {pod["serviceAccountName"] for pod in pods} == {"memray-eval"}
    assert "create serviceaccount memray-eval" in readme
    volumes = pods[0]["volumes"]
    assert f"create configmap {volumes[0]['configMap']['name']}" in readme


def test_the_entrypoint_reaches_the_job_with_the_bucket_of_the_head(tmp_path: Path) -> None:
    """KubeRay puts the entrypoint into a shell of the submitter, which lacks the variable; Ray
    joins the words that come out and gives them to a shell on the head, which has it. A stand-in
    for Python tells what arrives."""
    spec, out = manifest("rayjob")["spec"], manifest("storage")["data"]["MEMRAY_EVAL_OUT"]
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", "utf-8")
    stand_in.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    submitter = f"set -- {spec['entrypoint']}; printf '%s\\0' \"$@\""
    words = subprocess.run(
        ["bash", "-c", submitter], env={"PATH": path}, capture_output=True, check=True, text=True
    ).stdout
    on_head = subprocess.list2cmdline(words.split("\0")[:-1])  # as ray's `job submit` does
    arrived = subprocess.run(
        on_head,
        shell=True,
        env={"PATH": path, "MEMRAY_EVAL_OUT": out},
        capture_output=True,
        check=True,
        text=True,
    ).stdout.splitlines()
    assert arrived[0].endswith("/jobs/evaluate.py")
    assert arrived[1].endswith("/cluster/job.yaml")
    assert arrived[2:4] == ["--out", out]
    assert arrived[4] == "--run-id"  # without it a retry (backoffLimit) would start from nothing
    assert spec["backoffLimit"] > 0


def edited(made: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one key set, or taken out where the value is None; a number in the path steps
    into a list."""
    # Not deepcopy: what an anchor shares must come apart, or one edit changes every container
    made = json.loads(json.dumps(made))
    node: Any = made
    *parents, last = path.split(".")
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return made

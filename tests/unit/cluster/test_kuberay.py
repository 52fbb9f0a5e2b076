"""The KubeRay manifests: taken by the API server's schemas, read by Ray's autoscaler as they are
meant, with pods that may do no more than they need."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)

from memray_eval.config.loading import load_config
from tests.unit.cluster.manifests import (
    CLUSTER,
    MANIFESTS,
    documents,
    edited,
    refusals,
    team_values,
)

README = (CLUSTER / "README.md").read_text("utf-8")
POD = "spec.rayClusterSpec.headGroupSpec.template.spec"


def pods_of(resource: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod templates of an object, by group; a Pod is its own."""
    spec = resource.get("spec", {})
    cluster = spec.get("rayClusterSpec", spec)
    if resource["kind"] == "Pod":
        return {"smoke": resource}
    if "headGroupSpec" not in cluster:
        return {}
    groups = [{"groupName": "head"} | cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    submitter = {"submitter": spec["submitterPodTemplate"]} if "entrypoint" in spec else {}
    return {group["groupName"]: group["template"] for group in groups} | submitter


JOB, CLUSTER_ALONE, SMOKE, MONITOR = (
    documents(name)[0] for name in ("rayjob", "raycluster", "smoke", "podmonitor")
)
PODS = pods_of(JOB) | pods_of(SMOKE)
OBJECTS = [item for name in MANIFESTS[:-1] for item in documents(name)]  # PodMonitor has no schema


@pytest.mark.parametrize("resource", OBJECTS, ids=lambda item: str(item["kind"]))
def test_the_api_server_takes_every_object_and_the_pods_of_it(resource: dict[str, Any]) -> None:
    assert refusals(resource) == []
    for pod in pods_of(resource).values():  # KubeRay's own schema of a pod may be older
        assert refusals(pod | {"apiVersion": "v1", "kind": "Pod"}) == []


@pytest.mark.parametrize(
    ("kind", "path", "value", "expected"),
    [
        ("RayJob", "spec.entrypoints", "python x.py", "entrypoints"),
        ("RayJob", "spec.backoffLimit", 2**31, "backoffLimit"),
        ("RayJob", "spec.rayClusterSpec.headGroupSpec", None, "headGroupSpec"),
        ("RayJob", f"{POD}.containers.0.envFrom.0.secretKeyRef", {"name": "x"}, "secretKeyRef"),
        ("RayJob", f"{POD}.containers.0.resources.limits.cpu", "eight", "eight"),
        ("NetworkPolicy", "spec.ingress.1.ports.0.port", True, "True"),
        ("ConfigMap", "data.AWS_DEFAULT_REGION", 1, "1 is not"),
    ],
)
def test_the_schema_refuses_a_wrong_edit(
    kind: str, path: str, value: object, expected: str
) -> None:
    resource = next(item for item in OBJECTS if item["kind"] == kind)
    assert expected in "\n".join(refusals(edited(resource, path, value)))


def test_ray_s_autoscaler_reads_the_groups_of_a_job_which_are_a_cluster_s() -> None:
    cluster = JOB["spec"]["rayClusterSpec"]
    assert cluster == CLUSTER_ALONE["spec"]
    metadata = {"name": "memray-eval", "namespace": "default"}
    derived = _derive_autoscaling_config_from_ray_cr({"metadata": metadata, "spec": cluster})
    assert derived["idle_timeout_minutes"] == 2
    # CPUs, GPUs, nodes, and the label: for work that asks for none the autoscaler buys no GPU
    assert {
        kind: (
            node["resources"]["CPU"],
            node["resources"].get("GPU", 0),
            node["min_workers"],
            node["max_workers"],
            node["labels"].get("ray.io/accelerator-type"),
        )
        for kind, node in derived["available_node_types"].items()
    } == {
        "headgroup": (0, 0, 0, 0, None),
        "cpu": (16, 0, 1, 8, None),
        "gpu-1": (8, 1, 0, 16, "L4"),
        "gpu-8": (96, 8, 0, 4, "H100"),
    }


@pytest.mark.parametrize("group", PODS)
def test_a_pod_keeps_the_restricted_standard_with_its_account_and_keys(group: str) -> None:
    pod, is_head = PODS[group]["spec"], group == "head"
    assert pod["serviceAccountName"] == f"memray-eval-{'head' if is_head else 'worker'}"
    # The autoscaler in the head asks Kubernetes for pods
    assert pod.get("automountServiceAccountToken") is (None if is_head else False)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert ("nodeSelector" in pod) == ("tolerations" in pod) == (group.startswith(("gpu", "smoke")))
    assert ("affinity" in pod) == (group in {"head", "cpu"})  # off GPU nodes
    labels = {**PODS[group]["metadata"]["labels"], "ray.io/is-ray-node": "yes"}  # KubeRay's own
    assert MONITOR["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (container,) = pod["containers"]
    scaler = [JOB["spec"]["rayClusterSpec"]["autoscalerOptions"]] if is_head else []
    for part in (container, *scaler):
        assert part["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert part["resources"]["requests"] == part["resources"]["limits"]
        assert "ephemeral-storage" in part["resources"]["limits"]
        mounts = {mount["mountPath"]: mount["name"] for mount in part["volumeMounts"]}
        assert "/tmp" in mounts  # Ray's sessions
        assert set(mounts.values()) <= {volume["name"] for volume in pod["volumes"]}
    assert container["image"] == team_values()["IMAGE"]
    assert "env" not in container
    secrets = [source.get("secretRef", {}).get("name") for source in container.get("envFrom", [])]
    assert ("memray-eval-judge-keys" in secrets) == (group in {"head", "cpu"})  # driver and judges
    if group not in {"smoke", "submitter"}:
        assert "metrics" in [port["name"] for port in container["ports"]]
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["path"] == "/api/healthz"


@pytest.mark.parametrize("group", PODS)
def test_what_a_pod_refers_to_is_applied_or_in_the_readme(group: str) -> None:
    objects = {(item["kind"], item["metadata"]["name"]) for item in OBJECTS}
    pod = PODS[group]["spec"]
    assert ("ServiceAccount", pod["serviceAccountName"]) in objects
    assert ("PriorityClass", pod.get("priorityClassName", "default-memray-eval-head")) in objects
    claims = [volume.get("persistentVolumeClaim") for volume in pod["volumes"]]
    assert {("PersistentVolumeClaim", item["claimName"]) for item in claims if item} <= objects
    sources = pod["containers"][0].get("envFrom", [])
    maps = [source["configMapRef"]["name"] for source in sources if "configMapRef" in source]
    assert {("ConfigMap", name) for name in maps} <= objects
    references = [("generic", source["secretRef"]) for source in sources if "secretRef" in source]
    references += [
        ("configmap", volume["configMap"]) for volume in pod["volumes"] if "configMap" in volume
    ]
    for kind, reference in references:
        command = f"{kind} {reference['name'].replace('memray-eval', '$NAME')}"
        assert f"create secret {command}" in README or f"create {command}" in README


def test_two_teams_share_a_namespace_and_two_namespaces_a_cluster() -> None:
    def objects(**changed: str) -> set[tuple[str, str | None, str]]:
        return {
            (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
            for name in MANIFESTS
            for item in documents(name, **changed)
        }

    ours = objects(NAME="team-a", NAMESPACE="shared")
    models = {("PersistentVolumeClaim", "shared", team_values()["MODELS_CLAIM"])}
    assert documents("storage")[0]["spec"]["accessModes"] == ["ReadWriteMany"]  # of several nodes
    assert ours & objects(NAME="team-b", NAMESPACE="shared") == models
    assert ours.isdisjoint(objects(NAME="team-a", NAMESPACE="other"))
    assert {kind for kind, namespace, _ in ours if namespace is None} == {"PriorityClass"}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl has kustomize")
@pytest.mark.parametrize("region", ["us-west-2", ""])
def test_kustomize_makes_the_same_objects_and_names_a_value_that_is_missing(
    tmp_path: Path, region: str
) -> None:
    changed = {"NAME": "team-a", "NAMESPACE": "name-space", "REGION": region}
    shutil.copytree(CLUSTER / "kuberay", tmp_path / "kuberay")
    team = shutil.copytree(CLUSTER / "kustomize", tmp_path / "team")
    shutil.copy(CLUSTER / "job.yaml", team)
    values = (f"{name}={value}\n" for name, value in team_values(**changed).items() if value)
    (team / "team.env").write_text("".join(values), "utf-8")
    command = ["kubectl", "kustomize", str(team)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if not region:
        assert (done.returncode != 0, "data.REGION" in done.stderr) == (True, True)
        return
    built = {
        item["metadata"]["name"] + item["kind"]: item for item in yaml.safe_load_all(done.stdout)
    }
    assert built.pop("team-a-jobConfigMap")["data"]["job.yaml"] == (team / "job.yaml").read_text()
    assert built == {
        item["metadata"]["name"] + item["kind"]: item
        for name in ("access", "storage", "rayjob")
        for item in documents(name, **changed)
    }


def test_the_entrypoint_reaches_the_job_with_its_bucket_and_run(tmp_path: Path) -> None:
    """KubeRay puts the entrypoint into a shell of the submitter; Ray joins the words that come out
    and gives them to a shell on the head. A stand-in for Python prints what arrives."""
    (resource,) = documents("rayjob", OUT="s3://bucket/runs", RUN_ID="memory-7")
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", "utf-8")
    stand_in.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    submitter = f"set -- {resource['spec']['entrypoint']}; printf '%s\\0' \"$@\""
    words = subprocess.check_output(["bash", "-c", submitter], env=env, text=True)
    on_head = subprocess.list2cmdline(words.split("\0")[:-1])  # as ray's `job submit` does
    _, job, *options = subprocess.check_output(on_head, shell=True, env=env, text=True).split()
    assert job == "/opt/memray_eval/cluster/job.yaml"
    assert options == ["--out", "s3://bucket/runs", "--run-id", "memory-7", "--rayjob"]


def test_the_job_waits_for_its_nodes_and_has_a_budget() -> None:
    job = load_config(CLUSTER / "job.yaml")
    assert (job.cluster.address, job.engine.device) == ("auto", "gpu")
    assert job.cluster.wait_s > 0  # no manifest keeps a GPU up for it
    assert job.budget.is_set

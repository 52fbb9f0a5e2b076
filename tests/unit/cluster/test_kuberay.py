"""The KubeRay manifests: accepted by the API server and read by Ray's autoscaler as
they are meant."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)

from tests.conftest import REPOSITORY
from tests.unit.cluster import rendering
from tests.unit.cluster.custom_resources import core_refusals, refusals
from tests.unit.cluster.rendering import KUBERAY, document, documents, rendered, team_values

MANIFESTS = ("rayjob", "raycluster")
KINDS = {"rayjob": "RayJob", "raycluster": "RayCluster", "smoke": "Pod"}
WITH_PODS = tuple(KINDS)
KINDS_LEFT_OUT = "RayCluster|Pod|PodMonitor"  # as cluster/kustomize has it
README = (REPOSITORY / "cluster" / "README.md").read_text("utf-8")
OF_KUBERNETES = [
    (name, resource["kind"], resource["metadata"]["name"])
    for name in ("access", "storage", "smoke")
    for resource in documents(name)
]


def manifest(name: str) -> dict[str, Any]:
    return document(name, KINDS[name])


def pods_of(resource: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod templates that a RayJob or a RayCluster asks for, by group; a Pod is its own."""
    if resource["kind"] == "Pod":
        return {"smoke": resource}
    groups = {"head": cluster_of(resource)["headGroupSpec"]} | {
        group["groupName"]: group for group in cluster_of(resource)["workerGroupSpecs"]
    }
    pods = {name: group["template"] for name, group in groups.items()}
    if "submitterPodTemplate" in resource["spec"]:
        pods["submitter"] = resource["spec"]["submitterPodTemplate"]
    return pods


def cluster_of(resource: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = resource["spec"]
    return spec.get("rayClusterSpec", spec)


def groups_of(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def containers_of(cluster: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in groups_of(cluster):
        yield from group["template"]["spec"]["containers"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_api_server_accepts_it(name: str) -> None:
    assert refusals(manifest(name)) == []


def test_the_job_s_cluster_is_the_cluster() -> None:
    assert cluster_of(manifest("rayjob")) == manifest("raycluster")["spec"]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("kind", "RayJobs", "RayJobs"),
        ("apiVersion", "ray.io/v1alpha1", "apiVersion"),
        ("spec.entrypoints", "python x.py", "entrypoints"),
        ("spec.backoffLimit", 2**31, "backoffLimit"),
        ("spec.submissionMode", 1, "submissionMode"),
        ("spec.rayClusterSpec.headGroupSpec", None, "headGroupSpec"),
        ("spec.rayClusterSpec.autoscalerOptions.version", "v3", "v3"),
        (
            "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.envFrom.0.secretKeyRef",
            {"name": "x"},
            "secretKeyRef",
        ),
        (
            "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.ports.1.containerPort",
            6379,
            "twice",
        ),
        (
            "spec.rayClusterSpec.workerGroupSpecs.1.template.spec.containers.0.resources.limits.cpu",
            "eight",
            "eight",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_the_schema(path: str, value: object, expected: str) -> None:
    """Each of these is one edit away from the manifest; None takes the key out."""
    assert expected in "\n".join(refusals(edited(manifest("rayjob"), path, value)))


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
    assert read_by_ray["idle_timeout_minutes"] == 2
    # For a CPU task that asks for nodes without these GPUs the autoscaler buys none with them
    assert {kind: types[kind]["labels"].get("ray.io/accelerator-type") for kind in types} == {
        "headgroup": None,
        "cpu": None,
        "gpu-1": "L4",
        "gpu-8": "H100",
    }


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
    monitor = document("podmonitor", "PodMonitor")
    ports = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
    for container in containers_of(cluster_of(manifest("raycluster"))):
        assert ports <= {port["name"] for port in container["ports"]}
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.pop("ray.io/is-ray-node") == "yes"  # KubeRay puts it on every Ray pod
    for pod in pods_of(manifest("raycluster")).values():
        assert labels.items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize("name", rendering.MANIFESTS)
def test_envsubst_puts_in_what_team_env_says(name: str) -> None:
    """Each parameter is one of team.env, and no other dollar stands in a manifest, which envsubst
    would take away."""
    text = rendered(name)
    assert "$" not in text
    if shutil.which("envsubst"):
        result = subprocess.run(
            ["envsubst"],
            input=(KUBERAY / f"{name}.yaml").read_text("utf-8"),
            env=team_values(),
            capture_output=True,
            check=True,
            text=True,
        )
        assert result.stdout == text


def kustomized(
    folder: Path, kinds_left_out: str, **changed: str
) -> subprocess.CompletedProcess[str]:
    """What `kubectl kustomize` makes of cluster/kustomize, as a team fills it in."""
    shutil.copytree(KUBERAY, folder / "kuberay")
    team = shutil.copytree(KUBERAY.parent / "kustomize", folder / "team")
    text = (team / "kustomization.yaml").read_text("utf-8")
    assert KINDS_LEFT_OUT in text
    (team / "kustomization.yaml").write_text(text.replace(KINDS_LEFT_OUT, kinds_left_out), "utf-8")
    values = (f"{name}={value}\n" for name, value in team_values(**changed).items() if value)
    (team / "team.env").write_text("".join(values), "utf-8")
    shutil.copy(KUBERAY.parent / "job.yaml", team)
    command = ["kubectl", "kustomize", str(team)]
    return subprocess.run(command, capture_output=True, check=False, text=True)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl has kustomize")
@pytest.mark.parametrize(
    ("left_out", "names"),
    [
        (KINDS_LEFT_OUT, ["access", "storage", "rayjob"]),
        ("RayJob|Pod|PodMonitor", ["access", "storage", "raycluster"]),
        ("RayJob|RayCluster|PodMonitor", ["access", "storage", "smoke"]),
        ("None", rendering.MANIFESTS),
    ],
)
def test_kustomize_puts_in_what_envsubst_does(
    tmp_path: Path, left_out: str, names: list[str]
) -> None:
    changed = {"NAME": "team-a", "NAMESPACE": "name-space", "RUN_ID": "memory-7"}
    result = kustomized(tmp_path, left_out, **changed)
    assert result.returncode == 0, result.stderr
    built = {
        (item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(result.stdout)
    }
    job = built.pop(("ConfigMap", "team-a-job"))
    assert job["data"]["job.yaml"] == (KUBERAY.parent / "job.yaml").read_text("utf-8")
    assert job["metadata"]["namespace"] == "name-space"
    assert built == {
        (item["kind"], item["metadata"]["name"]): item
        for name in names
        for item in documents(name, **changed)
    }


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl has kustomize")
def test_a_value_that_team_env_lacks_is_named_by_kustomize(tmp_path: Path) -> None:
    result = kustomized(tmp_path, KINDS_LEFT_OUT, REGION="")
    assert result.returncode != 0
    assert "data.REGION" in result.stderr


def test_team_env_is_read_by_a_shell_as_by_us() -> None:
    result = subprocess.run(
        ["bash", "-c", f"set -a; . {KUBERAY / 'team.env'}; env"],
        env={},
        capture_output=True,
        check=True,
        text=True,
    )
    read_by_shell = dict(line.partition("=")[::2] for line in result.stdout.splitlines())
    assert (team_values() | read_by_shell).keys() == read_by_shell.keys()
    assert read_by_shell["NAME"] == "memray-eval"
    assert read_by_shell["IMAGE"].endswith("@sha256:DIGEST")  # by digest, which nobody can know


@pytest.mark.parametrize(("name", "kind", "called"), OF_KUBERNETES)
def test_the_api_server_takes_the_other_objects(name: str, kind: str, called: str) -> None:
    (resource,) = [
        item
        for item in documents(name)
        if (item["kind"], item["metadata"]["name"]) == (kind, called)
    ]
    assert core_refusals(resource) == []


@pytest.mark.parametrize(
    ("name", "kind", "path", "value", "expected"),
    [
        ("access", "NetworkPolicy", "spec.ingres", [], "ingres"),
        ("access", "NetworkPolicy", "spec.ingress.1.ports.0.port", True, "True"),
        ("access", "NetworkPolicy", "spec.egress.3.to.0.ipBlock.cidr", None, "cidr"),
        ("storage", "PersistentVolumeClaim", "spec.accessModes", "ReadWriteMany", "ReadWriteMany"),
        ("access", "ConfigMap", "data.AWS_DEFAULT_REGION", 1, "1 is not"),
    ],
)
def test_what_is_wrong_in_them_is_refused(
    name: str, kind: str, path: str, value: object, expected: str
) -> None:
    resource = edited(document(name, kind), path, value)
    assert expected in "\n".join(core_refusals(resource))


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_are_pods_to_the_api_server(name: str) -> None:
    """As the operator will make them: its own schema of a pod may be older than Kubernetes'."""
    for pod in pods_of(manifest(name)).values():
        resource = {"apiVersion": "v1", "kind": "Pod"} | json.loads(json.dumps(pod))
        resource["metadata"]["name"] = "x"
        assert core_refusals(resource) == []


def test_two_teams_share_a_namespace_and_two_namespaces_a_cluster() -> None:
    """No object of one is an object of the other, also of those that belong to the cluster. The
    models' claim is a namespace's."""

    def objects(**changed: str) -> set[tuple[str, str | None, str]]:
        # rayjob and raycluster are two ways: one team takes one of them
        resources = [item for name in rendering.MANIFESTS for item in documents(name, **changed)]
        keys = [
            (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in resources
        ]
        assert len(keys) == len(set(keys))
        return set(keys)

    ours = objects(NAME="team-a", NAMESPACE="shared")
    models = {("PersistentVolumeClaim", "shared", team_values()["MODELS_CLAIM"])}
    assert ours & objects(NAME="team-b", NAMESPACE="shared") == models
    assert ours.isdisjoint(objects(NAME="team-a", NAMESPACE="other"))
    of_cluster = {kind for kind, namespace, _ in ours if namespace is None}
    assert of_cluster == {"PriorityClass"}


def test_no_team_refers_to_what_is_another_s() -> None:
    for name in rendering.MANIFESTS:
        text = rendered(name, NAME="team-a", NAMESPACE="shared", RUN_ID="r", IMAGE="i", OUT="o")
        stripped = "\n".join(line.partition("#")[0] for line in text.splitlines())
        # What is the image's own is the same for all
        left = stripped.replace("/opt/memray_eval", "").replace("[memray-eval, doctor", "")
        assert "memray" not in left


@pytest.mark.parametrize("name", WITH_PODS)
def test_what_the_pods_refer_to_is_there_or_in_the_readme(name: str) -> None:
    resources = {
        (item["kind"], item["metadata"]["name"])
        for file in ("access", "storage")
        for item in documents(file)
    }
    for pod in (template["spec"] for template in pods_of(manifest(name)).values()):
        assert ("ServiceAccount", pod["serviceAccountName"]) in resources
        assert (
            "PriorityClass",
            pod.get("priorityClassName", "default-memray-eval-head"),
        ) in resources
        for volume in pod["volumes"]:
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in resources
            if config := volume.get("configMap"):
                called = config["name"].replace("memray-eval", "$NAME")
                assert f"create configmap {called}" in README
        for source in pod["containers"][0].get("envFrom", []):
            if config := source.get("configMapRef"):
                assert ("ConfigMap", config["name"]) in resources
            if secret := source.get("secretRef"):
                called = secret["name"].replace("memray-eval", "$NAME")
                assert f"create secret generic {called}" in README


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_head_stays_where_it_is(name: str) -> None:
    head = pods_of(manifest(name))["head"]
    assert head["metadata"]["annotations"] == {
        "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    ours = document("access", "PriorityClass")
    assert head["spec"]["priorityClassName"] == ours["metadata"]["name"]
    assert ours["value"] > 0  # of pods without a class
    spot = [
        {"karpenter.sh/capacity-type": "spot"},
        {"eks.amazonaws.com/capacityType": "SPOT"},
        {"cloud.google.com/gke-spot": "true"},
        {"kubernetes.azure.com/scalesetpriority": "spot"},
    ]
    assert not any(may_run_on(head["spec"], labels) for labels in spot)
    assert may_run_on(head["spec"], {})
    assert may_run_on(head["spec"], {"karpenter.sh/capacity-type": "on-demand"})


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_needs_no_gpu_stays_off_gpu_nodes(name: str) -> None:
    pods = pods_of(manifest(name))
    gpu_nodes = [
        {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-L4"},
        {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    ]
    for group in ("head", "cpu"):
        assert not any(may_run_on(pods[group]["spec"], labels) for labels in gpu_nodes)
    assert may_run_on(pods["gpu-1"]["spec"], gpu_nodes[0])


def may_run_on(pod: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a node with these labels is one for a pod, by its selector and its required
    affinity."""

    def holds(rule: dict[str, Any]) -> bool:
        has = labels.get(rule["key"])
        return {
            "In": has in rule.get("values", ()),
            "NotIn": has not in rule.get("values", ()),
            "Exists": has is not None,
            "DoesNotExist": has is None,
        }[str(rule["operator"])]

    affinity = pod.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = required["nodeSelectorTerms"] if required else [{"matchExpressions": []}]
    fits = any(all(holds(rule) for rule in term["matchExpressions"]) for term in terms)
    return fits and pod.get("nodeSelector", {}).items() <= labels.items()


@pytest.mark.parametrize("name", WITH_PODS)
def test_workers_have_an_account_of_their_own_without_a_token(name: str) -> None:
    accounts = {
        item["metadata"]["name"]: item
        for item in documents("access")
        if item["kind"] == "ServiceAccount"
    }
    for group, pod in pods_of(manifest(name)).items():
        account = accounts[pod["spec"]["serviceAccountName"]]
        if group == "head":  # the autoscaler in it asks Kubernetes for pods
            assert "automountServiceAccountToken" not in pod["spec"] | account
        else:
            assert account["metadata"]["name"] == "memray-eval-worker"
            assert account["automountServiceAccountToken"] is False
            assert pod["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", MANIFESTS)
def test_judges_keys_are_where_judges_run_and_nowhere_else(name: str) -> None:
    with_keys = {
        group
        for group, pod in pods_of(manifest(name)).items()
        for container in pod["spec"]["containers"]
        for source in container.get("envFrom", [])
        if source.get("secretRef", {}).get("name", "").endswith("-judge-keys")
    }
    assert with_keys == {"head", "cpu"}  # the driver checks them, the CPU group's judges use them


@pytest.mark.parametrize("name", WITH_PODS)
def test_pods_keep_the_restricted_standard_and_write_to_volumes_only(name: str) -> None:
    resource = manifest(name)
    scalers = [] if name == "smoke" else [cluster_of(resource)["autoscalerOptions"]]
    for pod in (template["spec"] for template in pods_of(resource).values()):
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["securityContext"]["runAsNonRoot"] is True
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in [*pod["containers"], *scalers]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert "/tmp" in mounts  # Ray's sessions
            assert set(mounts.values()) <= volumes
            for kind in ("requests", "limits"):
                assert "ephemeral-storage" in container["resources"][kind]
    assert "hostPath" not in rendered(name)


@pytest.mark.parametrize("name", MANIFESTS)
def test_models_lie_on_a_shared_volume_and_kernels_beside_it(name: str) -> None:
    image = (REPOSITORY / "cluster" / "Dockerfile").read_text("utf-8")
    claim = document("storage", "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]  # of several nodes
    for group in groups_of(cluster_of(manifest(name))):
        pod = group["template"]["spec"]
        sources = {volume["name"]: volume for volume in pod["volumes"]}
        at = {
            mount["mountPath"]: sources[mount["name"]]
            for mount in pod["containers"][0]["volumeMounts"]
        }
        assert "HF_HOME=/cache/huggingface" in image
        shared = at["/cache/huggingface"]["persistentVolumeClaim"]["claimName"]
        assert shared == claim["metadata"]["name"]
        assert "VLLM_CACHE_ROOT=/cache/vllm" in image
        assert "emptyDir" in at["/cache"]


def test_the_network_policy_lets_in_and_out_what_a_run_needs() -> None:
    policy = document("access", "NetworkPolicy")["spec"]
    selector = policy["podSelector"]["matchLabels"]
    for pod in pods_of(manifest("rayjob")).values():
        assert selector.items() <= pod["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    peers = [peer for rule in policy["ingress"] for peer in rule["from"]]
    assert {"podSelector": {"matchLabels": selector}} in peers
    assert all(rule["from"] for rule in policy["ingress"])  # nobody from just anywhere
    ports = {port["port"] for rule in policy["egress"] for port in rule.get("ports", [])}
    assert {53, 443, 6443} <= ports
    head = next(containers_of(cluster_of(manifest("rayjob"))))
    named = {port["containerPort"] for port in head["ports"]}
    inwards = {port["port"] for rule in policy["ingress"] for port in rule.get("ports", [])}
    assert inwards <= named


@pytest.mark.parametrize("name", WITH_PODS)
def test_every_container_runs_the_image_that_its_digest_names(name: str) -> None:
    for pod in pods_of(manifest(name)).values():
        for container in pod["spec"]["containers"]:
            assert container["image"] == team_values()["IMAGE"]
    assert "@sha256:" in team_values()["IMAGE"]


def test_the_smoke_test_is_the_readme_s_command_where_an_engine_will_be() -> None:
    smoke = manifest("smoke")
    pod, engines = smoke["spec"], pods_of(manifest("rayjob"))["gpu-1"]["spec"]
    command = " ".join(pod["containers"][0]["command"])
    assert command == "memray-eval doctor /opt/memray_eval/cluster/job.yaml --engine job"
    assert README.index("doctor --engine") < README.index("## KubeRay")  # the first thing to run
    assert pod["nodeSelector"] == engines["nodeSelector"]
    assert pod["tolerations"] == engines["tolerations"]
    assert pod["containers"][0]["envFrom"] == engines["containers"][0]["envFrom"]
    for bound in ("limits", "requests"):
        asked, of_engines = (where["containers"][0]["resources"][bound] for where in (pod, engines))
        assert {**asked, "ephemeral-storage": ""} == {**of_engines, "ephemeral-storage": ""}


def test_what_kueue_reads_is_a_comment_that_can_be_uncommented() -> None:
    text = rendered("rayjob")
    for key in ("labels", "annotations"):
        text = text.replace(f"  # {key}: {{kueue", f"  {key}: {{kueue")
    resource = yaml.safe_load(text)
    assert resource["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "QUEUE"}
    assert resource["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
    assert resource["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] is True
    assert refusals(resource) == []
    assert "labels" not in manifest("rayjob")["metadata"]


def test_the_entrypoint_reaches_the_job_with_its_bucket_and_run(tmp_path: Path) -> None:
    """KubeRay puts the entrypoint into a shell of the submitter; Ray joins the words that come out
    and gives them to a shell on the head. A stand-in for Python tells what arrives."""
    resource = document("rayjob", "RayJob", OUT="s3://bucket/runs", RUN_ID="memory-7")
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", "utf-8")
    stand_in.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    submitter = f"set -- {resource['spec']['entrypoint']}; printf '%s\\0' \"$@\""
    words = subprocess.run(
        ["bash", "-c", submitter], env={"PATH": path}, capture_output=True, check=True, text=True
    ).stdout
    on_head = subprocess.list2cmdline(words.split("\0")[:-1])  # as ray's `job submit` does
    arrived = subprocess.run(
        on_head, shell=True, env={"PATH": path}, capture_output=True, check=True, text=True
    ).stdout.splitlines()
    assert arrived[0].endswith("/jobs/evaluate.py")
    assert arrived[1].endswith("/cluster/job.yaml")
    assert arrived[2:] == ["--out", "s3://bucket/runs", "--run-id", "memory-7", "--rayjob"]
    assert resource["spec"]["backoffLimit"] > 0  # each retry goes on with that run


def edited(resource: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one key set, or taken out where the value is None; a number in the path steps
    into a list."""
    # Not deepcopy: what an anchor shares must come apart, or one edit changes every container
    resource = json.loads(json.dumps(resource))
    node: Any = resource
    *parents, last = path.split(".")
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return resource

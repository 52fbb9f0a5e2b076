"""What a cluster's file offers is read as Ray would schedule on it; a run's nodes are those that
its pools take."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.plan import Pool, pipeline_pools
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.ray.cluster_spec import ClusterSpec, NodeGroup
from memray_eval.execution.ray.placement import Placement, plan_placement
from memray_eval.execution.run_plan import RunSpec
from memray_eval.submission.cluster_files import read_offer
from tests.conftest import REPOSITORY


def pod(limits: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "ray", "resources": {"limits": limits}}], **spec}}


def workers(
    name: str,
    limits: dict[str, Any],
    least: int,
    most: int,
    start: dict[str, str] | None = None,
    **spec: Any,
) -> Any:
    group = {
        "groupName": name,
        "minReplicas": least,
        "maxReplicas": most,
        "replicas": least,
        "rayStartParams": start or {},
    }
    return group | {"template": pod(limits, **spec)}


HEAD = {"rayStartParams": {"num-cpus": "0"}, "template": pod({"cpu": "4", "memory": "16Gi"})}
CPUS = workers("cpus", {"cpu": "7500m", "memory": "32Gi"}, 1, 4)
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-spot": "true"}
SMALL = workers("small", {"cpu": 8, "memory": "28G", "nvidia.com/gpu": 1}, 0, 8, nodeSelector=L4)
H100 = {"resources": '"{\\"accelerator_type:H100\\": 1}"'}
LARGE = workers("large", {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8"}, 0, 2, H100)


def cluster(*groups: Any, scales: bool = True) -> dict[str, Any]:
    spec = {
        "enableInTreeAutoscaling": scales,
        "headGroupSpec": HEAD,
        "workerGroupSpecs": list(groups),
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "c"},
        "spec": spec,
    }


def launcher(**changes: Any) -> dict[str, Any]:
    types = {
        "gpu": {
            "min_workers": 1,
            "max_workers": 6,
            "resources": {"CPU": 8, "GPU": 1},
            "node_config": {
                "guestAccelerators": [
                    {"acceleratorType": "projects/p/zones/z/acceleratorTypes/nvidia-tesla-t4"}
                ]
            },
        },
        "spot": {
            "resources": {"CPU": 192, "GPU": 8, "accelerator_type:H100": 1},
            "node_config": {"scheduling": [{"preemptible": True}]},
        },
        "head": {"resources": {"CPU": 0}, "node_config": {"InstanceType": "m7i.large"}},
    }
    return {
        "cluster_name": "c",
        "max_workers": 4,
        "head_node_type": "head",
        "available_node_types": types,
    } | changes


def written(tmp_path: Path, *documents: Any) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def offered(tmp_path: Path, *documents: Any) -> dict[str, NodeGroup]:
    return {group.name: group for group in read_offer(written(tmp_path, *documents)).groups}


def test_the_groups_of_a_ray_cluster(tmp_path: Path) -> None:
    path = written(tmp_path, {"kind": "ConfigMap", "apiVersion": "v1"}, cluster(CPUS, SMALL, LARGE))
    cluster_spec = read_offer(path)
    assert cluster_spec.kind == "RayCluster"
    # KubeRay rounds up
    assert cluster_spec.groups == (
        NodeGroup(name="head", cpus=0, memory_gib=16, min_nodes=1, max_nodes=1, is_head=True),
        NodeGroup(name="cpus", cpus=8, memory_gib=32, min_nodes=1, max_nodes=4),
        NodeGroup(
            name="small",
            cpus=8,
            gpus=1,
            accelerator_type="L4",
            memory_gib=28e9 / 2**30,
            min_nodes=0,
            max_nodes=8,
            is_spot=True,
        ),
        NodeGroup(
            name="large",
            cpus=96,
            gpus=8,
            accelerator_type="H100",
            memory_gib=1024,
            min_nodes=0,
            max_nodes=2,
        ),
    )
    assert (cluster_spec.at_most().cpus, cluster_spec.at_most().gpus) == (
        4 * 8 + 8 * 8 + 2 * 96,
        8 + 16,
    )
    assert (
        cluster_spec.at_first().cpus,
        cluster_spec.at_first().gpus,
        len(cluster_spec.at_first().nodes),
    ) == (8, 0, 2)


@pytest.mark.parametrize(
    ("kind", "key"), [("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")]
)
def test_the_cluster_inside_of_a_job_or_service(tmp_path: Path, kind: str, key: str) -> None:
    inside = {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "spec": {"entrypoint": "x", key: cluster(CPUS)["spec"]},
    }
    assert list(offered(tmp_path, inside)) == ["head", "cpus"]
    with pytest.raises(
        ConfigError, match=f"this {kind} has no {key}; give the file of the RayCluster"
    ):
        offered(tmp_path, {**inside, "spec": {"clusterSelector": {"ray.io/cluster": "c"}}})


def test_without_an_autoscaler_there_are_as_many_as_are_asked_for(tmp_path: Path) -> None:
    group = offered(
        tmp_path,
        cluster({**CPUS, "replicas": 3, "numOfHosts": 2}, {**SMALL, "suspend": True}, scales=False),
    )
    assert (group["cpus"].min_nodes, group["cpus"].max_nodes) == (6, 6)
    assert group["small"].max_nodes == 0


def test_start_parameters_come_before_limits_and_these_before_requests(tmp_path: Path) -> None:
    started = workers(
        "said", {"cpu": "64", "nvidia.com/gpu": 4}, 0, 1, {"num-cpus": "6", "num-gpus": "2"}
    )
    requested = workers("asked", {}, 0, 1)
    requested["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    groups = offered(tmp_path, cluster(started, requested))
    assert (groups["said"].cpus, groups["said"].gpus, groups["said"].memory_gib) == (6, 2, None)
    assert groups["asked"].cpus == 3


@pytest.mark.parametrize(
    ("selector", "is_spot", "kind"),
    [
        ({"eks.amazonaws.com/capacityType": "SPOT"}, True, None),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, False, None),
        ({"karpenter.sh/capacity-type": "spot"}, True, None),
        ({"cloud.google.com/gke-spot": "false"}, False, None),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, False, "A100"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, False, "H100"),
        ({"nvidia.com/gpu.product": "NVIDIA-L40S"}, False, "L40S"),
        ({"kubernetes.io/hostname": "h100"}, False, None),
    ],
)
def test_spot_nodes_and_kinds_of_gpus_are_told_by_labels(
    tmp_path: Path, selector: dict[str, str], is_spot: bool, kind: str | None
) -> None:
    group = offered(
        tmp_path,
        cluster(workers("g", {"cpu": 8, "nvidia.com/gpu": 1}, 0, 1, nodeSelector=selector)),
    )["g"]
    assert (group.is_spot, group.accelerator_type) == (is_spot, kind)


def test_the_groups_of_a_launcher(tmp_path: Path) -> None:
    cluster_spec = read_offer(written(tmp_path, launcher()))
    assert (cluster_spec.kind, cluster_spec.max_workers) == ("launcher", 4)
    # No more than max_workers
    assert cluster_spec.groups == (
        NodeGroup(name="head", cpus=0, min_nodes=1, max_nodes=1, is_head=True),
        NodeGroup(name="gpu", cpus=8, gpus=1, accelerator_type="T4", min_nodes=1, max_nodes=4),
        NodeGroup(
            name="spot",
            cpus=192,
            gpus=8,
            accelerator_type="H100",
            min_nodes=0,
            max_nodes=4,
            is_spot=True,
        ),
    )


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (["just text"], "holds no cluster; give the file of one: a KubeRay RayJob"),
        ([{"suite": "memory", "dataset": "d"}], "holds no cluster"),
        ([{"apiVersion": "v1", "kind": "RayCluster"}], "holds no cluster"),
        ([cluster(CPUS), cluster(CPUS)], "holds 2 clusters"),
        ([{"apiVersion": "ray.io/v1", "kind": "RayCluster"}], "valid dictionary"),
        ([cluster({"groupName": "g"})], r"workerGroupSpecs.0.template: Field required"),
        (
            [cluster(workers("g", {}, 0, 1))],
            r"g does not say its CPUs; give its container limits \(cpu\)",
        ),
        ([cluster(workers("g", {"cpu": "many"}, 0, 1))], "g: 'many' is no quantity"),
        (
            [cluster(workers("g", {"cpu": 1}, 0, 1, {"resources": "H100"}))],
            "g: rayStartParams.resources is not JSON: H100",
        ),
        (
            [cluster({key: value for key, value in CPUS.items() if key != "maxReplicas"})],
            "group cpus has no maxReplicas",
        ),
        ([cluster(workers("g", {"cpu": 1}, 3, 1))], "g has at least 3 and at most 1 nodes"),
        ([cluster(CPUS, CPUS)], "two groups have the name 'cpus'"),
        (
            [launcher(head_node_type="top")],
            "head_node_type 'top' is not among available_node_types",
        ),
        (
            [launcher(available_node_types={"head": {"resources": {}, "node_config": {}}})],
            r"head does not say its CPUs; write resources: \{CPU: \.\.\., GPU",
        ),
        (
            [cluster(workers("g", {"cpu": 1, "nvidia.com/gpu": "9e999"}, 0, 1))],
            "g: '9e999' is more than there can be",
        ),
        (
            [
                launcher(
                    available_node_types={
                        "head": {"resources": {"CPU": 1, "GPU": float("nan")}, "node_config": {}}
                    }
                )
            ],
            "available_node_types.head.resources.GPU: Input should be a finite number",
        ),
        (
            [launcher(available_node_types={"head": {"node_config": {}}})],
            "available_node_types.head.resources: Field required",
        ),
    ],
)
def test_what_a_file_lacks_is_told(tmp_path: Path, documents: list[Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as raised:
        read_offer(written(tmp_path, *documents))
    assert str(tmp_path) in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the cluster's file"):
        read_offer(tmp_path / "absent.yaml")
    (tmp_path / "broken.yaml").write_text("{{ .Values.workers }}: [")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        read_offer(tmp_path / "broken.yaml")


@pytest.mark.parametrize(
    "name", ["kuberay/rayjob.yaml", "kuberay/raycluster.yaml", "aws.yaml", "gcp.yaml"]
)
def test_our_own_manifests_can_be_planned_with(name: str) -> None:
    cluster_spec = read_offer(REPOSITORY / "cluster" / name)
    assert cluster_spec.groups[0].is_head
    assert cluster_spec.groups[0].cpus == 0, "a head without work"
    assert {group.accelerator_type for group in cluster_spec.groups if group.gpus} == {"L4", "H100"}


def config(**engine: Any) -> RunSpec:
    candidate = {"name": "a", "model": "m"}
    return resolve(
        RunConfig.model_validate(
            {"dataset": "d", "candidates": [candidate], "engine": {"device": "gpu"} | engine}
        )
    )


def site(tmp_path: Path, job: RunSpec, judges: int = 8, document: Any = None) -> Placement:
    cluster_spec: ClusterSpec = read_offer(
        written(tmp_path, document or cluster(CPUS, SMALL, LARGE))
    )
    device = "cpu" if job.engine.device == "cpu" else "gpu"
    return plan_placement(
        cluster_spec,
        job,
        [pipeline_pools(job, job.candidates, device, judge_actors=judges)],
        device,
    )


@pytest.mark.parametrize(
    ("engine", "gpus", "fit", "small", "large"),
    [
        ({}, 1, 8 + 16, 1, 0),
        ({"replicas": 9}, 1, 8 + 16, 8, 1),  # the small ones first, they leave no GPU over
        ({"replicas": 9, "accelerator_type": "H100"}, 1, 16, 0, 2),
        ({"replicas": 3, "tensor_parallel": 4}, 4, 4, 0, 2),
        ({"tensor_parallel": 8, "replicas": 2}, 8, 2, 0, 2),
        ({"tensor_parallel": 8, "pipeline_parallel": 2}, 16, 1, 0, 2),  # a stage on each node
        ({"tensor_parallel": 3, "replicas": 4}, 3, 4, 0, 2),  # two a node, two GPUs over
        ({"cpus": 20, "replicas": 2}, 1, 2 * 4, 0, 1),  # four a node: its CPUs bind
    ],
)
def test_engines_take_the_nodes_that_they_fit_on(
    tmp_path: Path, engine: dict[str, Any], gpus: int, fit: int, small: int, large: int
) -> None:
    placement = site(tmp_path, config(**engine))
    (use,) = placement.engines
    assert (use.gpus, use.fit) == (gpus, fit)
    assert placement.nodes == {"head": 1, "cpus": 1, "small": small, "large": large}
    assert not [problem for problem in placement.problems if "at first" not in problem]


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"tensor_parallel": 16}, r"engine of m .* needs 16 GPUs and 16 CPUs on one node"),
        ({"tensor_parallel": 16}, r"large: 8 GPUs \(H100\) and 96 CPUs"),
        ({"cpus": 100}, "needs 1 GPUs and 100 CPUs on one node"),
        ({"accelerator_type": "B200"}, r"accelerator_type B200\) on one node.*\(L4\).*\(H100\)"),
        ({"device": "cpu", "cpus": 200}, "needs 200 CPUs on one node"),
    ],
)
def test_an_engine_that_fits_on_no_node_is_refused(
    tmp_path: Path, engine: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        site(tmp_path, config(**engine))


def test_a_cluster_without_gpus_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set engine\.device: cpu"):
        site(tmp_path, config(), document=cluster(CPUS))
    assert site(tmp_path, config(device="cpu", replicas=9), document=cluster(CPUS)).nodes == {
        "head": 1,
        "cpus": 2,
    }


def test_judges_take_cpu_nodes_and_share_their_cores(tmp_path: Path) -> None:
    job = config()
    assert site(tmp_path, job, judges=8).judge_cpus == 8  # a tenth of a CPU each: all on one node
    own_core = replace(job, judging=job.judging.model_copy(update={"cpus": 1.0}))
    placement = site(tmp_path, own_core, judges=14)
    assert (placement.nodes["cpus"], placement.judge_cpus) == (2, 16)


def test_a_group_without_a_real_bound_is_not_counted_node_by_node(tmp_path: Path) -> None:
    endless = cluster(workers("gpu", {"cpu": 8, "nvidia.com/gpu": 1}, 0, 2_000_000_000))
    placement = site(tmp_path, config(replicas=3), document=endless)
    assert (placement.nodes["gpu"], placement.engines[0].fit) == (3, 2_000_000_000)
    assert len(placement.cluster_spec.at_most().nodes) == 1001  # with the head


def test_more_engines_than_fit_are_a_problem_not_a_refusal(tmp_path: Path) -> None:
    placement = site(tmp_path, config(replicas=30))
    assert placement.problems == ("engine.replicas is 30, and 24 fit (m)",)
    assert (placement.nodes["small"], placement.nodes["large"]) == (8, 2)


def test_a_range_of_engines_is_placed_with_its_least(tmp_path: Path) -> None:
    placement = site(tmp_path, config(replicas={"min": 3, "max": 30}))
    assert (placement.engines[0].replicas, placement.engines[0].most) == (3, 30)
    assert not any("engine.replicas" in problem for problem in placement.problems)
    assert (placement.nodes["small"], placement.nodes["large"]) == (3, 0)
    short = site(tmp_path, config(replicas={"min": 30, "max": 40}))
    assert short.problems == ("engine.replicas.min is 30, and 24 fit (m)",)


def test_all_workers_together_are_no_more_than_the_launcher_allows(tmp_path: Path) -> None:
    placement = site(tmp_path, config(replicas=6, accelerator_type="T4"), document=launcher())
    assert placement.engines[0].fit == 4
    either = site(tmp_path, config(replicas=33), document=launcher())
    assert either.engines[0].fit == 32, "on the large ones alone"
    for result in (placement, either):
        assert sum(nodes for name, nodes in result.nodes.items() if name != "head") == 4
        assert result.problems


def test_engines_go_where_they_leave_no_gpu_over(tmp_path: Path) -> None:
    three, four = (workers(f"of {n}", {"cpu": 16, "nvidia.com/gpu": n}, 0, 2) for n in (3, 4))
    placement = site(
        tmp_path, config(tensor_parallel=2, replicas=2), document=cluster(CPUS, three, four)
    )
    assert (placement.nodes["of 3"], placement.nodes["of 4"]) == (0, 1)


def test_the_nodes_of_a_run_are_those_of_its_largest_wave(tmp_path: Path) -> None:
    pair = [{"name": name, "model": name} for name in "ab"]
    engines = {"b": {"tensor_parallel": 8}}
    raw = {"dataset": "d", "candidates": pair, "engine": {"device": "gpu"}, "engines": engines}
    job = resolve(RunConfig.model_validate(raw))
    cluster_spec = read_offer(written(tmp_path, cluster(CPUS, SMALL, LARGE)))
    waves = [pipeline_pools(job, (candidate,), "gpu") for candidate in job.candidates]
    placement = plan_placement(cluster_spec, job, waves, "gpu")
    assert placement.nodes == {"head": 1, "cpus": 1, "small": 1, "large": 1}
    assert [(use.model, use.gpus, use.fit) for use in placement.engines] == [
        ("a", 1, 24),
        ("b", 8, 2),
    ]


def test_pools_without_room_are_told(tmp_path: Path) -> None:
    job, cluster_spec = config(device="cpu"), read_offer(written(tmp_path, cluster(CPUS)))
    pools = [Pool(name="judges", actors=1, cpus=1), Pool(name="embedders", actors=1, cpus=9)]
    assert plan_placement(cluster_spec, job, [pools], "cpu").problems == (
        "not all of the embedders find room on a node, even with every group at its largest",
    )


@pytest.mark.parametrize(
    ("wait_s", "expected"), [(0, "GPUs and .* at first has 0: set cluster.wait_s"), (60, None)]
)
def test_a_run_that_would_not_wait_for_nodes_is_a_problem(
    tmp_path: Path, wait_s: float, expected: str | None
) -> None:
    job = config()
    job = replace(job, cluster=job.cluster.model_copy(update={"wait_s": wait_s}))
    problems = site(tmp_path, job).problems
    assert len(problems) == (expected is not None)
    if expected is not None:
        assert re.search(expected, problems[0])

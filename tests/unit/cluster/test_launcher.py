"""The launcher's files: taken by Ray's own cluster schema, and EC2's node settings by EC2's own
request model."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray.autoscaler
from jsonschema import Draft7Validator
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.conftest import REPOSITORY
from tests.unit.cluster.custom_resources import read

CLUSTER = REPOSITORY / "cluster"
CLOUDS = ("aws", "gcp")
SECRETS = {"memray-eval-nodes", "memray-eval-judge-keys"}
SCHEMA = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text("utf-8"))


def refusals(config: dict[str, Any]) -> list[str]:
    """Why Ray's schema refuses it: one line a reason; none when it does not."""
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft7Validator(SCHEMA).iter_errors(config)
    ]


def launcher(cloud: str) -> dict[str, Any]:
    # What an anchor shares comes apart
    result: dict[str, Any] = json.loads(json.dumps(read(CLUSTER / f"{cloud}.yaml")))
    return result


def workers(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from (
        (name, kind)
        for name, kind in config["available_node_types"].items()
        if name != config["head_node_type"]
    )


def is_spot(node: dict[str, Any]) -> bool:
    market, scheduling = node.get("InstanceMarketOptions", {}), node.get("scheduling", {})
    return market.get("MarketType") == "spot" or scheduling.get("provisioningModel") == "SPOT"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_ray_takes_it(cloud: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert refusals(launcher(cloud)) == []
    filled = prepare_config(launcher(cloud))  # with the provider's defaults, as `ray up` does
    validate_config(filled)
    assert not caplog.records
    # The defaults would fetch another Ray
    assert not [command for command in filled["setup_commands"] if "pip" in command]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_head_works_at_nothing_and_gpus_are_bought_on_the_spot_market(cloud: str) -> None:
    config = launcher(cloud)
    head = config["available_node_types"][config["head_node_type"]]
    assert head["resources"]["CPU"] == 0
    assert not is_spot(head["node_config"])
    assert {name: is_spot(kind["node_config"]) for name, kind in workers(config)} == {
        "cpu": False,
        "gpu_1": True,
        "gpu_8": True,
    }
    assert config["max_workers"] == sum(kind["max_workers"] for _, kind in workers(config))


@pytest.mark.parametrize("cloud", CLOUDS)
def test_keys_come_from_the_cloud_s_secrets_through_a_file_of_the_node(cloud: str) -> None:
    """Judges' keys are read on the head and the CPU nodes, not where engines run."""
    config = launcher(cloud)
    (file,) = {
        words[1]
        for option in config["docker"]["run_options"]
        if (words := option.split())[0] == "--env-file"
    }
    read = {}
    for name, kind in config["available_node_types"].items():
        commands = kind.get("initialization_commands", config["initialization_commands"])
        (command,) = [entry for entry in commands if "> " in entry]
        assert command.startswith("umask 077 && ")
        assert command.rpartition("> ")[2] == file
        read[name] = {word for word in SECRETS if word in command}
    gpu = {"memray-eval-nodes"}
    assert read == {"head": SECRETS, "cpu": SECRETS, "gpu_1": gpu, "gpu_8": gpu}
    readme = (CLUSTER / "README.md").read_text("utf-8")
    for secret in SECRETS:
        assert f"create-secret --region us-west-2 --name {secret}" in readme
        assert f"gcloud secrets create {secret}" in readme


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_commands_are_a_shell_s_and_the_file_is_its_user_s_alone(
    cloud: str, tmp_path: Path
) -> None:
    """The cloud's program is a stand-in that prints a line for each secret it is asked for."""
    program = tmp_path / {"aws": "aws", "gcp": "gcloud"}[cloud]
    program.write_text("#!/bin/sh\necho \"$@\" | grep -o 'memray-eval-[a-z-]*'\n", "utf-8")
    program.chmod(0o755)
    config = launcher(cloud)
    for name, lines in (("head", sorted(SECRETS)), ("gpu_8", ["memray-eval-nodes"])):
        kind = config["available_node_types"][name]
        for command in kind.get("initialization_commands", config["initialization_commands"]):
            local_command = command.replace("/home/ubuntu", str(tmp_path))
            path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(["sh", "-c", local_command], env={"PATH": path}, check=True)
        file = tmp_path / "memray-eval.env"
        assert sorted(file.read_text("utf-8").splitlines()) == lines
        assert file.stat().st_mode & 0o077 == 0
        file.unlink()
    assert (tmp_path / "memray-cache").stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_secret_that_cannot_be_read_stops_the_node(cloud: str, tmp_path: Path) -> None:
    program = tmp_path / {"aws": "aws", "gcp": "gcloud"}[cloud]
    program.write_text("#!/bin/sh\nexit 7\n", "utf-8")
    program.chmod(0o755)
    for command in launcher(cloud)["initialization_commands"]:
        local_command = command.replace("/home/ubuntu", str(tmp_path))
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(["sh", "-c", local_command], env={"PATH": path}, check=False)
        assert (done.returncode != 0) == ("> " in command)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_gpus_are_handed_to_containers_on_gpu_nodes_only(cloud: str) -> None:
    """Ray adds --runtime=nvidia, which shows a container what this variable says."""
    config = launcher(cloud)
    everywhere = " ".join(config["docker"]["run_options"])
    assert "NVIDIA" not in everywhere
    for name, kind in config["available_node_types"].items():
        options = " ".join(kind.get("docker", {}).get("worker_run_options", []))
        has_gpus = "GPU" in kind["resources"]
        assert ("--env NVIDIA_VISIBLE_DEVICES=all" in options) == has_gpus, name
        assert ("--env NVIDIA_DRIVER_CAPABILITIES=compute,utility" in options) == has_gpus
        labelled = kind.get("labels", {}).get("ray.io/accelerator-type")
        types = [entry for entry in kind["resources"] if entry.startswith("accelerator_type:")]
        assert types == ([f"accelerator_type:{labelled}"] if has_gpus else [])


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_kind_of_node_has_its_role(cloud: str) -> None:
    roles = {}
    for name, kind in launcher(cloud)["available_node_types"].items():
        node = kind["node_config"]
        profile = node.get("IamInstanceProfile") or {"Name": node["serviceAccounts"][0]["email"]}
        roles[name] = profile["Name"].partition("@")[0]
    assert roles == {
        "head": "memray-eval-head",
        "cpu": "memray-eval-worker",
        "gpu_1": "memray-eval-gpu",
        "gpu_8": "memray-eval-gpu",
    }
    readme = (CLUSTER / "README.md").read_text("utf-8")
    assert all(f"| {role} |" in readme for role in roles.values())


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nodes_fetch_nothing_but_the_image_and_keep_their_models(cloud: str) -> None:
    """What the autoscaler on the head asks the cloud with is in the image's lock."""
    config = launcher(cloud)
    for stage in ("setup_commands", "head_setup_commands", "worker_setup_commands"):
        assert config[stage] == []
    assert "@sha256:" in config["docker"]["image"]
    assert "--volume /home/ubuntu/memray-cache:/cache" in config["docker"]["run_options"]
    lock = (CLUSTER / "locks" / "gpu.txt").read_text("utf-8")
    needed = {"aws": "boto3==", "gcp": "google-api-python-client=="}[cloud]
    assert f"\n{needed}" in lock


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("cluster_name", None, "cluster_name"),
        ("provider", None, "provider"),
        ("provider.type", None, "type"),
        ("idle_timeout", 5, "idle_timeout"),
        ("max_workers", -1, "max_workers"),
        ("docker.images", "x", "images"),
        ("available_node_types.head.resources", None, "resources"),
        ("available_node_types.cpu.resources.CPU", 1.5, "1.5"),
        ("available_node_types.gpu_1.max_worker", 4, "max_worker"),
        ("available_node_types.gpu_8.node_config", None, "node_config"),
        ("auth.ssh_key", "x", "ssh_key"),
        ("setup_commands", "pip install x", "setup_commands"),
    ],
)
def test_what_is_wrong_is_refused(cloud: str, key: str, value: object, expected: str) -> None:
    """Each of these is one edit away from the file; None takes the key out."""
    config = launcher(cloud)
    node, (*parents, last) = config, key.split(".")
    for part in parents:
        node = node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    assert expected in "\n".join(refusals(config))


class TestEc2:
    """Ray's schema leaves node_config open: it is what EC2's RunInstances is asked."""

    @staticmethod
    def problems(node: dict[str, Any]) -> str:
        session = pytest.importorskip(
            "botocore.session", reason="botocore comes with the S3 tests"
        ).get_session()
        shape = session.get_service_model("ec2").operation_model("RunInstances").input_shape
        from botocore.validate import ParamValidator

        return str(
            ParamValidator()
            .validate(node | {"MinCount": 1, "MaxCount": 1}, shape)
            .generate_report()
        )

    def test_ec2_takes_every_node(self) -> None:
        for kind in launcher("aws")["available_node_types"].values():
            assert self.problems(kind["node_config"]) == ""

    def test_a_wrong_key_is_refused(self) -> None:
        node = launcher("aws")["available_node_types"]["gpu_1"]["node_config"]
        assert "MarketTypes" in self.problems(
            node | {"InstanceMarketOptions": {"MarketTypes": "spot"}}
        )

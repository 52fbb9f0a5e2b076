"""The launcher's files: taken by Ray's cluster schema, and EC2's node settings by EC2's request
model; who is what, reads which secrets, and is handed GPUs."""

import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.unit.cluster.manifests import CLUSTER

SECRETS = {"memray-eval-nodes", "memray-eval-judge-keys"}


def launcher(cloud: str) -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / f"{cloud}.yaml").read_text("utf-8"))


def describe(config: dict[str, Any], name: str) -> tuple[str, bool, set[str], bool]:
    """A node's role, whether it is on the spot market, what secrets it reads, and whether it shows
    GPUs to its container."""
    kind = config["available_node_types"][name]
    node = kind["node_config"]
    profile = node.get("IamInstanceProfile") or {"Name": node["serviceAccounts"][0]["email"]}
    market = node.get("InstanceMarketOptions", {}).get("MarketType"), node.get("scheduling")
    commands = kind.get("initialization_commands", config["initialization_commands"])
    options = kind.get("docker", {}).get("worker_run_options", [])
    return (
        profile["Name"].partition("@")[0],
        market[0] == "spot" or (market[1] or {}).get("provisioningModel") == "SPOT",
        {secret for secret in SECRETS if secret in " ".join(commands)},
        "--env NVIDIA_VISIBLE_DEVICES=all" in options and "GPU" in kind["resources"],
    )


@pytest.mark.parametrize(
    ("cloud", "client"), [("aws", "boto3"), ("gcp", "google-api-python-client")]
)
def test_ray_takes_it_and_each_kind_of_node_has_its_image_role_market_secrets_and_gpus(
    cloud: str, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    config = launcher(cloud)
    validate_config(prepare_config(config))  # with the provider's defaults, as `ray up` does
    assert not caplog.records
    for stage in ("setup_commands", "head_setup_commands", "worker_setup_commands"):
        assert config[stage] == []  # the defaults would fetch another Ray
    assert "@sha256:" in config["docker"]["image"]
    assert "--volume /home/ubuntu/memray-cache:/cache" in config["docker"]["run_options"]
    assert f"\n{client}==" in (CLUSTER / "locks" / "gpu.txt").read_text("utf-8")
    types = config["available_node_types"]
    assert {name: describe(config, name) for name in types} == {
        "head": ("memray-eval-head", False, SECRETS, False),
        "cpu": ("memray-eval-worker", False, SECRETS, False),
        "gpu_1": ("memray-eval-gpu", True, {"memray-eval-nodes"}, True),
        "gpu_8": ("memray-eval-gpu", True, {"memray-eval-nodes"}, True),
    }
    assert types["head"]["resources"]["CPU"] == 0  # works at nothing
    assert config["max_workers"] == sum(kind.get("max_workers", 0) for kind in types.values())
    for kind in types.values():
        label = kind.get("labels", {}).get("ray.io/accelerator-type")
        accelerators = [name for name in kind["resources"] if name.startswith("accelerator_type:")]
        assert accelerators == ([f"accelerator_type:{label}"] if label else [])


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_secrets_go_to_a_file_of_its_user_alone_or_stop_the_node(
    cloud: str, code: int, tmp_path: Path
) -> None:
    """The cloud's program is a stand-in that prints a line for each secret that it is asked for."""
    program = tmp_path / {"aws": "aws", "gcp": "gcloud"}[cloud]
    program.write_text(
        f"#!/bin/sh\necho \"$@\" | grep -o 'memray-eval-[a-z-]*'; exit {code}\n", "utf-8"
    )
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for command in launcher(cloud)["initialization_commands"]:
        local_command = command.replace("/home/ubuntu", str(tmp_path))
        done = subprocess.run(["sh", "-c", local_command], env=env, check=False)
        assert (done.returncode != 0) == (code != 0 and "> " in command)
    if code == 0:
        file = tmp_path / "memray-eval.env"
        assert set(file.read_text("utf-8").split()) <= SECRETS
        assert file.stat().st_mode & 0o077 == 0


def test_ec2_takes_every_node() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    from botocore.validate import ParamValidator

    shape = session.get_service_model("ec2").operation_model("RunInstances").input_shape
    for kind in launcher("aws")["available_node_types"].values():
        request = kind["node_config"] | {"MinCount": 1, "MaxCount": 1}
        assert ParamValidator().validate(request, shape).generate_report() == ""

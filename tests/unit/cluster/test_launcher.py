"""The launcher's files: taken by Ray's own cluster schema, and EC2's node settings by EC2's own
request model."""

from __future__ import annotations

import json
import logging
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
SCHEMA = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text("utf-8"))


def refusals(config: dict[str, Any]) -> list[str]:
    """Why Ray's schema refuses it: one line a reason; none when it does not."""
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft7Validator(SCHEMA).iter_errors(config)
    ]


def launcher(cloud: str) -> dict[str, Any]:
    # What an anchor shares comes apart
    made: dict[str, Any] = json.loads(json.dumps(read(CLUSTER / f"{cloud}.yaml")))
    return made


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
def test_keys_come_from_the_cloud_s_secret_through_a_file_of_the_node(cloud: str) -> None:
    config = launcher(cloud)
    written = [
        command.rpartition("> ")[2]
        for command in config["initialization_commands"]
        if "memray-eval-keys" in command
    ]
    assert written == ["/home/ubuntu/memray-eval.env"]
    assert f"--env-file {written[0]}" in config["docker"]["run_options"]
    assert all(
        command.startswith("umask 077 && ")
        for command in config["initialization_commands"]
        if "> " in command
    )


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(
    ("key", "value", "told"),
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
def test_what_is_wrong_is_refused(cloud: str, key: str, value: object, told: str) -> None:
    """Each of these is one edit away from the file; None takes the key out."""
    config = launcher(cloud)
    node, (*parents, last) = config, key.split(".")
    for part in parents:
        node = node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    assert told in "\n".join(refusals(config))


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

"""A cluster with a real autoscaler, over nodes that it starts on this machine: a run with
`cluster.wait_s` asks for the node that its plan lacks, waits for it, and takes its request back."""

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from memray_eval.results.run_folder import RunFolder
from tests.build import run_module, served, wait_until
from tests.conftest import HANG_S, REPOSITORY, SAMPLES
from tests.processes.two_nodes import HEAD_ADDRESS, Node, environment, free_port, head_node
from tests.servers.provider import serving

PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
HEAD_ID = "f" * 51 + "00000"  # what Ray's fake provider calls the head
WORKER = "ray.worker.cpu"
# What a launcher's file must have, and nodes of one machine have no use for
LISTS = (
    "cluster_synced_files rsync_exclude rsync_filter initialization_commands setup_commands "
    "head_setup_commands worker_setup_commands head_start_ray_commands worker_start_ray_commands"
).split()

pytestmark = pytest.mark.night


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A head that works at nothing, and up to one worker of two CPUs."""
    port = free_port(HEAD_ADDRESS)
    worker = {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 1}
    head_type = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    scaling = {
        "cluster_name": "growing",
        "max_workers": 1,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            "disable_launch_config_check": True,
            "disable_node_updaters": True,
            "launch_multiple": True,
            "head_node_id": HEAD_ID,
            "gcs_address": f"{HEAD_ADDRESS}:{port}",
        },
        "auth": {"ssh_user": "nobody"},
        "head_node_type": "ray.head.default",
        "available_node_types": {"ray.head.default": head_type, WORKER: worker},
        "idle_timeout_minutes": 0.05,
        "upscaling_speed": 1.0,
        **{name: [] for name in LISTS},
        **{name: {} for name in ("head_node", "worker_nodes", "file_mounts")},
        "file_mounts_sync_continuously": False,
    }
    path = tmp_path_factory.mktemp("scaling") / "scaling.yaml"
    path.write_text(yaml.safe_dump(scaling))
    fast = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
    }
    fast |= {"RAY_CLOUD_INSTANCE_ID": HEAD_ID, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID}
    with head_node(0, fast, port=port, more=[f"--autoscaling-config={path}"]) as node:
        yield node


def autoscaler_status(head: Node) -> str:
    """The autoscaler's own account: its nodes, and what is asked of it."""
    words = ("ray.scripts.scripts", "status", "--address", head.gcs_address)
    return run_module(*words, env=environment({})).stdout


def has_only_head(head: Node) -> bool:
    """True if no worker is up or on its way; the status names a worker that is up by its id."""
    nodes = autoscaler_status(head).partition("Recent failures")[0]
    return WORKER not in nodes and nodes.count(" node_") == 1


def ran(head: Node, config: Path, *settings: str) -> CompletedProcess[str]:
    words = ["run", str(config), "--set", f"cluster.address={head.gcs_address}", *settings]
    return run_module("memray_eval", *words, cwd=REPOSITORY, env=environment({}))


def test_a_run_waits_for_the_node_that_it_needs(head: Node, tmp_path: Path) -> None:
    with serving(lambda body: "Rest more.") as server:
        job = {
            "dataset": str(SAMPLES),
            "limit": 4,
            "candidates": [served(server)],
            "metrics": ["memory_utilization"],
            "judge": "rules",
            "out": str(tmp_path / "out"),
        }
        config = tmp_path / "job.yaml"
        config.write_text(json.dumps(job))
        refused = ran(head, config)
        assert refused.returncode == 3
        assert "CPUs and the cluster at" in refused.stderr
        assert not (tmp_path / "out").exists()
        never = ran(head, config, "--set", "cluster.wait_s=4", "--set", "embedding.cpus=3")
        assert never.returncode == 3
        assert "did not grow to it in 4 s (cluster.wait_s)" in never.stderr
        # Its smaller actors brought a node, which goes when nobody holds it any more
        wait_until(lambda: has_only_head(head), "the idle node stays")
        done = ran(head, config, "--set", f"cluster.wait_s={HANG_S}")
    assert done.returncode == 0, done.stderr[-3000:]
    # Else the cluster would stay as large for ever
    assert "From request_resources:\n (none)" in autoscaler_status(head)
    assert f"Waiting up to {HANG_S:g} s for the nodes that the plan needs" in done.stderr
    (folder,) = (tmp_path / "out").iterdir()
    assert sum(1 for _ in RunFolder(str(folder)).each()) == 4

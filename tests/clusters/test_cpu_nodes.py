"""Which node runs what: work that needs no GPU stays off nodes with GPUs, where the others have
room for it."""

import time

import pytest
import ray

from memray_eval.execution.plan import ACTOR_GIB, EMBED_GIB, Pool
from memray_eval.execution.ray.cluster import select_cpu_nodes
from tests.clusters.conftest import SERVICES, Nodes, Seen

pytestmark = pytest.mark.night

GPU_WORK = ("EngineActor", "Worker.")  # the engines, and the workers that they start
STAGES = "Map"  # in the name of whatever Ray Data runs; services beside the driver hold no CPU


def test_tasks_judges_and_embeddings_of_a_run_stay_off_gpu_nodes(
    two_models: Seen, nodes: Nodes
) -> None:
    called = {nodes.head: "head", nodes.labelled: "GPU node 1", nodes.unlabelled: "GPU node 2"}
    for name, where in sorted(two_models.nodes.items()):
        print(f"  {name}: {', '.join(sorted(called[node] for node in where))}")
    at_gpus = {name for name in two_models.nodes if any(word in name for word in GPU_WORK)}
    ran = " ".join(two_models.nodes.keys() - at_gpus)
    for stage in ("prompts_to_ask", "collect_engine_answers", "JudgeRecords", "EmbedRecords"):
        assert stage in ran
    assert "write_block" in ran
    elsewhere = {
        name: where
        for name, where in two_models.nodes.items()
        if STAGES in name and name not in at_gpus and where != {nodes.head}
    }
    assert elsewhere == {}
    engines = [where for name, where in two_models.nodes.items() if name in at_gpus]
    assert set.union(*engines) == {nodes.labelled, nodes.unlabelled}


def test_what_all_workers_ask_is_beside_the_driver(two_models: Seen, nodes: Nodes) -> None:
    """Elsewhere it would keep a node with GPUs up, or be lost with one on the spot market."""
    at = {name: where for name, where in two_models.nodes.items() if name.startswith(SERVICES)}
    assert {name.partition(".")[0] + "." for name in at} == set(SERVICES)
    assert set.union(*at.values()) == {nodes.head}


def test_judges_and_embedders_declare_their_memory(two_models: Seen) -> None:
    assert {int(gib * 2**30) for gib in (ACTOR_GIB, EMBED_GIB)} <= two_models.memory


@ray.remote(num_cpus=0.5, scheduling_strategy="SPREAD")
def where() -> str:
    time.sleep(1.0)  # or the first worker that is up does them all
    return str(ray.get_runtime_context().get_node_id())


def test_spread_work_goes_to_gpu_nodes_unless_it_is_kept_off(nodes: Nodes) -> None:
    """As Ray Data spreads it. Of the nodes with GPUs one is known by its label, one by its id."""
    selector = select_cpu_nodes([Pool(name="judges", actors=2, cpus=1.0)])
    assert selector is not None
    assert "H100" in selector["ray.io/accelerator-type"]
    assert selector["ray.io/node-id"] == f"!in({nodes.unlabelled})"
    kept = where.options(label_selector=selector)
    assert set(ray.get([kept.remote() for _ in range(12)])) == {nodes.head}
    anywhere = set(ray.get([where.remote() for _ in range(12)]))
    assert anywhere - {nodes.head}, "Ray avoids GPU nodes by itself: nothing is shown here"


def test_work_that_has_no_room_elsewhere_shares_gpu_nodes(nodes: Nodes) -> None:
    assert select_cpu_nodes([Pool(name="judges", actors=5, cpus=1.0)]) is None
    assert select_cpu_nodes([Pool(name="judges", actors=1, cpus=1.0, memory_gib=1e6)]) is None

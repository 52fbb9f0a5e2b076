"""The private APIs of Ray that execution/ray/ray_compat.py uses still do what we rely on."""

from __future__ import annotations

import os

import ray
import ray._private.services
import ray._private.worker

from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.ray_compat import (
    DRIVER_LOGGERS,
    local_node,
    set_repartition_cpus,
)


def test_the_local_node_names_its_session_and_its_raylets_socket() -> None:
    node = local_node()
    assert os.path.exists(node.raylet_socket_name)
    assert node.session_name.startswith("session_")
    assert {"raylet", "gcs_server"} == set(cluster._vital_processes())


def test_a_repartition_asks_for_the_cpus_that_it_is_told() -> None:
    rows = ray.data.from_items([{"row": row} for row in range(10)], override_num_blocks=1)
    spread = rows.repartition(target_num_rows_per_block=2)
    set_repartition_cpus(spread, 0.25)
    assert spread._logical_plan.dag.ray_remote_args["num_cpus"] == 0.25
    assert sum(batch.num_rows for batch in spread.iter_batches(batch_format="pyarrow")) == 10


def test_the_loggers_that_are_silenced_are_those_that_ray_writes_to() -> None:
    """Ray Data sets levels of its own when it runs, so they are not what is looked at."""
    written_to = {ray._private.worker.logger.name, ray._private.services.logger.name}
    assert written_to <= set(DRIVER_LOGGERS)

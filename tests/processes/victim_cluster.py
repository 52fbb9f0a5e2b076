"""`python -m tests.processes.victim_cluster CONFIG`: a run on two nodes of this machine, whose
second one is killed in the middle."""

import json
import sys
import threading
import time
import urllib.request
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import run
from tests.processes.killing import some_moment


def main() -> None:
    config = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
    # The judges do not all fit on the first node, so that one of them is on the second.
    config = config.model_copy(update={"judging": config.judging.model_copy(update={"cpus": 0.6})})
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)

    def kill() -> None:
        stats_url = config.judging.base_urls["openai"].removesuffix("/v1") + "/_stats"
        moment = some_moment()
        while json.load(urllib.request.urlopen(stats_url))["n_answered"] < moment:
            time.sleep(0.02)
        print("second node killed", flush=True)
        cluster.remove_node(second, allow_graceful=False)

    threading.Thread(target=kill, daemon=True).start()
    sys.exit(run(config, print).exit_code)


if __name__ == "__main__":
    main()

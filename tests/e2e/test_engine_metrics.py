"""What a real engine says of itself is on its node's page for Prometheus while it answers."""

import re
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import ray

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import ClusterConfig
from memray_eval.execution.ray import cluster
from tests.build import finish, wait_until
from tests.clusters.observing import again_and_again
from tests.conftest import HANG_S, REPOSITORY

pytestmark = pytest.mark.night
N, MAX_TOKENS = 24, 48
_LINE = re.compile(r"^ray_(memray_vllm_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_OWN = re.compile(r'\b(model|replica|run_id|state|prefix)="([^"]*)"')


def test_an_engine_is_on_the_page_of_its_node(tmp_path: Path) -> None:
    """The largest value of each series, read twice a second. No prompt begins like another, and
    none is put back for want of memory: those series begin with the first that does."""
    job = {
        "dataset": str(REPOSITORY / "dataset" / "samples"),
        "candidates": [{"name": "c", "model": "embedded", "sampling": {"max_tokens": MAX_TOKENS}}],
        "metrics": ["completeness_score"],
        "engine": {"kv_cache_gib": 1, "max_model_len": 2048, "max_num_seqs": 4},
        "limit": N,
        "out": str(tmp_path),
    }
    largest: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    with cluster.connected(ClusterConfig(num_cpus=2)):
        page = f"http://127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}/metrics"

        def read() -> None:
            # A busy agent answers 500 now and then
            with suppress(OSError), urllib.request.urlopen(page, timeout=HANG_S) as text:
                for name, labels, value in _LINE.findall(text.read().decode()):
                    series = name, frozenset(_OWN.findall(labels))
                    largest[series] = max(float(value), largest.get(series, 0.0))

        def read_tokens() -> float:
            counters = [key for key in [*largest] if key[0] == "memray_vllm_prompt_tokens_total"]
            return sum(largest[key] for key in counters if ("prefix", "miss") in key[1])

        with again_and_again(read, 0.5):
            done = finish(RunConfig.model_validate(job))
            n_tokens = sum(record.response.prompt_tokens or 0 for record in done.folder.each())
            wait_until(lambda: read_tokens() >= n_tokens, "Ray does not report the last tokens")
    for (name, labels), value in sorted(largest.items(), key=str):
        print(name, dict(sorted(labels)), value)
    assert done.summary.n_failed_units == 0
    by_labels = {
        (name, dict(labels).get("state") or dict(labels).get("prefix")): value
        for (name, labels), value in largest.items()
    }
    assert 0 < by_labels["memray_vllm_kv_cache", None] <= 1
    assert 0 < by_labels["memray_vllm_requests", "running"] <= 4
    assert by_labels["memray_vllm_prompt_tokens_total", "miss"] == n_tokens
    assert by_labels["memray_vllm_ttft_seconds_count", None] == N
    engines = {
        tuple(dict(labels).get(tag) for tag in ("model", "replica", "run_id"))
        for _, labels in largest
    }
    assert len(engines) == 1
    assert all(all(tags) for tags in engines)

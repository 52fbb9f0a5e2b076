"""Of two engines of one model, one answers all questions on a context."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.prepare import run
from memray_eval.execution.ray import engine

CONTEXTS, QUESTIONS = 8, 12


def engine_that_tells_its_name(counter: Any) -> type:
    """In vLLM's place: answers with its actor's id, after a moment."""
    import asyncio

    import ray
    from ray.llm._internal.batch.stages.base import StatefulStageUDF

    class NamedEngine(StatefulStageUDF):  # type: ignore[misc]
        def __init__(self, data_column: str, expected_input_keys: list[str], **_: Any) -> None:
            super().__init__(data_column, ["sampling_params"])
            self._name = ray.get_runtime_context().get_actor_id()

        async def udf(self, rows: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            await asyncio.sleep(0.1 * len(rows))
            for row in rows:
                row.pop("prompt_tokens_int32", None)
                yield {
                    self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN],
                    "generated_text": self._name,
                    "generated_tokens": [1],
                    "finish_reason": "stop",
                    "num_input_tokens": 3,
                    "num_cached_tokens": 0,
                    "metrics": None,
                    "__inference_error__": "",
                }

    return NamedEngine


@pytest.mark.night
def test_each_context_is_computed_by_one_of_two_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Callable[..., RunConfig]
) -> None:
    rows = [
        {
            "id": f"{context}-{question}",
            "query": f"What is fact {question}?",
            "context": f"Text {context}. " + "Nothing else. " * 40,
            "answers": ["x"],
        }
        for question in range(QUESTIONS)
        for context in range(CONTEXTS)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    config = RunConfig.model_validate(
        {
            "suite": "longbench",
            "dataset": str(data),
            "candidates": [{"name": "one", "model": "embedded", "sampling": {"max_tokens": 8}}],
            "metrics": ["rule_score"],
            "judge": "rules",
            "engine": {"replicas": 2, "cpus": 0.2, "batch_size": 4, "concurrent_batches": 1},
            "out": str(tmp_path / "out"),
        }
    )
    monkeypatch.setattr(engine, "telling_engine", engine_that_tells_its_name)
    done = run(config, print, quiet=True)
    by_context: dict[str, set[str]] = {}
    for record in done.folder.each():
        assert record.response is not None
        assert record.response.error is None
        by_context.setdefault(record.sample.id.partition("-")[0], set()).add(record.response.text)
    assert len(by_context) == CONTEXTS
    assert {len(engines) for engines in by_context.values()} == {1}
    assert len(set.union(*by_context.values())) == 2  # and both had work

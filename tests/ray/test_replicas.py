"""Of two engines of one model one answers all questions on a context, or all turns of a session."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray

from memray_eval.config.schema import RunConfig
from memray_eval.execution.ray import engine
from memray_eval.execution.runs import run
from memray_eval.types import SESSION
from tests.build import Job

pytestmark = pytest.mark.night

CONTEXTS, QUESTIONS = 8, 12


class NamedEngine:
    """In vLLM's place: answers with its actor's id, after a moment."""

    def __init__(self, context: Any, model: str, kwargs: Mapping[str, Any]) -> None:
        self._name = ray.get_runtime_context().get_actor_id()

    async def answer(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        await asyncio.sleep(0.1 * len(rows))
        answer = {"generated_text": self._name, "generated_tokens": [1], "finish_reason": "stop"}
        return [answer | {"num_input_tokens": 3, "num_cached_tokens": 0}] * len(rows)


def test_each_context_is_computed_by_one_of_two_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Job
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
    keys = {"suite": "longbench", "metrics": ["rule_score"]}
    by_context = engines_by_sample(rows, keys, tmp_path, monkeypatch)
    assert len(by_context) == CONTEXTS
    assert {len(engines) for engines in by_context.values()} == {1}
    assert len(set.union(*by_context.values())) == 2  # and both had work


def test_each_session_is_answered_by_one_of_two_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    rows = [{"id": f"{n}", "turns": [f"{k} of {n}" for k in range(4)]} for n in range(24)]
    keys = {"suite": "chat", "metrics": ["length_appropriateness"]}
    by_session = engines_by_sample(rows, keys, tmp_path, monkeypatch)
    assert len(by_session) == 24
    assert {len(engines) for engines in by_session.values()} == {1}
    assert len(set.union(*by_session.values())) == 2


def engines_by_sample(
    rows: list[dict[str, Any]], keys: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, set[str]]:
    """The engines that answered, by session, or by what an id has before its first "-"."""
    data = folder / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    config = RunConfig.model_validate(
        {
            "dataset": str(data),
            "candidates": [{"name": "one", "model": "embedded", "sampling": {"max_tokens": 8}}],
            "judge": "rules",
            "engine": {"replicas": 2, "cpus": 0.2, "batch_size": 4, "concurrent_batches": 1},
            "out": str(folder / "out"),
            **keys,
        }
    )
    monkeypatch.setattr(engine, "VllmEngine", NamedEngine)
    done = run(config, print, quiet=True)
    texts: dict[str, set[str]] = {}
    for record in done.folder.each():
        assert record.response is not None
        assert record.response.error is None
        first = str(record.sample.metadata.get(SESSION, record.sample.id)).partition("-")[0]
        texts.setdefault(first, set()).add(record.response.text)
    return texts

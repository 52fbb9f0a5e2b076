"""Whole runs whose judge caches prompts: the layout pays off, is found again, and a change of it is
said before anything is paid again."""

from __future__ import annotations

from pathlib import Path

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import resume
from memray_eval.execution.session import RunResult
from memray_eval.results.schema import from_table
from tests.bench.prompt_cache import FLOOR, JUDGE, job, reply, samples
from tests.build import finish
from tests.servers.prompt_cache import PromptCache
from tests.servers.provider import Provider, serving

CALLS = 4 * 3 * 3  # candidates, different prompts, repeats


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


def one_memory(tmp_path: Path, judge: Provider, answers: Provider, layout: str) -> RunConfig:
    return job(samples(tmp_path, 1, 5000), tmp_path, answers, judge, layout)


def n_cached(done: RunResult) -> int:
    records = from_table(done.folder.records().to_table())
    return sum(score.cached for record in records for score in record.scores)


def test_a_memory_is_written_once_and_read_by_every_other_call(tmp_path: Path) -> None:
    with serving(reply) as answers, serving(reply, cache=PromptCache(floor=FLOOR)) as judge:
        done = finish(one_memory(tmp_path, judge, answers, "auto"))
        assert judge.n_requests == CALLS
        cached = [body["messages"][0]["content"] for body in judge.requests]
        assert all(isinstance(content, list) for content in cached)
        used = done.summary.prompt_cache
        assert used is not None
        assert used.cached_input_tokens == judge.cached_tokens
        assert used.cache_write_tokens == judge.written_tokens < 1.5 * 5000
        assert used.saved_usd > 0
        # In another session the same question is the same call: the nonce's secret is kept
        again = finish(one_memory(tmp_path, judge, answers, "auto"))
        assert judge.n_requests == CALLS
        assert n_cached(again) == 4 * 3
        assert again.summary.prompt_cache is None
    layouts = done.folder.read_manifest()["judge_prompts"]
    assert layouts == {JUDGE: f"rubric_first 1; shared_first 1 from {FLOOR} shared tokens on"}


def test_a_resumed_run_keeps_its_layout_and_says_where_another_is_taken(tmp_path: Path) -> None:
    lines: list[str] = []

    def changes(done: RunResult, *settings: str) -> list[str]:
        lines.clear()
        resume(done.folder.path, lines.append, quiet=True, settings=settings)
        return [line for line in lines if line.startswith("The prompts of")]

    with serving(reply) as answers, serving(reply, cache=PromptCache(floor=FLOOR)) as judge:
        done = finish(one_memory(tmp_path, judge, answers, "auto"))
        assert changes(done) == []
        (line,) = changes(done, "judging.layout=rubric_first")
        assert f"laid out as rubric_first 1; shared_first 1 from {FLOOR}" in line
        assert "may be paid again" in line
        assert done.folder.read_manifest()["judge_prompts"] == {JUDGE: "rubric_first 1"}

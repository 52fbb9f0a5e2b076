"""Whole runs whose judge caches prompts: what calls share comes first where that pays off, is found
again, and a change of it is said before anything is paid again."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.runs import resume
from memray_eval.execution.session import RunResult
from memray_eval.judges.prices import load_table
from tests.build import finish, served, served_job, write_long_memories
from tests.servers.judgments import judgment_reply, prose_reply, schema_of
from tests.servers.prompt_cache import PromptCache
from tests.servers.provider import Provider, serving

JUDGE, FLOOR = "anthropic/claude-opus-4-5", 4096
METRICS = ("groundedness", "memory_utilization", "overall_quality")
CALLS = 4 * len(METRICS) * 3  # candidates, different prompts, repeats


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


def one_memory(tmp_path: Path, judge: Provider, answers: Provider) -> RunConfig:
    """Four candidates answer a sample of a long memory; each answer is judged three times by the
    metrics that see MEMORY."""
    unlimited = {"limits": {JUDGE: {"requests_per_min": 1_000_000}}}
    return served_job(
        tmp_path,
        answers,
        dataset=str(write_long_memories(tmp_path, 1, 5000)),
        candidates=[
            served(answers, f"c{number}", sampling={"temperature": number / 10})
            for number in range(4)
        ],
        metrics=METRICS,
        judge=JUDGE,
        judging={"base_urls": {"anthropic": judge.root}, "repeats": 3, **unlimited},
        executor="local",
    )


def reply(body: dict[str, Any]) -> str:
    """A verdict, or an answer: each candidate has its own."""
    if schema_of(body):
        return judgment_reply(body)
    return f"{prose_reply(body, 40)} Take {body['temperature']} as my mark."


def n_cached(done: RunResult) -> int:
    records = done.folder.each()
    return sum(score.cached for record in records for score in record.scores)


def test_a_memory_is_written_once_and_read_by_every_other_call(tmp_path: Path) -> None:
    with serving(reply) as answers, serving(reply, cache=PromptCache(floor=FLOOR)) as judge:
        done = finish(one_memory(tmp_path, judge, answers))
        assert judge.n_requests == CALLS
        cached = [body["messages"][0]["content"] for body in judge.requests]
        assert all(isinstance(content, list) for content in cached)
        used = done.summary.prompt_cache
        assert used is not None
        assert used.cached_input_tokens == judge.cached_tokens
        assert used.cache_write_tokens == judge.written_tokens < 1.5 * 5000
        assert used.saved_usd > 0
        # In another session the same question is the same call: the nonce's secret is kept
        again = finish(one_memory(tmp_path, judge, answers))
        assert judge.n_requests == CALLS
        assert n_cached(again) == 4 * 3
        assert again.summary.prompt_cache is None
    layouts = done.folder.read_manifest()["judge_prompts"]
    assert layouts == {JUDGE: f"rubric_first 1; shared_first 1 from {FLOOR} shared tokens on"}


def test_a_resumed_run_says_where_its_prompts_are_laid_out_otherwise(tmp_path: Path) -> None:
    lines: list[str] = []

    def changes(done: RunResult, *settings: str) -> list[str]:
        lines.clear()
        resume(done.folder.path, lines.append, quiet=True, settings=settings)
        return [line for line in lines if line.startswith("The prompts of")]

    with serving(reply) as answers, serving(reply, cache=PromptCache(floor=FLOOR)) as judge:
        done = finish(one_memory(tmp_path, judge, answers))
        assert changes(done) == []
        with pytest.raises(ConfigError, match=r"judging\.layout was withdrawn: leave it out"):
            changes(done, "judging.layout=rubric_first")
        entry = load_table(None).models[JUDGE].model_copy(update={"cache_floor_tokens": None})
        table = tmp_path / "judges.yaml"
        table.write_text(yaml.safe_dump({"models": {JUDGE: entry.model_dump(mode="json")}}))
        (line,) = changes(done, f"judging.models={table}")
        assert f"laid out as rubric_first 1; shared_first 1 from {FLOOR}" in line
        assert "may be paid again" in line
        assert done.folder.read_manifest()["judge_prompts"] == {JUDGE: "rubric_first 1"}

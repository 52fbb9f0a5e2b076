"""Whole runs of candidates whose memory is a store: written once, asked once, what goes wrong."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import Stopped
from memray_eval.execution.runs import estimate_of
from memray_eval.report.console import render
from memray_eval.report.html.page import render_html
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Candidate
from tests.build import Job, finish, go_on, served
from tests.conftest import REPOSITORY
from tests.servers.provider import Fault, serving

OWN = REPOSITORY / "tests/servers/stores.py"
N_QUESTIONS, N_CONVERSATIONS, N_SESSIONS = 14, 2, 6  # of LoCoMo's examples


def reply(body: dict[str, Any]) -> str:
    return "Not mentioned in the conversation"


@pytest.fixture
def stores(job: Job) -> Job:
    """LoCoMo's examples, asked of a server with these memories."""

    def make(server: Any, *memories: Any, **fields: Any) -> RunConfig:
        arms = enumerate(memories)
        own = {
            "suite": "locomo",
            "dataset": str(REPOSITORY / "dataset/locomo"),
            "candidates": [served(server, str(number), memory=memory) for number, memory in arms],
            "metrics": ["rule_score", "evidence_recall"],
        }
        return job(server, **{**own, **fields})

    return make


def calls_of(folder: RunFolder) -> Counter[str]:
    lines = (Path(folder.path) / "stores/calls.log").read_text().splitlines()
    return Counter(json.loads(line)["what"] for line in lines)


def errors_of(folder: RunFolder) -> set[str]:
    return {str(record.response and record.response.error) for record in folder.each()}


def test_prompts_show_what_the_stores_in_this_process_return(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, "bm25", {"store": "embedding", "k": 2}))
        assert len(server.requests) == 2 * N_QUESTIONS
    assert errors_of(done.folder) == {"None"}
    records = list(done.folder.each())
    for record in records:
        assert "recalled" not in record.sample.metadata
        k = 2 if record.candidate.name == "1" else 20
        assert 0 < len(record.sample.metadata["retrieved"]) <= k
    recall = {metric.metric: metric for metric in done.summary.metrics}
    assert "evidence_recall" in recall
    assert list(Path(done.folder.path).rglob("*.entries"))
    held = [path.read_text() for path in Path(done.folder.path).rglob("*.entries")]
    assert set(held) == {""}  # torn down


def test_a_conversation_is_written_once_for_all_questions(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, f"{OWN}:Plain", epochs=2))
    calls = calls_of(done.folder)
    assert calls["open"] == calls["delete"] == 2 * N_CONVERSATIONS
    assert calls["ingest"] == 2 * N_SESSIONS
    assert calls["search"] == 2 * N_QUESTIONS
    assert errors_of(done.folder) == {"None"}


def test_a_store_needs_neither_open_nor_ready(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, f"{OWN}:Bare"))
    assert errors_of(done.folder) == {"None"}
    assert calls_of(done.folder)["ingest"] == N_SESSIONS


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("Down", {}, "StoreDown: Down: ConnectionRefusedError: nobody is there"),
        ("Slow", {"ready_s": 0.2}, "memory.ready_s is 0.2"),
        ("Odd", {}, "OddReply: the store returned dict, not a list of entries"),
        ("Hung", {"timeout_s": 0.2}, "StoreSlow: Hung: no result within 0.2 s (the key memory"),
        ("Occupied", {}, "entries that this run did not write: it is left as it is"),
    ],
)
def test_what_a_store_does_wrong_is_the_error_of_its_rows(
    stores: Job, name: str, options: dict[str, Any], error: str
) -> None:
    with serving(reply) as server:
        memory = {"store": f"{OWN}:{name}", **options}
        done = finish(stores(server, memory, "bm25"))
        assert len(server.requests) == N_QUESTIONS  # of the other candidate
    failed = {
        record.response.error
        for record in done.folder.each()
        if record.candidate.name == "0" and record.response
    }
    assert all(error in str(text) for text in failed), failed
    assert done.summary.n_failed_units == N_QUESTIONS
    if name == "Occupied":  # what real users wrote is never deleted
        assert calls_of(done.folder)["delete"] == 0


def test_what_failed_is_tried_again_by_resume_alone(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, f"{OWN}:Later"))
        assert done.summary.n_failed_units == N_QUESTIONS
        assert not server.requests
        (Path(done.folder.path).parent / "up").touch()
        again = go_on(done.folder.path)
        assert again.summary.n_failed_units == 0
        assert len(server.requests) == N_QUESTIONS


def test_a_session_that_was_written_in_part_is_written_anew(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, {"store": f"{OWN}:Half", "k": 1000}))
        assert done.summary.n_failed_units == N_QUESTIONS
        (Path(done.folder.path).parent / "up").touch()
        again = go_on(done.folder.path)
    assert again.summary.n_failed_units == 0
    for record in again.folder.each():
        returned = record.sample.metadata["retrieved"]
        assert len(returned) == len(set(returned)) > 6


class Stopping:
    """Answers `n` questions, and fails the next: the run ends there, in the middle of a block."""

    def __init__(self, n: int) -> None:
        self.left = self.n = n

    def __call__(self, body: dict[str, Any]) -> str | Fault:
        self.left -= 1
        return reply(body) if self.left >= 0 else Fault(400)


def stop(config: RunConfig) -> str:
    """Runs a job that stops before its end, and returns its folder."""
    with pytest.raises(Stopped):
        finish(config)
    (folder,) = Path(config.out).iterdir()
    return str(folder)


def test_a_stopped_run_writes_and_asks_nothing_twice(stores: Job) -> None:
    stopping = Stopping(5)
    with serving(stopping) as server:
        folder = stop(stores(server, f"{OWN}:Plain", on_error="fail"))
        before = [json.dumps(body["messages"]) for body in server.requests[: stopping.n]]
        stopping.left, n_before = 1000, len(server.requests)
        again = go_on(folder)
        after = [json.dumps(body["messages"]) for body in server.requests[n_before:]]
    assert again.summary.n_failed_units == 0
    assert len(after) == N_QUESTIONS - stopping.n
    assert not set(before) & set(after)
    calls = calls_of(again.folder)
    assert calls["ingest"] == N_SESSIONS
    assert calls["search"] == N_QUESTIONS
    assert calls["open"] == calls["delete"] == N_CONVERSATIONS


def test_a_session_that_a_store_lost_is_said_and_written_again(stores: Job) -> None:
    stopping = Stopping(0)
    with serving(stopping) as server:
        folder = stop(stores(server, f"{OWN}:Forgetful", on_error="fail"))
        lost = Path(folder).parent / "lose"
        lost.touch()
        stopping.left = 1000
        config = ["on_error=record"]
        again = go_on(folder, settings=config)
        assert any("StoreLost: the store has lost" in text for text in errors_of(again.folder))
        lost.unlink()
        assert go_on(folder).summary.n_failed_units == 0


def test_one_thread_at_a_time_calls_a_store_that_says_nothing_else(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, {"store": f"{OWN}:Alone"}, epochs=3))
    assert errors_of(done.folder) == {"None"}


def test_a_store_may_answer_itself(stores: Job) -> None:
    with serving(reply) as server:
        memory = {"store": f"{OWN}:Answering", "answers": True}
        done = finish(stores(server, memory))
        assert not server.requests
    texts = {record.response.text for record in done.folder.each() if record.response}
    assert all(text.startswith("I remember ") for text in texts)
    (arm,) = done.summary.arms
    assert arm.store is not None  # what it says of itself; its writes took nothing
    assert (arm.store.tokens, arm.store.usd) == (7 * N_QUESTIONS, 0.5 * N_QUESTIONS)


def test_the_report_says_what_a_memory_is_worth_and_takes(stores: Job) -> None:
    with serving(reply) as server:
        blind = Candidate.model_validate(served(server, "blind", context="none"))
        memory = {"store": "bm25", "write_usd": 0.25, "search_usd": 0.0}
        config = stores(server, memory)
        done = finish(config.model_copy(update={"candidates": (*config.candidates, blind)}))
    arm, blind = done.summary.arms
    assert (arm.arm, blind.store) == ("memory: bm25", None)
    store = arm.store
    assert store is not None
    assert (store.n_writes, store.n_searches) == (N_SESSIONS, N_QUESTIONS)
    assert store.usd == pytest.approx(0.25 * N_SESSIONS)
    assert store.is_estimated
    assert store.tokens > 0
    assert (store.write_p50_s or 0) <= (store.write_p95_s or 0)
    assert 0 < (store.complete or 0) <= 1
    (difference,) = store.differences
    assert (difference.other, difference.n, difference.difference) == ("blind", N_QUESTIONS, 0.0)
    text = render(done.summary)
    assert "MEMORY STORES" in text
    assert "accuracy of" in text
    assert "MEMORY STORES" in render_html(done.folder)


@pytest.mark.parametrize("suite", ["longmemeval", "beam", "personamem"])
def test_every_benchmark_of_conversations_takes_a_memory(stores: Job, suite: str) -> None:
    folder = {"beam": "beam/chats"}.get(suite, suite)
    with serving(reply) as server:
        done = finish(
            stores(
                server,
                "bm25",
                suite=suite,
                dataset=str(REPOSITORY / "dataset" / folder),
                metrics=["rule_score", "evidence_recall"][suite != "personamem" :],
            )
        )
    assert errors_of(done.folder) == {"None"}
    (arm,) = done.summary.arms
    assert arm.store is not None
    assert arm.store.n_searches == arm.n
    if suite != "personamem":  # whose tables name no evidence
        assert 0 < (arm.recall or 0) <= 1


def test_a_question_does_not_find_what_was_said_after_it(stores: Job, tmp_path: Path) -> None:
    published = REPOSITORY / "dataset/personamem"
    head, *rows = (published / "questions_32k.csv").read_text().splitlines(keepends=True)
    (tmp_path / "questions_32k.csv").write_text("".join([head, *reversed(rows)]))  # latest first
    shutil.copy(published / "shared_contexts_32k.jsonl", tmp_path)
    with serving(reply) as server:
        memory = {"store": f"{OWN}:Plain", "k": 1000}
        done = finish(stores(server, memory, suite="personamem", dataset=str(tmp_path),
                             metrics=["rule_score"]))  # fmt: skip
    returned = {of.sample.id: len(of.sample.metadata["retrieved"]) for of in done.folder.each()}
    assert (returned["mila-1"], returned["mila-2"]) == (5, 10)  # messages so far


def test_an_estimate_counts_what_a_memory_shows(stores: Job) -> None:
    with serving(reply) as server:
        job = stores(server, {"store": "bm25", "k": 5})
        estimated = estimate_of(job)
        finish(job)
        prompts = [body["messages"][-1]["content"] for body in server.requests]
    assert estimated.prompt_tokens == pytest.approx(sum(map(len, prompts)) / 4, rel=0.01)
    assert any("their own models' calls and dollars" in line for line in estimated.not_estimated)

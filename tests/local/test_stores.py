"""Whole runs of candidates whose memory is a store: written once, asked once, what goes wrong;
models that search it themselves by tools; and a right store and seven wrong ones by what they
write."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.conversations import Session, SpokenTurn
from memray_eval.benchmarks.memory_writes import TASKS
from memray_eval.config.schema import RunConfig
from memray_eval.errors import Stopped
from memray_eval.execution.runs import estimate_of
from memray_eval.report.console import render
from memray_eval.report.html.page import render_html
from memray_eval.results.run_folder import RunFolder
from memray_eval.stores import memories
from memray_eval.stores.tools import ask_with_tools
from memray_eval.types import Candidate, Memory, Message, Prompt, Response, Summary, ToolCall
from tests.build import Job, build_sample, finish, go_on, served
from tests.conftest import REPOSITORY
from tests.servers.provider import Fault, Raw, serving

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


def calls_of(folder: RunFolder) -> list[dict[str, Any]]:
    return list(map(json.loads, folder.read("stores/calls.log").splitlines()))


def count_calls(folder: RunFolder) -> Counter[str]:
    return Counter(call["what"] for call in calls_of(folder))


def responses_of(folder: RunFolder) -> list[Response]:
    return [record.response for record in folder.each() if record.response]


def errors_of(folder: RunFolder) -> set[str | None]:
    return {response.error for response in responses_of(folder)}


def test_prompts_show_what_the_stores_in_this_process_return(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, "bm25", {"store": "embedding", "k": 2}))
        assert len(server.requests) == 2 * N_QUESTIONS
    assert errors_of(done.folder) == {None}
    records = list(done.folder.each())
    for record in records:
        assert "recalled" not in record.sample.metadata
        k = 2 if record.candidate.name == "1" else 20
        assert 0 < len(record.sample.metadata["retrieved"]) <= k
    assert "evidence_recall" in {metric.metric for metric in done.summary.metrics}
    held = {path.read_text() for path in Path(done.folder.path).rglob("*.entries")}
    assert held == {""}  # torn down


def test_a_conversation_is_written_once_for_all_questions(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, f"{OWN}:Plain", epochs=2))
    calls = count_calls(done.folder)
    assert calls["open"] == calls["delete"] == 2 * N_CONVERSATIONS
    assert calls["ingest"] == 2 * N_SESSIONS
    assert calls["search"] == 2 * N_QUESTIONS
    assert errors_of(done.folder) == {None}


def test_a_store_needs_neither_open_nor_ready(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, f"{OWN}:Bare"))
    assert errors_of(done.folder) == {None}
    assert count_calls(done.folder)["ingest"] == N_SESSIONS


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
    failed = errors_of(done.folder) - {None}
    assert all(error in str(text) for text in failed), failed
    assert done.summary.n_failed_units == N_QUESTIONS
    if name == "Occupied":  # what real users wrote is never deleted
        assert count_calls(done.folder)["delete"] == 0


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
    calls = count_calls(again.folder)
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
        again = go_on(folder, settings=["on_error=record"])
        errors = errors_of(again.folder)
        assert any("StoreLost: the store has lost" in str(error) for error in errors)
        lost.unlink()
        assert go_on(folder).summary.n_failed_units == 0


def test_one_thread_at_a_time_calls_a_store_that_says_nothing_else(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, {"store": f"{OWN}:Alone"}, epochs=3))
    assert errors_of(done.folder) == {None}


def test_a_store_may_answer_itself(stores: Job) -> None:
    with serving(reply) as server:
        done = finish(stores(server, {"store": f"{OWN}:Answering", "answers": True}))
        assert not server.requests
    assert all(of.text.startswith("I remember ") for of in responses_of(done.folder))
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
    dataset = str(REPOSITORY / "dataset" / {"beam": "beam/chats"}.get(suite, suite))
    metrics = ["rule_score", "evidence_recall"][suite != "personamem" :]
    with serving(reply) as server:
        done = finish(stores(server, "bm25", suite=suite, dataset=dataset, metrics=metrics))
    assert errors_of(done.folder) == {None}
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


def calling(*calls: tuple[str, str]) -> Raw:
    """A stream that calls tools, with arguments in two pieces each."""
    lines: list[dict[str, Any]] = []
    for number, (name, arguments) in enumerate(calls):
        head = {"index": number, "id": f"call-{number}", "type": "function"}
        half = len(arguments) // 2
        for event in (
            {**head, "function": {"name": name, "arguments": arguments[:half]}},
            {"index": number, "function": {"arguments": arguments[half:]}},
        ):
            lines.append({"choices": [{"index": 0, "delta": {"tool_calls": [event]}}]})
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    lines += [{"choices": [end]}, {"choices": [], "usage": usage}]
    body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
    return Raw(body.encode(), content_type="text/event-stream")


@pytest.fixture
def tools(stores: Job) -> Job:
    """Six questions, asked of a server whose model has a memory's tools."""

    def make(server: Any, store: str, rounds: int = 2) -> RunConfig:
        return stores(server, {"store": store, "tools": rounds, "k": 5}, limit=6)

    return make


def heard(body: dict[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def question(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"]).partition("Question: ")[2].partition("\n")[0]


def test_a_model_searches_and_answers(tools: Job) -> None:
    def reply(body: dict[str, Any]) -> str | Raw:
        if heard(body):
            return "I found it."
        return calling(("search_memory", json.dumps({"query": question(body)})))

    with serving(reply) as server:
        done = finish(tools(server, "bm25"))
        assert len(server.requests) == 12
        first, second = server.requests[0], next(body for body in server.requests if heard(body))
    expected = ["search_memory", "save_memory", "forget"]
    assert [tool["function"]["name"] for tool in first["tools"]] == expected
    assert "(No earlier conversation is shown.)" in first["messages"][0]["content"]
    assert [message["role"] for message in second["messages"][-2:]] == ["assistant", "tool"]
    assert 0 < len(json.loads(heard(second)[0])) <= 5
    responses = responses_of(done.folder)
    assert {(of.text, of.no_answer) for of in responses} == {("I found it.", None)}
    assert all((response.prompt_tokens or 0) > 10 for response in responses)  # of both rounds
    (arm,) = done.summary.arms
    assert arm.store is not None
    counts = arm.store.tools
    assert counts["found"] + counts["in vain"] + counts["needless"] == 6
    assert counts["found"] > 0
    assert (counts["not called"], arm.store.n_searches) == (0, 6)
    assert "by its tools: found" in render(done.summary)


def test_what_a_model_saves_and_forgets_is_in_the_store(tools: Job) -> None:
    rounds = [
        [("save_memory", '{"text": "likes tea"}')],
        [("forget", '{"id": "saved 1"}'), ("forget", '{"id": "nobody"}')],
    ]

    def reply(body: dict[str, Any]) -> str | Raw:
        results = heard(body)
        return "done" if len(results) > 2 else calling(*rounds[len(results)])

    with serving(reply) as server:
        done = finish(tools(server, f"{OWN}:Plain"))
        last = max(server.requests, key=lambda body: len(heard(body)))
    error = "error: nothing that you remember has the id 'nobody'"
    assert heard(last) == ["saved", "deleted", error]
    (arm,) = done.summary.arms
    assert arm.store is not None
    assert (arm.store.tools["saved"], arm.store.tools["forgot"]) == (6, 6)
    assert arm.store.tools["not called"] > 0
    deleted = [call["ids"] for call in calls_of(done.folder) if call["what"] == "delete"]
    assert deleted.count(["saved 1"]) == 6
    assert deleted.count(None) == 6  # each question had a partition of its own


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c1", "forget", '{"id": "S1:1"}'),
        ToolCall("c1", "save_memory", '{"text": "likes tea"}'),
    ],
)
async def test_an_answer_that_is_asked_again_has_the_memory_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: ToolCall
) -> None:
    memory, sample = Memory(store="bm25", tools=2), build_sample()
    candidate = Candidate(name="m", model="m", memory=memory)
    replies = [Response(text="", tool_calls=(call,)), Response(error="Unavailable: timed out")]

    async def ask(prompt: Prompt, candidate: Candidate) -> Response:
        return replies.pop(0)

    held = []
    for process in ("first", "resumed"):
        monkeypatch.setattr(memories, "_PROCESS", process)
        partition = memories.Partition("r/q/1/s", memory, str(tmp_path), {})
        partition.fill((Session("S1", "", (SpokenTurn("S1:1", "Ann", "I like coffee."),)),))
        held.append([entry.id for entry in partition.entries()])
        if replies:
            prompt = Prompt(messages=(Message(role="user", content="q"),))
            await ask_with_tools(prompt, candidate, sample, "u", partition, ask)
            assert [entry.id for entry in partition.entries()] != held[0]
    assert held == [["S1:1"]] * 2
    resumed = memories.Partition("r/q/1/s", memory, str(tmp_path), {})
    resumed.fill(())
    assert len(resumed.entries()) == 1, "what is as it was is not written again"


async def test_all_that_a_model_saves_is_kept_if_its_server_repeats_ids(tmp_path: Path) -> None:
    memory, sample = Memory(store="bm25", tools=2), build_sample()
    saves = [ToolCall("", "save_memory", json.dumps({"text": text})) for text in "abc"]
    replies = [saves[:2], saves[2:], []]

    async def ask(prompt: Prompt, candidate: Candidate) -> Response:
        return Response(text="done", tool_calls=tuple(replies.pop(0)))

    partition = memories.Partition("r/q/1/s", memory, str(tmp_path), {})
    partition.fill(())
    prompt = Prompt(messages=(Message(role="user", content="q"),))
    candidate = Candidate(name="m", model="m", memory=memory)
    await ask_with_tools(prompt, candidate, sample, "u", partition, ask)
    replies += [saves[2:], []]  # an actor was lost: its block is asked again by another
    partition = memories.Partition("r/q/1/s", memory, str(tmp_path), {})
    await ask_with_tools(prompt, candidate, sample, "u", partition, ask)
    texts = [entry.text.removeprefix("user: ") for entry in partition.entries()]
    assert texts == ["a", "b", "c", "c"]


@pytest.mark.parametrize(
    "odd", [("search_memory", "{"), ("search_memory", '{"query": 3}'), ("rm", '{"query": "a"}')]
)
def test_an_odd_call_is_answered_and_rounds_end(tools: Job, odd: tuple[str, str]) -> None:
    with serving(lambda body: calling(odd)) as server:
        done = finish(tools(server, "bm25", rounds=1))
        assert len(server.requests) == 12
        assert {body.get("tool_choice") for body in server.requests} == {None, "none"}
        results = [text for body in server.requests for text in heard(body)]
        assert all(text.startswith("error: call search_memory") for text in results)
        assert len(results) == 6
    assert {response.no_answer for response in responses_of(done.folder)} == {"tool_call"}


def test_a_store_that_fails_a_call_is_the_rows_error(tools: Job) -> None:
    with serving(lambda body: calling(("search_memory", '{"query": "tea"}'))) as server:
        done = finish(tools(server, f"{OWN}:Odd"))
    expected = {"OddReply: the store returned dict, not a list of entries"}
    assert errors_of(done.folder) == expected


Shares = Callable[..., tuple[Summary, dict[str, dict[str, float]]]]
WRITING = REPOSITORY / "tests/servers/writing_stores.py"
WRONG = {"".join(part.title() for part in task.split("_")): task for task in TASKS}


@pytest.fixture
def shares(job: Job) -> Shares:
    """The share of scripts that each store did right by, by task."""

    def run(*stores: str) -> tuple[Summary, dict[str, dict[str, float]]]:
        with serving(lambda body: "I remember.") as server:
            candidates = [
                served(server, store.rpartition(":")[2], memory=store) for store in stores
            ]
            dataset = str(REPOSITORY / "dataset/memory_writes")
            fields = {"suite": "memory_writes", "dataset": dataset, "metrics": ["rule_score"]}
            summary = finish(job(server, candidates=candidates, **fields)).summary
        means = {
            arm.candidate: {
                str(row.category): row.mean for row in arm.categories if row.category is not None
            }
            for arm in summary.arms
        }
        return summary, means

    return run


@pytest.mark.night
def test_each_wrong_store_is_found_and_the_right_one_is_not(shares: Shares) -> None:
    summary, means = shares(*(f"{WRITING}:{name}" for name in ("Right", *WRONG)))
    assert summary.n_units == 8 * 41 * len(TASKS)
    assert means["Right"] == dict.fromkeys(TASKS, 1.0)
    for name, wrong in WRONG.items():
        others = dict.fromkeys(set(TASKS) - {wrong}, 1.0)
        assert {task: means[name][task] for task in others} == others, name
        assert means[name][wrong] <= 0.05, name
    text = render(summary)
    assert "MEMORY STORES" in text


def test_a_verbatim_store_forgets_nothing(shares: Shares) -> None:
    _, means = shares("bm25")
    right = {task for task, share in means["bm25"].items() if share == 1.0}
    assert {"claimed", "other_user"} <= right
    wrong = ("unclaimed", "duplicates", "superseded", "forgotten", "secret")
    assert all(means["bm25"][task] < 0.1 for task in wrong), means

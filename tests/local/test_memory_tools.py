"""Models that search their memory themselves: rounds of calls, what is counted, what goes wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.conversations import Session, SpokenTurn
from memray_eval.config.schema import RunConfig
from memray_eval.report.console import render
from memray_eval.stores import memories
from memray_eval.stores.tools import ask_with_tools
from memray_eval.types import Candidate, Memory, Message, Prompt, Response, ToolCall
from tests.build import Job, build_sample, finish, served
from tests.conftest import REPOSITORY
from tests.servers.provider import Raw, serving

OWN = REPOSITORY / "tests/servers/stores.py"


def calling(*calls: tuple[str, str]) -> Raw:
    """A stream that calls tools, with arguments in two pieces each."""
    events: list[dict[str, Any]] = []
    for number, (name, arguments) in enumerate(calls):
        head = {"index": number, "id": f"call-{number}", "type": "function"}
        half = len(arguments) // 2
        events.append({**head, "function": {"name": name, "arguments": arguments[:half]}})
        events.append({"index": number, "function": {"arguments": arguments[half:]}})
    deltas = [{"tool_calls": [event]} for event in events]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    lines = [*chunks, {"choices": [end]}, {"choices": [], "usage": usage}]
    body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
    return Raw(body.encode(), content_type="text/event-stream")


@pytest.fixture
def tools(job: Job) -> Job:
    """LoCoMo's examples, asked of a server whose model has a memory's tools."""

    def make(server: Any, store: str, rounds: int = 2) -> RunConfig:
        memory = {"store": store, "tools": rounds, "k": 5}
        return job(
            server,
            suite="locomo",
            dataset=str(REPOSITORY / "dataset/locomo"),
            candidates=[served(server, memory=memory)],
            metrics=["rule_score", "evidence_recall"],
            limit=6,
        )

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
    responses = [record.response for record in done.folder.each() if record.response]
    assert {(response.text, response.no_answer) for response in responses} == {
        ("I found it.", None)
    }
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
    deleted = [
        json.loads(line)["ids"]
        for line in (Path(done.folder.path) / "stores/calls.log").read_text().splitlines()
        if json.loads(line)["what"] == "delete"
    ]
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
    assert [entry.text for entry in partition.entries()] == ["user: a", "user: b", "user: c"]


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
    causes = {record.response.no_answer for record in done.folder.each() if record.response}
    assert causes == {"tool_call"}


def test_a_store_that_fails_a_call_is_the_rows_error(tools: Job) -> None:
    def reply(body: dict[str, Any]) -> str | Raw:
        return calling(("search_memory", '{"query": "tea"}'))

    with serving(reply) as server:
        done = finish(tools(server, f"{OWN}:Odd"))
    errors = {record.response.error for record in done.folder.each() if record.response}
    assert errors == {"OddReply: the store returned dict, not a list of entries"}

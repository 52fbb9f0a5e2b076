"""A candidate behind an OpenAI-compatible server, asked through the real client: its answers, what
a reply is that holds none, and a content that is a list of parts."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from memray_eval.config.sections import ServerConfig
from memray_eval.execution.stages.generate import generate
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.provider_http import closing_clients
from memray_eval.types import Candidate, Message, Prompt, Response
from tests.build import served
from tests.servers.no_answers import SERVERS, THOUGHTS, reply_with
from tests.servers.provider import Answer, Provider, Raw, Reply, serving

PROMPT = Prompt(
    messages=(Message(role="user", content="Where does it rain?"),), max_tokens=7, stop=("\n",)
)


def candidate_of(server: Provider, **fields: Any) -> Candidate:
    return Candidate.model_validate(served(server, **fields))


def ask(server: Provider, times: int = 1, prompt: Prompt = PROMPT, **fields: Any) -> list[Response]:
    candidate = candidate_of(server, **fields)

    async def answers() -> list[Response]:
        async with closing_clients():
            generator = OpenAIGenerator(candidate, ServerConfig())
            return [await generator.generate(prompt, candidate) for _ in range(times)]

    return asyncio.run(answers())


def answer_of(prompt: Prompt, reply: str) -> tuple[Response, dict[str, Any]]:
    with serving(lambda body: Answer(reply)) as server:
        return ask(server, prompt=prompt)[0], server.requests[0]


def test_a_chat_prompt_goes_to_the_chat_completions() -> None:
    response, body = answer_of(PROMPT, "In Bergen")
    assert body["messages"] == [{"role": "user", "content": "Where does it rain?"}]
    assert (body["max_tokens"], body["stop"]) == (7, ["\n"])
    expected = ("In Bergen", "chat", "stop")
    assert (response.text, response.prompt_form, response.finish_reason) == expected
    assert (response.output_tokens, response.error) == (2, None)


def test_a_plain_prompt_goes_to_the_completions() -> None:
    response, body = answer_of(PROMPT.model_copy(update={"is_chat": False}), "In Bergen")
    assert body["prompt"] == "Where does it rain?"
    assert "messages" not in body
    expected = ("In Bergen", "plain", "stop")
    assert (response.text, response.prompt_form, response.finish_reason) == expected


def test_a_server_that_answers_as_a_whole_is_understood() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    body = reply_with({"content": "In Bergen"}, "stop", usage, streams=False).body
    assert isinstance(body, bytes)
    with serving(lambda _: Raw((body[:9], body[9:]))) as server:
        for response in ask(server, 2):
            assert (response.text, response.error) == ("In Bergen", None)
            assert (response.prompt_tokens, response.output_tokens) == (5, 2)
            assert response.ttft_s is None  # nobody saw the first token
            assert response.duration_s is not None


def test_a_server_that_refuses_to_stream_is_asked_without() -> None:
    def reply(body: dict[str, Any]) -> Answer | Raw:
        if body.get("stream"):
            error = {"error": {"message": "stream is not supported", "param": "stream"}}
            return Raw(json.dumps(error).encode(), status=400)
        return Answer("In Bergen")

    with serving(reply) as server:
        assert [response.text for response in ask(server, 2)] == ["In Bergen"] * 2
        assert [bool(body.get("stream")) for body in server.requests] == [True, False, False]
    with serving(reply) as server:
        error = str(ask(server, 2, stream=True)[0].error)
        assert error.startswith("GenerationError: ")
        assert "stream is not supported" in error


def test_stream_false_never_asks_for_one() -> None:
    with serving(lambda body: Answer("In Bergen")) as server:
        assert [response.text for response in ask(server, 2, stream=False)] == ["In Bergen"] * 2
        assert not any("stream" in body for body in server.requests)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_in_a_field_of_its_own_is_no_text(field: str, stream: bool) -> None:
    answer = Answer("In Bergen", model="m-2026", thinking="The west.", thinking_in=field)
    with serving(lambda body: answer) as server:
        for response in ask(server, 2, stream=stream):
            seen = (response.text, response.thinking, response.thinking_blocks, response.raw)
            assert seen == ("In Bergen", "The west.", 1, "")
            assert response.served_model == "m-2026"


@pytest.mark.parametrize("name", [None, 7, {"a": 1}, "", "  "])
def test_a_reply_that_names_no_model_is_an_answer(name: Any) -> None:
    body = {"model": name, "choices": [{"message": {"content": "In Bergen"}}]}
    with serving(lambda _: Raw(json.dumps(body).encode())) as server:
        for response in ask(server, 2):
            expected = ("In Bergen", None, None)
            assert (response.text, response.error, response.served_model) == expected


def test_marks_that_come_in_several_events_are_marks() -> None:
    response, _ = answer_of(PROMPT, "[THINK]The west, where it </think> [/THINK] In Bergen [/THI")
    assert (response.text, response.thinking_blocks) == ("In Bergen [/THI", 1)
    assert response.raw.startswith("[THINK]The west")


def test_a_first_call_holds_no_imports_of_the_client() -> None:
    """It took 0.5 to 1.2 s of the candidate's duration."""
    code = """
import asyncio, sys
from memray_eval.config.sections import ServerConfig
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.types import Candidate, Message, Prompt
from tests.servers.no_answers import reply_with
from tests.servers.provider import serving

reply = reply_with({"content": "hi"}, "stop", {}, streams=True)
with serving(lambda body: reply) as server:
    candidate = Candidate(name="c", model="m", backend="openai", base_url=server.base_url)
    generator = OpenAIGenerator(candidate, ServerConfig())
    before = {*sys.modules}
    prompt = Prompt(messages=(Message(role="user", content="x"),))
    answer = asyncio.run(generator.generate(prompt, candidate))
    print(answer.text, *sorted({*sys.modules} - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "hi\n", done.stderr


SHAPES = pytest.mark.parametrize("streams", [False, True])


def generated(reply: Reply, **fields: Any) -> tuple[Response, list[dict[str, Any]]]:
    """What the stage makes of it, which may ask again, and the requests."""

    async def answer(candidate: Candidate) -> Response:
        async with closing_clients():
            generator = OpenAIGenerator(candidate, ServerConfig())
            return await generate(PROMPT, candidate, None, generator)

    with serving(reply) as server:
        return asyncio.run(answer(candidate_of(server, **fields))), list(server.requests)


def reply(message: Mapping[str, Any], finish: str, usage: Any = None, *, streams: bool) -> Response:
    reply = reply_with(message, finish, usage or {}, streams=streams)
    return generated(lambda body: reply)[0]


@SHAPES
@pytest.mark.parametrize("cause", SERVERS)
def test_each_server_of_no_answer_is_told_by_its_cause(cause: str, streams: bool) -> None:
    response = reply(*SERVERS[cause], streams=streams)
    assert (response.no_answer, response.text, response.error) == (cause, "", None)
    assert response.refusal == ("I cannot help with that." if cause == "refusal" else "")
    assert response.thinking == ("Hm." if cause in ("limit", "thinking_only") else "")


@SHAPES
@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 5, "completion_tokens": 7},
        {"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 7}},
    ],
)
def test_a_stop_whose_usage_shows_that_the_limit_is_used_up(
    usage: dict[str, Any], streams: bool
) -> None:
    assert reply({"content": ""}, "stop", usage, streams=streams).no_answer == "limit"
    few = {"prompt_tokens": 5, "completion_tokens": 2}
    assert reply({"content": ""}, "stop", few, streams=streams).no_answer == "empty"
    spoken = reply({"content": "In Bergen"}, "length", usage, streams=streams)
    assert (spoken.text, spoken.no_answer) == ("In Bergen", None)


@SHAPES
def test_a_content_of_parts_is_read(streams: bool) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = [
        *THOUGHTS,
        {"type": "text", "text": "In "},
        picture,
        {"type": "output_text", "text": "Bergen"},
    ]
    response = reply({"content": parts}, "stop", streams=streams)
    assert (response.text, response.thinking, response.no_answer) == ("In Bergen", "Hm.", None)
    assert reply({"content": THOUGHTS}, "stop", streams=streams).no_answer == "thinking_only"
    refused = reply({"content": [{"type": "refusal", "refusal": "No."}]}, "stop", streams=streams)
    assert (refused.no_answer, refused.refusal) == ("refusal", "No.")


@SHAPES
@pytest.mark.parametrize("odd", [[7], [{"type": "text", "text": 7}], {"text": "x"}, [[]]])
def test_parts_that_are_none_are_an_error_of_the_answer(odd: Any, streams: bool) -> None:
    response = reply({"content": odd}, "stop", streams=streams)
    assert "content" in (response.error or "")
    assert response.no_answer is None


def test_a_prompt_that_azure_filters_is_no_error() -> None:
    error = {"error": {"code": "content_filter", "message": "filtered", "param": "prompt"}}
    response, requests = generated(lambda body: Raw(json.dumps(error).encode(), status=400))
    assert (response.no_answer, response.error) == ("content_filter", None)
    assert len(requests) == 1


@SHAPES
def test_it_is_asked_once_more_with_a_larger_limit(streams: bool) -> None:
    first = reply_with(*SERVERS["limit"], streams=streams)
    usage = {"prompt_tokens": 5, "completion_tokens": 20}
    second = reply_with({"content": "In Bergen"}, "stop", usage, streams=streams)
    response, requests = generated(
        lambda body: second if body["max_tokens"] == 64 else first, retry_max_tokens=64
    )
    assert [body["max_tokens"] for body in requests] == [7, 64]
    expected = ("In Bergen", None, 64)
    assert (response.text, response.no_answer, response.raised_max_tokens) == expected
    assert (response.prompt_tokens, response.output_tokens) == (10, 27)


@pytest.mark.parametrize("cause", ["refusal", "null", "tool_call", "content_filter"])
def test_what_a_larger_limit_does_not_change_is_not_asked_again(cause: str) -> None:
    reply = reply_with(*SERVERS[cause], streams=True)
    response, requests = generated(lambda body: reply, retry_max_tokens=64)
    assert (len(requests), response.raised_max_tokens) == (1, None)


def test_a_second_asking_that_fails_leaves_the_first_outcome() -> None:
    first = reply_with(*SERVERS["limit"], streams=True)
    refused = Raw(b'{"error": {"message": "too many tokens"}}', status=400)
    response, _ = generated(
        lambda body: refused if body["max_tokens"] == 64 else first, retry_max_tokens=64
    )
    assert (response.no_answer, response.error, response.raised_max_tokens) == ("limit", None, 64)
    assert response.output_tokens == 7


def test_an_answer_that_is_there_is_asked_once() -> None:
    response, requests = generated(lambda body: Answer("In Bergen"), retry_max_tokens=64)
    assert (response.no_answer, len(requests)) == (None, 1)

"""What a server's reply is where it holds no answer, and a content that is a list of parts."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from memray_eval.config.sections import ServerConfig
from memray_eval.execution.stages.generate import generate
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.provider_http import closing_clients
from memray_eval.types import Candidate, Message, Prompt, Response
from tests.servers.no_answers import SERVERS, THOUGHTS, reply_with
from tests.servers.provider import Answer, Raw, Reply, serving

PROMPT = Prompt(messages=(Message(role="user", content="Where does it rain?"),), max_tokens=7)
SHAPES = pytest.mark.parametrize("streams", [False, True])


def ask(reply: Reply, **fields: Any) -> tuple[Response, list[dict[str, Any]]]:
    with serving(reply) as server:
        candidate = Candidate(
            name="c", model="m", backend="openai", base_url=server.base_url, **fields
        )

        async def answer() -> Response:
            async with closing_clients():
                generator = OpenAIGenerator(candidate, ServerConfig())
                return await generate(PROMPT, candidate, None, generator)

        return asyncio.run(answer()), list(server.requests)


def reply(message: Mapping[str, Any], finish: str, usage: Any = None, *, streams: bool) -> Response:
    reply = reply_with(message, finish, usage or {}, streams=streams)
    return ask(lambda body: reply)[0]


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
    response, requests = ask(lambda body: Raw(json.dumps(error).encode(), status=400))
    assert (response.no_answer, response.error) == ("content_filter", None)
    assert len(requests) == 1


@SHAPES
def test_it_is_asked_once_more_with_a_larger_limit(streams: bool) -> None:
    first = reply_with(*SERVERS["limit"], streams=streams)
    usage = {"prompt_tokens": 5, "completion_tokens": 20}
    second = reply_with({"content": "In Bergen"}, "stop", usage, streams=streams)
    response, requests = ask(
        lambda body: second if body["max_tokens"] == 64 else first, retry_max_tokens=64
    )
    assert [body["max_tokens"] for body in requests] == [7, 64]
    expected = ("In Bergen", None, 64)
    assert (response.text, response.no_answer, response.raised_max_tokens) == expected
    assert (response.prompt_tokens, response.output_tokens) == (10, 27)


@pytest.mark.parametrize("cause", ["refusal", "null", "tool_call", "content_filter"])
def test_what_a_larger_limit_does_not_change_is_not_asked_again(cause: str) -> None:
    reply = reply_with(*SERVERS[cause], streams=True)
    response, requests = ask(lambda body: reply, retry_max_tokens=64)
    assert (len(requests), response.raised_max_tokens) == (1, None)


def test_a_second_asking_that_fails_leaves_the_first_outcome() -> None:
    first = reply_with(*SERVERS["limit"], streams=True)
    refused = Raw(b'{"error": {"message": "too many tokens"}}', status=400)
    response, _ = ask(
        lambda body: refused if body["max_tokens"] == 64 else first, retry_max_tokens=64
    )
    assert (response.no_answer, response.error, response.raised_max_tokens) == ("limit", None, 64)
    assert response.output_tokens == 7


def test_an_answer_that_is_there_is_asked_once() -> None:
    response, requests = ask(lambda body: Answer("In Bergen"), retry_max_tokens=64)
    assert (response.no_answer, len(requests)) == (None, 1)

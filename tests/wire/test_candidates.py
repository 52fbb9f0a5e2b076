"""A candidate behind an OpenAI-compatible server, asked through the real client."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from memray_eval.config.sections import ServerConfig
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.provider_http import closing_clients
from memray_eval.types import Candidate, Message, Prompt, Response
from tests.servers.provider import Answer, Provider, Raw, serving

PROMPT = Prompt(
    messages=(Message(role="user", content="Where does it rain?"),), max_tokens=7, stop=("\n",)
)


def ask(server: Provider, times: int = 1, prompt: Prompt = PROMPT, **fields: Any) -> list[Response]:
    candidate = Candidate(name="c", model="m", backend="openai", base_url=server.base_url, **fields)

    async def generate() -> list[Response]:
        async with closing_clients():
            generator = OpenAIGenerator(candidate, ServerConfig())
            return [await generator.generate(prompt, candidate) for _ in range(times)]

    return asyncio.run(generate())


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


def whole(text: str) -> Raw:
    """A reply that is no stream, though one was asked for, in pieces."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    body = json.dumps({"choices": [choice], "usage": usage}, indent=1).encode()
    return Raw((body[:9], body[9:]))


def test_a_server_that_answers_as_a_whole_is_understood() -> None:
    with serving(lambda body: whole("In Bergen")) as server:
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

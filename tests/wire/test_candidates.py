"""A candidate behind an OpenAI-compatible server, asked through the real client."""

from __future__ import annotations

import asyncio
from typing import Any

from memray_eval.config.sections import ServerConfig
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.types import Candidate, Message, Prompt, Response
from tests.servers.provider import Answer, serving

PROMPT = Prompt(
    messages=(Message(role="user", content="Where does it rain?"),), max_tokens=7, stop=("\n",)
)


def asked(prompt: Prompt, reply: str) -> tuple[Response, dict[str, Any]]:
    with serving(lambda body: Answer(reply), keep_requests=True) as server:
        candidate = Candidate(name="c", model="m", backend="openai", base_url=server.base_url)

        async def ask() -> Response:
            return await OpenAIGenerator(candidate, ServerConfig()).generate(prompt, candidate)

        return asyncio.run(ask()), server.requests[0]


def test_a_chat_prompt_goes_to_the_chat_completions() -> None:
    response, body = asked(PROMPT, "In Bergen")
    assert body["messages"] == [{"role": "user", "content": "Where does it rain?"}]
    assert (body["max_tokens"], body["stop"]) == (7, ["\n"])
    assert (response.text, response.prompt_form, response.finish_reason) == (
        "In Bergen",
        "chat",
        "stop",
    )
    assert (response.output_tokens, response.error) == (2, None)


def test_a_plain_prompt_goes_to_the_completions() -> None:
    response, body = asked(PROMPT.model_copy(update={"is_chat": False}), "In Bergen")
    assert body["prompt"] == "Where does it rain?"
    assert "messages" not in body
    assert (response.text, response.prompt_form, response.finish_reason) == (
        "In Bergen",
        "plain",
        "stop",
    )


def test_thinking_is_taken_out_and_counted() -> None:
    response, _ = asked(PROMPT, "<think>Rain falls in the west.</think> In Bergen")
    assert (response.text, response.thinking, response.thinking_blocks) == (
        "In Bergen",
        "Rain falls in the west.",
        1,
    )

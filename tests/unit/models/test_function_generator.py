"""What a user's function answers, and why it may be no answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from memray_eval.config.sections import ServerConfig
from memray_eval.models.function_generator import FunctionGenerator
from memray_eval.types import Candidate, Message, Prompt, Response

PROMPT = Prompt(messages=(Message(role="user", content="q"),))
CANDIDATE = Candidate(name="c", model="mine/f", backend="code")


def generator_of(function: Any, at_once: int | None = None) -> FunctionGenerator:
    code: Any = SimpleNamespace(load=lambda: function)
    return FunctionGenerator(code, ServerConfig(), at_once)


@pytest.mark.parametrize(
    ("returned", "cause"),
    [
        ("Bergen", None),
        (" ", "empty"),
        ("<think>never ends", "thinking_only"),
        (Response(text="", finish_reason="length"), "limit"),
        (Response(text="", refusal="I cannot."), "refusal"),
    ],
)
async def test_why_a_function_gave_no_answer(returned: Any, cause: str | None) -> None:
    generator = generator_of(lambda messages: returned)
    response = await generator.generate(PROMPT, CANDIDATE)
    assert (response.no_answer, response.error) == (cause, None)


@pytest.mark.parametrize("at_once", [1, None])
async def test_calls_beside_each_other(at_once: int | None) -> None:
    under_way, most = 0, 0

    async def answer(messages: Any) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return "Bergen"

    generator = generator_of(answer, at_once)
    await asyncio.gather(*(generator.generate(PROMPT, CANDIDATE) for _ in range(3)))
    assert most == (at_once or 3)

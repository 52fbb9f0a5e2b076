"""What a user's function answers, and why it may be no answer."""

import asyncio
from typing import Any, cast

import pytest

from memray_eval.config.sections import ServerConfig
from memray_eval.models.function_generator import FunctionGenerator
from memray_eval.types import Candidate, Message, Prompt, Response

PROMPT = Prompt(messages=(Message(role="user", content="q"),))


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
    class Code:
        def load(self) -> Any:
            return lambda messages: returned

    candidate = Candidate(name="c", model="mine/f", backend="code")

    generator = FunctionGenerator(cast(Any, Code()), ServerConfig())
    response = await generator.generate(PROMPT, candidate)
    assert (response.no_answer, response.error) == (cause, None)


@pytest.mark.parametrize("at_once", [1, None])
async def test_calls_beside_each_other(at_once: int | None) -> None:
    under_way, most = 0, 0

    class Code:
        def load(self) -> Any:
            return answer

    async def answer(messages: Any) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return "Bergen"

    generator = FunctionGenerator(cast(Any, Code()), ServerConfig(), at_once)
    candidate = Candidate(name="c", model="mine/f", backend="code")
    await asyncio.gather(*(generator.generate(PROMPT, candidate) for _ in range(3)))
    assert most == (at_once or 3)

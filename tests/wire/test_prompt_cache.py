"""Prompt caches over real SDKs: what goes to a provider that keeps the start of prompts, how each
counts its tokens, and that the local server keeps to the published rules."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from memray_eval.judges.prices import Price
from memray_eval.judges.prompt_cache import PromptCache
from memray_eval.ports import Verdict
from memray_eval.provider_http import closing_clients
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Usage
from tests.servers.prompt_cache import PromptCache as ServerCache
from tests.servers.provider import Provider, serving
from tests.wire.test_judges import GOOD, Rating, build

PRICE = Price(5.0, 25.0, 0.5, 6.25, 10.0, 0.5)
MEMORY = "\n".join(f"day_{day}: walked {day} km" for day in range(400))
KNOWN = PromptCache(floor_tokens=1024, secret=b"s" * 32)
MARKED = replace(KNOWN, is_marked=True)


def prompt(text: str, rubric: str = "Judge it.", readers: int = 6) -> JudgePrompt:
    sections = {"MEMORY": MEMORY, "QUERY": "Should I run?", "RESPONSE": text}
    return JudgePrompt(rubric, sections).having(readers=readers)


@closing_clients()
async def verdicts_on(
    wire: str, server: Provider, cache: PromptCache, *prompts: JudgePrompt, is_batch: bool = False
) -> list[Verdict]:
    """The verdicts on prompts that are asked at once."""
    judge = build(wire, server, RetryPolicy(), price=PRICE, cache=cache)
    return list(await asyncio.gather(*(judge.judge(prompt, Rating) for prompt in prompts)))


@pytest.mark.parametrize(
    ("wire", "cache", "server_cache"),
    [
        ("anthropic", MARKED, ServerCache(floor=1024)),
        ("openai", KNOWN, ServerCache(floor=1024)),
        ("openai", MARKED, ServerCache(floor=1024, marks=True)),
        ("google", KNOWN, ServerCache(floor=1024)),
        ("openai-compatible", KNOWN, ServerCache(floor=1024)),
    ],
)
async def test_one_call_fills_the_cache_and_the_others_read_it(
    wire: str, cache: PromptCache, server_cache: ServerCache
) -> None:
    prompts = [prompt(f"Rest {number}.", rubric) for number in range(3) for rubric in ("A", "B")]
    with serving(lambda body: GOOD, 0.01, cache=server_cache) as server:
        verdicts = await verdicts_on(wire, server, cache, *prompts)
    used = sum((verdict.usage for verdict in verdicts), Usage())
    # As the server counted them, whatever each provider's own way
    assert used == Usage(
        input_tokens=server.input_tokens,
        output_tokens=server.output_tokens,
        cached_input_tokens=server.cached_tokens,
        cache_write_tokens=server.written_tokens,
    )
    assert [verdict.usage.cached_input_tokens > 1024 for verdict in verdicts] == [False] + [
        True
    ] * 5
    written = [verdict.usage.cache_write_tokens > 1024 for verdict in verdicts]
    assert written == [cache.is_marked] + [False] * 5
    assert sum(verdict.cost_usd for verdict in verdicts) == pytest.approx(PRICE.of(used))
    saved = sum(verdict.saved_usd for verdict in verdicts)
    assert saved == pytest.approx(PRICE.saved_on(used))
    assert saved > 0


async def test_what_anthropic_is_sent() -> None:
    with serving(lambda body: GOOD, cache=ServerCache(floor=1024)) as server:
        await verdicts_on("anthropic", server, MARKED, prompt("Rest."))
        await verdicts_on("anthropic", server, MARKED, prompt("Rest.", readers=1))
    shared, first = server.requests
    blocks = shared["messages"][0]["content"]
    assert [block.get("cache_control") for block in blocks] == [{"type": "ephemeral"}] * 2 + [None]
    assert "</MEMORY" in blocks[0]["text"]
    assert "</QUERY" in blocks[1]["text"]
    assert "<RUBRIC" in blocks[2]["text"]
    assert "output_config" not in shared  # another schema would be another start
    assert first["output_config"]["format"]["type"] == "json_schema"
    assert isinstance(first["messages"][0]["content"], str)


async def test_what_openai_is_sent() -> None:
    with serving(lambda body: GOOD) as server:
        for cache, readers in ((KNOWN, 6), (MARKED, 6), (MARKED, 1)):
            await verdicts_on("openai", server, cache, prompt("Rest.", readers=readers))
        await verdicts_on("openai-compatible", server, MARKED, prompt("Rest."))
    implicit, marked, first, compatible = server.requests
    assert implicit["prompt_cache_key"] == marked["prompt_cache_key"]
    assert isinstance(implicit["messages"][1]["content"], str)
    assert "prompt_cache_options" not in implicit
    parts = marked["messages"][1]["content"]
    mark = {"mode": "explicit"}
    assert [part.get("prompt_cache_breakpoint") for part in parts] == [mark, mark, None]
    assert "".join(part["text"] for part in parts) == implicit["messages"][1]["content"]
    assert implicit["response_format"] == marked["response_format"] == {"type": "json_object"}
    # A model that bills writes is kept from writing what nobody reads
    assert marked["prompt_cache_options"] == first["prompt_cache_options"] == mark
    assert "prompt_cache_key" not in first
    assert first["response_format"]["json_schema"]["strict"] is True
    assert not {"prompt_cache_key", "prompt_cache_options"} & compatible.keys()
    assert compatible["response_format"]["type"] == "json_schema"  # it decodes by it


def test_a_batch_keeps_its_starts_for_an_hour() -> None:
    @closing_clients()
    async def request_of(server: Provider) -> dict[str, Any]:
        judge = build("anthropic", server, RetryPolicy(), cache=MARKED)
        call = judge.call(prompt("Rest."), Rating, is_batch=True)
        return await call.request()

    with serving(lambda body: GOOD) as server:
        body = asyncio.run(request_of(server))
    assert body["messages"][0]["content"][1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}

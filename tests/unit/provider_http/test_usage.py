"""The tokens of a call, wherever a server counts its thinking and what its cache had."""

from typing import Any

import pytest

from memray_eval.judges.providers.google import _TOKENS as GOOGLE_TOKENS
from memray_eval.provider_http.replies import OPENAI_TOKENS, read_usage
from memray_eval.types import Usage


def openai(prompt: Any, completion: Any, total: Any = None, **details: Any) -> dict[str, Any]:
    kinds = {"reasoning_tokens": "completion_tokens_details"}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    for name, count in details.items():
        usage[kinds.get(name, "prompt_tokens_details")] = {name: count}
    return usage


@pytest.mark.parametrize(
    ("usage", "tokens", "is_whole"),
    [
        (openai(1200, 2120, 3320, reasoning_tokens=2000), (1200, 2120, 0), True),
        (openai(1200, 120, 3320, reasoning_tokens=2000), (1200, 2120, 0), True),  # xAI
        (openai(1200, 120, None, reasoning_tokens=2000), (1200, 2120, 0), True),
        (openai(1200, 2120, None, reasoning_tokens=2000), (1200, 2120, 0), True),
        (openai(1200, 2000, 3200, reasoning_tokens=2000), (1200, 2000, 0), True),
        (openai(1200, 120, 1320, reasoning_tokens=125), (1200, 120, 0), True),  # a rough count
        (openai(1200, 120, 1320, reasoning_tokens=0), (1200, 120, 0), True),
        (openai(20, 198, 623), (20, 198, 0), False),  # 405 of thinking, as any-llm told of Gemini
        (openai(5000, 80, 9080, cached_tokens=4000), (9000, 80, 4000), True),
        (openai(1200, 120, "x", reasoning_tokens=-1), (1200, 120, 0), True),
        (openai(1200, None, 3200, reasoning_tokens=2000), (1200, 2000, 0), False),
        (openai(10_000, 80, 10_080, cached_tokens=9400), (10_000, 80, 9400), True),
        (openai(600, 80, 680, cached_tokens=9400), (10_000, 80, 9400), False),
        (openai(0, 80, 80, cached_tokens=9400), (9400, 80, 9400), False),
        (openai(600, 80, 680, cached_tokens="x"), (600, 80, 0), False),
        (openai(None, 80), (0, 80, 0), False),
        (None, (0, 0, 0), False),
    ],
)
def test_of_openai_s_protocol(usage: Any, tokens: tuple[int, int, int], is_whole: bool) -> None:
    inputs, outputs, cached = tokens
    expected = Usage(input_tokens=inputs, output_tokens=outputs, cached_input_tokens=cached)
    assert read_usage(usage, OPENAI_TOKENS) == (expected, is_whole)


@pytest.mark.parametrize(
    ("answer", "thoughts", "output", "is_whole"),
    [
        ({"candidatesTokenCount": 120}, {"thoughtsTokenCount": 2000}, 2120, True),
        ({"candidatesTokenCount": 120}, {}, 120, True),
        ({}, {"thoughtsTokenCount": 16_384}, 16_384, True),  # all of the limit
        ({"candidatesTokenCount": None}, {"thoughtsTokenCount": 16_384}, 16_384, True),
        ({"candidatesTokenCount": "x"}, {"thoughtsTokenCount": 16_384}, 0, False),
        ({}, {"thoughtsTokenCount": "x"}, 0, False),
        ({}, {"thoughtsTokenCount": 0}, 0, False),
        ({}, {}, 0, False),
    ],
)
def test_of_google_s(
    answer: dict[str, Any], thoughts: dict[str, Any], output: int, is_whole: bool
) -> None:
    usage = {"promptTokenCount": 1200, **answer, **thoughts}
    expected = Usage(input_tokens=1200, output_tokens=output)
    assert read_usage(usage, GOOGLE_TOKENS) == (expected, is_whole)

"""What paid calls are remembered by: another key would pay for every verdict again."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any, cast

import pytest
from pydantic import BaseModel

from memray_eval.config.sections import JudgingConfig
from memray_eval.judges.call_cache import CachedCall, call_key
from memray_eval.judges.judge_factory import Services, build_judges
from memray_eval.judges.router import JudgeAssignment
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Message
from tests.fake_judges import MemoryStore

LONG = {"MEMORY": "x" * 40_000, "QUERY": "Why?", "RESPONSE": "Because \ud83d of rain."}
PROMPT = JudgePrompt("Judge it.", LONG)
# By judge: the keys of its verdict and of a repeat. The first three have the shared part first
KEYS = {
    "openai/gpt-4o": ["e6055dae4621ec3ee6d56a234f630270", "8edf2362436f84c1f64a3604b4029f72"],
    "anthropic/claude-opus-4-5": [
        "614fedf06ddecfee3af22b158a387133",
        "7d1021e23b4f69622f3b4db4e824ec1c",
    ],
    "google/gemini-2.5-pro": [
        "76a21f5f5afb4dd0bdd92f889f6dba7b",
        "66a7390aa3be23915a264164c4b34fae",
    ],
    "lab/qwen3": ["f38cdea613c890d64fc0f3d2d8516ff5", "bc866477fb41d6e6840aff19541b9a42"],
    "second/claude-opus-4-5": [
        "614fedf06ddecfee3af22b158a387133",
        "7d1021e23b4f69622f3b4db4e824ec1c",
    ],
}


class Rating(BaseModel):
    reason: str
    score: float


class Recorded(MemoryStore):
    """Remembers by what each call was looked up, and finds it."""

    def __init__(self) -> None:
        self.keys = list[str]()

    async def get(self, key: str) -> CachedCall:
        self.keys.append(key)
        verdict = '{"reason": "r", "score": 1}'
        tokens = {"input_tokens": 1, "output_tokens": 1}
        return CachedCall(key=key, judge="j", judgment=verdict, cost_usd=0.0, created=0.0, **tokens)


@pytest.mark.parametrize("judge", KEYS)
def test_keys_are_those_of_earlier_versions(judge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys_of(judge, PROMPT, monkeypatch) == KEYS[judge]


@pytest.mark.parametrize("judge", KEYS)
def test_a_rubric_s_version_is_in_the_key_from_the_second_on(
    judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (
        keys_of(judge, PROMPT.of_version(version), monkeypatch) for version in (1, 2, 3)
    )
    assert first == KEYS[judge]
    assert len({*first, *second, *third}) == 6


def keys_of(judge: str, prompt: JudgePrompt, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a verdict and a repeat are looked up by."""
    for provider in ("OPENAI", "ANTHROPIC", "GOOGLE", "SECOND"):
        monkeypatch.setenv(f"{provider}_API_KEY", "k")
    servers: dict[str, Any] = {
        "lab": {"url": "http://localhost:9/v1"},
        "hub": {"url": "http://localhost:8/v1"},
        "second": {"provider": "anthropic", "api_key_env": "SECOND_API_KEY"},
    }
    config = JudgingConfig.model_validate({"servers": servers, "repeats": 2})

    async def look_up() -> list[str]:
        calls = Recorded()
        services = Services(
            limiter=cast(Any, None),
            member="m",
            say=lambda line: None,
            calls=calls,
            secret=b"s" * 32,
        )
        choice = JudgeAssignment(metric="m", judge=judge, why="")
        for juror in build_judges({"m": choice}, config, services)["m"]:
            await juror.judge(prompt.read_by(9), Rating)
        return calls.keys

    return asyncio.run(look_up())


@pytest.mark.parametrize("half", ["", "\ud83d"])
@pytest.mark.parametrize(
    ("layout", "version", "more"), [("", 0, []), ("l", 1, ["l"]), ("", 2, ["", 2])]
)
def test_a_key_is_the_digest_of_plain_json(
    half: str, layout: str, version: int, more: list[Any]
) -> None:
    surrogates = range(0xD800, 0xE000)
    text = "".join(chr(code) for code in range(0x20000) if code not in surrogates) + half
    message = Message.model_construct(role="user", content=text)
    content = ["é/m", [message.model_dump()], "s", {"t": 1e-7, "n": 1e16}, 3, *more]
    plain = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    parameters = {"t": 1e-7, "n": 1e16}
    assert call_key("é/m", [message], "s", parameters, 3, layout, version) == digest

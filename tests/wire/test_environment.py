"""Judges behind the server that an SDK's environment variable names: asked there, with the key
beside it, and remembered apart."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.config.environment import BASE_URL_VARIABLES
from memray_eval.provider_http import closing_clients
from memray_eval.types import Message
from tests.fake_judges import MemoryStore, build_judge
from tests.servers.provider import Provider, serving

MESSAGES = (
    Message(role="system", content="The rubric."),
    Message(role="user", content="What is said?"),
)
JUDGES = {
    "openai": "openai/gpt-4o",
    "anthropic": "anthropic/claude-opus-4-5",
    "google": "google/gemini-2.0-flash",
}


class Rating(BaseModel):
    score: int


async def is_remembered(judge: str, store: MemoryStore) -> bool:
    async with closing_clients():
        return (await build_judge(judge, calls=store).judge(MESSAGES, Rating)).cached


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GOOGLE_API_KEY",
        *BASE_URL_VARIABLES.values(),
    ):
        monkeypatch.delenv(name, raising=False)


def url_of(provider: str, server: Provider) -> str:
    return server.base_url if provider == "openai" else server.root


@pytest.mark.parametrize("provider", JUDGES)
def test_a_server_of_the_environment_is_ones_own(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, store, variable = JUDGES[provider], MemoryStore(), BASE_URL_VARIABLES[provider]
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-beside")
    with (
        serving(lambda body: '{"score": 1}') as first,
        serving(lambda body: '{"score": 1}') as second,
    ):
        for server, is_cached in ((first, False), (first, True), (second, False), (second, True)):
            monkeypatch.setenv(variable, url_of(provider, server))
            assert asyncio.run(is_remembered(judge, store)) is is_cached
        assert (len(first.requests), len(second.requests)) == (1, 1)
    assert "sk-beside" in str(first.headers[0])

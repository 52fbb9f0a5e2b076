"""Judges behind the server that an SDK's environment variable names: asked there, remembered apart,
without assumed limits."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.config.environment import BASE_URL_VARIABLES
from memray_eval.config.sections import JudgingConfig, RateLimits
from memray_eval.judges.limits.rate_limiter import Limiter
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


async def probe(judge: str, config: JudgingConfig, store: MemoryStore) -> tuple[bool, RateLimits]:
    """Whether the verdict was remembered, and what the limiter takes for the judge's limits."""
    limiter = Limiter()
    async with closing_clients():
        verdict = await build_judge(judge, config, limiter=limiter, calls=store).judge(
            MESSAGES, Rating
        )
    return verdict.cached, next(iter(limiter.limits_by_judge().values()), RateLimits())


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
    with (
        serving(lambda body: '{"score": 1}') as first,
        serving(lambda body: '{"score": 1}') as second,
    ):
        for server, is_cached in ((first, False), (first, True), (second, False), (second, True)):
            monkeypatch.setenv(variable, url_of(provider, server))
            assert asyncio.run(probe(judge, JudgingConfig(), store))[0] is is_cached, (
                "each server has its own verdicts"
            )
        assert (len(first.requests), len(second.requests)) == (1, 1)
        assert asyncio.run(probe(judge, JudgingConfig(), MemoryStore()))[1] == RateLimits()
        firm = JudgingConfig(limits={judge: RateLimits(requests_per_min=600)})
        assert asyncio.run(probe(judge, firm, MemoryStore()))[1] == RateLimits(requests_per_min=600)


@pytest.mark.parametrize("provider", JUDGES)
def test_the_key_beside_it_is_sent_and_judging_base_urls_go_first(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = JUDGES[provider]
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-beside")
    with serving(lambda body: '{"score": 1}') as named, serving(lambda body: '{"score": 1}') as own:
        monkeypatch.setenv(BASE_URL_VARIABLES[provider], url_of(provider, named))
        asyncio.run(probe(judge, JudgingConfig(), MemoryStore()))
        assert "sk-beside" in str(named.headers[0])
        asyncio.run(
            probe(judge, JudgingConfig(base_urls={provider: url_of(provider, own)}), MemoryStore())
        )
        assert (len(named.requests), len(own.requests)) == (1, 1)

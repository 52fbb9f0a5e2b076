"""Judges whose provider lets no call through any more, over the wire: what they raise, what is
said, and how soon."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from memray_eval.config.environment import BASE_URL_VARIABLES
from memray_eval.config.sections import JudgingConfig
from memray_eval.errors import JudgeStalled, QuotaExhausted
from memray_eval.provider_http.open_clients import closing_clients
from tests.fake_judges import build_judge
from tests.servers.provider import Fault, Provider, serving
from tests.wire.test_environment import JUDGES, MESSAGES, Rating, url_of


async def ask_many(judge: str, config: JudgingConfig, said: list[str], count: int) -> list[Any]:
    async with closing_clients():
        built = build_judge(judge, config, say=said.append)
        return await asyncio.gather(
            *(built.judge(MESSAGES, Rating) for _ in range(count)), return_exceptions=True
        )


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider, variable in BASE_URL_VARIABLES.items():
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-test")


STANDSTILL = (
    "openai/gpt-4o: no call has been let through for 10 s (429: too many requests (code 429, type "
    "scripted)); the others wait."
)


def asking(provider: Any, server: Provider, **judging: Any) -> JudgingConfig:
    return JudgingConfig(base_urls={provider: url_of(provider, server)}, **judging)


@pytest.mark.parametrize("provider", JUDGES)
def test_a_used_up_quota_is_told_from_a_rate_limit(provider: Any) -> None:
    said = list[str]()
    with serving(lambda body: Fault(429, code="insufficient_quota")) as server:
        ends = asyncio.run(ask_many(JUDGES[provider], asking(provider, server), said, 12))
        assert len(server.requests) <= 12, "nothing is tried again"
    assert {type(end) for end in ends} == {QuotaExhausted, JudgeStalled}
    assert isinstance(ends[0], QuotaExhausted)
    assert all(
        "429 insufficient_quota: the account's quota or credit is used up" in str(end)
        for end in ends
    )
    assert any("3 calls in a row failed (429 insufficient_quota" in line for line in said)


def test_429s_without_end_stop_at_the_ceiling_whatever_the_provider_says_to_wait() -> None:
    said, began = list[str](), time.monotonic()
    with serving(lambda body: Fault(429, retry_after="1e9")) as server:
        config = asking("openai", server, ceiling_s=11.0)
        ends = asyncio.run(ask_many(JUDGES["openai"], config, said, 40))
    assert 11 <= time.monotonic() - began < 40
    assert any(isinstance(end, JudgeStalled) for end in ends)
    reason = (
        "openai/gpt-4o: no call has been let through for 11 s (judging.ceiling_s): 429: too many "
        "requests"
    )
    assert any(str(end).startswith(reason) for end in ends)
    assert (
        said[0] == "openai/gpt-4o: its Retry-After of 1000000000 s is not plausible and is ignored"
    )
    assert said[1].startswith(STANDSTILL)

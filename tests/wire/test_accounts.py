"""What the limiter keeps a pace for: a judge, at an address, on one account."""

import asyncio

import pytest

from memray_eval.config.environment import key_digest, server_address
from memray_eval.config.sections import JudgingConfig, Provider
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.provider_http import closing_clients
from tests.fake_judges import build_judge
from tests.servers.provider import serving
from tests.wire.test_environment import MESSAGES, Rating

KEYS = {"FIRST_KEY": "sk-first-0123456789", "SECOND_KEY": "sk-second-0123456789"}


@pytest.mark.parametrize("variables", [("FIRST_KEY", "SECOND_KEY"), ("FIRST_KEY", "FIRST_KEY")])
def test_two_accounts_have_a_pace_each_and_one_account_has_one(
    monkeypatch: pytest.MonkeyPatch, variables: tuple[str, str]
) -> None:
    for variable, key in KEYS.items():
        monkeypatch.setenv(variable, key)

    async def ask_all(base_url: str) -> list[str]:
        limiter = Limiter()
        async with closing_clients():
            for variable in variables:
                config = JudgingConfig(
                    base_urls={"openai": base_url}, api_key_envs={"openai": variable}
                )
                judge = build_judge("openai/m", config, limiter=limiter, member=variable)
                await judge.judge(MESSAGES, Rating)
            return list(limiter.limits_by_judge())

    with serving(lambda body: '{"score": 1}') as server:
        paces = asyncio.run(ask_all(server.base_url))
    assert paces == [
        f"openai/m@127.0.0.1:{server.port}/v1#{key_digest(KEYS[name])}"
        for name in dict.fromkeys(variables)
    ]
    assert [headers["Authorization"] for headers in server.headers] == [
        f"Bearer {KEYS[name]}" for name in variables
    ]


def test_a_key_is_told_apart_and_not_told() -> None:
    digests = [key_digest(key) for key in (*KEYS.values(), "none")]
    assert len(set(digests)) == 3
    assert all(len(digest) == 12 and int(digest, 16) >= 0 for digest in digests)
    assert key_digest("none") != key_digest("None")


@pytest.mark.parametrize(
    ("provider", "url", "address"),
    [
        ("openai", None, "api.openai.com/v1"),
        ("openai", "https://api.openai.com/v1/", "api.openai.com/v1"),
        ("anthropic", None, "api.anthropic.com"),
        ("google", None, "generativelanguage.googleapis.com"),
        ("openai", "http://me:pass@Judge.Local:8000/v1?key=secret", "judge.local:8000/v1"),
        ("openai", "http://[::1/v1", ""),
    ],
)
def test_an_address_holds_no_more_than_host_port_and_path(
    provider: Provider, url: str | None, address: str
) -> None:
    assert server_address(provider, url) == address

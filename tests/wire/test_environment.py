"""Who is asked, and on which account: the server that an SDK's environment variable names, whose
verdicts are remembered apart; the account for which the limiter keeps a pace; the successor of a
model that is gone in the middle of a run."""

import asyncio
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.config.environment import BASE_URL_VARIABLES, key_digest, server_address
from memray_eval.config.sections import JudgeRequest, JudgingConfig
from memray_eval.config.sections import Provider as ProviderName
from memray_eval.errors import WrongAddress
from memray_eval.judges.judge_factory import Services, build_judges
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.prices import load_table
from memray_eval.judges.router import assign_judges
from memray_eval.metrics import pick
from memray_eval.ports import VOTERS
from memray_eval.provider_http import closing_clients
from memray_eval.types import Message
from tests.fake_judges import MemoryStore, build_judge
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Provider, Raw, serving

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
    keys = (f"{provider.upper()}_API_KEY" for provider in JUDGES)
    for name in (*keys, *BASE_URL_VARIABLES.values()):
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
    provider: ProviderName, url: str | None, address: str
) -> None:
    assert server_address(provider, url) == address


DAY = date(2026, 11, 25)
SUCCESSIONS = {
    "openai": ("openai/gpt-4o", "openai/gpt-6-luna"),
    "anthropic": ("anthropic/claude-opus-4-5", "anthropic/claude-opus-5-5"),
    "google": ("google/gemini-2.0-flash", "google/gemini-3.5-flash-lite"),
}


async def ask(
    judge: Any,
    config: JudgingConfig,
    lines: list[str],
    times: int = 1,
    store: MemoryStore | None = None,
) -> list[Any]:
    """What each of a metric's judges answers, so many times one after the other."""
    request = JudgeRequest(judge=judge, judging=config)
    choices = assign_judges(pick(["empathy"]), request, load_table(None), (), DAY)
    services = Services(limiter=Limiter(), member="a", say=lines.append, calls=store)
    ends = list[Any]()
    async with closing_clients():
        (jury,) = build_judges(choices, config, services).values()
        for number in range(times):
            messages = [
                message.model_copy(update={"content": f"{message.content} {number}"})
                for message in MESSAGES
            ]
            VOTERS.set({})  # as for each row
            ends += await asyncio.gather(
                *(juror.judge(messages, Rating) for juror in jury), return_exceptions=True
            )
    return ends


@pytest.mark.parametrize("provider", SUCCESSIONS)
def test_the_successor_of_a_model_that_is_no_more_judges(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-test")
    (role, successor), messages, store = SUCCESSIONS[provider], list[str](), MemoryStore()
    with serving(judgment_reply, retired=frozenset({role.partition("/")[2]})) as server:
        config = JudgingConfig(base_urls={provider: url_of(provider, server)})
        ends = asyncio.run(ask(role, config, messages, times=3, store=store))
        models = [body["model"] for body in server.requests]
    assert [end.judge for end in ends] == [successor] * 3
    assert models == [role.partition("/")[2], *[successor.partition("/")[2]] * 3]
    assert len(messages) == 1
    assert messages[0].startswith(f"{role} is off (404")
    assert messages[0].endswith(f"): {successor} judges in its place")
    assert {call.judge for call in store.calls.values()} == {successor}


def test_a_gateways_page_says_nothing_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    messages, page = list[str](), Raw(b"<html>404 Not Found</html>", status=404)
    with serving(lambda body: page) as server:
        config = JudgingConfig(base_urls={"openai": server.base_url})
        ends = asyncio.run(ask("openai/gpt-4o", config, messages, times=2))
        models = {body["model"] for body in server.requests}
    assert [type(end) for end in ends] == [WrongAddress] * 2
    assert (models, messages) == ({"gpt-4o"}, [])

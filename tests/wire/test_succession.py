"""Judge models that are gone in the middle of a run, over the wire: who is asked instead, what is
said, and that nobody is asked again in vain."""

import asyncio
from datetime import date
from typing import Any

import pytest

from memray_eval.config.sections import JudgeRequest, JudgingConfig
from memray_eval.errors import WrongAddress
from memray_eval.judges.judge_factory import Services, build_judges
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.prices import load_table
from memray_eval.judges.router import assign_judges
from memray_eval.metrics import pick
from memray_eval.ports import VOTERS
from memray_eval.provider_http import closing_clients
from tests.fake_judges import MemoryStore
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Raw, serving
from tests.wire.test_environment import MESSAGES, Rating, _no_keys, url_of  # noqa: F401 (a fixture)

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

"""Pools of servers in a job: how they are written, what they are to judges, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.config.environment import BASE_URL_VARIABLES
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import RateLimits
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.prepare.stored_config import read_config, write_config
from memray_eval.judges.accounts import (
    cache_of,
    check_judge,
    key_variable,
    limits_of,
    may_bill,
    model_name,
    pool_members,
    price_of,
    provider_of,
    takes_batches,
)
from memray_eval.judges.model_table import load_table
from memray_eval.judges.prices import Price
from memray_eval.judges.router import describe_pools
from memray_eval.results.run_folder import RunFolder

EAST = {
    "url": "https://east.example.org/v1",
    "api_key_env": "EAST_KEY",
    "limits": {"requests_per_min": 60_000, "tokens_per_min": 120e6},
    "price": {"input_usd": 1, "output_usd": 2},
}
WEST = {
    "url": "https://west.example.org/v1",
    "api_key_env": "WEST_KEY",
    "limits": {"requests_per_min": 40_000},
    "price": {"input_usd": 2, "output_usd": 4},
}
BOTH = {"east": EAST, "west": WEST, "both": {"pool": ["east", "west"]}}
ACCOUNTS = {
    "first": {"provider": "anthropic", "api_key_env": "FIRST_KEY"},
    "second": {"provider": "anthropic", "api_key_env": "SECOND_KEY"},
    "claude": ["first", "second"],
}
CLAUDE = "claude/claude-opus-4-5"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EAST_KEY", "WEST_KEY", "FIRST_KEY", "SECOND_KEY"):
        monkeypatch.setenv(name, f"sk-{name}")
    for name in BASE_URL_VARIABLES.values():
        monkeypatch.delenv(name, raising=False)


def keys(**more: Any) -> dict[str, Any]:
    candidates = [{"name": "c", "model": "org/m"}]
    return {"dataset": "d.jsonl", "candidates": candidates, "servers": BOTH} | more


def test_a_pool_is_a_judge_with_the_limits_of_its_members_together() -> None:
    judging, table = RunConfig.model_validate(keys()).judging, load_table(None)
    assert pool_members("both/m", judging) == ("east/m", "west/m")
    assert pool_members("east/m", judging) == ()
    together = RateLimits(requests_per_min=100_000)  # nobody knows west's tokens
    assert limits_of("both/m", judging, table) == (together, True)
    assert price_of("both/m", judging, table) == Price(2.0, 4.0), "the dearest member's"
    assert may_bill("both/m", judging)
    assert provider_of("both/m", judging) == "openai"
    assert model_name("both/m", judging) == "both/m"
    check_judge("both/m", judging)


def test_accounts_of_a_provider_are_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of the provider's model holds: price, cache, parameters, an assumed limit."""
    judging = RunConfig.model_validate(keys(servers=ACCOUNTS)).judging
    table, model = load_table(None), "anthropic/claude-opus-4-5"
    for name in (CLAUDE, "first/claude-opus-4-5"):
        assert provider_of(name, judging) == "anthropic"
        assert model_name(name, judging) == model
        assert price_of(name, judging, table) == price_of(model, judging, table)
        assert cache_of(name, judging, table) == cache_of(model, judging, table)
    assert key_variable("first/claude-opus-4-5", judging) == "FIRST_KEY"
    limits, is_firm = limits_of("first/claude-opus-4-5", judging, table)
    assert (limits, is_firm) == (table.models[model].limits, False)
    assert limits_of(CLAUDE, judging, table)[0].requests_per_min == 100
    monkeypatch.delenv("SECOND_KEY")
    with pytest.raises(ConfigError, match=r"judge second/claude.* SECOND_KEY, which is not set"):
        check_judge(CLAUDE, judging)


def test_a_pool_is_told_by_its_servers_addresses_and_limits() -> None:
    job = RunConfig.model_validate(keys(judge="both/m", metrics=["empathy"]))
    spec = resolve(job)
    assert str(spec.judges["empathy"]) == "both/m (as configured)", "a resumed run may change it"
    assert describe_pools(spec.judges.values(), spec.judging, spec.judge_table) == [
        "both/m is a pool of 2: east (east.example.org/v1, 60,000 requests/min), "
        "west (west.example.org/v1, 40,000 requests/min)"
    ]


def test_a_batch_of_a_pool_is_refused() -> None:
    judging, table = RunConfig.model_validate(keys()).judging, load_table(None)
    assert not takes_batches("both/m", judging, table)
    assert takes_batches("east/m", judging, table)
    with pytest.raises(ConfigError, match=r"a batch belongs to one account. .*\(east/m, west/m\)"):
        check_judge("both/m", judging.model_copy(update={"mode": "batch"}))


def test_a_stored_config_means_the_same(tmp_path: Any) -> None:
    folder, config = RunFolder(str(tmp_path / "run")), RunConfig.model_validate(keys())
    folder.create()
    write_config(folder, config)
    assert read_config(folder) == config
    assert read_config(folder).judging.servers["both"].pool == ("east", "west")


@pytest.mark.parametrize(
    ("pool", "more", "message"),
    [
        ([], {}, "servers: both: the pool is empty"),
        (["east", "wset"], {}, "servers: both: no server 'wset'; did you mean 'west'?"),
        (["east", "x"], {}, "both: no server 'x'; there are: east, west"),
        (["openai"], {}, "both: no server 'openai'"),
        (["east", "east"], {}, "both: east is named twice"),
        (["east", "same"], {"same": {**EAST, "url": EAST["url"] + "/"}}, "both: east and same are"),
        (["east", "other"], {"other": {"pool": ["west"]}}, "both: other is a pool itself"),
        (["both"], {}, "both: both is a pool itself"),
        (["east", "mine"], {"mine": {"code": "my.py"}}, "both: mine is code"),
        (["east", "claude"], {"claude": ACCOUNTS["first"]},
         "both: east is an OpenAI-compatible server and claude is of anthropic; a pool serves one "
         "model by one protocol"),
    ],
)  # fmt: skip
def test_what_is_no_pool_is_one_plain_message(
    pool: list[str], more: dict[str, Any], message: str
) -> None:
    servers = {"east": EAST, "west": WEST, "both": {"pool": pool}} | more
    with pytest.raises(ConfigError) as refused:
        load_config(None, keys(servers=servers))
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"pool": ["east"], "url": "http://x/v1"}, "a pool has no url of its own"),
        ({"pool": ["east"], "limits": {"requests_per_min": 6}}, "a pool has no limits of its own"),
        ({"pool": "east"}, "pool"),
        ({"provider": "azure"}, "provider"),
        ({"provider": "openai", "code": "my.py"}, "write either url or code"),
        ({}, "write either url or code"),
    ],
)
def test_a_pool_and_an_account_are_nothing_else(server: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, keys(servers={"east": EAST, "one": server}))


@pytest.mark.parametrize(
    ("section", "value", "message"),
    [
        ("candidates", [{"name": "c", "model": "both/m"}], "pools only judge; name one of its"),
        ("embedding", {"model": "both/m"}, "pools only judge"),
        ("candidates", [{"name": "c", "model": "first/m"}], "an account of anthropic"),
    ],
)
def test_a_pool_neither_answers_nor_embeds(section: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, keys(servers=BOTH | ACCOUNTS) | {section: value})


def test_a_candidate_may_be_asked_with_another_key_of_openai() -> None:
    servers = {"second": {"provider": "openai", "api_key_env": "SECOND_KEY"}}
    job = keys(servers=servers, candidates=[{"name": "c", "model": "second/gpt-4o"}])
    (candidate,) = RunConfig.model_validate(job).candidates
    assert (candidate.backend, candidate.model) == ("openai", "gpt-4o")
    assert (candidate.base_url, candidate.api_key_env) == (None, "SECOND_KEY")

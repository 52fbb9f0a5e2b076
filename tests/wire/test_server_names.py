"""Judges and candidates as people type them: a model at an address, an address alone, a server by
its own name; and what doctor says of each."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from memray_eval.config.environment import LOCAL_SERVERS
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import BreakerConfig
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.doctor import examine
from memray_eval.execution.prepare.checks import check_servers
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.prices import load_table
from tests.build import write_lines
from tests.servers.provider import Fault, Provider, serving

Serve = Callable[..., Provider]


def listing(*models: str, status: int = 200) -> Callable[[Provider], list[web.RouteDef]]:
    """A server's own list of its models."""

    async def answer(request: web.Request) -> web.Response:
        entries = [{"id": model, "object": "model"} for model in models]
        return web.json_response({"object": "list", "data": entries}, status=status)

    return lambda provider: [web.get("/v1/models", answer)]


@pytest.fixture
def serve() -> Iterator[Serve]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda *models, **options: stack.enter_context(
            serving(lambda body: "", more=listing(*models, **options))
        )


def load(tmp_path: Path, judge: Any = "rules", model: str = "org/model") -> RunConfig:
    rows = [{"id": "a", "query": "May I?", "memory": {"sleep": "5 h"}, "required_keys": ["sleep"]}]
    data = {"dataset": str(write_lines(tmp_path / "d.jsonl", rows)), "metrics": ["empathy"]}
    candidates = [{"name": "c", "model": model}]
    return load_config(None, data | {"judge": judge, "candidates": candidates})


@pytest.mark.parametrize("form", ["tiny:4b@{url}", "{url}", "{root}", "tiny:4b@{root}/"])
def test_a_model_at_an_address_is_of_a_server_of_its_own(
    tmp_path: Path, serve: Serve, form: str
) -> None:
    server = serve("tiny:4b")
    name = form.format(url=server.base_url, root=server.base_url.removesuffix("/v1"))
    config = load(tmp_path, [name, "openai/gpt-4o"], name)
    assert config.judge == (f"at-127-0-0-1-{server.port}/tiny:4b", "openai/gpt-4o")
    seen = JudgeAccount(config.judge[0], config.judging, load_table(None)).own_server
    assert seen == server.base_url
    (candidate,) = config.candidates
    assert (candidate.backend, candidate.model) == ("openai", "tiny:4b")
    assert candidate.base_url == server.base_url
    assert load(tmp_path, {"empathy": name}).judge == {"empathy": config.judge[0]}


@pytest.mark.parametrize("name", LOCAL_SERVERS)
def test_a_server_of_this_machine_goes_by_its_name(tmp_path: Path, name: str) -> None:
    config = load(tmp_path, f"{name}/gemma3:4b", f"{name}/org/gemma3:4b")
    seen = JudgeAccount(f"{name}/gemma3:4b", config.judging, load_table(None)).own_server
    assert seen == LOCAL_SERVERS[name]
    (candidate,) = config.candidates
    assert (candidate.base_url, candidate.model) == (LOCAL_SERVERS[name], "org/gemma3:4b")
    other = load_config(
        None,
        {"dataset": "d", "judge": f"{name}/m", "candidates": [{"name": "c", "model": "m"}]},
        [f"servers={{{name}: {{url: 'http://gpu:8000/v1'}}}}"],
    )
    seen = JudgeAccount(f"{name}/m", other.judging, load_table(None)).own_server
    assert seen == "http://gpu:8000/v1"


@pytest.mark.parametrize(
    ("models", "status", "error"),
    [
        (("tiny:4b", "large"), 200, "has 2 models: tiny:4b, large; choose one, such as tiny:4b@"),
        ((), 200, "has no model yet"),
        ((), 401, "HTTP 401.*api_key_env"),
        ((), 404, "HTTP 404.*/v1"),
    ],
)
def test_an_address_that_names_no_model(
    tmp_path: Path, serve: Serve, models: tuple[str, ...], status: int, error: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=error):
        load(tmp_path, serve(*models, status=status).base_url)


@pytest.mark.parametrize(
    ("judge", "model", "error"),
    [
        ("http://127.0.0.1:9/v1", "m", "127.0.0.1:9/v1 cannot be reached: connection refused"),
        ("rules", "gemma3:4b", "write ollama/gemma3:4b or gemma3:4b@URL, or take the job `server`"),
        ("olama/gemma3", "m", None),
    ],
)
def test_a_name_that_leads_nowhere_says_where_to_go(
    tmp_path: Path, judge: str, model: str, error: str | None
) -> None:
    with pytest.raises(ConfigError, match=error or "did you mean ollama/gemma3"):
        resolve(load(tmp_path, judge, model))


@pytest.mark.parametrize(
    ("models", "status", "reply", "error"),
    [
        (("large", "tiny:4b"), 200, Fault(status=404), None),
        (("large", "tiny"), 200, Fault(status=404), "no model 'tiny:4b'; did you mean 'tiny'"),
        (("large",), 200, "a name of its own", None),
        ((), 401, Fault(status=401), "refuses calls without a key"),
        ((), 401, "the list alone wants a key", None),
        ((), 404, Fault(status=500), None),
    ],
)
def test_a_run_asks_its_server_before_it_starts(
    tmp_path: Path, models: tuple[str, ...], status: int, reply: str | Fault, error: str | None
) -> None:
    with serving(lambda body: reply, more=listing(*models, status=status)) as server:
        spec = resolve(load(tmp_path, f"tiny:4b@{server.base_url}"))
        with pytest.raises(ConfigError, match=error) if error else nullcontext():
            check_servers(spec)
    if error is None:
        with pytest.raises(ConfigError, match="cannot be reached: connection refused; start"):
            check_servers(spec)
        patient = BreakerConfig(outage_s=600.0)
        judging = spec.config.judging.model_copy(update={"breaker": patient})
        check_servers(replace(spec, config=spec.config.model_copy(update={"judging": judging})))


def test_doctor_asks_each_server_for_its_models(tmp_path: Path, serve: Serve) -> None:
    judge, candidate = serve("tiny:4b"), serve("large")
    config = load(tmp_path, f"tiny:4b@{judge.base_url}", f"lage@{candidate.base_url}")
    checks = {check.what: check.state for check in examine(config)}
    assert checks[f"{judge.base_url} has the model tiny:4b"] == "ok"
    gone = f"{candidate.base_url} has no model 'lage'; did you mean 'large'?"
    assert checks[gone] == "fail"

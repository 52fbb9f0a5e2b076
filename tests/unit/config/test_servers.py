"""Named servers: what they are to judges, candidates and embeddings, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import variables_of
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.origins import check_resumable, read_config, write_config
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.prices import Price, load_table
from memray_eval.results.run_folder import RunFolder

SERVERS: dict[str, Any] = {
    "local": {"url": "http://127.0.0.1:8000/v1", "limits": {"requests_per_min": 60}},
    "lab": {
        "url": "https://lab.example.org/v1",
        "api_key_env": "LAB_KEY",
        "price": {"input_usd": 1, "output_usd": 2},
    },
}
JOB: dict[str, Any] = {
    "dataset": "d.jsonl",
    "candidates": [{"name": "mine", "model": "local/org/model"}],
    "servers": SERVERS,
}

POOL = dict.fromkeys(("url", "code", "provider", "api_key_env", "limits", "price"))
POOL |= {"pool": ["local", "lab"], "stream": "auto"}


def job(**keys: Any) -> RunConfig:
    return RunConfig.model_validate(JOB | keys)


def test_a_candidate_and_an_embedding_are_asked_at_their_server() -> None:
    config = job(embedding={"model": "lab/vectors", "batch_size": 8})
    (candidate,) = config.candidates
    assert (candidate.backend, candidate.model) == ("openai", "org/model")
    assert (candidate.base_url, candidate.api_key_env) == ("http://127.0.0.1:8000/v1", None)
    embedding = config.embedding
    assert (embedding.model, embedding.base_url) == ("openai/vectors", SERVERS["lab"]["url"])
    assert (embedding.api_key_env, embedding.batch_size) == ("LAB_KEY", 8)
    assert "LAB_KEY" in variables_of(config)


def test_a_judge_has_its_server_and_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_KEY", raising=False)
    local, lab, unknown, hosted = (
        JudgeAccount(name, job().judging, load_table(None))
        for name in ("local/m", "lab/m", "loca/m", "openai/gpt-4o")
    )
    assert (local.own_server, hosted.own_server) == ("http://127.0.0.1:8000/v1", None)
    limits, is_firm = local.limits
    assert (limits.requests_per_min, is_firm) == (60, True)
    assert (local.price, lab.price) == (None, Price(1.0, 2.0))
    assert (local.may_bill, lab.may_bill) == (False, True)
    assert (local.key_variable, lab.key_variable) == (None, "LAB_KEY")
    local.check()
    with pytest.raises(ConfigError, match=r"judge lab/m needs a key in .* LAB_KEY"):
        lab.check()
    monkeypatch.setenv("LAB_KEY", "k")
    lab.check()
    with pytest.raises(ConfigError, match="did you mean local/m"):
        unknown.check()


def test_a_jury_of_two_servers_is_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "k")
    spec = resolve(job(metrics=["empathy"], judge=["local/a", "lab/b"]))
    assert spec.judges["empathy"].judges == ("local/a", "lab/b")


def test_a_stored_config_has_them_once_and_means_the_same(tmp_path: Path) -> None:
    folder, config = RunFolder(str(tmp_path / "run")), job()
    folder.create()
    write_config(folder, config)
    assert "servers" not in folder.read_config()["judging"]
    assert read_config(folder) == config
    assert read_config(folder).judging.servers == config.servers


@pytest.mark.parametrize(
    ("section", "withdrawn", "message"),
    [
        ("judging", {"layout": "rubric_first"}, r"judging\.layout was withdrawn: leave it out"),
        ("servers", {"both": POOL}, r"servers\.both\.pool was withdrawn: put a gateway"),
    ],
)
def test_a_run_by_what_was_withdrawn_is_read_and_not_resumed(
    tmp_path: Path, section: str, withdrawn: dict[str, Any], message: str
) -> None:
    folder, config = RunFolder(str(tmp_path / "run")), job()
    folder.create()
    stored = config.model_dump(mode="json")
    # as earlier versions wrote it
    stored["servers"]["local"]["pool"], stored["cluster"]["phases"] = None, "auto"
    stored["judging"] |= {"layout": "auto", "actors": {"min": 1, "max": 2}}
    folder.write_config(stored)
    check_resumable(folder)
    assert read_config(folder) == config
    stored[section] |= withdrawn
    folder.write_config(stored)
    assert read_config(folder) == config
    with pytest.raises(ConfigError, match=message):
        check_resumable(folder)


@pytest.mark.parametrize(("provider", "write_1h_usd"), [("anthropic", 2.0), ("openai", None)])
def test_an_hour_of_cache_costs_twice_its_input(provider: str, write_1h_usd: float | None) -> None:
    price = {"input_usd": 1, "output_usd": 2, "cache_write_usd": 1.25}
    servers = {"second": {"provider": provider, "price": price}}
    judging = job(servers=SERVERS | servers, judging={"price": {f"{provider}/n": price}}).judging
    for judge in ("second/m", f"{provider}/n"):
        billed = JudgeAccount(judge, judging, load_table(None)).price
        assert billed is not None
        assert (billed.cache_write_usd, billed.cache_write_1h_usd) == (1.25, write_1h_usd)


def test_a_job_file_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "dataset: d.jsonl\ncandidates: [{name: a, model: org/weights, temperatures: [0, 1]}]\n"
        "servers: {local: {url: 'http://127.0.0.1:8000/v1'}}\n"
    )
    moved = load_config(path, {"candidates.0.model": "local/m"}, ["servers.local.url=http://h/v1"])
    assert [entry.base_url for entry in moved.candidates] == ["http://h/v1"] * 2
    assert moved.judging.servers["local"].url == "http://h/v1"
    assert load_config(path).candidates[0].backend == "vllm"


@pytest.mark.parametrize("model", ["s3://bucket/models/small", "gs://bucket/small", "org/weights"])
def test_weights_of_an_engine_may_lie_in_a_bucket(model: str) -> None:
    (candidate,) = job(candidates=[{"name": "a", "model": model}]).candidates
    assert (candidate.backend, candidate.model) == ("vllm", model)

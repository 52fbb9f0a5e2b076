"""What a job takes to a cluster and what it must not, and how it is watched. Ray's API itself:
tests/processes/test_submit.py."""

import io
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.benchmarks import prompt_text
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution.prepare.origins import check_same_run
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.execution.prepare.scanning import scan_dataset
from memray_eval.execution.run_manifest import package_digest
from memray_eval.execution.runs import check_run_id
from memray_eval.submission.package import (
    CONFIG_FILE,
    MAX_BYTES,
    PATIENCE_S,
    Jobs,
    JobState,
    Package,
    make_package,
    watch,
)
from tests.build import build_config
from tests.conftest import REPOSITORY, Call

pytestmark = pytest.mark.heavy  # builds the archive of a submission again and again

KEY = "sk-proj-0a1b2c3d4e5f6a7b8c9d"
# demo's judge is a file, which a package has elsewhere: tests/unit/submission/test_own_code.py
JOBS = sorted(path for path in (REPOSITORY / "jobs").glob("*.yaml") if path.stem != "demo")


SERVED = {
    "name": "served",
    "model": "m",
    "backend": "openai",
    "base_url": "http://server:8000/v1",
    "api_key_env": "MY_KEY",
}


def config(**keys: Any) -> RunConfig:
    places = {"dataset": "s3://bucket/data.jsonl", "out": "s3://bucket/r"}
    return build_config(**{"candidates": [SERVED]} | places | keys)


def candidate(**keys: Any) -> dict[str, Any]:
    return {"candidates": [SERVED | keys]}


def engine(**kwargs: Any) -> dict[str, Any]:
    return {"engine": {"engine_kwargs": kwargs}}


def files_of(package: Package) -> dict[str, bytes]:
    archive = zipfile.ZipFile(io.BytesIO(package.data))
    return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (candidate(base_url=f"http://user:{KEY}@server/v1"), "candidates.0.base_url"),
        (candidate(base_url="http://someone@server/v1"), "candidates.0.base_url"),
        (candidate(base_url="http://server/v1?api_key=plain"), "candidates.0.base_url"),
        (candidate(api_key_env=KEY), "candidates.0.api_key_env"),
        (engine(hf_token="plain"), "engine.engine_kwargs.hf_token"),
        (engine(deep=[{"apiKey": "plain"}]), "engine.engine_kwargs.deep.0.apiKey"),
        ({"judging": {"api_key_envs": {"openai": KEY}}}, "judging.api_key_envs.openai"),
        ({"judging": {"limits": {KEY: {}}}}, "judging.limits"),
        ({"out": "s3://AKIAABCDEFGHIJKLMNOP:hush@bucket/r"}, "out"),
        ({"tasks": [f"say {KEY}"]}, "tasks.0"),
        ({"tasks": ["the-nodes-own-value"]}, "tasks.0"),
        ({"affect": {"base_url": "https://x/v1?access-token=plain"}}, "affect.base_url"),
        (candidate(base_url="https://user:pl[ain@server/v1"), "candidates.0.base_url"),
        (engine(api_keys=["plain"]), "engine.engine_kwargs.api_keys.0"),
        (engine(store='{"url": "redis://:plain@store:1"}'), "engine.engine_kwargs.store"),
        ({"dataset": "s3://anonymous@id:plain@bucket/d.jsonl"}, "dataset"),
        ({"dataset": "abfs://bucket/data.jsonl?sv=2022&sig=plain"}, "dataset"),
    ],
)
def test_a_key_in_the_config_is_refused_by_its_place_and_never_told(
    keys: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match="looks like a key") as refused:
        refuse_keys(config(**keys), {"MY_TOKEN": "the-nodes-own-value"})
    text = str(refused.value)
    assert f"config's {named}" in text
    assert refused.value.exit_code == 2
    assert not any(secret in text for secret in (KEY, "plain", "hush", "the-nodes-own-value"))


@given(
    st.text(alphabet="abcdefghijklmnop0123456789", min_size=8),
    st.sampled_from(["a {}", "{} b", "x/{}/y", "{}"]),
)
def test_a_value_of_a_key_variable_is_refused_wherever_it_stands(value: str, around: str) -> None:
    with pytest.raises(ConfigError):
        refuse_keys(config(judge={"empathy": around.format(value)}), {"SOME_API_KEY": value})


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"tasks": ["passkey", "kv_retrieval"]},
        {"rubrics": {"key_points": "strict"}, "judge": {"key_points": "openai/gpt-4o"}},
        {
            "budget": {"tokens": 100_000},
            "judging": {"max_output_tokens": 2000, "api_key_envs": {"openai": "OTHER_KEY"}},
        },
        engine(hf_overrides={"bos_token": "<s>"}, tokenizer_mode="slow"),
        {"dataset": "hf://owner/name@main"},
        {"dataset": "s3://anonymous@open-data/d.jsonl"},
        engine(additional_special_tokens=["<s>"]),
    ],
)
def test_what_only_sounds_like_a_key_passes(keys: dict[str, Any]) -> None:
    refuse_keys(config(**keys), {"SOME_KEY": "short", "PATH": "m", "OPENAI_API_KEY": KEY})


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_every_shipped_job_travels_small_and_reads_the_same_there(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config, read in the unpacked package, is the config it was, but for where its files
    are."""
    original = load_config(job, {"out": "s3://bucket/results"})
    package = make_package(original, "night-1", {})
    assert len(package.data) < MAX_BYTES
    zipfile.ZipFile(io.BytesIO(package.data)).extractall(tmp_path)
    monkeypatch.chdir(tmp_path)  # as Ray starts the driver and every worker
    packed = load_config(Path(CONFIG_FILE))
    assert packed.cluster.address == "auto"
    assert Path(packed.dataset.removeprefix("job://")).resolve().is_relative_to(tmp_path)
    now, then = (scan_dataset(resolve_reading(job), []).fingerprint for job in (packed, original))
    assert now == then
    for before, now in zip(original.candidates, packed.candidates, strict=True):
        assert now.prompt == before.prompt or prompt_text(now.prompt) == prompt_text(before.prompt)
        assert now.model_copy(update={"prompt": before.prompt}) == before
    for part in ("metrics", "judge", "judging", "embedding", "engine", "affect", "limit", "out"):
        assert getattr(packed, part) == getattr(original, part)


def test_the_package_holds_the_code_and_nothing_of_the_checkout_besides(tmp_path: Path) -> None:
    package = make_package(config(), "r", {})
    names = set(files_of(package))
    assert {name.split("/")[0] for name in names} == {"memray_eval", CONFIG_FILE}
    assert {"memray_eval/__main__.py", "memray_eval/judges/judges.yaml", CONFIG_FILE} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert package.n_files == len(names)
    assert package.data == make_package(config(), "r", {}).data
    expected = {"run_id": "r", "suite": "memory", "out": "s3://bucket/r", "samples": "7"}
    assert package.with_samples(7).metadata == expected
    zipfile.ZipFile(io.BytesIO(package.data)).extractall(tmp_path)
    # A node imports this code, not its image's, and the manifest has the digest of what it imports
    assert package_digest(tmp_path / "memray_eval") == package_digest()


def test_a_candidates_prompt_has_the_same_path_in_every_package(tmp_path: Path) -> None:
    """It is a part of the units' identity: relative to the working directory, a resumed run has the
    same units anywhere."""
    (tmp_path / "a").mkdir()
    prompt = tmp_path / "a" / "kind.txt"
    prompt.write_text("Be kind.")
    package = make_package(config(**candidate(prompt=str(prompt))), "r", {}, yes=True)
    assert package.entrypoint == "python -m memray_eval run job.yaml --run-id r --yes"
    assert files_of(package)["files/prompts/0/kind.txt"] == b"Be kind."
    (packed,) = yaml.safe_load(files_of(package)[CONFIG_FILE])["candidates"]
    assert packed["prompt"] == "job://files/prompts/0/kind.txt"
    assert str(tmp_path).encode() not in package.data


def test_a_run_is_gone_on_with_where_only_its_folders_are_others() -> None:
    began = {"dataset": "/one/data.jsonl", "rubrics": {"empathy": "/one/kind.txt"}}
    moved = {"dataset": "job://files/dataset/data.jsonl", "rubrics": {"empathy": "files/kind.txt"}}
    again = config(**moved, judging={"actors": 2})
    assert check_same_run(config(**began), again) == again
    why = "is not what the run of this id began with; give another --run-id"
    for other in (
        {"metrics": ["empathy"]},
        {"dataset": "/one/other.jsonl"},
        candidate(prompt="/one/kind.txt"),
        {"limit": 5},
    ):
        with pytest.raises(ConfigError, match=why):
            check_same_run(config(**began), config(**began | other))


@pytest.mark.parametrize("run_id", ["../x", "", ".hidden", "a/b", "a b", "x" * 129])
def test_a_run_id_is_the_name_of_a_folder(run_id: str) -> None:
    assert check_run_id("memory-模型-20261122.1") == "memory-模型-20261122.1"
    with pytest.raises(ConfigError, match="write up to 128 letters"):
        check_run_id(run_id)


def test_files_beside_the_config_travel_and_are_looked_through(tmp_path: Path) -> None:
    for name in ("rubric.txt", "judges.yaml"):
        (tmp_path / name).write_text("text")
    named = {
        "rubrics": {"empathy": str(tmp_path / "rubric.txt")},
        "judging": {"models": str(tmp_path / "judges.yaml")},
    }
    files = files_of(make_package(config(**named), "r", {}))
    packed = yaml.safe_load(files[CONFIG_FILE])
    assert packed["rubrics"] == {"empathy": "files/rubrics/0/rubric.txt"}
    assert packed["judging"]["models"] == "files/judges/judges.yaml"
    assert files["files/rubrics/0/rubric.txt"] == files["files/judges/judges.yaml"] == b"text"
    (tmp_path / "rubric.txt").write_text(f"ask with {KEY}")
    with pytest.raises(ConfigError, match=r"rubrics\.empathy: .* looks like a key"):
        make_package(config(**named), "r", {})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"dataset": "/absent/data.jsonl"}, "there is no /absent/data.jsonl here"),
        ({"dataset": "large.jsonl"}, "4 MB may travel with a job: put it on s3://"),
        ({"dataset": "hard.jsonl", "templates": "hard"}, "the package would have"),
        ({"dataset": "held.jsonl"}, "holds the value of a key variable"),
        ({"out": "results"}, "--out s3://BUCKET/results"),
        ({"templates": "broken"}, "templates: cannot read .*nowhere to send it: No such file"),
        ({"dataset": "broken"}, "dataset: cannot read .*nowhere to send it: No such file"),
    ],
)
def test_what_cannot_travel_is_said_with_the_way_out(
    keys: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("large.jsonl").write_bytes(b"x" * 4_100_000)
    Path("held.jsonl").write_text('{"query": "a value of ours"}')
    Path("hard.jsonl").write_bytes(hard(3_900_000))
    for name in ("hard", "broken"):
        Path(name).mkdir()
    Path("hard/more").write_bytes(hard(2_000_000))
    Path("broken/nowhere").symlink_to("absent")
    placed = {key: str(tmp_path / value) for key, value in keys.items()}
    with pytest.raises(ConfigError, match=expected):
        make_package(config(**placed), "r", {"TEAM_TOKEN": "a value of ours"})


@pytest.mark.parametrize(
    "keys", [{"judging": {"models": "file:///j.yaml"}}, {"rubrics": {"empathy": "s3://b/kind.txt"}}]
)
def test_what_a_job_reads_from_local_files_only_is_none_elsewhere(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="here to be sent; name a file of this machine"):
        make_package(config(**keys), "r", {})


def hard(size: int) -> bytes:
    """Bytes that no compression makes fewer, always the same."""
    return random.Random(size).randbytes(size)


class FakeCluster(Jobs):
    """A job's states and its log as it grows, one after the other; a poll takes two seconds."""

    def __init__(self, states: list[Any], logs: Sequence[Any] = ()) -> None:
        self.state, self.log = Mock(side_effect=states), Mock(side_effect=logs)
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


RUNNING, DONE = JobState(job_id="j", status="RUNNING"), JobState(job_id="j", status="SUCCEEDED")
AWAY = ResourceError("no cluster answers")


@pytest.mark.parametrize(
    ("states", "logs", "expected"),
    [
        ([DONE], ["one\ntwo\n"], "one\ntwo\n"),
        ([RUNNING, RUNNING, DONE], ["one\ntw", "one\ntw", "one\ntwo\n"], "one\ntwo\n"),
        ([RUNNING, AWAY, RUNNING, DONE], ["one\n", AWAY, "one\ntwo\n"], "one\ntwo\n"),
        ([RUNNING, RUNNING, DONE], ["one\ntwo\n", "one\n", "one\ntwo\n"], "one\ntwo\n"),
        ([RUNNING, DONE], ["one\n", AWAY], "one\n"),  # it went with its node
    ],
)
def test_every_character_of_a_log_is_written_once_whatever_breaks(
    states: list[Any], logs: list[Any], expected: str
) -> None:
    written: list[str] = []
    assert watch(FakeCluster(states, logs), "j", written.append, lambda _: None) == DONE
    assert "".join(written) == expected


def test_a_cluster_that_stays_away_is_told_after_a_time_and_not_before() -> None:
    def watched(cluster: FakeCluster) -> JobState:
        return watch(cluster, "j", None, cluster.sleep, lambda: cluster.now_s)

    assert watched(FakeCluster([RUNNING, *[AWAY] * 50, RUNNING, *[AWAY] * 50, DONE])) == DONE
    away = FakeCluster([RUNNING, *[AWAY] * 100])
    with pytest.raises(ResourceError):
        watched(away)
    assert PATIENCE_S < away.now_s < PATIENCE_S + 5


@pytest.mark.parametrize(
    ("status", "driver", "code"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 1, 1),
        ("FAILED", 2, 2),
        ("FAILED", -9, 137),
        ("FAILED", None, 3),
        ("STOPPED", None, 1),
    ],
)
def test_the_exit_code_is_the_jobs_own(status: str, driver: int | None, code: int) -> None:
    state = JobState(job_id="j", status=status, driver_exit_code=driver)
    assert (state.is_over, state.exit_code) == (True, code)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--set", f"engine.engine_kwargs.token={KEY}"],
            "engine.engine_kwargs.token looks like a key",
        ),
        (["--run-id", "../x"], "--run-id '../x': write up to 128"),
        ([], "there is no --address"),
        (
            ["--address", "head:6379"],
            "--address 'head:6379' is not the address of a cluster's dashboard: http://HEAD:8265",
        ),
        (["--run-id", ""], "--run-id '': write up to 128"),
        (["--address", f"http://me:{KEY}@head:8265"], "has a user or password in it"),
        (["--address", f"me:{KEY}@head:8265"], "has a user or password in it"),
        (["--address", "http://[::1:8265"], "is not the address of a cluster's dashboard"),
    ],
)
def test_wrong_use_of_submit_is_a_message_and_exit_code_2(
    words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, cli: Call
) -> None:
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    job = str(REPOSITORY / "jobs" / "quickstart.yaml")
    code, _, err = cli("submit", job, "--out", "s3://bucket/r", *words)
    assert (code, expected in err) == (2, True)
    assert KEY not in err


def test_the_digest_is_of_every_file_but_caches(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    rubric = tmp_path / "metrics" / "rubric.md"
    rubric.write_text("one", "utf-8")

    def digest() -> str:
        return package_digest.__wrapped__(tmp_path)

    before = digest()
    assert len(before) == 64
    for cached in ("__pycache__/a.cpython-311.pyc", "old.pyc", ".hidden"):
        (tmp_path / cached).parent.mkdir(exist_ok=True)
        (tmp_path / cached).write_text("x", "utf-8")
    assert digest() == before
    rubric.write_text("two", "utf-8")
    assert digest() != before
    rubric.write_text("one", "utf-8")
    rubric.rename(tmp_path / "rubric.md")
    assert digest() != before

from pathlib import Path

import pytest
import yaml

from memray_eval.config.environment import cache_dir, keys_set
from memray_eval.config.loading import job_schema, load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.config.sections import (
    AffectConfig,
    CountRange,
    EngineConfig,
    JudgingConfig,
    MetricOptions,
    SinkConfig,
    least_of,
    most_of,
)
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.origins import read_config, write_config
from memray_eval.execution.run_plan import engine_groups
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Candidate
from tests.conftest import REPOSITORY

MINIMAL = "dataset: data\ncandidates: [{name: a, model: m}]\n"
SWEEP = (
    "dataset: data\ncandidates: [{name: a, model: m, temperatures: [0.0, 0.5, 1]}, {name: b, "
    "model: n}]\n"
)
SERVED = (
    "dataset: data\nservers: {lab: {url: 'http://127.0.0.1:8000/v1'}}\n"
    "candidates: [{name: a, model: org/model}, {name: b, model: lab/m}]\n"
)


def job(tmp_path: Path, text: str = MINIMAL) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["quickstart", "memory", "server"])
def test_the_jobs_that_are_shipped_load(name: str) -> None:
    config = load_config(REPOSITORY / "jobs" / f"{name}.yaml")
    assert config.dataset == str(REPOSITORY / "dataset" / "samples")


def test_the_quickstart_never_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-set")
    config = load_config(REPOSITORY / "jobs" / "quickstart.yaml")
    assert (config.judge, config.embedding.model) == ("rules", "local")
    assert {candidate.backend for candidate in config.candidates} == {"vllm"}


def test_paths_in_the_file_are_relative_to_it_and_those_of_the_command_line_to_the_working_directory(  # noqa: E501
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = job(tmp_path)
    assert load_config(path).dataset == str(tmp_path / "data")
    assert load_config(path, {"dataset": "mine"}).dataset == str(tmp_path / "elsewhere" / "mine")
    assert load_config(path, {"dataset": "s3://bucket/x"}).dataset == "s3://bucket/x"
    assert load_config(path, {"out": "~/r"}).out == str(Path("~/r").expanduser())
    assert load_config(path).out == str(tmp_path / "elsewhere" / "results")


def test_settings_reach_into_lists_and_make_mappings(tmp_path: Path) -> None:
    settings = [
        "candidates.0.sampling.temperature=0.7",
        "engine.engine_kwargs.block_size=32",
        "metrics=[relevance]",
        "suite=memory",
        "candidates.1.baseline=dump",
        "candidates.2={baseline: none}",
    ]
    config = load_config(job(tmp_path), {}, settings)
    assert [candidate.name for candidate in config.candidates[1:]] == ["dump", "none"]
    assert config.candidates[0].sampling.temperature == 0.7
    assert config.engine.engine_kwargs == {"block_size": 32}
    assert config.metrics == ("relevance",)


WRONG = yaml.safe_load((REPOSITORY / "tests" / "data" / "wrong_jobs.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("text", "settings", "message"), WRONG)
def test_a_wrong_config_is_named_with_the_way_out(
    tmp_path: Path, text: str | None, settings: list[str], message: str
) -> None:
    name, _, more = (text or "").partition("\n")
    whole = {"MINIMAL": MINIMAL + more, "SWEEP": SWEEP, "SERVED": SERVED}.get(name, text)
    path = tmp_path / "absent.yaml" if whole is None else job(tmp_path, whole)
    with pytest.raises(ConfigError) as raised:
        load_config(path, {}, settings)
    assert message in str(raised.value)
    assert raised.value.exit_code == 2
    assert name != "SERVED" or len(str(raised.value).splitlines()) == 2
    assert "CountRange" not in str(raised.value)


def test_off_may_be_written_as_yaml_reads_it() -> None:
    assert JudgingConfig.model_validate({"cache": False}).cache == "off"
    assert AffectConfig.model_validate({"tts": False, "emotion": False}).tts == "off"


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMRAY_EVAL_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("MEMRAY_EVAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "memray_eval"


def test_keys_are_reported_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    others = {"ANTHROPIC_API_KEY": False, "GOOGLE_API_KEY": False}
    assert keys_set() == {"OPENAI_API_KEY": True, **others}


def test_temperatures_and_prompts_are_candidates_of_their_own(tmp_path: Path) -> None:
    prompts = "candidates.1.prompts=[default, prompts/warm.txt]"
    settings = [prompts, "candidates.1.temperatures=[0.7]"]
    config = load_config(job(tmp_path, SWEEP), {"candidates.0.sampling.seed": 3}, settings)
    assert type(config) is RunConfig
    assert {type(candidate) for candidate in config.candidates} == {Candidate}
    expanded = [(c.name, c.model, c.sampling.temperature, c.prompt) for c in config.candidates]
    assert expanded == [
        *((f"a-t{t}", "m", t, "default") for t in (0.0, 0.5, 1.0)),
        ("b-t0.7-default", "n", 0.7, "default"),
        ("b-t0.7-warm", "n", 0.7, "prompts/warm.txt"),
    ]
    assert [candidate.sampling.seed for candidate in config.candidates] == [3, 3, 3, 0, 0]


def test_a_run_folder_holds_the_candidates_expanded(tmp_path: Path) -> None:
    config = load_config(job(tmp_path, SWEEP))
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    write_config(folder, config)
    assert read_config(folder) == config
    assert [c.name for c in config.candidates] == ["a-t0.0", "a-t0.5", "a-t1.0", "b"]
    groups = engine_groups(config.candidates)  # each model is loaded once
    assert [(group[0].model, len(group)) for group in groups] == [("m", 3), ("n", 1)]


_LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{key}: &{key} [{','.join(['*' + before] * 9)}]\n"
    for before, key in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suite: memory\nsuite: text\n", "the key 'suite' appears twice"),
        ("engine: {replicas: 1, replicas: 2}\n", "the key 'replicas' appears twice"),
        ("dataset: " + "[" * 50 + "]" * 50 + "\n", "nested more than 32 deep"),
        ("dataset: " + "[" * 5000 + "\n", "nested more than 32 deep"),
        (_LAUGHS, "aliases stand for more than"),
        ("limit: " + "9" * 5000 + "\n", "4300"),
        ("dataset: 2026-13-45\n", "month"),
    ],
)  # fmt: skip
def test_odd_yaml_is_refused_with_why(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(job(tmp_path, text))


def test_merge_keys_of_yaml_still_merge() -> None:
    merged = parse_yaml("base: &b {x: 1}\nown: {<<: *b, y: 2}\nother: {<<: *b, x: 3}")
    assert merged["other"] == {"x": 3}
    with pytest.raises(ConfigError, match="appears twice"):
        load_config(None, {}, ["engine={replicas: 1, replicas: 2}"])


def test_word_lists_are_options_of_metrics(tmp_path: Path) -> None:
    path, extended = job(tmp_path), MetricOptions(transitions="extended")
    assert load_config(path).metric_options == MetricOptions()
    assert load_config(path, settings=["transitions=extended"]).metric_options == extended
    with pytest.raises(ConfigError, match="transitions: must be 'strict' or 'extended'"):
        load_config(path, settings=["transitions=wide"])


def test_settings_of_vllms_go_to_an_engine_as_text(tmp_path: Path) -> None:
    settings = ["engine.env={VLLM_USE_DEEP_GEMM: 0, VLLM_Y: text, VLLM_X: 1.5}", "engine.cpus=0.5"]
    engine = load_config(job(tmp_path), settings=settings).engine
    assert engine.env == {"VLLM_USE_DEEP_GEMM": "0", "VLLM_Y": "text", "VLLM_X": "1.5"}
    assert engine.cpus == 0.5


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [("3", 3, 3), ("{min: 1, max: 8}", 1, 8), ("{max: 8}", 1, 8), ("{min: 4, max: 4}", 4, 4)],
)
def test_engines_are_a_number_or_a_range(tmp_path: Path, value: str, least: int, most: int) -> None:
    path = job(tmp_path, f"{MINIMAL}engine: {{replicas: {value}}}\n")
    config = load_config(path)
    counts = config.engine.replicas
    assert isinstance(counts, CountRange if "{" in value else int)
    assert (least_of(counts), most_of(counts)) == (least, most)
    assert load_config(job(tmp_path), settings=[f"engine.replicas={value}"]) == config
    stored = config.engine.model_dump(mode="json")
    assert stored["replicas"] == ({"min": least, "max": most} if "{" in value else least)
    assert EngineConfig.model_validate(stored) == config.engine


def test_a_setting_changes_one_end_of_a_range(tmp_path: Path) -> None:
    path = job(tmp_path, f"{MINIMAL}engine: {{replicas: {{min: 1, max: 8}}}}\n")
    changed = load_config(path, settings=["engine.replicas.max=4"])
    assert changed.engine.replicas == CountRange(min=1, max=4)


def test_a_sink_is_a_kind_or_a_kind_with_its_keys(tmp_path: Path) -> None:
    text = "sinks: [otlp, {kind: mlflow, uri: 'http://m:5000', experiment: e}, {kind: inspect}]"
    otlp, mlflow = SinkConfig(kind="otlp"), {"uri": "http://m:5000", "experiment": "e"}
    expected = (otlp, SinkConfig(kind="mlflow", **mlflow), SinkConfig(kind="inspect"))
    assert load_config(job(tmp_path, MINIMAL + text)).sinks == expected
    for setting in ("sinks=otlp", "sinks=[otlp]", "sinks={kind: otlp}"):
        assert load_config(job(tmp_path), settings=[setting]).sinks == (otlp,)


def test_a_sinks_folder_is_found_from_the_jobs_and_a_password_is_refused(tmp_path: Path) -> None:
    config = load_config(job(tmp_path, MINIMAL + "sinks: {kind: inspect, dir: logs}"))
    assert config.sinks[0].dir == str(tmp_path / "logs")
    again = RunConfig.model_validate(config.model_dump(mode="json"))
    assert again.sinks == config.sinks
    secret = MINIMAL + "sinks: [{kind: mlflow, uri: 'https://me:secret@host'}]"
    with pytest.raises(ConfigError, match=r"sinks\.0\.uri looks like a key"):
        refuse_keys(load_config(job(tmp_path, secret)), {})


def test_an_editor_completes_both_forms() -> None:
    forms = job_schema()["properties"]["sinks"]["anyOf"]
    shown = [form.get("enum") or form.get("$ref") or form["type"] for form in forms]
    assert shown == [["otlp", "mlflow", "inspect"], "#/$defs/SinkConfig", "array"]

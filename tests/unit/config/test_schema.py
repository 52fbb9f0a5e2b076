from pathlib import Path

import pytest

from memray_eval.config.environment import cache_dir, keys_set
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import AffectConfig, JudgingConfig, MetricOptions
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


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (None, [], "no file"),
        ("a: [", [], "not valid YAML"),
        ("- a\n", [], "must hold a mapping"),
        (MINIMAL + "enigne: {}\n", [], "enigne: no such key; did you mean 'engine'?"),
        (MINIMAL + "model: m\n", [], "model: no such key of a job; it is one of its parts, as in"),
        (MINIMAL + "str: 5\n", [], "str: no such key"),  # as a branch of a union is called
        (MINIMAL + "Limit[: 5\n", [], "Limit[: no such key"),
        ("dataset: d\n", [], "candidates: missing"),
        (MINIMAL, ["judge=7"], "judge: must be text or a list or a mapping of keys, not 7"),
        (MINIMAL, ["judge={empathy: 7}"], "judge.empathy: must be text or a list, not 7"),
        (MINIMAL, ["judge=[openai/a, 3]"], "judge.1: must be text, not 3"),
        (MINIMAL, ["judge=[openai/a, openai/b, openai/a]"], "judge: openai/a is named 2 times"),
        (MINIMAL, ["judging.fallbacks=[openai/a, openai/a]"], "judging.fallbacks: openai/a is"),
        (MINIMAL, ["candidates=[]"], "candidates: at least 1 must be named"),
        (MINIMAL, ["executor=loca"], "or 'ray'; did you mean 'local'?"),
        (MINIMAL, ["servers={lab: {url: 3}}"], "servers.lab.url: must be text, not 3"),
        (MINIMAL, ["engine.replicas=0"], "engine.replicas: must be 1 or more or"),
        (MINIMAL, ["judging.base_urls={azure: x}"], "judging.base_urls.azure"),
        (MINIMAL, ["engine"], "write key.path=value"),
        (MINIMAL, ["candidates.7.name=x"], "'7' is not an index of a list of 1; 1 appends"),
        (MINIMAL, ["dataset.x=1"], "holds a plain value"),
        (MINIMAL, ["embedding.model=word2vec"], "no embedding model 'word2vec'"),
        (
            "dataset: d\ncandidates: [{name: a, model: m}, {name: a, model: n}]\n",
            [],
            "two have the name 'a'",
        ),
        (
            "dataset: d\ncandidates: [{name: a, model: embedded, backend: openai}]\n",
            [],
            "asks a server for the embedded model",
        ),
        (MINIMAL, ["candidates.0.base_url=http://h/v1"], "has a base_url, which an engine of vLLM"),
        (SWEEP, ["candidates.0.temperatures=[0.5, 0.5]"], "two have the name 'a-t0.5'"),
        (SWEEP, ["candidates.1.name=a-t0.5"], "two have the name 'a-t0.5'"),
        (
            SWEEP,
            ["candidates.0.temperatures=[3]"],
            "candidates.0.temperatures.0: must be 2 or less, not 3",
        ),
        (SWEEP, ["candidates.0.temperatures=[]"], "candidates.0.temperatures: at least 1"),
        (SWEEP, ["candidates.0.sampling.temperature=1"], "temperatures and sampling.temperature"),
        (SWEEP, ["candidates.1.prompts=[x]", "candidates.1.prompt=y"], "candidates.1: prompts and"),
        (SWEEP, ["candidates.0.temperatuers=[1]"], "did you mean 'temperatures'?"),
        (SWEEP, ["candidates.1.prompts=[a/x.txt, b/x.txt]"], "two have the name 'b-x'"),
        (SWEEP, ["candidates.1.user=u"], "candidates.1: user, session and headers: go with"),
        (SWEEP, ["candidates.1.memory={store: bm25, tools: 1}"], "1: memory.tools: go with a serv"),
        (SWEEP, ["candidates.1={name: b, model: ollama/m, lora: x}"], "candidates.1: lora: goes"),
        (SWEEP, ["candidates.1.retry_max_tokens=9", "candidates.1.backend=code"], "1: retry_max"),
        (SWEEP, ["candidates.1.retry_max_tokens=9", "candidates.1.sampling.max_tokens=9"], "1: re"),
    ],
)
def test_a_wrong_config_is_named_with_the_way_out(
    tmp_path: Path, text: str | None, settings: list[str], message: str
) -> None:
    path = tmp_path / "absent.yaml" if text is None else job(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(path, {}, settings)
    assert message in str(raised.value)
    assert raised.value.exit_code == 2


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
    expanded = [
        (entry.name, entry.model, entry.sampling.temperature, entry.prompt)
        for entry in config.candidates
    ]
    assert expanded == [
        ("a-t0.0", "m", 0.0, "default"),
        ("a-t0.5", "m", 0.5, "default"),
        ("a-t1.0", "m", 1.0, "default"),
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
    names = [candidate.name for candidate in read_config(folder).candidates]
    assert names == ["a-t0.0", "a-t0.5", "a-t1.0", "b"]


def test_a_sweep_loads_each_model_once(tmp_path: Path) -> None:
    config = load_config(job(tmp_path, SWEEP), {}, ["candidates.1.temperatures=[0.0, 0.5, 1.0]"])
    groups = engine_groups(config.candidates)
    assert [(group[0].model, len(group)) for group in groups] == [("m", 3), ("n", 3)]


def test_off_may_be_written_as_yaml_reads_it() -> None:
    assert JudgingConfig.model_validate({"cache": False}).cache == "off"
    assert AffectConfig.model_validate({"tts": False, "emotion": False}).tts == "off"


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
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_merge_keys_of_yaml_still_merge(tmp_path: Path) -> None:
    merged = parse_yaml("base: &b {x: 1}\nown: {<<: *b, y: 2}\nother: {<<: *b, x: 3}")
    assert merged["other"] == {"x": 3}
    with pytest.raises(ConfigError, match="appears twice"):
        load_config(None, {}, ["engine={replicas: 1, replicas: 2}"])


def test_word_lists_are_options_of_metrics(tmp_path: Path) -> None:
    path = job(tmp_path)
    assert load_config(path).metric_options == MetricOptions()
    assert load_config(path, settings=["transitions=extended"]).metric_options == MetricOptions(
        transitions="extended"
    )
    with pytest.raises(ConfigError, match="transitions: must be 'strict' or 'extended'"):
        load_config(path, settings=["transitions=wide"])


@pytest.mark.parametrize(
    "setting", ["estimates.safety=true", "emotion_words=extended"], ids=lambda text: text[:9]
)
def test_a_key_that_was_withdrawn_says_what_to_do(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match="leave the key out, and name a judge with `judge: "):
        load_config(job(tmp_path), settings=[setting])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mode=auto", "judging.mode=auto was withdrawn: write `judging.mode: batch` or `live`"),
        ("mode=later", "judging.mode: must be 'live' or 'batch'"),
        ("batch.min_calls=9", "judging.batch.min_calls was withdrawn: leave it out"),
        ("batch.limits={openai: {calls: 9}}", "limits was withdrawn: set `judging.batch.calls`"),
    ],
)
def test_a_value_or_key_of_batches_that_was_withdrawn_says_what_to_do(
    tmp_path: Path, setting: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(job(tmp_path), settings=[f"judging.{setting}"])


def test_what_would_pass_the_plan_by_is_refused(tmp_path: Path) -> None:
    settings = ["engine.tensor_parallel=2", "engine.cpus=0.5"]
    with pytest.raises(ConfigError, match="each of the engine's 2 workers"):
        load_config(job(tmp_path), settings=settings)
    assert load_config(job(tmp_path), settings=["engine.cpus=0.5"]).engine.cpus == 0.5
    message = (
        r"engine_kwargs\.tensor_parallel_size changes .* write engine\.tensor_parallel instead"
    )
    with pytest.raises(ConfigError, match=message):
        load_config(job(tmp_path), settings=["engine.engine_kwargs={tensor_parallel_size: 2}"])


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("{tensor_parallel: 8, nodes: 3}", "spread evenly over nodes: 3"),
        ("{tensor_parallel: 8, nodes: 2, data_parallel: 2}", "data_parallel: 2 copies"),
        (
            "{tensor_parallel: 8, nodes: 2, engine_kwargs: {distributed_executor_backend: mp}}",
            "distributed_executor_backend is mp",
        ),
        (
            "{data_parallel: 2, engine_kwargs: {distributed_executor_backend: ray}}",
            r"distributed_executor_backend is ray",
        ),
        ("{engine_kwargs: {data_parallel_size: 2}}", r"write engine\.data_parallel"),
        ("{data_parallel: 2, cpus: 0.5}", "2 workers"),
    ],
)
def test_devices_that_do_not_add_up_are_refused(tmp_path: Path, engine: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(job(tmp_path), settings=[f"engine={engine}"])


@pytest.mark.parametrize(
    ("env", "held"),
    [
        ("{VLLM_USE_DEEP_GEMM: 0}", {"VLLM_USE_DEEP_GEMM": "0"}),
        ("{VLLM_Y: text, VLLM_X: 1.5}", {"VLLM_Y": "text", "VLLM_X": "1.5"}),
        ("{VLLM_API_KEY: x}", r"env\.VLLM_API_KEY is no setting .* set on the nodes"),
        ("{HF_TOKEN: x}", r"env\.HF_TOKEN is no setting"),
        ("{LD_PRELOAD: x}", r"env\.LD_PRELOAD is no setting"),
        ("{VLLM_CPU_KVCACHE_SPACE: 4}", r"write engine\.kv_cache_gib"),
        ("{VLLM_X: true}", r"env\.VLLM_X: must be text"),
    ],
)
def test_only_settings_of_vllms_go_to_an_engine(
    tmp_path: Path, env: str, held: dict[str, str] | str
) -> None:
    settings = [f"engine.env={env}"]
    if isinstance(held, dict):
        assert load_config(job(tmp_path), settings=settings).engine.env == held
    else:
        with pytest.raises(ConfigError, match=held):
            load_config(job(tmp_path), settings=settings)

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (None, [], "no file"),
        ("a: [", [], "not valid YAML"),
        ("- a\n", [], "must hold a mapping"),
        (MINIMAL + "enigne: {}\n", [], "enigne: no such key; did you mean 'engine'?"),
        (
            MINIMAL,
            ["columns.query={from: q, prase: json}"],
            "prase: no such key; did you mean 'parse'",
        ),
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


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("estimates.safety=true", "leave the key out, and name a judge with `judge: "),
        ("emotion_words=extended", "leave the key out, and name a judge with `judge: "),
        (
            "judging.mode=auto",
            "judging.mode=auto was withdrawn: write `judging.mode: batch` or `live`",
        ),
        ("judging.mode=later", "judging.mode: must be 'live' or 'batch'"),
        ("judging.batch.min_calls=9", "judging.batch.min_calls was withdrawn: leave it out"),
        ("judging.batch.limits={openai: {calls: 9}}", "was withdrawn: set `judging.batch.calls`"),
        ("judging.parameters={model: x}", "parameters: model is filled in by the run itself"),
        (
            "judging.parameters={openai/m: {messages: []}}",
            "messages is filled in by the run itself",
        ),
        ("judging.parameters={openai/m: 1}", "openai/m names a judge; write a mapping under it"),
        ("judging.parameters={max_tokens: 5}", "max_tokens is judging.max_output_tokens"),
        ("engine.replicas=0", "engine.replicas: must be 1 or more or a mapping of keys, not 0"),
        ("engine.replicas=-2", "engine.replicas: must be 1 or more or a mapping of keys, not -2"),
        ("engine.replicas=two", "replicas: must be a whole number or a mapping of keys, not text"),
        ("engine.replicas=1.5", "replicas: must be a whole number or a mapping of keys, not 1.5"),
        (
            "engine.replicas=[1, 8]",
            "engine.replicas: must be a whole number or a mapping of keys, not a list",
        ),
        ("engine.replicas={min: 4, max: 2}", "replicas: min is 4, which is more than max, 2"),
        ("engine.replicas={min: 0, max: 2}", "engine.replicas.min: must be 1 or more, not 0"),
        ("engine.replicas={min: 1, max: many}", "replicas.max: must be a whole number, not text"),
        ("engine.replicas={min: 1}", "engine.replicas.max: missing"),
        (
            "engine.replicas={min: 1, max: 8, mx: 8}",
            "engine.replicas.mx: no such key; did you mean 'max'?",
        ),
        ("engine={tensor_parallel: 2, cpus: 0.5}", "each of the engine's 2 workers"),
        ("engine={data_parallel: 2, cpus: 0.5}", "each of the engine's 2 workers"),
        ("engine={tensor_parallel: 8, nodes: 3}", "spread evenly over nodes: 3"),
        ("engine={tensor_parallel: 8, nodes: 2, data_parallel: 2}", "data_parallel: 2 copies"),
        (
            "engine={tensor_parallel: 8, nodes: 2, "
            "engine_kwargs: {distributed_executor_backend: mp}}",
            "distributed_executor_backend is mp",
        ),
        (
            "engine={data_parallel: 2, engine_kwargs: {distributed_executor_backend: ray}}",
            "distributed_executor_backend is ray",
        ),
        ("engine.engine_kwargs={data_parallel_size: 2}", "write engine.data_parallel instead"),
        ("engine.engine_kwargs={tensor_parallel_size: 2}", "write engine.tensor_parallel instead"),
        ("engine.env={VLLM_CPU_KVCACHE_SPACE: 4}", "write engine.kv_cache_gib"),
        (
            "engine.env={VLLM_API_KEY: x}",
            "env.VLLM_API_KEY is no setting of vLLM's: write VLLM_...",
        ),
        ("engine.env={HF_TOKEN: x}", "env.HF_TOKEN is no setting"),
        ("engine.env={LD_PRELOAD: x}", "others are set on the nodes"),
        ("engine.env={VLLM_X: true}", "env.VLLM_X: must be text"),
        ("servers={openai: {url: 'http://h/v1'}}", "a server cannot be called 'openai'"),
        ("servers={embedded: {url: 'http://h/v1'}}", "a server cannot be called 'embedded'"),
        ("servers={rules: {url: 'http://h/v1'}}", "a server cannot be called 'rules'"),
        ("servers={auto: {url: 'http://h/v1'}}", "a server cannot be called 'auto'"),
        ("servers={a/b: {url: 'http://h/v1'}}", "a server cannot be called 'a/b'"),
        ("servers={'': {url: 'http://h/v1'}}", "a server cannot be called ''"),
        ("servers={'7': {url: 'http://h/v1'}}", "a server cannot be called '7'"),
        ("servers=[1]", "servers: must be a mapping of keys, not a list"),
        ("servers=local", "servers: must be a mapping of keys, not text"),
        ("servers={local: 7}", "servers.local: must be a mapping of keys, not 7"),
        ("servers={local: {adress: x}}", "servers.local.adress: no such key"),
        ("servers.both=[local]", "servers.both.pool was withdrawn: put a gateway"),
        ("servers.both={pool: [local]}", "servers.both.pool was withdrawn: put a gateway"),
        ("candidates.0.model=llama3:latest", "as only a server's model has"),
        ("sinks=[otpl]", "sinks.0: no sink 'otpl'; there are: otlp, mlflow, inspect"),
        ("sinks=[otlp, {kind: [otlp]}]", "sinks.1: no sink ['otlp']; there are: otlp"),
        ("sinks=[{uri: 'http://m'}]", "sinks.0: no sink None; there are: otlp, mlflow, inspect"),
        ("sinks=[{kind: mlflow, experimen: x}]", "no such key; did you mean 'experiment'?"),
        ("sinks=[{kind: otlp, endpoint: x}]", "withdrawn: set OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("sinks=[{kind: otlp, uri: x}]", "sinks.0: uri: a sink of kind otlp takes no keys"),
        ("sinks=[{kind: mlflow, dir: x}]", "dir: a sink of kind mlflow takes uri, experiment"),
        ("sinks=3", "sinks: must be a list, not 3"),
        (
            "candidates.0={name: a, model: m, contexts: [full], context: none}",
            "contexts and context are both given",
        ),
        (
            "candidates.0={name: a, model: m, contexts: [full], retrieved: {}}",
            "with retrieved among the contexts",
        ),
        (
            "candidates.0={name: a, model: m, context: oracle, retrieved: {}}",
            "goes with context: retrieved, not oracle",
        ),
        ("candidates.0.context=all", "candidates.0.context: must be 'full'"),
        ("candidates.0.retrieved={k: 0}", "retrieved.k: must be more than 0, not 0"),
        ("candidates.0.retrieved={by: vibes}", "retrieved.by: must be 'bm25' or 'embedding'"),
        ("candidates.0.retrieved={model: openai/x}", "match pattern"),
        (
            "candidates.0.extra={topk: 5}",
            "a: extra: vLLM's SamplingParams has no 'topk'; did you mean 'top_k'?",
        ),
        (
            "candidates.0.extra={structured_outputs: {jason: {}}}",
            "no 'jason'; did you mean 'json'?",
        ),
        (
            "candidates.0.extra={chat_template_kwargs: true}",
            "a: extra: chat_template_kwargs is a map",
        ),
        (
            "candidates.0.extra={temperature: 0}",
            "a: extra: temperature has its own key under sampl",
        ),
        ("candidates.0.extra={n: 2}", "candidates: a: extra: n is filled in by the run itself"),
        (
            "candidates.1.extra={model: other}",
            "candidates: b: extra: model is filled in by the run",
        ),
        ("candidates.1.extra={messages: []}", "candidates: b: extra: messages is filled in by the"),
        (
            "candidates.1.extra={stream: true}",
            "candidates: b: extra: stream is filled in by the run",
        ),
        ("candidates.1.extra={max_completion_tokens: 5}", "has its own key under sampling"),
    ],
)
def test_a_wrong_setting_is_named_with_the_way_out(
    tmp_path: Path, setting: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(job(tmp_path, SERVED), settings=[setting])
    _, line = str(raised.value).splitlines()
    assert message in line
    assert "CountRange" not in line


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
    config = load_config(job(tmp_path, f"{MINIMAL}engine: {{replicas: {value}}}\n"))
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
    assert load_config(job(tmp_path, MINIMAL + text)).sinks == (
        SinkConfig(kind="otlp"),
        SinkConfig(kind="mlflow", uri="http://m:5000", experiment="e"),
        SinkConfig(kind="inspect"),
    )


@pytest.mark.parametrize("setting", ["sinks=otlp", "sinks=[otlp]", "sinks={kind: otlp}"])
def test_a_setting_may_name_one_alone(tmp_path: Path, setting: str) -> None:
    assert load_config(job(tmp_path), settings=[setting]).sinks == (SinkConfig(kind="otlp"),)


def test_a_folder_is_found_from_the_job_s_and_stays_in_the_config(tmp_path: Path) -> None:
    config = load_config(job(tmp_path, MINIMAL + "sinks: {kind: inspect, dir: logs}"))
    assert config.sinks[0].dir == str(tmp_path / "logs")
    again = RunConfig.model_validate(config.model_dump(mode="json"))
    assert again.sinks == config.sinks


def test_an_address_with_a_password_is_refused(tmp_path: Path) -> None:
    config = load_config(
        job(tmp_path, MINIMAL + "sinks: [{kind: mlflow, uri: 'https://me:secret@host'}]")
    )
    with pytest.raises(ConfigError, match=r"sinks\.0\.uri looks like a key"):
        refuse_keys(config, {})


def test_an_editor_completes_both_forms() -> None:
    forms = job_schema()["properties"]["sinks"]["anyOf"]
    assert [form.get("enum") or form.get("$ref") or form["type"] for form in forms] == [
        ["otlp", "mlflow", "inspect"],
        "#/$defs/SinkConfig",
        "array",
    ]

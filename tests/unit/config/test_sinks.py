"""`sinks` of a job: a list of kinds, or of mappings with a kind and its keys."""

from pathlib import Path

import pytest

from memray_eval.config.loading import job_schema, load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.secrets import refuse_keys
from memray_eval.config.sections import SinkConfig
from memray_eval.errors import ConfigError

JOB = "dataset: d.jsonl\ncandidates: [{name: a, model: b}]\n"


def load(tmp_path: Path, sinks: str, *settings: str) -> RunConfig:
    job = tmp_path / "job.yaml"
    job.write_text(f"{JOB}{sinks}\n")
    return load_config(job, {}, settings)


def test_a_sink_is_a_kind_or_a_kind_with_its_keys(tmp_path: Path) -> None:
    text = "sinks: [otlp, {kind: mlflow, uri: 'http://m:5000', experiment: e}, {kind: inspect}]"
    assert load(tmp_path, text).sinks == (
        SinkConfig(kind="otlp"),
        SinkConfig(kind="mlflow", uri="http://m:5000", experiment="e"),
        SinkConfig(kind="inspect"),
    )


@pytest.mark.parametrize("setting", ["sinks=otlp", "sinks=[otlp]", "sinks={kind: otlp}"])
def test_a_setting_may_name_one_alone(tmp_path: Path, setting: str) -> None:
    assert load(tmp_path, "", setting).sinks == (SinkConfig(kind="otlp"),)


def test_a_folder_is_found_from_the_job_s_and_stays_in_the_config(tmp_path: Path) -> None:
    config = load(tmp_path, "sinks: {kind: inspect, dir: logs}")
    assert config.sinks[0].dir == str(tmp_path / "logs")
    again = RunConfig.model_validate(config.model_dump(mode="json"))
    assert again.sinks == config.sinks


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ("[otpl]", "sinks.0: no sink 'otpl'; there are: otlp, mlflow, inspect"),
        ("[otlp, {kind: [otlp]}]", "sinks.1: no sink ['otlp']; there are: otlp, mlflow, inspect"),
        ("[{uri: 'http://m'}]", "sinks.0: no sink None; there are: otlp, mlflow, inspect"),
        ("[{kind: mlflow, experimen: x}]", "no such key; did you mean 'experiment'?"),
        ("[{kind: otlp, endpoint: x}]", "withdrawn: set OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("[{kind: otlp, uri: x}]", "sinks.0: uri: a sink of kind otlp takes no keys"),
        ("[{kind: mlflow, dir: x}]", "sinks.0: dir: a sink of kind mlflow takes uri, experiment"),
        ("3", "sinks: must be a list, not 3"),
    ],
)
def test_a_mistake_names_the_key_and_what_there_is(
    tmp_path: Path, sinks: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f"sinks: {sinks}")
    assert message in str(raised.value)


def test_an_address_with_a_password_is_refused(tmp_path: Path) -> None:
    config = load(tmp_path, "sinks: [{kind: mlflow, uri: 'https://me:secret@host'}]")
    with pytest.raises(ConfigError, match=r"sinks\.0\.uri looks like a key"):
        refuse_keys(config, {})


def test_an_editor_completes_both_forms() -> None:
    forms = job_schema()["properties"]["sinks"]["anyOf"]
    assert [form.get("enum") or form.get("$ref") or form["type"] for form in forms] == [
        ["otlp", "mlflow", "inspect"],
        "#/$defs/SinkConfig",
        "array",
    ]

"""Metrics that users bring: in a file, in a package, in a job's YAML."""

import io
import math
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.config.loading import load_config
from memray_eval.config.sections import MetricOptions, OwnMetric, RubricMetric
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.run_manifest import own_code_of
from memray_eval.extensions import load_own_file, read_own_file
from memray_eval.metric import ComputedMetric, JudgedMetric, rubric_digest, score_by_code
from memray_eval.metrics import all_metrics, pick
from memray_eval.metrics.own import computed_metric, find_own_metrics, judge_metric
from memray_eval.submission.package import make_package
from memray_eval.types import Response, Sample
from tests.build import build_config, write_lines

SAMPLE, ASLEEP = Sample(id="a", query="Tired?"), Response(text="Try to sleep.")
MINE = """
from memray_eval.metrics.own import computed_metric, judge_metric
import words

def sleepy(sample, response):
    return words.SLEEP in response.text

length = computed_metric(lambda sample, response: len(response.text), scale=(0, 1000))
tone = judge_metric("tone", rubric="tone.md", sees=["query", "memory", "response"])
"""


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "words.py").write_text("SLEEP = 'sleep'\n")
    (folder / "tone.md").write_text("Score the warmth, 1 to 5.\n")
    path = folder / "my_metrics.py"
    path.write_text(MINE)
    return path


def test_a_function_in_a_file_is_a_metric(own_file: Path) -> None:
    names, own = find_own_metrics([f"{own_file}:sleepy", "politeness"])
    assert names == ("sleepy", "politeness")
    sleepy, _ = pick(names, MetricOptions(own=own))
    assert isinstance(sleepy, ComputedMetric)
    assert score_by_code(sleepy, SAMPLE, ASLEEP).value == 1.0
    assert score_by_code(sleepy, SAMPLE, Response(text="Hello.")).value == 0.0


def test_a_file_alone_stands_for_all_that_it_defines(own_file: Path) -> None:
    names, own = find_own_metrics([str(own_file)])
    assert names == ("length", "tone")
    length, tone = pick(names, MetricOptions(own=own))
    assert (length.name, length.scale, length.family) == ("length", (0, 1000), "own")
    assert isinstance(tone, JudgedMetric)
    system, data = tone.messages(SAMPLE, ASLEEP)
    assert "Score the warmth" in system.content
    assert "<MEMORY" in data.content
    assert "<HISTORY" not in data.content


def test_workers_without_the_files_have_the_same_metrics(own_file: Path) -> None:
    """The text travels, with what it imports and the rubric beside it."""
    read = [name for name, _ in read_own_file(str(own_file)).sources]
    assert read == ["my_metrics.py", "tone.md", "words.py"]
    names, own = find_own_metrics([str(own_file), f"{own_file}:sleepy"])
    _, tone, _ = pick(names, MetricOptions(own=own))
    carried = MetricOptions.model_validate_json(MetricOptions(own=own).model_dump_json())
    shutil.rmtree(own_file.parent)
    load_own_file.cache_clear()
    again = pick(names, carried)
    assert [metric.name for metric in again] == ["length", "tone", "sleepy"]
    assert rubric_digest(again[1]) == rubric_digest(tone)
    assert score_by_code(again[2], SAMPLE, ASLEEP).value == 1.0


def test_the_digest_changes_with_the_file_and_with_what_it_imports(own_file: Path) -> None:
    def digest() -> object:
        return own_code_of(resolve(build_config(metrics=[f"{own_file}:sleepy"])))

    first = digest()
    assert digest() == first
    (own_file.parent / "words.py").write_text("SLEEP = 'rest'\n")
    assert digest() != first


def test_a_file_is_scored_by_the_files_beside_it_as_they_are(tmp_path: Path) -> None:
    """Not by those of another folder, or by what they were before an edit in the same process."""
    imported = "from most.words import MOST\n"

    def measured(folder: str, most: int | None = None) -> bool:
        own = tmp_path / folder
        (own / "most").mkdir(parents=True, exist_ok=True)
        (own / "m.py").write_text(f"{imported}def brief(sample, response):\n    return MOST > 5\n")
        (own / "most" / "__init__.py").write_text(imported)
        if most is not None:
            (own / "most" / "words.py").write_text(f"MOST = {most}\n")
        names, metrics = find_own_metrics([f"{own}/m.py:brief"])
        (metric,) = pick(names, MetricOptions(own=metrics))
        return bool(score_by_code(metric, SAMPLE, ASLEEP).value)

    results = [measured("v1", 1), measured("v2", 9), measured("v1"), measured("v1", 8)]
    assert results == [False, True, False, True]


def test_another_module_of_the_name_is_not_taken_for_the_file_beside(
    own_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "words.py").write_text("SLEEP = 'none'\n")
    monkeypatch.syspath_prepend(tmp_path / "first")
    with pytest.raises(ConfigError, match=r"imports words, which is .*first/words.py here, not"):
        find_own_metrics([f"{own_file}:sleepy"])


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("def f(:\n", ":f", r"my_metrics\.py, line 1: not valid Python"),
        ("x = 1\nimport nothing_there\n", ":x", r"my_metrics\.py, line 2: cannot be imported"),
        ("x = 1\n\n1 / 0\n", "", r"my_metrics\.py, line 3: cannot be imported: ZeroDivisionError"),
        ("x = 1\n", ":y", r"defines no 'y'; it has: x"),
        ("tone = 1\n", ":tome", r"defines no 'tome'; did you mean 'tone'\?$"),
        ("import re\nfrom memray_eval import Run\nx = 1\n", ":y", r"defines no 'y'; it has: x$"),
        ("x = 1\n", ":x", r"x is int, neither a metric nor a function"),
        (
            "def asks(response): 1\n",
            ":asks",
            r"asks is called with .* too many .*\(sample, response\): \.",
        ),
        ("x = 1\n", "", r"defines no metric; write NAME = computed_metric"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, name: str, message: str) -> None:
    path = tmp_path / "my_metrics.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        find_own_metrics([f"{path}{name}"])


def test_no_such_file_or_module() -> None:
    with pytest.raises(ConfigError, match=r"no file .*nowhere\.py"):
        find_own_metrics(["nowhere.py:x"])
    with pytest.raises(ConfigError, match="no_such cannot be imported"):
        find_own_metrics(["no_such:x"])


def test_a_module_that_is_installed_is_named_with_its_attribute() -> None:
    name = "memray_eval.metrics.assistant.relevance:METRIC"
    names, own = find_own_metrics([name])
    assert names == ("METRIC",)
    assert own[0].code is not None
    assert own[0].code.source.place == "memray_eval.metrics.assistant.relevance"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        *(
            (lambda sample, response, value=value: value, "returned")
            for value in ("much", 7, math.nan)
        ),
        (lambda sample, answer: "s" in answer, "response.text"),  # a word looked for in a response
    ],
)
def test_what_is_no_score_is_an_error_of_its_unit_and_never_a_zero(function: Any, why: str) -> None:
    score = score_by_code(computed_metric(function, name="odd"), SAMPLE, ASLEEP)
    assert (score.status, score.value) == ("error", None)
    assert why in (score.error or "")


def test_choices_count_in_even_steps_from_the_worst_to_the_best() -> None:
    metric = judge_metric("fit", rubric="How well?", choices=["no", "partly", "yes"])
    judgment = metric.judgment.model_validate({"reason": "r", "choice": "partly"})
    assert metric.measure(judgment, SAMPLE, ASLEEP).value == 0.5
    assert metric.measure(metric.on_empty(SAMPLE), SAMPLE, ASLEEP).value == 0.0
    with pytest.raises(ValidationError):
        metric.judgment.model_validate({"reason": "r", "choice": "maybe"})
    assert (metric.scale, metric.integer_scale) == ((0.0, 1.0), False)


def test_a_rubric_in_a_job_is_a_metric_and_its_paths_are_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "tone.md").write_text("Score the warmth.")
    (tmp_path / "m.py").write_text("def sleepy(sample, response):\n    return True\n")
    job = tmp_path / "job.yaml"
    job.write_text(
        "dataset: d\ncandidates: [{name: a, model: m}]\nmetrics:\n- m.py:sleepy\n- politeness\n"
        "- {name: tone, rubric: tone.md, scale: [0, 10], sees: [response]}\n"
    )
    spec = resolve(load_config(job))
    assert [metric.name for metric in spec.metrics] == ["sleepy", "politeness", "tone"]
    tone = spec.metrics[2]
    assert tone.scale == (0, 10)
    assert isinstance(tone, JudgedMetric)
    assert "Score the warmth." in tone.messages(SAMPLE, ASLEEP)[0].content
    # Without a judge nobody scores it, and it is said
    assert spec.judges["tone"].needs_judge
    assert spec.named_metrics == ("sleepy", "politeness", "tone")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "a b", "rubric": "r"}, "pattern"),
        ({"name": "t", "rubric": "r", "sees": ["query"]}, "not shown the response"),
        ({"name": "t", "rubric": "r", "sees": ["qeury"]}, "'query'"),
        ({"name": "t", "rubric": "r", "scale": [5, 1]}, "has no room"),
        ({"name": "t", "rubric": "r", "choices": ["a"]}, "at least 2"),
        ({"name": "t", "rubric": "r", "choices": ["a", "a"]}, "given once"),
    ],
)
def test_a_rubric_that_does_not_fit_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        build_config(metrics=[entry])


def test_a_rubrics_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"rubric: cannot read .*none\.md"):
        resolve(build_config(metrics=[{"name": "t", "rubric": "/nowhere/none.md"}]))


def test_built_in_metrics_win_and_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("def politeness(sample, response):\n    return 1.0\n")
    spec = resolve(build_config(metrics=[f"{path}:politeness"]))
    assert spec.hidden_metrics == ["politeness"]
    assert spec.metrics[0] is all_metrics()["politeness"]


def test_included_files_give_names(own_file: Path) -> None:
    spec = resolve(build_config(metrics=["length"], include=[str(own_file)]))
    assert [metric.name for metric in spec.metrics] == ["length"]
    with pytest.raises(ConfigError, match=r"no metric 'lenght'; did you mean 'length'"):
        resolve(build_config(metrics=["lenght"], include=[str(own_file)]))


def test_the_package_of_a_job_has_the_files(own_file: Path, tmp_path: Path) -> None:
    data = write_lines(tmp_path / "d.jsonl", [{"id": "a", "query": "q"}])
    metrics = [f"{own_file}:sleepy", {"name": "t", "rubric": str(own_file.parent / "tone.md")}]
    places = {"dataset": str(data), "out": "s3://bucket/results"}
    job = build_config(metrics=metrics, include=[str(own_file)], **places)
    archive = zipfile.ZipFile(io.BytesIO(make_package(job, "r", {}).data))
    archive.extractall(tmp_path / "there")
    shutil.rmtree(own_file.parent)
    load_own_file.cache_clear()
    sent = load_config(tmp_path / "there" / "job.yaml")
    spec = resolve(sent.model_copy(update={"dataset": str(data)}))
    assert [metric.name for metric in spec.metrics] == ["sleepy", "t"]
    assert score_by_code(spec.metrics[0], SAMPLE, ASLEEP).value == 1.0


def test_own_metrics_are_data() -> None:
    """They are sent to workers, and hashed."""
    own = OwnMetric(name="t", rubric=RubricMetric(name="t", rubric="r"))
    assert hash(own) == hash(OwnMetric.model_validate_json(own.model_dump_json()))

"""What responses say of themselves, and what becomes of a job that says otherwise."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import all_suites
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import ColumnSource
from memray_eval.datasets.scan import Scan
from memray_eval.errors import DataError
from memray_eval.execution.prepare.origins import (
    FOLLOWED,
    Origin,
    count_other_suites,
    find_origin,
    follow_origin,
    name_answers,
    write_config,
)
from memray_eval.types import Record
from tests.build import GIVEN, build_folder

JOB = {"candidates": [GIVEN], "dataset": "d"}
RUBRICS = {"overall_quality": "/a/kind.txt"}


def run_of(**keys: Any) -> Origin:
    config = RunConfig.model_validate({"suite": "companion", **JOB, **keys})
    followed = {key: getattr(config, key) for key in FOLLOWED}
    return Origin(what="run r", suite="companion", followed=followed)


METRICS = ["overall_quality", "appropriateness"]
RUN, DEFAULTS = run_of(metrics=METRICS, rubrics=RUBRICS), run_of()
ROWS = Origin(what="rows.jsonl", suite="longbench")
ODD = Origin(what="rows.jsonl", suite="longbnech")
SILENT = Origin(what="rows.jsonl")


def test_a_file_or_a_run_names_the_candidate_of_its_answers(tmp_path: Path) -> None:
    for path, name in (
        ("a/answers.csv", "answers"),
        ("run-2/gpt.v2.jsonl.gz", "gpt.v2"),
        ("folder/of-parts/", "of-parts"),
        ("hf://owner/name", "name"),
    ):
        assert name_answers(path) == {"name": name, "model": name, "backend": "given"}
    folder = build_folder(tmp_path / "run", manifest={"status": "finished"})
    write_config(folder, job(candidates=[{"name": "small", "model": "m"}]))
    assert name_answers(folder.path)["name"] == "small"


def job(**keys: Any) -> RunConfig:
    return load_config(None, JOB | keys)


@pytest.mark.parametrize(
    ("origin", "keys", "explicit", "suite", "metrics"),
    [
        (RUN, {}, set(), "companion", tuple(METRICS)),
        (RUN, {"suite": "companion"}, set(), "companion", tuple(METRICS)),
        (RUN, {"metrics": METRICS[::-1]}, set(), "companion", tuple(METRICS[::-1])),
        (RUN, {"suite": "memory"}, {"suite"}, "memory", ()),
        (RUN, {"suite": "companion"}, {"suite"}, "companion", tuple(METRICS)),
        (RUN, {"metrics": ["safety"]}, {"metrics"}, "companion", ("safety",)),
        (RUN, {"suite": "memory", "metrics": ["safety"]}, {"metrics"}, "companion", ("safety",)),
        (DEFAULTS, {}, set(), "companion", ()),
        (ROWS, {}, set(), "longbench", ()),
        (ROWS, {"metrics": ["rule_score"]}, set(), "longbench", ("rule_score",)),
        (ROWS, {"suite": "memory"}, {"suite"}, "memory", ()),
        (ODD, {"suite": "memory"}, {"suite"}, "memory", ()),
        (ODD, {"metrics": ["safety"]}, {"metrics"}, "memory", ("safety",)),
        (SILENT, {}, set(), "memory", ()),
        (SILENT, {"suite": "companion"}, set(), "companion", ()),
    ],
)
def test_a_job_goes_by_its_responses_where_it_says_nothing_itself(
    origin: Origin, keys: dict[str, Any], explicit: set[str], suite: str, metrics: tuple[str, ...]
) -> None:
    followed, differences = follow_origin(job(**keys), origin, explicit)
    assert (differences, followed.suite, followed.metrics) == ([], suite, metrics)
    judged = {"overall_quality"} & set(metrics) if origin is RUN else set()
    assert followed.rubrics == {name: RUBRICS[name] for name in judged}


@pytest.mark.parametrize(
    ("origin", "keys", "message"),
    [
        (RUN, {"suite": "memory"}, "run r is of the suite companion, and the job is of memory"),
        (RUN, {"metrics": ["safety"]}, "appropriateness, overall_quality, and the job has safety"),
        (RUN, {"rubrics": {}}, "overall_quality=/a/kind.txt, and the job has of its suite"),
        (DEFAULTS, {"metrics": ["safety"]}, "run r has the metrics appropriateness, companion_"),
        (ROWS, {"suite": "memory"}, "is of the suite longbench, and the job is of memory"),
        (ODD, {}, "'longbnech', which is not one of ours (did you mean 'longbench'?)"),
        (Origin(what="x", suite="tau2"), {}, f"ours (there are: {', '.join(all_suites())})"),
    ],
)
def test_where_they_differ_it_is_said_and_the_jobs_own_stands(
    origin: Origin, keys: dict[str, Any], message: str
) -> None:
    followed, (difference,) = follow_origin(job(**keys), origin, set())
    assert message in difference
    own = job(**keys)
    assert all(getattr(followed, key) == getattr(own, key) for key in keys)


def test_a_run_folder_is_known_by_its_config_and_without_one_by_its_rows(
    tmp_path: Path, record: Record
) -> None:
    folder = build_folder(tmp_path / "r", [record], {})
    assert find_origin(f"{folder.path}/") == Origin(what="r", suite="memory")
    write_config(folder, job(suite="companion", metrics=METRICS, rubrics=RUBRICS))
    assert find_origin(folder.path) == RUN


@pytest.mark.parametrize(
    ("rows", "suite"),
    [
        ([{"suite": "longbench"}] * 2 + [{"suite": "memory"}], "longbench"),
        ([{"suite": "own"}] * 2 + [{"suite": "memory"}], "memory"),
        ([{"suite": "own"}, {"suite": 5}, {"suite": ""}, 7], "own"),
        ([{}], None),
    ],
)
def test_a_file_is_of_the_suite_that_its_first_rows_name(
    tmp_path: Path, rows: list[Any], suite: str | None
) -> None:
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert find_origin(str(tmp_path / "r.jsonl")) == Origin(what="r.jsonl", suite=suite)
    (tmp_path / "r.json").write_text(json.dumps({"results": rows}))
    assert find_origin(str(tmp_path / "r.json")).suite == suite
    (tmp_path / "head.json").write_text(json.dumps({"results": [{}], "suite": "needles"}))
    assert find_origin(str(tmp_path / "head.json")).suite == "needles"
    with pytest.raises(DataError, match="no dataset at"):
        find_origin(str(tmp_path / "absent"))


def test_rows_of_other_suites_are_counted() -> None:
    assert count_other_suites(Scan(n_samples=3, suites=Counter(memory=2)), "memory") is None
    line = count_other_suites(
        Scan(n_samples=1400, suites=Counter(memory=2, longbench=1200, own=9)), "memory"
    )
    assert line == (
        "of 1,400 responses 1,200 name the suite longbench, 9 name the suite own, and all would be "
        "judged as those of memory"
    )


@pytest.mark.parametrize(
    ("text", "columns", "suite"),
    [
        ("question,answer\nHi?,Hello.\n", {}, "chat"),
        ("question,answer,reference\n2+2?,4,4\n", {}, "qa"),
        ('question,answer,memory\nHi?,Hello.,"{""job"": ""nurse""}"\n', {}, None),
        ('question,answer,notes\nHi?,Hello.,"{""job"": ""nurse""}"\n', {"memory": "notes"}, None),
    ],
)
def test_a_plain_csv_is_of_chat_or_qa(
    tmp_path: Path, text: str, columns: dict[str, str], suite: str | None
) -> None:
    (tmp_path / "a.csv").write_text(text)
    named = {field: ColumnSource({"from": column}) for field, column in columns.items()}
    assert find_origin(str(tmp_path / "a.csv"), named).suite == suite

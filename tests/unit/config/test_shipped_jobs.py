"""Jobs that come with the package go by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from memray_eval.config.loading import find_job, load_config, shipped_jobs
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.scan import scan
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.resolve import resolve_reading
from tests.conftest import REPOSITORY


def test_a_name_is_a_shipped_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped_jobs()["quickstart"] == REPOSITORY / "jobs" / "quickstart.yaml"
    job = load_config(Path("quickstart"))
    assert job.dataset == str(REPOSITORY / "dataset" / "samples")
    assert job.out == str(tmp_path / "results")


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text("dataset: d.jsonl\ncandidates: [{name: a, model: b}]\n")
    assert load_config(Path("quickstart")).dataset == str(tmp_path / "d.jsonl")
    assert find_job(Path("jobs/quickstart")) == Path("jobs/quickstart")


def test_a_job_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"no file quickstat; did you mean 'quickstart'\?"):
        load_config(Path("quickstat"))
    with pytest.raises(
        ConfigError, match=r"no file nothing; .*names alone; there are: .*quickstart"
    ):
        load_config(Path("nothing"))


NEW_SUITES = ("mrcr", "graphwalks", "babilong", "helmet", "long-context-2026")


@pytest.mark.parametrize("name", NEW_SUITES)
def test_the_shipped_long_context_datasets_are_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read = resolve_reading(load_config(Path(name)))
    problems: list[Problem] = []
    result = scan(read.dataset, read.reader, on_problem=problems.append)
    assert not problems
    assert result.n_samples > 1


def test_of_many_tasks_the_nearest_one_is_named() -> None:
    job = load_config(Path("long-context-2026"), {"tasks": ["mrcr:3needle"]})
    with pytest.raises(ConfigError, match=r"no task 'mrcr:3needle'; did you mean 'mrcr:.needle'\?"):
        resolve_reading(job)

"""A run folder that the version before issue 14 wrote is read by this one: reported, exported and
compared."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memray_eval.cli import main
from memray_eval.execution.prepare.stored_config import read_config
from memray_eval.execution.resume_state import load_resume_state
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table, to_table
from tests.conftest import REPOSITORY

OLD = REPOSITORY / "tests" / "data" / "run-before-14" / "before-14"
ABSOLUTE_PATH = re.compile(rb"""["'\s=](/[a-z]+/[\w./-]+)""")
METRICS = {"memory_utilization", "empathy", "politeness", "readability_score"}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A copy that a test may change."""
    copy = RunFolder(str(shutil.copytree(OLD, tmp_path / "before-14")))
    copy.create()  # git keeps no empty folder
    return copy


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def called(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memray-eval", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return called


def test_no_path_of_the_machine_that_made_it_is_in_it() -> None:
    texts = [path.read_bytes() for path in OLD.parent.rglob("*") if path.is_file()]
    assert texts
    assert [found for text in texts for found in ABSOLUTE_PATH.findall(text)] == []


def test_it_is_read_whole(folder: RunFolder) -> None:
    records, summary = list(folder.each()), folder.read_summary()
    assert (len(records), summary.n_units, summary.n_failed_units) == (12, 12, 1)
    assert {candidate.name for candidate in read_config(folder).candidates} == {"plain", "kind"}
    assert all({score.metric for score in record.scores} == METRICS for record in records)
    assert sum(record.is_failed for record in records) == 1


def test_its_report_is_what_it_was(folder: RunFolder, call) -> None:  # type: ignore[no-untyped-def]
    code, out, err = call("report", folder.path, "--full")
    assert (code, err) == (0, "")
    assert out == (OLD / "summary.txt").read_text("utf-8")


def test_it_is_exported(folder: RunFolder, tmp_path: Path, call) -> None:  # type: ignore[no-untyped-def]
    forms = ("csv", "parquet", "evaluation", "benchmark")
    words = [word for form in forms for word in (f"--{form}", str(tmp_path / form))]
    page = tmp_path / "page.html"
    code, _, err = call("report", folder.path, "--html", "--out", str(page), *words)
    assert code == 0, err
    assert "before-14" in page.read_text("utf-8")
    assert pq.read_table(tmp_path / "parquet").num_rows == 12 * len(METRICS)
    assert len((tmp_path / "csv").read_text("utf-8").splitlines()) > 12 * len(METRICS)
    for form in ("evaluation", "benchmark"):
        assert json.loads((tmp_path / form).read_text("utf-8"))


def test_it_is_compared_with_a_changed_copy(
    folder: RunFolder,
    tmp_path: Path,
    call,  # type: ignore[no-untyped-def]
) -> None:
    changed = RunFolder(str(shutil.copytree(OLD, tmp_path / "changed")))
    for name in changed.parts():
        records = [
            record.model_copy(
                update={
                    "scores": tuple(
                        score.model_copy(update={"value": 5.0})
                        if score.metric == "empathy" and score.value is not None
                        else score
                        for score in record.scores
                    )
                }
            )
            for record in from_table(changed.read_part(name))
        ]
        changed.write_part(to_table(records))
    sides = (f"{folder.path}:kind", f"{changed.path}:kind")
    code, same, err = call("compare", f"{folder.path}:kind", f"{folder.path}:plain")
    assert code == 0, err
    assert "empathy" in same
    page = tmp_path / "page.html"
    code, out, err = call("compare", *sides, "--html", str(page), "--json")
    assert code == 0, err
    assert json.loads(out)
    assert page.stat().st_size > 10_000
    code, _, _ = call("compare", *reversed(sides), "--fail-if", "empathy < -0.01")
    assert code == 1


def test_its_failed_unit_is_to_be_tried_again(folder: RunFolder) -> None:
    state = load_resume_state(folder)
    assert (len(state.finished), len(state.generated), state.n_retried) == (11, 1, 1)

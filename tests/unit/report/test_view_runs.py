"""What `memray-eval view` and `list runs` say of a folder's runs: each run's row, and comparisons;
against the summaries and records themselves."""

import gc
import json
import os
import re
import shutil
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.errors import ConfigError, DataError
from memray_eval.report.console import render_brief
from memray_eval.report.html.page import render_html
from memray_eval.report.run_view import OpenedRuns, Query, open_view
from memray_eval.report.runs_list import RowFigure, RunList, RunReader, RunRow, with_trends
from memray_eval.report.view_server import ComparedRuns
from memray_eval.results.lookup import HolderWatch, holds_runs
from memray_eval.results.run_folder import SPENDING, RunFolder
from memray_eval.results.schema import to_table
from tests.runs import candidates, plain_records, record, write_run

CONFIG = {
    "suite": "memory",
    "candidates": [{"name": of.name, "model": of.model} for of in candidates()],
}


def manifest(status: str | None, **more: Any) -> dict[str, Any]:
    """A manifest as a session writes it, of 30 samples and the METRICS of tests.runs."""
    session = {"started_s": time.time() - 60.0, "total_s": 60.0, "status": status}
    return {
        "status": status,
        "error": None,
        "started": "2026-11-22T00:00:00Z",
        "sessions": [session],
        "dataset": {"n_samples": 10},
        "judges": {"memory_utilization": "j", "coherence": "j", "groundedness": "j",
                   "empathy": "j", "empathy/money": "k"},
        **more,
    }  # fmt: skip


def unfinished(path: Path, status: str, n: int, **more: Any) -> RunFolder:
    """A run without a summary, `n` of whose 30 units are done."""
    folder = write_run(path, plain_records(n), n) if n else RunFolder(str(path))
    if not n:
        folder.create()
    (path / "summary.json").unlink(missing_ok=True)
    folder.write_config(CONFIG)
    folder.write_manifest(manifest(status, **more))
    return folder


def row_of(path: Path) -> RunRow | None:
    return RunReader(str(path)).read()


def test_a_finished_run_s_row_has_the_figures_of_its_summary(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(30), 30)
    folder.write_manifest(manifest("finished", calls={"cost_usd": 1.5}))
    row, summary = row_of(tmp_path / "run"), folder.read_summary()
    assert (row.status, row.suite, row.n_units, row.n_failed) == ("finished", "memory", 30, 3)
    assert row.title == "small-t0, small-t0.5, small-t1 (small-model) on memory"
    folder.write_summary(summary.model_copy(update={"name": "With <b> memory"}), "")
    assert row_of(tmp_path / "run").title == f"With <b> memory: {row.title}"
    assert "<h1>With &lt;b&gt; memory: small" in render_html(folder)
    assert render_brief(folder.read_summary(), "run").startswith("With <b> memory: memory: ")
    assert (row.cost_usd, row.took_s, row.is_so_far) == (1.5, 60.0, False)
    headline = [metric for metric in summary.metrics if metric.metric == summary.headline]
    assert [metric.candidate for metric in row.figures] == [metric.candidate for metric in headline]
    for shown, metric in zip(row.figures, headline, strict=True):
        assert shown.figure == f"{metric.figure.value:.3f}"
        assert shown.n == metric.n_scored
        low, high = map(float, shown.between.split(", "))
        assert low < metric.figure.value < high
        assert shown.mark == "estimate for 2 of 90"
    # What all sessions paid goes before what the last one did
    folder.write_json(SPENDING, {"usd": 4.0, "tokens": 9})
    assert row_of(tmp_path / "run").cost_usd == 4.0
    (tmp_path / "run" / "spending.json").unlink()
    folder.write_manifest(manifest("finished", calls={"cost_usd": 0.0}))
    assert row_of(tmp_path / "run").cost_usd is None  # of judges without a price, or free


def test_a_unit_that_is_done_again_counts_once(tmp_path: Path) -> None:
    sessions = [{"total_s": 1.0}, {"total_s": 2.0}]
    folder = unfinished(tmp_path / "run", "interrupted", 0, sessions=sessions)
    failed = next(entry for entry in plain_records(30) if entry.is_failed)
    again = record(failed.sample.id, "better now", failed.candidate, seed=1)
    assert again.unit_id == failed.unit_id
    folder.write_part(to_table([failed]), name="part-a.parquet")
    folder.write_part(to_table([again]), name="part-b.parquet")
    row = row_of(tmp_path / "run")
    assert (row.n_done, row.n_failed, row.took_s) == (1, 0, 3.0)


def test_a_running_run_says_how_far_it_is(tmp_path: Path) -> None:
    folder = unfinished(tmp_path / "run", "running", 12)
    reader = RunReader(str(tmp_path / "run"))
    with folder.held():
        row = reader.read()
        assert (row.status, row.n_done, row.n_units, row.n_failed) == ("running", 12, 30, 2)
        assert (row.is_so_far, row.is_live, row.figures) == (True, True, ())
        assert row.took_s == pytest.approx(60.0, abs=5.0)
        assert row.units_per_s is None  # nothing to measure it by yet
        folder.write_part(to_table([record("late", "x", candidates()[0])]))
        row = reader.read()
        assert row.n_done == 13
        assert row.units_per_s
        assert row.left_s == pytest.approx(17 / row.units_per_s)
    row = reader.read()
    assert (row.status, row.n_done) == ("interrupted", 13)
    assert "killed" in row.note


def test_a_run_whose_judges_are_behind_says_how_many_are_answered(tmp_path: Path) -> None:
    folder = unfinished(tmp_path / "run", "running", 3)
    answers = [entry.model_copy(update={"scores": ()}) for entry in plain_records(9)]
    folder.write_part(to_table(answers[:5]), "responses", "part-a.parquet")
    reader = RunReader(folder.path)

    def answered() -> int | None:
        row = reader.read()
        assert row.n_done == 3
        return row.n_answered

    with folder.held():
        assert answered() == 5
        # A part that is listed as before is not opened: this one can no longer be read
        path = tmp_path / "run" / "responses" / "part-a.parquet"
        before = path.stat()
        path.write_bytes(b"\0" * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        folder.write_part(to_table(answers[5:]), "responses", "part-b.parquet")
        assert answered() == 9


def test_a_run_that_ends_while_it_is_looked_at_is_no_damage(tmp_path: Path) -> None:
    folder = unfinished(tmp_path / "run", "running", 3)
    summary = write_run(tmp_path / "other", plain_records(3), 3).read_summary()
    reader = RunReader(folder.path)
    with folder.held():
        first = reader.read()
        folder.write_manifest(manifest("finished"))  # its summary is not seen yet
        assert reader.read() == first
        folder.write_summary(summary, "")
        row = reader.read()
    assert row.status == "finished"


FAILED = {"summary.json": None, "manifest.json": b'{"format": 1, "status": "failed"}'}
DAMAGED: dict[str, dict[str, bytes | None]] = {
    "manifest.json is not JSON": {"manifest.json": b"{"},
    "manifest.json is not one of a run": {"manifest.json": b'{"format": 1, "sessions": 5}'},
    "manifest.json is not JSON of a run": {"manifest.json": b"[1, 2]"},
    "is of format none": {"manifest.json": b"{}"},
    "which is none of a run": {"manifest.json": b'{"format": 1, "status": "asleep"}'},
    "summary.json is not a summary": {"summary.json": b"{}"},
    "it has no summary.json": {"summary.json": None},
    "it has no manifest.json": {"manifest.json": None},
    "run.yaml is not": {**FAILED, "run.yaml": b"a: ["},
    "cannot be read": {**FAILED, "run.yaml": b"suite: x", "records/part-0.parquet": b"PAR1"},
    "codec can't decode": {"manifest.json": b"\xff\xfe{"},
}


@pytest.mark.parametrize("message", DAMAGED)
def test_a_damaged_run_is_a_row_that_says_what_is_wrong(tmp_path: Path, message: str) -> None:
    folder = write_run(tmp_path / "runs" / "bad", plain_records(3), 3)
    folder.write_manifest(manifest("finished"))
    write_run(tmp_path / "runs" / "good", plain_records(3), 3)
    for name, content in DAMAGED[message].items():
        path = tmp_path / "runs" / "bad" / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    rows = RunList(str(tmp_path / "runs")).rows()
    assert rows["good"].status == "finished"
    assert (rows["bad"].status, message in rows["bad"].note) == ("damaged", True), rows["bad"].note
    assert str(tmp_path) not in rows["bad"].note


def test_any_manifest_makes_a_row(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(3), 3)
    values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    whole = st.recursive(
        values,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=6,
    )
    fields = ["status", "error", "started", "sessions", "dataset", "judges", "calls"]

    @settings(max_examples=80)
    @given(st.dictionaries(st.sampled_from(fields), whole))
    def makes_a_row(manifest: dict[str, Any]) -> None:
        folder.write_manifest(manifest)
        assert RunReader(folder.path).read() is not None

    makes_a_row()


def test_the_list_is_newest_first_and_knows_runs_from_other_folders(tmp_path: Path) -> None:
    for day in (3, 1, 2):
        folder = write_run(tmp_path / f"run-{day}", plain_records(1), 1)
        folder.write_manifest(manifest("finished", started=f"2026-11-0{day}T00:00:00Z"))
    (tmp_path / "plots").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    runs = RunList(str(tmp_path), clock=iter(range(100)).__next__)
    assert list(runs.rows()) == ["run-3", "run-2", "run-1"]
    write_run(tmp_path / "run-4", plain_records(1), 1)
    shutil.rmtree(tmp_path / "run-2")
    assert set(runs.rows()) == {"run-4", "run-3", "run-1"}


def test_looking_keeps_no_run_from_its_folder_and_one_being_prepared_is_no_damage(
    tmp_path: Path,
) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    watch = HolderWatch(folder)
    for _ in range(2):
        assert not watch.is_held()
        assert row_of(tmp_path / "run").status == "damaged"
        with folder.held():
            assert watch.is_held()
            assert row_of(tmp_path / "run").status == "preparing"
            with pytest.raises(ConfigError, match="another process"), folder.held():
                pass


def test_a_figure_has_what_it_was_in_earlier_runs_of_the_same_data_and_judges() -> None:
    def run(value: float, data: str = "d", judge: str = "j") -> RunRow:
        figure = RowFigure(
            candidate="c", metric="m", figure=f"{value:.2f}", between="", n=9, mark="",
            place=value, judges=(judge,),
        )  # fmt: skip
        return RunRow(id="r", status="finished", data=data, figures=(figure,))

    rows = [run(0.0), run(0.5, judge="k"), run(0.6, data="e"), run(0.5), run(1.0)]
    trends = [(figure.was, figure.trend) for row in with_trends(rows) for figure in row.figures]
    assert trends == [("", ""), ("", ""), ("", ""), ("0.00", "▁▅"), ("0.50", "▁▅█")]


def test_list_runs_prints_a_line_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "results" / "run-a", plain_records(30), 30)
    folder.write_manifest(manifest("finished", calls={"cost_usd": 1.5}))
    unfinished(tmp_path / "results" / "run-b", "running", 12)

    def listed(*words: str) -> str:
        done = CliRunner().invoke(app, ["list", "runs", *words], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    head, first, second, note = listed().splitlines()
    assert re.split("  +", head)[:3] == ["run", "status", "figure"]
    cells = re.split("  +", first)
    assert cells[:2] == ["run-a", "finished, 3 failed"]
    assert re.fullmatch(r"memory_utilization .*0\.\d{3} \[.*\], best of 3", cells[2])
    assert cells[3:] == ["30", "1.50", "2026-11-22 00:00", "60"]
    assert re.split("  +", second)[:3] == ["run-b", "interrupted, 2 failed", "12 of 30"]
    assert note.startswith("run-b: it was killed")
    (_, row) = json.loads(listed("results", "--json"))
    assert (row["id"], row["n_done"], row["figures"]) == ("run-b", 12, [])
    for path, match in (("none", "has no manifest.json"), ("results/run-a", "is one run")):
        with pytest.raises(DataError, match=match):
            listed(path)


def test_hundreds_of_runs_are_listed_in_less_than_two_seconds(tmp_path: Path) -> None:
    write_run(tmp_path / "run-0", plain_records(30), 30).write_manifest(manifest("finished"))
    for number in range(1, 400):
        shutil.copytree(tmp_path / "run-0", tmp_path / f"run-{number}")
    row_of(tmp_path / "run-0")  # what is imported once is not the list's
    runs = RunList(str(tmp_path), clock=iter(range(100)).__next__)

    def look() -> float:
        began = time.process_time()  # of a core: other tests have the others
        assert len(runs.rows()) == 400
        return time.process_time() - began

    first = look()
    assert first < 2.0
    assert look() < first / 2  # nothing has changed: nothing is read


def test_a_folder_of_runs_is_told_from_a_run_and_from_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "run", plain_records(1), 1)
    (tmp_path / "half" / "records").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    names = ("runs", "runs/run", "half", "file", "empty", "none")
    assert [of for of in names if holds_runs(str(tmp_path / of))] == ["runs", "empty"]


def test_runs_that_nobody_looks_at_are_let_go(tmp_path: Path) -> None:
    for number in range(4):
        write_run(tmp_path / f"run-{number}", plain_records(3), 3)
    opened = OpenedRuns(RunList(str(tmp_path)), most_open=2)
    first = opened.view("run-0")
    seen = [weakref.ref(opened.view(f"run-{number}")) for number in (1, 2, 3)]
    gc.collect()
    assert [view() is not None for view in seen] == [False, True, True]
    assert opened.view("run-0") is first  # it was in use all the time


def test_a_run_that_cannot_be_opened_can_be_once_it_is_mended(tmp_path: Path) -> None:
    write_run(tmp_path / "run", plain_records(3), 3)
    summary = (tmp_path / "run" / "summary.json").read_text()
    (tmp_path / "run" / "summary.json").write_text("{}")
    opened = OpenedRuns(RunList(str(tmp_path)))
    with pytest.raises(DataError, match="not a summary"):
        opened.view("run")
    (tmp_path / "run" / "summary.json").write_text(summary)
    assert opened.view("run").problems == []


@pytest.mark.parametrize("status", ["running", "failed", "interrupted", "stopped"])
def test_a_run_without_records_has_a_page_that_says_so(tmp_path: Path, status: str) -> None:
    folder = unfinished(tmp_path / "run", status, 0, error="the engine did not start")
    view = open_view(folder)
    page, row = view.page(), view.standing()
    assert "This run has no summary yet" in page
    assert "small-t0, small-t0.5, small-t1 (small-model) on memory" in page
    assert (row.n_done, row.n_units) == (0, 30)
    assert view.answer(Query(), lambda: False)["n"] == 0
    folder.write_part(to_table([record("first", "x", candidates()[0])]))
    assert view.answer(Query(fresh=True), lambda: False)["n"] == 1


@pytest.mark.parametrize("field", ["stages", "versions"])
def test_a_manifest_that_another_tool_wrote_is_said(tmp_path: Path, field: str) -> None:
    folder = write_run(tmp_path / "run", plain_records(3), 3)
    folder.write_manifest({**manifest("finished"), field: [{"a": 5}, 7]})
    with pytest.raises(DataError, match="the page cannot be made"):
        open_view(folder)


def test_two_runs_are_compared_and_the_page_is_made_once(tmp_path: Path) -> None:
    for name, shift in (("a", 0), ("b", 3)):
        seeds = range(shift, 30 + shift)
        records = [record(f"S{k}", name, candidates()[0], seed) for k, seed in enumerate(seeds)]
        write_run(tmp_path / name, records, 30)
    compared = ComparedRuns(RunList(str(tmp_path)))
    page = compared.page(["a", "b"])
    assert compared.page(["a", "b"]) is page
    assert 'href="run/a/"' in page
    assert 'href="compare?run=b%3Asmall-t0&amp;run=a%3Asmall-t0"' in page  # the other way round
    assert "30 answers in common with A" in page
    assert compared.page(["b", "a"]) != page
    assert compared.page(["a:small-t0", "b:small-t0"]) == page
    assert "by=task" in compared.page(["a", "b"], "task")
    with pytest.raises(ConfigError, match="pick two or more"):
        compared.page(["a", "a"])
    with pytest.raises(ConfigError, match="--by nothing"):
        compared.page(["a", "b"], "nothing")

"""The model that answered: kept with every answer and verdict, told where it changed within a run
or between two."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow.parquet as pq
import pytest

from memray_eval.cli import main
from memray_eval.report.console import render, render_brief
from memray_eval.report.exports import write_parquet
from tests.build import Job, finish, served
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, serving

OLD, NEW = "m-2026-08-06", "m-2026-11-20"


def changes_after(n: int, say: Callable[[dict[str, Any]], str], before: str = OLD) -> Any:
    """A server that answers as another model from its reply `n` on."""
    numbers = count()
    return lambda body: Answer(say(body), model=before if next(numbers) < n else NEW)


def test_a_change_within_a_run_is_told_and_its_figures_are_split(
    job: Job, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = {OLD: "Rest more. You sleep 4.5 hours.", NEW: "No."}
    numbers = count()

    def answer(body: dict[str, Any]) -> Answer:
        model = OLD if next(numbers) < 4 else NEW
        return Answer(replies[model], model=model)

    def answer_as(judge: Any, out: str) -> Any:
        return job(
            candidate,
            servers={"lab": {"url": judge.base_url}},
            candidates=[served(candidate, "c")],
            metrics=["empathy", "readability_score"],
            judge="lab/juror",
            limit=6,
            out=str(tmp_path / out),
        )

    with serving(answer) as candidate, serving(changes_after(2, judgment_reply)) as judge:
        done = finish(answer_as(judge, "a"))
        seen = {(row.of, row.name, row.model): row for row in done.summary.served_models}
        assert {key: row.n for key, row in seen.items()} == {
            ("candidate", "c", OLD): 4,
            ("candidate", "c", NEW): 2,
            ("judge", "lab/juror", OLD): 2,
            ("judge", "lab/juror", NEW): 4,
        }
        scores = {OLD: list[float](), NEW: list[float]()}
        for record in done.folder.each():
            (grade,) = (score for score in record.scores if score.metric == "readability_score")
            scores[record.response.served_model].append(grade.value)
        for model, values in scores.items():
            mean = seen["candidate", "c", model].means["readability_score"]
            assert mean == pytest.approx(sum(values) / len(values))
        screen = " ".join(render_brief(done.summary, "x").split())
        assert f"candidate c answered as 2 models: {OLD} (4), {NEW} (2)" in screen or (
            f"candidate c answered as 2 models: {NEW} (2), {OLD} (4)" in screen
        )
        assert "judge lab/juror answered as 2 models" in screen
        assert "MODELS THAT ANSWERED - candidate c" in render(done.summary)
        write_parquet(str(tmp_path / "long.parquet"), done.folder.records())
        rows = pq.read_table(tmp_path / "long.parquet").to_pylist()
        assert {row["served_model"] for row in rows} == {OLD, NEW}
        expected = {OLD, NEW}
        assert {row["judge_served_model"] for row in rows if row["metric"] == "empathy"} == expected
        n_asked = judge.n_requests
        again = finish(answer_as(judge, "b"))  # the candidate is the new one throughout
        given = {  # whichever of them was judged first
            score.served_model for record in done.folder.each() for score in record.scores
            if score.metric == "empathy" and record.response.served_model == NEW
        }  # fmt: skip
        cached = [
            score for record in again.folder.each() for score in record.scores if score.cached
        ]
        assert judge.n_requests < n_asked + 6
        assert {score.served_model for score in cached} == given
    monkeypatch.setattr("sys.argv", ["memray-eval", "compare", done.folder.path, again.folder.path])
    with pytest.raises(SystemExit):
        main()
    output = " ".join(capsys.readouterr().out.split())
    assert f"candidate c: other models answered: {OLD}, {NEW} in A; {NEW} in B" in output


def test_one_name_or_none_is_not_told(job: Job) -> None:
    with serving(lambda body: "Rest more.") as server:
        done = finish(job(server, metrics=["readability_score"], limit=3))
    (served,) = done.summary.served_models
    assert (served.of, served.name, served.model, served.n) == ("candidate", "served", "m", 3)
    assert not [note for note in done.summary.notes if "models" in note]
    assert "MODELS THAT ANSWERED" not in render(done.summary)


def test_a_jury_has_the_names_of_all(job: Job) -> None:
    with (
        serving(lambda body: "Rest more. You sleep 4.5 hours.") as server,
        serving(changes_after(99, judgment_reply)) as first,
        serving(changes_after(0, judgment_reply)) as two,
    ):
        done = finish(
            job(
                server,
                servers={"one": {"url": first.base_url}, "two": {"url": two.base_url}},
                metrics=["empathy"],
                judge=["one/j", "two/j"],
                limit=3,
            )
        )
    judges = [served for served in done.summary.served_models if served.of == "judge"]
    assert [(judge.name, judge.model, judge.n) for judge in judges] == [
        ("one/j + two/j", f"{OLD} + {NEW}", 3)
    ]
    assert not [note for note in done.summary.notes if "answered as" in note]


def test_unknown_marks_are_told_once(job: Job) -> None:
    with serving(lambda body: "<xyz_think>Hm.</xyz_think> Rest more.") as server:
        done = finish(job(server, metrics=["readability_score"], limit=3))
    assert done.summary.unknown_marks == {"<xyz_think>": 3}
    (note,) = (note for note in done.summary.notes if "is not known" in note)
    assert note.endswith("3 of the answers.")
    assert "<xyz_think>" in note

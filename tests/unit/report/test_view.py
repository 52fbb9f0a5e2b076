"""The answers of `memray-eval view`, against a plain reading of the same records."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from memray_eval.errors import DataError
from memray_eval.report.html.samples import SNIPPET, STATUSES, embed
from memray_eval.report.run_view import Query, UnitTable, open_view
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Response
from tests.runs import (
    ATTACK,
    METRICS,
    RTL,
    candidates,
    full_summary,
    hostile_records,
    plain_records,
    record,
    write_run,
)

HUGE = 1_000_000


def answers_of(folder: RunFolder) -> UnitTable:
    answers = UnitTable(folder)
    assert answers.refresh(folder.list_parts()) == []
    return answers


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    def changed(sample_id: str, number: int, **update: Any) -> Record:
        return record(sample_id, "", candidates()[number]).model_copy(update=update)

    gone = Response(error="the engine died: Timeout")
    first, second, *others = record("A-odd", "", candidates()[0]).scores
    no_number = first.model_copy(update={"value": math.nan})
    estimate = second.model_copy(update={"judge": "rules+minilm"})
    odd = [
        changed("A-bare", 1, unit_id="bare", response=None, scores=()),
        changed("A-failed", 2, unit_id="failed", response=gone),
        changed("A-odd", 0, scores=(no_number, estimate, *others), epoch=2),
    ]
    work = tmp_path_factory.mktemp("view")
    folder = write_run(work / "run", [*plain_records(120), *odd], 123)
    folder.write_part(to_table([*hostile_records()]))
    return folder


@pytest.fixture(scope="module")
def answers(run: RunFolder) -> UnitTable:
    return answers_of(run)


class Shown(NamedTuple):
    """A row as the file embeds it, and the texts that are searched, in lower case."""

    row: list[Any]
    texts: tuple[str, ...]


Rows = dict[str, Shown]


@pytest.fixture(scope="module")
def rows(run: RunFolder) -> Rows:
    """By unit, in the order of the run."""
    records = list(run.each())
    embedded = json.loads(embed(records, METRICS).index)["rows"]
    shown = {}
    for entry, row in zip(records, embedded, strict=True):
        response = entry.response or Response()
        texts = (entry.sample.id, entry.sample.query, response.text, response.error or "")
        shown[entry.unit_id] = Shown(row, tuple(map(str.lower, texts)))
    return shown


TEXTS = ["", "this is answer 7", "THIS IS ANSWER 7.", "sleep", "S0001", "timeout", "%", "_", "\\",
         "(", "'; DROP TABLE units; --", ATTACK[:40], RTL[:9], "\x00"]  # fmt: skip


def queries() -> st.SearchStrategy[Query]:
    bound, number = st.none() | st.floats(0, 5), st.none() | st.integers(0, 4)
    sorts = ["", "m0+", "m0-", "m3+", "m9-", "duration-", "duration+", "tokens+"]
    return st.builds(
        Query, text=st.sampled_from(TEXTS), candidate=number, task=number, metric=number,
        status=st.none() | st.integers(0, 3), low=bound, high=bound, sort=st.sampled_from(sorts),
        start=st.integers(0, 130), size=st.integers(1, 60),
    )  # fmt: skip


def plainly(query: Query, rows: Rows) -> list[str]:
    """The units that fit, in order, from the rows of the file."""
    of_score = (query.metric, query.status, query.low, query.high) != (None,) * 4

    def fits(unit: str) -> bool:
        row, texts = rows[unit]
        return (
            query.candidate in (None, row[1])
            and query.task in (None, row[2])
            and any(query.text.lower() in text for text in texts)
            and (not of_score or any(_fits(score, query) for score in row[8]))
        )

    def rank(unit: str) -> tuple[bool, float]:
        """Those without the figure come last, each of the others by its figure."""
        row = rows[unit].row
        figures = {f"m{score[0]}": score[2] for score in row[8] if len(score) > 2}
        figure = (figures | {"duration": row[6], "tokens": row[7]}).get(query.sort[:-1])
        return figure is None, (figure or 0.0) * (-1 if query.sort.endswith("-") else 1)

    matches = filter(fits, rows)
    return sorted(matches, key=rank) if query.sort else list(matches)


def _fits(score: list[Any], query: Query) -> bool:
    values = score[2:3] if (query.low, query.high) != (None, None) else [0.0]
    low = -math.inf if query.low is None else query.low
    high = math.inf if query.high is None else query.high
    return (
        query.metric in (None, score[0])
        and query.status in (None, score[1])
        and any(low <= value <= high for value in values)
    )


def test_any_question_is_answered_as_the_file_would(answers: UnitTable, rows: Rows) -> None:
    @settings(max_examples=100)
    @given(query=queries())
    def answered(query: Query) -> None:
        page, wanted = answers.select(query), plainly(query, rows)
        assert page.n == len(wanted)
        assert [unit for unit, _ in page.rows] == wanted[query.start : query.start + query.size]
        assert [row for _, row in page.rows] == [rows[unit].row for unit, _ in page.rows]

    answered()


def test_the_turns_of_a_session_are_found_by_the_start_of_their_ids(
    answers: UnitTable, rows: Rows
) -> None:
    page = answers.select(Query(session="S000", size=200))
    assert page.n == sum(row[0].startswith("S000") for row, _ in rows.values()) > 1
    assert answers.select(Query(session="S000%")).n == 0


def test_records_of_before_there_were_epochs_are_listed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(3), 3)
    (part,) = Path(folder.path, "records").glob("*.parquet")
    pq.write_table(pq.read_table(part).drop_columns(["epoch"]), part)
    page = answers_of(folder).select(Query())
    assert [len(row) for _, row in page.rows] == [9, 9, 9]


def test_the_property_above_is_asked_of_more_than_nothing(rows: Rows) -> None:
    assert len(plainly(Query(text="THIS IS ANSWER 7."), rows)) == 1
    assert len(plainly(Query(metric=3, status=STATUSES.index("error")), rows)) == 15
    assert plainly(Query(sort="m0+"), rows)[-1] in {"bare", "failed"} | {
        unit for unit, (row, _) in rows.items() if row[0] == "A-odd"
    }
    assert len(plainly(Query(metric=1, low=2, high=3), rows)) not in (0, len(rows))


def test_long_texts_are_cut_in_the_list_and_whole_when_opened(answers: UnitTable) -> None:
    ((unit, row),) = answers.select(Query(text="needle-in-hay")).rows
    assert len(row[5]) == SNIPPET
    whole = answers.record(unit)
    assert len(whole.response.text) > HUGE
    assert answers.record("no such unit") is None
    assert answers.record("' OR 1=1 --") is None


WRONG: list[dict[str, Any]] = [
    {"sort": "m0"}, {"sort": "unit; DROP TABLE units"}, {"sort": "m0+\n"}, {"size": 0},
    {"size": 201}, {"start": -1}, {"low": "nan"}, {"status": 5}, {"candidate": "x"},
    {"text": "x" * 501}, {"where": "1=1"},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_question_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Query.model_validate(wrong)


def test_a_search_that_nobody_waits_for_finds_nothing_and_is_not_kept(answers: UnitTable) -> None:
    query = Query(text="this is answer 9")
    assert answers.select(query, lambda: True).n == 0
    assert answers.select(query).n == 11


def test_parts_that_come_go_and_change_are_followed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(30), 30)
    answers = answers_of(folder)
    query = Query(text="is answer", sort="duration+", size=200)
    assert answers.select(query).n == 30
    added = folder.write_part(
        to_table([record("late", "this is answer late", candidates()[0], seed=7)])
    )
    assert answers.refresh(folder.list_parts()) == []
    assert answers.select(query).n == answers.n_units == 31
    folder.delete_parts([next(name for name in folder.parts() if name != added)])
    assert answers.refresh(folder.list_parts()) == []
    ((unit, row),) = answers.select(query).rows
    assert row[0] == "late"
    again = record("late", "this is answer two, judged again", candidates()[0], seed=7)
    assert folder.write_part(to_table([again])) == added
    assert answers.refresh(folder.list_parts()) == []
    assert [row[5] for _, row in answers.select(query).rows] == ["this is answer two, judged again"]
    assert answers.record(unit) == again


def test_a_part_that_cannot_be_read_is_said_and_the_others_stay(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(30), 30)
    answers = answers_of(folder)
    broken = tmp_path / "run" / "records" / "part-broken.parquet"
    broken.write_bytes(b"PAR1 and no more")
    (problem,) = answers.refresh(folder.list_parts())
    assert problem.startswith("part-broken.parquet of the records cannot be read")
    assert answers.select(Query()).n == 30
    (whole,) = set((tmp_path / "run" / "records").iterdir()) - {broken}
    ((unit, _),) = answers.select(Query(size=1)).rows
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"part-\w+\.parquet of the records cannot be read"):
        answers.record(unit)
    with pytest.raises(DataError, match="cannot be read"):
        answers.select(Query(text="anything"))
    whole.unlink()
    with pytest.raises(DataError, match="is gone from the records"):
        answers.record(unit)
    assert answers.select(Query()).n == 30  # what the list needs is held


def test_a_part_written_anew_behind_the_list_is_not_mistaken(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(3), 3)
    answers = answers_of(folder)
    units = [unit for unit, _ in answers.select(Query()).rows]
    (name,) = folder.parts()
    swapped = folder.write_part(to_table(reversed(list(folder.each()))))
    (tmp_path / "run" / "records" / swapped).rename(tmp_path / "run" / "records" / name)
    with pytest.raises(DataError, match="was rewritten; load the page again"):
        answers.record(units[0])
    assert answers.record(units[1]) is not None


def test_a_part_of_several_row_groups_reads_as_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(20), 20)
    whole = {record.unit_id: record for record in folder.each()}
    (name,) = folder.parts()
    pq.write_table(folder.read_part(name), tmp_path / "run" / "records" / name, row_group_size=7)
    answers = answers_of(folder)
    units = [unit for unit, _ in answers.select(Query(text="is answer")).rows]
    assert units == list(whole)
    assert {unit: answers.record(unit) for unit in units} == whole


def test_a_file_that_holds_something_else_is_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(3), 3)
    odd = to_table(plain_records(1)).drop_columns(["query"])
    pq.write_table(odd, tmp_path / "run" / "records" / "part-odd.parquet")
    with pytest.raises(DataError, match=r"part-odd\.parquet of the records has no column 'query'"):
        open_view(folder)


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    def refused(match: str) -> None:
        with pytest.raises(DataError, match=match):
            open_view(RunFolder(str(tmp_path / "run")))

    refused(r"has no manifest\.json; give the folder")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{")
    refused(r"manifest\.json is not JSON")
    (tmp_path / "run" / "manifest.json").write_text('{"format": 1}')
    refused("holds no records")
    write_run(tmp_path / "run", plain_records(3), 3)
    (tmp_path / "run" / "summary.json").write_text("{}")
    refused(r"summary\.json is not a summary of this version")
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "records" / "part-z.parquet").write_bytes(b"")
    refused(r"part-z\.parquet of the records cannot be read")


def test_a_run_that_goes_on_grows_and_has_its_figures_at_the_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(6), 6)
    (tmp_path / "run" / "summary.json").unlink()
    view = open_view(folder)

    def answer(**fields: Any) -> dict[str, Any]:
        return view.answer(Query(**fields), lambda: False)

    assert "This run has no summary yet" in view.page()
    assert 'class="metric' not in view.page()
    assert "rotating nights" not in view.page()  # it holds no record, and asks its server for them
    assert "connect-src &#39;self&#39;" in view.page()
    assert view.page().count("</script>") == 2
    assert (answer()["n"], answer()["notice"]) == (6, "")
    scales = {metric["name"]: tuple(metric["scale"]) for metric in answer()["index"]["metrics"]}
    assert scales == METRICS
    folder.write_part(to_table([record("late", "x", candidates()[0], seed=5)]))
    assert answer()["n"] == 6
    assert answer(fresh=True)["n"] == answer()["index"]["total"] == 7
    folder.write_summary(full_summary(8, candidates()), "")
    assert answer()["notice"] == "The run has ended: load this page again for its figures."
    page = view.page()
    assert 'class="metric' in page
    assert view.page() is page  # made once as long as nothing changes
    assert answer()["notice"] == "The figures above are over 8 answers; 7 are listed here."

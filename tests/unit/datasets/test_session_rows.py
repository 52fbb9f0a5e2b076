"""Rows of sessions: what is one, what is refused, and what others call `turns` and `user`."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.sections import ColumnSource
from memray_eval.datasets.columns import find_columns
from memray_eval.datasets.parsing import InvalidSample, parse_sample
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_samples, restore_scan, scan, store_scan
from memray_eval.errors import DataError
from memray_eval.results.schema import samples_from_table, samples_to_table
from memray_eval.text_processing.numerals import memory_lines
from memray_eval.types import Turn, session_of, session_turn, turn_sample, unit_ids
from tests.build import build_record, build_sample, write_lines
from tests.unit.datasets.builders import broken_rows

Raw = dict[str, Any]
USER = {"persona": "p", "goal": "g", "opening": "Hello."}


@pytest.mark.parametrize(
    ("row", "query", "n_turns"),
    [
        ({"turns": ["Hi.", "Bye."]}, "Hi.", 2),
        ({"turns": ["Hi."], "query": "Hi."}, "Hi.", 1),
        ({"user": USER}, "Hello.", 10),
        ({"user": USER | {"max_turns": 100}}, "Hello.", 100),
    ],
)
def test_a_sessions_query_is_its_first_message(row: Raw, query: str, n_turns: int) -> None:
    sample = parse_sample({"id": "s", **row}, "chat")
    assert (sample.is_session, sample.query, sample.n_turns) == (True, query, n_turns)
    assert next(samples_from_table(samples_to_table([sample]))) == sample


@pytest.mark.parametrize(
    "row",
    [
        {"user": "u1", "turn": 3, "turns": 10, "session": "s"},
        {"user": {"name": "Ann"}},
        {"turns": []},
        {"turn": "3", "turns": "10"},
    ],
)
def test_what_others_call_turns_and_user_is_metadata(row: Raw) -> None:
    sample = parse_sample({"id": "s", "query": "q", **row}, "chat")
    assert not sample.is_session
    assert sample.metadata == {key: value for key, value in row.items() if value}


@pytest.mark.parametrize(("row", "field", "message"), broken_rows("session"))
def test_a_broken_session_says_what_is_wrong(row: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidSample) as raised:
        parse_sample({"id": "s", **row}, "chat")
    (fault,) = raised.value.faults
    assert fault.field == field
    assert message in fault.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "query,session,turn,turns\nq,7,2,3\n"),
        ("a.csv", "question,session,turn,turns\nq,7,2.0,3.0\n"),  # pandas, of a gap elsewhere
        ("a.jsonl", '{"query": "q", "session": "7", "turn": 2, "turns": 3}'),
        ("a.jsonl", '{"question": "q", "session": 7, "turn": 2, "turns": 3}'),
        ("a.jsonl", '{"question": "q", "session": 7.0, "turn": 2.0, "turns": 3.0}'),
    ],
)
def test_a_row_may_name_its_turn(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    path = str(tmp_path / name)
    columns = find_columns(path, {}, False, True).map
    reader = SampleReader(suite="chat", columns=columns)
    scanned = scan(path, reader, on_problem=pytest.fail)
    (sample,) = [sample for shard in scanned.shards for sample in read_samples(shard, reader)]
    assert session_turn(sample.metadata) == ("7", 2, 3, False)


def test_turns_of_both_speakers_are_a_history(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    path = write_lines(tmp_path / "a.jsonl", [{"question": "q", "turns": talk}])
    guessed = find_columns(str(path), {}, False, True).guessed
    assert guessed == {"query": "question", "history": "turns"}
    alone = write_lines(tmp_path / "b.jsonl", [{"turns": ["Hi."]}])
    assert not find_columns(str(alone), {}, False, True).guessed


def test_a_slip_of_turns_is_told_with_a_mapping_that_works(tmp_path: Path) -> None:
    path = str(write_lines(tmp_path / "a.jsonl", [{"truns": ["Hi.", "Bye."]}]))
    with pytest.raises(DataError, match=r"did you mean 'turns'.*\n  --map turns=truns\n"):
        find_columns(path, {}, False, True)
    ids = str(write_lines(tmp_path / "b.jsonl", [{"user": "u1", "said": "Hi."}]))
    with pytest.raises(DataError, match="--map query=said"):
        find_columns(ids, {}, False, True)
    assert find_columns(path, {"turns": ColumnSource({"from": "truns"})}, False, True).map


@pytest.mark.parametrize("limit", [None, 2])
def test_a_scan_counts_turns(tmp_path: Path, limit: int | None) -> None:
    rows = [{"id": "a", "turns": ["1", "2", "3"]}, {"id": "b", "user": USER}, {"query": "q"}]
    path = str(write_lines(tmp_path / "a.jsonl", rows))
    scanned = scan(path, SampleReader(suite="chat"), limit=limit, on_problem=pytest.fail)
    plain = 0 if limit else 1
    assert (scanned.n_samples, scanned.n_asked) == (2 + plain, 13 + plain)
    assert (scanned.n_sessions, scanned.n_simulated) == (2, 1)
    stored = store_scan(scanned, path, {}, started=1e12)
    restored = restore_scan(stored, path, {})
    assert restored is not None
    assert restored.n_asked == scanned.n_asked


@pytest.mark.parametrize("first", [0, 1])
def test_a_sample_with_the_id_of_a_turn_is_refused(tmp_path: Path, first: int) -> None:
    rows = [{"id": "a", "turns": ["1", "2"]}, {"id": "a#2", "query": "q"}]
    path = str(write_lines(tmp_path / "a.jsonl", rows if first else rows[::-1]))
    problems = list[Any]()
    scan(path, SampleReader(suite="chat"), on_problem=problems.append)
    (problem,) = problems
    assert problem.sample_id == "a#2"


def test_a_turn_is_a_sample_after_what_was_said() -> None:
    memory = {f"key_{n}": n for n in range(9)}
    fields = {"id": "s", "turns": ["1", "2"], "memory": memory, "by_turn": [{"at": 1}]}
    session = parse_sample({**fields, "history": [{"role": "user", "content": "0"}]}, "chat")
    talk = [Turn(role="user", content="1"), Turn(role="assistant", content="one")]
    turns = [turn_sample(session, n, str(n), talk[: 2 * n - 2]) for n in (1, 2)]
    assert [turn.content for turn in turns[1].history] == ["0", "1", "one"]
    assert turns[0].metadata == {"at": 1, "session": "s", "turn": 1, "turns": 2}
    assert [session_of(turn) for turn in turns] == ["s", "s"]
    assert memory_lines(turns[0]) == memory_lines(turns[1])  # or no prefix is shared
    candidate = build_record().candidate
    units = [unit for turn in turns for unit in unit_ids(turn, candidate)]
    assert unit_ids(session, candidate) == units
    plain = build_sample()
    assert turn_sample(plain, 1, "q", []) is plain

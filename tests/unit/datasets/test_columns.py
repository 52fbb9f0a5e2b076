"""One's own data: CSV files, columns of other names, rows without ids."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.datasets.parsing import Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import read_records, read_samples, scan
from memray_eval.datasets.sources import Shard, entries
from memray_eval.errors import DataError
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.ports import no_adaptation
from memray_eval.types import Record, Sample

TICKETS = (
    "ticket,question,profile,team\n"
    '17,"How much coffee, then?","{""sleep"": ""5 h"", ""age"": 41}",north\n'
    '18,"Two\nlines",likes tea,south\n'
    "19,Plain,,\n"
)


def read(
    path: Path, mapped: dict[str, Any] | None = None, **options: Any
) -> tuple[list[Sample], list[str], list[Problem]]:
    """The samples of all shards, what was said of columns, and the problems."""
    config = RunConfig.model_validate(
        {
            "dataset": str(path),
            "columns": mapped or {},
            "candidates": [{"name": "a", "model": "m"}],
            **options,
        }
    )
    notes: list[str] = []
    problems: list[Problem] = []
    reader = resolve_reading(config).with_columns(notes.append).reader
    result = scan(str(path), reader, rows_per_shard=2, on_problem=problems.append)
    return (
        [entry for shard in result.shards for entry in read_samples(shard, reader)],
        notes,
        problems,
    )


def write(tmp_path: Path, text: str, name: str = "tickets.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_with_a_mapping_becomes_samples(tmp_path: Path) -> None:
    mapped = {"query": "question", "memory": {"from": "profile"}, "id": "ticket"}
    samples, notes, problems = read(write(tmp_path, TICKETS), mapped)
    assert not problems
    assert not notes
    assert [sample.id for sample in samples] == ["17", "18", "19"]
    assert samples[0].query == "How much coffee, then?"
    assert samples[0].memory == {"sleep": "5 h", "age": 41}
    assert samples[1].query == "Two\nlines"
    assert samples[1].memory == {"profile": "likes tea"}
    assert samples[2].memory == {}
    assert [sample.metadata for sample in samples] == [{"team": "north"}, {"team": "south"}, {}]


def test_common_names_are_guessed_and_said_and_rows_are_numbered(tmp_path: Path) -> None:
    samples, notes, problems = read(write(tmp_path, TICKETS))
    assert not problems
    assert [sample.id for sample in samples] == ["1", "2", "3"]
    assert samples[0].memory == {"sleep": "5 h", "age": 41}
    (line,) = notes
    assert line == (
        "Columns of tickets.csv: query is 'question', memory is 'profile'; kept as metadata: "
        "ticket, team. `--map FIELD=COLUMN` or `columns:` decides."
    )


def test_what_looks_like_nothing_is_an_error_with_a_mapping_to_paste(tmp_path: Path) -> None:
    path = write(tmp_path, "what,who\nHello?,Ana\n")
    with pytest.raises(DataError) as error:
        read(path)
    assert str(error.value) == (
        f"{path}: no column is called query, and none looks like it. Its columns: what, who. Say "
        "which is which:\n  --map query=what\nor in the job:\n  columns:\n    query: what\n"
        "or from Python:\n  map={'query': 'what'}"
    )
    with pytest.raises(DataError, match=r"from the column 'wat', and there is none; did you mean"):
        read(path, {"query": "wat"})


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "json"])
def test_other_formats_are_mapped_alike(tmp_path: Path, kind: str) -> None:
    rows = [
        {"Question": f"q{number}", "Reference": "Paris", "facts": ["likes tea", "is 41"], "n": 7}
        for number in range(5)
    ]
    path = tmp_path / f"data.{kind}"
    if kind == "parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        lines = [json.dumps(row) for row in rows]
        path.write_text("\n".join(lines) if kind == "jsonl" else f"[{','.join(lines)}]")
    samples, notes, problems = read(path, {"memory": "facts"})
    assert not problems
    assert [sample.id for sample in samples] == ["1", "2", "3", "4", "5"]
    assert [sample.query for sample in samples] == ["q0", "q1", "q2", "q3", "q4"]
    assert samples[0].answers == ("Paris",)
    assert samples[0].memory == {"facts_1": "likes tea", "facts_2": "is 41"}
    assert samples[0].metadata == {"n": 7}
    assert "query is 'Question', answers is 'Reference'" in notes[0]


def test_rows_of_several_files_and_spread_limits_keep_their_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"question": f"{name}{number}"}) for number in range(4)]
        write(folder, "\n\n".join(lines), f"{name}.jsonl")
    samples, _, _ = read(folder)
    by_query = {sample.query: sample.id for sample in samples}
    assert by_query == {
        f"{name}{number}": f"{name}:{2 * number + 1}" for name in "ab" for number in range(4)
    }
    config = {"dataset": str(folder), "candidates": [{"name": "a", "model": "m"}]}
    spec = resolve_reading(RunConfig.model_validate(config)).with_columns(lambda line: None)
    result = scan(str(folder), spec.reader, limit=5, on_problem=print)
    taken = [entry for shard in result.shards for entry in read_samples(shard, spec.reader)]
    assert len(taken) == 5
    assert all(by_query[entry.query] == entry.id for entry in taken)


def test_responses_are_mapped_too(tmp_path: Path) -> None:
    path = write(tmp_path, "Ask;Said;Who\nHello?;Hi.;gpt\n", "answers.csv")
    config = RunConfig.model_validate(
        {
            "dataset": str(path),
            "columns": {"query": "Ask", "response": "Said", "candidate": "Who"},
            "candidates": [{"name": "given", "model": "given", "backend": "given"}],
        }
    )
    reader = resolve_reading(config).with_columns(lambda line: None).reader
    result = scan(str(path), reader, on_problem=print)
    (record,) = [entry for shard in result.shards for entry in read_records(shard, reader)]
    assert isinstance(record, Record)
    assert (record.sample.query, record.candidate.name) == ("Hello?", "gpt")
    assert record.response is not None
    assert record.response.text == "Hi."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,query\na,b\n", "two columns have this name"),
        ("query,x\na,b,c\n", "has 3 cells, and the header names 2 columns"),
        ("\n", "its first line names the columns"),
        ('query,memory\na,"{broken"\n', "broken JSON"),
    ],
)
def test_a_broken_table_is_a_problem_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    _, _, problems = read(write(tmp_path, text))
    assert any(message in str(problem) for problem in problems)


def test_a_table_that_is_not_utf_8_loses_no_row_before(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"query\n" + b"good\n" * 3000 + b"bad \xff\n")
    samples, _, problems = read(path)
    assert len(samples) >= 1000
    assert next(problem.message for problem in problems).endswith("save the file as UTF-8")


@pytest.mark.parametrize("name", ["qeury", "suite"])
def test_a_field_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"columns: no field '{name}'"):
        read(write(tmp_path, TICKETS), {name: "question"})


def test_our_own_format_is_read_as_before(tmp_path: Path) -> None:
    """A misspelt field is still a fault where no column was mapped."""
    path = write(tmp_path, json.dumps({"id": "a", "query": "q", "memroy": {}}), "data.jsonl")
    samples, notes, problems = read(path)
    assert (samples, notes) == ([], [])
    assert "did you mean 'memory'?" in str(problems[0])
    assert SampleReader(suite="memory", adapt=no_adaptation).columns is None


@pytest.mark.parametrize("mapped", [{}, {"id": "ticket"}])
def test_an_id_that_is_a_number_is_text_and_a_whole_one_stays_whole(
    mapped: dict[str, Any], tmp_path: Path
) -> None:
    name = mapped.get("id", "id")
    rows = [{name: 7.0, "query": "Q?"}, {name: 8, "query": "R?"}, {name: 8.5, "query": "S?"}]
    path = write(tmp_path, "".join(f"{json.dumps(row)}\n" for row in rows), "rows.jsonl")
    samples, _, problems = read(path, mapped)
    assert not problems
    assert [sample.id for sample in samples] == ["7", "8", "8.5"]


ROWS = [
    "1,plain",
    '2,"two\nlines"',
    "",
    "3,ünï ☂",
    '4,"a ""quote"", a comma"',
    "5,\x85\u2028",
    "6,last",
]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_each_row_of_a_csv_is_read_alone_as_from_the_start(
    tmp_path: Path, end: str, suffix: str, mark: str
) -> None:
    data = (mark + end.join(["id,query", *ROWS]).replace("two\n", f"two{end}")).encode()
    path = tmp_path / f"data.csv{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    whole = Shard(kind="csv", path=str(path))
    read = list(entries(whole))
    assert [entry.raw["id"] for entry in read] == ["1", "2", "3", "4", "5", "6"]
    assert [entry.raw["query"] for entry in read][1:3] == [f"two{end}lines", "ünï ☂"]
    assert [entry.number for entry in read] == [1, 2, 3, 4, 5, 6]
    for first in range(6):
        for last in range(first, 6):
            stretch = {"start": read[first].position, "stop": read[last].end}
            part = whole.model_copy(update={**stretch, "first_number": first + 1})
            result = [(entry.raw, entry.number, entry.position) for entry in entries(part)]
            assert result == [
                (entry.raw, entry.number, entry.position) for entry in read[first : last + 1]
            ]
    places = [read[3].position, read[0].position]
    taken = whole.model_copy(update={"take": tuple(places), "numbers": (4, 1)})
    assert [(entry.raw, entry.number) for entry in entries(taken)] == [
        (read[n].raw, n + 1) for n in (3, 0)
    ]


def test_a_csv_is_cut_into_shards_that_hold_its_rows_once(tmp_path: Path) -> None:
    rows = "".join(f'{number},"question\n{number}"\n' for number in range(100))
    path = write(tmp_path, f"id,query\n{rows}")
    result = scan(str(path), SampleReader(suite="memory"), rows_per_shard=7, on_problem=print)
    assert len(result.shards) == 15
    samples = [
        entry
        for shard in result.shards
        for entry in read_samples(shard, SampleReader(suite="memory"))
    ]
    assert [entry.query for entry in samples] == [f"question\n{number}" for number in range(100)]

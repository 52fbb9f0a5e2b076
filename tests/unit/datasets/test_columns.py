"""One's own data: CSV files, columns of other names, rows without ids."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets.columns import find_columns
from memray_eval.datasets.parsing import InvalidSample, Problem
from memray_eval.datasets.sources import Shard, entries
from memray_eval.errors import DataError
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.execution.prepare.scanning import scan_dataset
from memray_eval.types import Sample
from tests.build import build_config, write_lines
from tests.conftest import REPOSITORY
from tests.unit.datasets.builders import read as read_dataset
from tests.unit.datasets.test_conversations import lines_of

GIVEN = [{"name": "given", "model": "given", "backend": "given"}]
ASKED = lines_of(REPOSITORY / "tests" / "data" / "chats" / "asked.jsonl")


def read(
    path: Path, mapped: dict[str, Any] | None = None, **options: Any
) -> tuple[list[Sample], list[str], list[Problem]]:
    """The samples of all shards, what was said of columns, and the problems."""
    config = build_config(dataset=str(path), columns=mapped or {}, **options)
    notes: list[str] = []
    reader = resolve_reading(config).with_columns(notes.append).reader
    result = read_dataset(path, reader, rows_per_shard=2)
    return result.items, notes, result.problems


def write(tmp_path: Path, text: str, name: str = "tickets.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("case", [pytest.param(row, id=row["name"]) for row in ASKED])
def test_a_row_to_ask_is_read(tmp_path: Path, case: dict[str, Any]) -> None:
    path, mapped = write(tmp_path, case["content"], case["file"]), case.get("columns")
    if "error" in case:
        try:
            errors = [str(problem) for problem in read(path, mapped)[2]]
        except DataError as error:
            errors = [str(error)]
        assert case["error"] in "\n".join(errors)
        return
    samples, notes, problems = read(path, mapped)
    assert not problems
    note = case.get("note", "")
    assert not notes if note is None else note in "".join(notes)
    for sample, expected in zip(samples, case.get("samples") or [case["sample"]], strict=True):
        fields = sample.model_dump(mode="json")
        assert {name: fields[name] for name in expected} == expected


def test_choices_of_no_order_are_told_by_their_texts(tmp_path: Path) -> None:
    row = {
        "question": "Which?",
        "distractor1": "salt",
        "distractor2": "cork",
        "correct_answer": "a",
    }
    path = write_lines(tmp_path / "a.jsonl", [row])
    mapping = find_columns(str(path), {}, has_responses=False, may_guess=True).map
    assert mapping is not None
    alone, answered = mapping.apply(row), mapping.apply({**row, "response": "A"})
    assert (alone["metadata"]["choices"], alone["answers"]) == (["a", "cork", "salt"], ["A"])
    assert ("metadata" in answered, answered["answers"]) == (False, ["a"])
    with pytest.raises(InvalidSample, match="no column tells in which order"):
        mapping.apply({**row, "correct_answer": "oil", "response": "The answer is (B)."})


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
    spec = resolve_reading(build_config(dataset=str(folder))).with_columns(lambda line: None)
    taken = read_dataset(folder, spec.reader, limit=5).items
    assert len(taken) == 5
    assert all(by_query[entry.query] == entry.id for entry in taken)


def test_a_table_that_is_not_utf_8_loses_no_row_before(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"query\n" + b"good\n" * 3000 + b"bad \xff\n")
    samples, _, problems = read(path)
    assert len(samples) >= 1000
    (problem,) = problems
    assert "not UTF-8 (byte 15010: 0xff); save the file so, or say which --encoding" in str(problem)


def test_rows_that_validate_reads_otherwise_are_not_sent_there(tmp_path: Path) -> None:
    path = str(write(tmp_path, "utter,said\nQ?,A\n,B\n", "rows.csv"))
    mapped = {"query": "utter", "response": "said"}
    spec = resolve_reading(build_config(dataset=path, columns=mapped, candidates=GIVEN))
    with pytest.raises(DataError, match=r"Fix them, or run the others with --skip-invalid, whose"):
        scan_dataset(spec.with_columns(print), [])


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
    result = read_dataset(path, rows_per_shard=7)
    assert len(result.scan.shards) == 15
    assert [entry.query for entry in result.items] == [
        f"question\n{number}" for number in range(100)
    ]

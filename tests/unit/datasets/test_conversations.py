"""Files as people have them, read without a mapping: a copy of the field cases, and our own."""

import base64
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memray_eval.datasets.columns import find_columns
from memray_eval.datasets.forms import FORMS
from memray_eval.errors import DataError
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.metrics.instruction import METRICS
from memray_eval.types import EXISTING, Record, Response
from tests.build import build_config, write_lines
from tests.conftest import REPOSITORY
from tests.unit.datasets.builders import read

DATA = REPOSITORY / "tests" / "data"
GIVEN = [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}]
USER, ANSWER = {"role": "user", "content": "Garlic?"}, {"role": "assistant", "content": "Now."}


class Read:
    """The records of a file, the problems, and what was said of it."""

    records: list[Record]

    def __init__(self, path: Path, **keys: Any) -> None:
        self.notes: list[str] = []
        config = build_config(dataset=str(path), candidates=GIVEN, **{"suite": "qa", **keys})
        spec = resolve_reading(config).with_columns(self.notes.append)
        _, self.records, self.problems = read(spec.dataset, spec.reader)


def response_of(record: Record) -> Response:
    assert record.response is not None
    return record.response


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def history_of(record: Record) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": turn.content} for turn in record.sample.history]


def field_cases() -> Iterator[Any]:
    for folder in ("chats", "files"):
        by_file: dict[str, list[dict[str, Any]]] = {}
        for row in lines_of(DATA / "field_cases" / folder / "expected.jsonl"):
            by_file.setdefault(row["file"], []).append(row)
        for file, rows in by_file.items():
            yield pytest.param(DATA / "field_cases" / folder, rows, id=file)


@pytest.mark.parametrize(("folder", "rows"), [*field_cases()])
def test_a_field_case_is_right(folder: Path, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    keys = {"suite": rows[0].get("suite", "qa"), "out": str(tmp_path)}
    if "dataset" in rows[0]:
        keys["samples"] = str(folder / rows[0]["dataset"])
    read = Read(folder / rows[0]["file"], **keys)
    assert not read.problems
    assert len(read.records) == len(rows)
    for record, row in zip(read.records, rows, strict=True):
        response = response_of(record)
        assert (record.sample.query, response.text) == (row["query"], row["response"])
        if folder.name == "chats":
            assert history_of(record) == row["history"]
            continue
        assert list(record.sample.answers) == row.get("answers", [])
        if record.sample.answers:
            score = METRICS["exact_match"].measure(record.sample, response).value
            assert score == row["score"]


@pytest.mark.parametrize(
    "case", [pytest.param(row, id=row["name"]) for row in lines_of(DATA / "chats/cases.jsonl")]
)
def test_a_case_of_our_own_is_right(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / case["file"]
    path.write_bytes(case.get("content", "").encode() or base64.b64decode(case.get("base64", "")))
    keys = {name: case[name] for name in ("encoding", "suite", "columns") if name in case}
    keys |= {"out": str(tmp_path / "out")}
    if "dataset" in case:
        samples = path.with_name(case.get("dataset_file", f"dataset{path.suffix}"))
        samples.write_text(case["dataset"], "utf-8")
        keys["samples"] = str(samples)
    if "error" in case:
        try:
            errors = [str(problem) for problem in Read(path, **keys).problems]
        except DataError as error:
            errors = [str(error)]
        assert case["error"] in "\n".join(errors)
        assert case["file"] in "\n".join(errors)
        return
    read = Read(path, **keys)
    assert not read.problems
    assert case.get("note", "") in "".join(read.notes)
    expected = case.get("records") or [[case["query"], case["response"]]] * case.get("rows", 1)
    assert [[record.sample.query, response_of(record).text] for record in read.records] == expected
    assert [record.epoch for record in read.records] == case.get("epochs", [1] * len(expected))
    units = [[record.sample.id, record.candidate.name] for record in read.records]
    assert units == case.get("units", units)
    if "failed" in case:
        assert [response_of(record).error for record in read.records] == case["failed"]
    causes = [response_of(record).no_answer for record in read.records]
    assert causes == case.get("no_answers", causes)
    for record in read.records:
        assert history_of(record) == case.get("history", [])
        assert list(record.sample.answers) == case.get("answers", [*record.sample.answers])
        assert record.candidate.model == case.get("model", record.candidate.model)
        fields = record.sample.model_dump(mode="json")
        assert {name: fields[name] for name in case.get("sample", ())} == case.get("sample", {})
        if "score" in case:
            score = METRICS["exact_match"].measure(record.sample, response_of(record)).value
            assert score == case["score"]


def test_a_conversation_of_5000_turns_is_one_row(tmp_path: Path) -> None:
    row = {"messages": [USER, ANSWER] * 2500}
    (record,) = Read(write_lines(tmp_path / "a.jsonl", [row])).records
    assert len(record.sample.history) == 4998


def test_responses_are_joined_by_id_and_what_is_left_over_is_said(tmp_path: Path) -> None:
    answers = [{"id": "b", "response": "B."}, {"id": "z", "response": "Z."}, {"response": "?"}]
    samples = [{"id": name, "query": f"{name}?"} for name in "abc"]
    samples_path = write_lines(tmp_path / "samples.jsonl", samples)
    path = write_lines(tmp_path / "answers.jsonl", answers)
    read = Read(path, samples=str(samples_path), out=str(tmp_path / "out"))
    assert [record.sample.query for record in read.records] == ["b?"]
    assert read.notes == ["2 of the 3 samples of samples.jsonl have no response: a, c."]
    missing, without_id = map(str, read.problems)
    assert "answers.jsonl, line 2: no sample of samples.jsonl has the id 'z'" in missing
    assert "answers.jsonl, line 3: no id" in without_id


def test_no_response_is_joined_by_a_row_number_or_by_the_id_of_two_samples(tmp_path: Path) -> None:
    def join(samples: list[dict[str, Any]], *answers: dict[str, Any]) -> Read:
        keys = {"samples": str(write_lines(tmp_path / "samples.jsonl", samples))}
        return Read(
            write_lines(tmp_path / "answers.jsonl", answers), out=str(tmp_path / "out"), **keys
        )

    with pytest.raises(DataError, match=r"samples\.jsonl, line 1: no id, by which responses are"):
        join([{"query": "first?"}, {"query": "second?"}], {"index": 1, "response": "of the second"})
    counted = [{"id": number, "index": number - 1, "query": f"{number}?"} for number in (1, 2)]
    assert [r.sample.query for r in join(counted, {"id": 1, "response": "1."}).records] == ["1?"]
    indexed = [{"index": number, "query": f"{number}?"} for number in (0, 1)]
    assert [r.sample.query for r in join(indexed, {"idx": 1, "response": "1."}).records] == ["1?"]
    twice = [
        {"id": "a", "query": "1?"},
        {"id": "a", "query": "2?"},
        *2 * [{"id": "b", "query": "b?"}],
    ]
    read = join(twice, {"id": "a", "response": "of which?"}, {"id": "b", "response": "B."})
    assert [record.sample.query for record in read.records] == ["b?"]
    assert "several samples of samples.jsonl have the id 'a'" in str(read.problems[0])


HINT = re.compile(r"--map (\w+)=(\S+)")


@pytest.mark.parametrize(
    ("row", "mapped"),
    [
        ({"what": "Garlic?", "n": 3, "response": "Now."}, {}),
        ({"n": 3, "tags": ["a"], "what": "Garlic?", "response": "Now."}, {}),
        ({"quer": "Garlic?", "response": "Now."}, {"query": "qer"}),
        ({"query": "Garlic?", "response": "Now."}, {"query": "quer"}),
        ({"ask": "Garlic?", "respons": "Now."}, {"query": "ask", "response": "rspons"}),
        ({"talk": [USER, ANSWER], "n": 1}, {}),
    ],
)
def test_a_hint_works_when_it_is_pasted(
    row: dict[str, Any], mapped: dict[str, str], tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [row])
    with pytest.raises(DataError) as error:
        Read(path, columns=mapped)
    hint = HINT.search(str(error.value))
    assert hint is not None, error.value
    (record,) = Read(path, columns={**mapped, hint[1]: hint[2]}).records
    assert (record.sample.query, response_of(record).text) == ("Garlic?", "Now.")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "a", "response": "Now."}, "--dataset FILE"),
        ({"custom_id": "a", "response": {"body": {}}}, "--dataset FILE"),
        ({"n": 3, "tags": [1]}, "None of them holds text"),
        ({"role": "user", "content": "Garlic?"}, "one row's `messages`"),
    ],
)
def test_no_hint_is_given_where_none_would_work(
    row: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=re.escape(words)) as error:
        Read(write_lines(tmp_path / "a.jsonl", [row]))
    assert "--map" not in str(error.value)


KEYS = st.sampled_from(
    sorted(
        {part for form in FORMS for mark in form.marks for path in mark for part in path.split(".")}
    )
    + "role content from value type text parts user assistant query response answers".split()
) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "x"]), "content": JSON}
)
ROW = st.dictionaries(KEYS, JSON | st.lists(TURN, max_size=4), max_size=5)


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(ROW, min_size=1, max_size=3))
def test_any_row_is_a_sample_or_a_typed_error(rows: list[Any], tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [json.loads(json.dumps(row)) for row in rows])
    try:
        read = Read(path)
    except DataError:
        return
    places = {problem.place for problem in read.problems}
    assert len(read.records) + len(places) == len(rows)


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(whole=st.dictionaries(KEYS, JSON | st.lists(ROW, max_size=2), max_size=3) | st.lists(JSON))
def test_any_document_is_samples_or_a_typed_error(whole: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(whole), "utf-8")
    try:
        read = Read(path)
    except DataError:
        return
    assert read.records or read.problems


def test_a_form_is_found_by_its_marks_alone(tmp_path: Path) -> None:
    """A plain table with columns of another tool's names stays a table."""
    row = {"input": "Garlic?", "target": "Now.", "output": "Now."}
    columns = find_columns(str(write_lines(tmp_path / "a.jsonl", [row])), {}, True, True)
    assert columns.map is not None
    assert columns.map.form is None
    assert columns.guessed == {"query": "input", "response": "output", "answers": "target"}


@pytest.mark.parametrize("suite", ["locomo", "longmemeval", "beam"])
def test_a_folder_of_another_suite_is_refused_by_its_name(suite: str) -> None:
    folder = REPOSITORY / "dataset" / suite
    with pytest.raises(DataError, match=f"--suite {suite}"):
        resolve_reading(build_config(dataset=str(folder), suite="qa")).with_columns(print)
    spec = resolve_reading(build_config(dataset=str(folder), suite=suite))
    assert spec.with_columns(print).dataset == str(folder)


@pytest.mark.parametrize("damage", ["cut", "flipped", "encrypted"])
def test_a_damaged_sample_of_a_log_is_an_error_of_its_own_row(damage: str, tmp_path: Path) -> None:
    path, text = tmp_path / "run.eval", json.dumps({"id": 1, "input": "Q", "output": "A" * 999})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("samples/1_epoch_1.json", text)
        log.writestr("samples/2_epoch_1.json", text.replace('"id": 1', '"id": 2'))
        second = log.getinfo("samples/2_epoch_1.json")
    data, start = bytearray(path.read_bytes()), second.header_offset
    packed = start + 30 + len(second.filename)
    if damage == "encrypted":
        data[data.rindex(b"PK\x01\x02") + 8] |= 1
    else:
        data[packed : packed + 9] = bytes(9) if damage == "cut" else b"\xff" * 9
    path.write_bytes(data)
    read = Read(path)
    assert [record.sample.id for record in read.records] == ["1"]
    (problem,) = read.problems
    assert "cannot be unpacked" in str(problem)
    assert "samples/2_epoch_1.json" in str(problem)

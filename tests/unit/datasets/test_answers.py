"""Responses that exist already: every shape in, records out, every fault told."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.datasets.fields import parse_answer
from memray_eval.datasets.parsing import InvalidSample, Problem
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.sources import read_header, sources_of
from memray_eval.report.exports import export_responses
from memray_eval.types import Record
from tests.build import build_folder, build_record, build_score
from tests.unit.datasets.builders import broken_rows, write_rows
from tests.unit.datasets.builders import read as read_dataset

ROW = {"id": "H001", "query": "What now?", "memory": {"name": "Jason"}, "response": "Rest, Jason."}

RESPONSES = SampleReader(suite="memory", has_responses=True)


def read(path: Path) -> tuple[list[Record], list[Problem]]:
    result = read_dataset(path, RESPONSES)
    return result.items, result.problems


@pytest.mark.parametrize(
    ("row", "text", "name"),
    [
        (ROW, "Rest, Jason.", "mine"),
        ({"id": "a", "prompt": "q", "output": "o", "model": "gemma3:4b"}, "o", "gemma3:4b"),
        ({"id": "a", "question": "q", "answer": "o", "candidate": "c", "model": "m"}, "o", "c"),
        ({"id": "a", "query": "q", "response": "", "error": "timed out"}, "", "mine"),
    ],
)
def test_a_row_is_a_record(row: dict[str, Any], text: str, name: str) -> None:
    record = parse_answer(row, "memory", otherwise="mine")
    assert record.response is not None
    assert (record.response.text, record.candidate.name) == (text, name)
    assert record.candidate.backend == "given"


ASKED = {"id": "a", "query": "q", "response": "r"}
CALM = dict.fromkeys(("openness", "neuroticism"), 0.5)


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        *(
            ({**ASKED, name: "Paris"}, "answers", ("Paris",))
            for name in ("answers", "ground_truth", "expected", "reference", "expected_output",
            "ground_truths")
        ),
        ({**ASKED, "ground_truth": ["Paris", "paris"]}, "answers", ("Paris", "paris")),
        ({**ASKED, "expected": 42}, "answers", ("42",)),
        ({**ASKED, "reference": [1.5, True]}, "answers", ("1.5", "true")),
        ({**ASKED, "answers": ["a"], "expected": "b"}, "answers", ("a",)),
        ({**ASKED, "personality": CALM}, "traits", CALM),
        ({**ASKED, "big_five": {"Openness": 0.5, "Neuroticism": 0.5}}, "traits", CALM),
        ({**ASKED, "personality": {"big_five": CALM, "style": "dry"}}, "traits", CALM),
        ({**ASKED, "traits": CALM, "personality": "dry"}, "traits", CALM),
        ({**ASKED, "personality": "dry and kind"}, "traits", {}),
        ({**ASKED, "personality": {"style": "dry"}}, "traits", {}),
        ({**ASKED, "emotion": {"speech": {"joy": 1.0}, "text": {"fear": 1.0},
        "fused": {"joy": 0.5, "fear": 0.5}}}, "emotion",
         {"joy": 0.5, "fear": 0.5}),
        ({**ASKED, "emotion": {"text": {"fear": 1.0}, "model": "m"}}, "emotion", {"fear": 1.0}),
        ({**ASKED, "emotion": {"joy": 1.0}}, "emotion", {"joy": 1.0}),
        ({**ASKED, "id": 7}, "id", "7"),
    ],
)  # fmt: skip
def test_names_of_other_programs_are_known(row: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(parse_answer(row, "memory").sample, field) == value


@pytest.mark.parametrize(("row", "field", "message"), broken_rows("answer"))
def test_what_cannot_be_judged_is_told(row: Any, field: str, message: str) -> None:
    with pytest.raises(InvalidSample) as raised:
        parse_answer(row, "memory")
    (fault,) = raised.value.faults
    assert (fault.field, message in fault.message) == (field, True)
    assert raised.value.sample_id == (row.get("id", "") if isinstance(row, dict) else "")


def test_what_does_not_fit_is_kept() -> None:
    other = {"personality": "dry", "expected": {"tone": "warm"}}
    kept = parse_answer({**ASKED, **other}, "memory").sample
    assert (kept.metadata, kept.answers) == (other, ())


@pytest.mark.parametrize(
    ("head", "name", "model"),
    [
        ({"model": "gemma3:4b"}, "gemma3:4b", "gemma3:4b"),
        ({"model_name": "m"}, "m", "m"),
        ({"model": {"name": "m", "size": 4}}, "m", "m"),
        ({"metadata": {"model": "m"}}, "m", "m"),
        ({"candidate": "c", "model": "m"}, "c", "m"),
        ({"model": None, "config": {"model": "hf"}}, "given", "given"),
    ],
)
@pytest.mark.parametrize("comes_first", [True, False])
def test_the_head_of_a_file_names_who_answered(
    tmp_path: Path, head: dict[str, Any], name: str, model: str, comes_first: bool
) -> None:
    own = {**ROW, "id": "H002", "model": "own"}
    other = {**ROW, "model_name": "other", "candidate": "one"}
    rows = {"results": [ROW, own, other]}
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**head, **rows} if comes_first else {**rows, **head}))
    records, problems = read(path)
    assert not problems
    assert (records[0].candidate.name, records[0].candidate.model) == (name, model)
    assert [record.candidate.model for record in records[1:]] == ["own", "other"]
    assert records[2].candidate.name == "one"


def test_a_head_says_nothing_of_samples_and_of_other_formats(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"model": "m", "samples": [{"id": "a", "query": "q"}]}))
    result = read_dataset(path)
    assert not result.problems
    assert result.scan.shards[0].header == {}
    assert read_header(sources_of(str(path))[0]) == {"model": "m"}
    for name in ("rows.jsonl", "list.json"):
        path = write_rows(tmp_path / name, [{"model": "m"}])
        assert read_header(sources_of(str(path))[0]) == {}


def test_rows_of_a_suite_with_published_formats_may_be_called_otherwise_too(tmp_path: Path) -> None:
    suite = get_suite("longbench")
    reading = SampleReader(
        suite="longbench", adapt=suite.adapt, known_tasks=suite.tasks, has_responses=True
    )
    ours = {"suite": "longbench", "task": "qasper", "id": "a", "question": "q", "reference": "x"}
    theirs = {"_id": "b", "dataset": "qasper", "input": "q", "context": "c", "answers": ["x"]}
    rows = [ours | {"prediction": "x"}, theirs | {"length": 3, "pred": "x"}]
    result = read_dataset(write_rows(tmp_path / "r.jsonl", rows), reading)
    assert not result.problems
    samples = [record.sample for record in result.items]
    assert [(s.task, s.query, s.answers) for s in samples] == [("qasper", "q", ("x",))] * 2
    assert result.scan.suites == {"longbench": 1}


def test_a_run_folder_is_read_without_its_scores(tmp_path: Path, record: Record) -> None:
    scored = record.model_copy(update={"scores": (build_score("x", None),)})
    other = build_record(record.sample, "Hm.", candidate="other")
    build_folder(tmp_path / "run", [scored, other], {})
    records, problems = read(tmp_path / "run")
    assert not problems
    assert records == [record, other]


def test_what_generate_writes_evaluate_reads(tmp_path: Path, record: Record) -> None:
    folder = build_folder(tmp_path / "run", [record])
    export_responses(str(tmp_path / "responses_x.json"), folder.each(), "small", "20261121_000000")
    assert json.loads((tmp_path / "responses_x.json").read_text())["model"] == "small"
    (item,), problems = read(tmp_path / "responses_x.json")
    assert not problems
    assert (item.sample, item.response) == (record.sample, record.response)
    assert item.candidate.name == "small"


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"response": None}, "null"),
        ({"prediction": None, "answer": "the right one"}, "null"),
        ({"response": " "}, "empty"),
        ({"response": "<think>never ends"}, "thinking_only"),
        ({"response": "", "thinking": "Hm."}, "thinking_only"),
        ({"response": "", "finish_reason": "length"}, "limit"),
        ({"response": "", "refusal": "I cannot."}, "refusal"),
        ({"response": "", "no_answer": "tool_call"}, "tool_call"),
        ({"response": "Rest.", "refusal": True}, None),
        ({"response": "", "prediction": "Rest."}, None),
    ],
)
def test_why_a_response_that_exists_is_no_answer(fields: dict[str, Any], cause: str | None) -> None:
    item = parse_answer({"id": "a", "query": "q", **fields}, "qa")
    assert item.response is not None
    assert (item.response.no_answer, item.response.error) == (cause, None)
    assert item.response.text.strip() == ("Rest." if cause is None else "")
    if "refusal" in fields:
        refusal = fields["refusal"]
        assert (item.response.refusal or item.sample.metadata["refusal"]) == refusal


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_row_of_a_table_without_a_response_is_no_answer(tmp_path: Path, form: str) -> None:
    rows = [ASKED, {"id": "b", "query": "q", "response": None}]
    records, problems = read(write_rows(tmp_path / f"rows.{form}", rows))
    assert not problems
    causes = [record.response.no_answer for record in records if record.response]
    assert causes == [None, "empty" if form == "csv" else "null"]

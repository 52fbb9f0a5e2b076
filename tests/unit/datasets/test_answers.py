"""Responses that exist already: every shape in, records out, every fault told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memray_eval.datasets.answers import parse_answer
from memray_eval.datasets.parsing import InvalidSample, Problem
from memray_eval.datasets.reading import Reading
from memray_eval.datasets.scan import read_records, scan
from memray_eval.report.exports import export_responses
from memray_eval.results import RunFolder
from memray_eval.rows import to_table
from memray_eval.types import Candidate, Record, Response, Score

ROW = {"id": "H001", "query": "What now?", "memory": {"name": "Jason"}, "response": "Rest, Jason."}

RESPONSES = Reading(suite="memory", has_responses=True)


def read(path: Path) -> tuple[list[Record], list[Problem]]:
    problems: list[Problem] = []
    found = scan(str(path), RESPONSES, on_problem=problems.append)
    return [record for shard in found.shards for record in read_records(shard, RESPONSES)], problems


@pytest.mark.parametrize(
    ("row", "text", "name"),
    [
        (ROW, "Rest, Jason.", "given"),
        ({"id": "a", "prompt": "q", "output": "o", "model": "gemma3:4b"}, "o", "gemma3:4b"),
        ({"id": "a", "question": "q", "answer": "o", "candidate": "c", "model": "m"}, "o", "c"),
        ({"id": "a", "query": "q", "response": "", "error": "timed out"}, "", "given"),
    ],
)
def test_a_row_is_a_record_whatever_its_fields_are_called(row: dict[str, Any], text: str, name: str) -> None:
    record = parse_answer(row, "memory")
    assert record.response is not None
    assert (record.response.text, record.candidate.name, record.candidate.backend) == (text, name, "given")


@pytest.mark.parametrize(
    ("row", "field", "told"),
    [
        ({"id": "a", "query": "q"}, "response", "missing; it may be called response"),
        ({"id": "a", "response": "x"}, "query", "missing"),
        ({"id": "a", "query": "q", "response": 5}, "text", "valid string"),
        ({"query": "q", "response": "x"}, "id", "missing"),
        ([1], "", "a row must be a JSON object"),
    ],
)
def test_what_cannot_be_judged_is_told(row: Any, field: str, told: str) -> None:
    with pytest.raises(InvalidSample) as raised:
        parse_answer(row, "memory")
    assert (raised.value.faults[0].field, told in raised.value.faults[0].message) == (field, True)


@pytest.mark.parametrize("shape", ["list.json", "seed.json", "rows.jsonl", "rows.parquet"])
def test_every_file_is_read(tmp_path: Path, shape: str) -> None:
    rows = [ROW, {**ROW, "id": "H002", "response": "Sleep."}]
    path = tmp_path / shape
    if shape == "list.json":
        path.write_text(json.dumps(rows))
    elif shape == "seed.json":
        path.write_text(json.dumps({"model": "gemma3:4b", "config": {"weights": [0.7, 0.3]}, "results": rows}))
    elif shape == "rows.jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    records, problems = read(path)
    assert not problems
    assert [record.response.text for record in records if record.response] == ["Rest, Jason.", "Sleep."]


def test_a_run_folder_is_read_with_its_candidates_and_without_its_scores(tmp_path: Path, record: Record) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    other = Candidate(name="other", model="m2")
    scored = record.model_copy(update={"scores": (Score(metric="x", status="error", error="e"),)})
    twin = record.model_copy(update={"candidate": other, "unit_id": "u2", "response": Response(text="Hm.")})
    folder.write_part(to_table([scored, twin]))
    folder.write_manifest({})
    records, problems = read(tmp_path / "run")
    assert not problems
    assert records[0] == record
    assert [found.candidate for found in records] == [record.candidate, other]
    assert all(not found.scores for found in records)


def test_what_generate_writes_evaluate_reads(tmp_path: Path, record: Record) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    folder.create()
    folder.write_part(to_table([record]))
    export_responses(str(tmp_path / "responses_x.json"), folder.each(), "small", "20261121_000000")
    assert json.loads((tmp_path / "responses_x.json").read_text())["model"] == "small"
    (found,), problems = read(tmp_path / "responses_x.json")
    assert not problems
    assert (found.sample, found.response, found.candidate.name) == (record.sample, record.response, "small")


@pytest.mark.parametrize(
    ("config", "told"),
    [("{broken", "Invalid JSON"), ('{"name": "c"}', "model: Field required"), ({"name": "c", "model": "m", "heat": 1}, "heat")],
)
def test_a_candidates_configuration_that_cannot_be_read_is_a_problem(config: Any, told: str) -> None:
    with pytest.raises(InvalidSample) as raised:
        parse_answer({"id": "a", "query": "q", "response": "r", "candidate_config": config}, "memory")
    (fault,) = raised.value.faults
    assert (fault.field, raised.value.sample_id) == ("candidate_config", "a")
    assert "is no candidate's configuration" in fault.message
    assert told in fault.message

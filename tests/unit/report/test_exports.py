"""The files that a run is exported to: those of the seeds, and the flat table."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memray_eval.errors import ConfigError
from memray_eval.report.exports import (
    FILE_SCHEMA,
    evaluated_row,
    export_responses,
    to_long_rows,
    write_csv,
    write_parquet,
)
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import Candidate, Record, Response, Score, Usage
from tests.build import build_folder, build_record, build_sample, build_score


def test_groundedness_is_what_was_counted_and_the_judges_own_numbers_are_named_so(
    record: Record,
) -> None:
    judgment = {"claims": [], "groundedness_score": 0.123, "hallucination_rate": 0.9}
    score = Score(
        metric="groundedness",
        status="scored",
        value=2 / 3,
        parts={"claims": 3, "grounded": 2, "hallucinated": 1},
        judgment=json.dumps(judgment),
    )
    row = evaluated_row(record.model_copy(update={"scores": (score,)}))["scores"]["groundedness"]
    assert (row["groundedness_score"], row["hallucination_rate"]) == (2 / 3, 1 / 3)
    assert (row["judge_groundedness_score"], row["judge_hallucination_rate"]) == (0.123, 0.9)
    failed = score.model_copy(update={"value": None, "status": "error", "judgment": None})
    row = evaluated_row(record.model_copy(update={"scores": (failed,)}))["scores"]["groundedness"]
    assert "groundedness_score" not in row


def test_a_responses_file_holds_its_models_rows_alone(record: Record, tmp_path: Path) -> None:
    other = record.model_copy(update={"candidate": Candidate(name="other", model="m2")})
    for name in (record.candidate.name, "other"):
        path = tmp_path / f"responses_{name}.json"
        export_responses(str(path), [record, other], name, "20261125_000000")
        exported = json.loads(path.read_text())
        assert exported["model"] == name
        assert [row["candidate"] for row in exported["results"]] == [name]


def unit(
    sample_id: str, *scores: Score, unit_id: str = "", task: str = "x", epoch: int = 1
) -> Record:
    sample = build_sample(id=sample_id, suite="memory", task=task)
    response = Response(text="an answer", output_tokens=3, duration_s=0.5)
    return build_record(sample, response, *scores, unit_id=unit_id or sample_id, epoch=epoch)


RECALL = build_score("recall", -0.25, judge="rules", usage=Usage(input_tokens=5), cached=True)
FAILED = build_score(
    "empathy", None, error="-1: Throttled", judge="openai/gpt", cost_usd=0.5, latency_s=1.5
)


def rows(folder: RunFolder) -> list[dict[str, Any]]:
    batches = to_long_rows(folder.records(), FILE_SCHEMA)
    return pa.Table.from_batches(batches, FILE_SCHEMA).to_pylist()


def test_a_row_a_unit_and_metric_and_one_for_a_unit_without_any(tmp_path: Path) -> None:
    again = unit("1", RECALL, unit_id="again", epoch=2)
    units = [unit("1", RECALL, FAILED), unit("2"), unit("3", RECALL), again]
    folder = build_folder(tmp_path / "run", units)
    folder.write_part(to_table(units[2:3]))  # written twice: it counts once
    table = rows(folder)
    assert [(row["sample_id"], row["metric"], row["value"], row["epoch"]) for row in table] == [
        ("1", "recall", -0.25, 1), ("1", "empathy", None, 1), ("2", None, None, 1),
        ("3", "recall", -0.25, 1), ("1", "recall", -0.25, 2),
    ]  # fmt: skip
    failed = {"status": "error", "judge_error": "-1: Throttled", "judge_cost_usd": 0.5}
    assert failed.items() <= table[1].items()
    counts = {"task": "x", "output_tokens": 3, "judge_input_tokens": 5, "judge_cached": True}
    assert counts.items() <= table[0].items()


def test_rows_of_an_older_version_are_of_the_first_epoch(tmp_path: Path) -> None:
    folder = build_folder(tmp_path / "run", [unit("1", RECALL)])
    (part,) = Path(folder.path, "records").glob("*.parquet")
    pq.write_table(pq.read_table(part).drop_columns(["epoch"]), part)
    assert [row["epoch"] for row in rows(folder)] == [1]


@pytest.mark.parametrize(
    ("scores", "marks"),
    [
        ((RECALL,), (True, False, None)),
        ((build_score("recall", 0.0, judge="zero"),), (False, True, None)),
        ((build_score("recall", 1.0, judge="openai/gpt", calls=3),), (False, False, 3)),
        ((FAILED,), (False, False, None)),
        ((), (None, None, None)),
    ],
    ids=["estimate", "fallback", "verdict", "failed", "none"],
)
def test_an_estimate_and_a_fallback_are_marked(
    tmp_path: Path, scores: tuple[Score, ...], marks: tuple[bool | int | None, ...]
) -> None:
    (row,) = rows(build_folder(tmp_path / "run", [unit("1", *scores)]))
    assert (row["estimate"], row["fallback"], row["judge_calls"]) == marks


def test_parquet_holds_the_rows_with_their_types(tmp_path: Path) -> None:
    folder = build_folder(tmp_path / "run", [unit("=1+1", RECALL, FAILED), unit("2")])
    path = tmp_path / "scores.parquet"
    write_parquet(path.as_uri(), folder.records())  # a URL, as of a cloud
    table = pq.read_table(path)
    assert table.schema.equals(FILE_SCHEMA)
    assert table.to_pylist() == rows(folder)
    assert table["sample_id"][0].as_py() == "=1+1"


def test_a_reader_finds_the_texts_and_the_judges_reason_first(tmp_path: Path) -> None:
    judged = RECALL.model_copy(update={"judgment": '{"reason": "no source", "score": 2}'})
    folder = build_folder(tmp_path / "run", [unit("1", judged), unit("2")])
    write_csv(str(tmp_path / "scores.csv"), folder.records())
    first, second = csv.DictReader((tmp_path / "scores.csv").read_text("utf-8").splitlines())
    assert [*first][:10] == [
        "unit_id", "sample_id", "candidate", "query", "response", "metric", "status", "value",
        "judge", "reason",
    ]  # fmt: skip
    assert (first["query"], first["response"], first["reason"]) == ("q", "an answer", "no source")
    assert (second["response"], second["reason"]) == ("an answer", "")


def read_back(path: Path) -> list[dict[str, Any]]:
    """A CSV's rows with the table's types, its guards taken off."""
    text = pacsv.ConvertOptions(
        column_types=FILE_SCHEMA, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    lines = pacsv.ParseOptions(newlines_in_values=True)
    table = pacsv.read_csv(path, convert_options=text, parse_options=lines).to_pylist()
    return [each_text(lambda cell: cell.removeprefix("'"), row) for row in table]


def each_text(change: Callable[[str], str], row: dict[str, Any]) -> dict[str, Any]:
    return {name: change(of) if isinstance(of, str) else of for name, of in row.items()}


HOSTILE = st.sampled_from([
    "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1+1", "'quoted", "''",
    'a "b", c', "two\nlines", "€",
])  # fmt: skip
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(HOSTILE | PLAIN, min_size=1, max_size=4, unique=True), value=st.floats(-1e9, 1e9)
)
def test_csv_brings_every_value_back_and_holds_no_formula(
    tmp_path: Path, texts: list[str], value: float
) -> None:
    score = RECALL.model_copy(update={"value": value})
    records = [unit(text, score, FAILED, unit_id=str(n), task=text) for n, text in enumerate(texts)]
    folder = build_folder(tmp_path / f"{abs(hash((tuple(texts), value)))}", records)
    path = tmp_path / "scores.csv"
    write_csv(str(path), folder.records())
    assert read_back(path) == [each_text(escape_controls, row) for row in rows(folder)]
    numbers = {field.name for field in FILE_SCHEMA if not pa.types.is_string(field.type)}
    formulas = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
    for row in csv.DictReader(io.StringIO(path.read_text("utf-8"), newline="")):
        assert not [
            cell for name, cell in row.items() if name not in numbers and cell.startswith(formulas)
        ]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    records = build_folder(tmp_path / "run", [unit("1")]).records()
    with pytest.raises(ConfigError, match=r"cannot write .*; name another place"):
        write_csv(str(tmp_path / "none" / "scores.csv"), records)

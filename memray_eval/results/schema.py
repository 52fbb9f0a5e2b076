"""Records as Arrow rows: the schema of every block between stages and of records/*.parquet.

Free-form parts (memory, history, metadata, judgment, ...) travel as JSON strings, because Arrow
would invent keys for the missing ones; everything that an aggregate or a filter reads is a typed
column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from memray_eval.errors import describe_error
from memray_eval.types import Candidate, Record, Response, Sample, Score, Usage, dumps

SCORE_TYPE = pa.struct(
    [
        ("metric", pa.string()),
        ("status", pa.string()),
        ("value", pa.float64()),
        ("parts", pa.map_(pa.string(), pa.float64())),
        ("judgment", pa.string()),
        ("judge", pa.string()),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cost_usd", pa.float64()),
        ("latency_s", pa.float64()),
        ("cached", pa.bool_()),
        ("calls", pa.int64()),
        ("error", pa.string()),
    ]
)

SAMPLE_TEXT = ("suite", "task", "query", "language", "scenario", "prompt_type")
SAMPLE_JSON = ("memory", "history", "traits", "emotion", "metadata")
SAMPLE_LISTS = ("required_keys", "forbidden_keys", "neutral_keys", "answers", "classes")
RESPONSE_COLUMNS = {
    "text": ("response", pa.string()),
    "thinking": ("thinking", pa.string()),
    "thinking_blocks": ("thinking_blocks", pa.int64()),
    "prompt_form": ("prompt_form", pa.string()),
    "truncated_tokens": ("truncated_tokens", pa.int64()),
    "cached_tokens": ("cached_tokens", pa.int64()),
    "error": ("error", pa.string()),
    "finish_reason": ("finish_reason", pa.string()),
    "prompt_tokens": ("prompt_tokens", pa.int64()),
    "output_tokens": ("output_tokens", pa.int64()),
    "ttft_s": ("ttft_s", pa.float64()),
    "duration_s": ("duration_s", pa.float64()),
}

RECORD_SCHEMA = pa.schema(
    [
        ("unit_id", pa.string()),
        ("sample_id", pa.string()),
        ("candidate", pa.string()),
        ("model", pa.string()),
        ("candidate_config", pa.string()),
        *((name, pa.string()) for name in SAMPLE_TEXT),
        *((name, pa.string()) for name in SAMPLE_JSON),
        *((name, pa.list_(pa.string())) for name in SAMPLE_LISTS),
        *RESPONSE_COLUMNS.values(),
        ("scores", pa.list_(SCORE_TYPE)),
    ]
)


def to_table(records: Iterable[Record]) -> pa.Table:
    """Records as a table with RECORD_SCHEMA. A sample's context is not among the columns."""
    return pa.Table.from_pylist([to_row(record) for record in records], schema=RECORD_SCHEMA)


def from_table(table: pa.Table) -> Iterator[Record]:
    """The records of a table with RECORD_SCHEMA."""
    return (from_row(row) for row in table.to_pylist(maps_as_pydicts="strict"))


Broken: TypeAlias = Callable[
    [str, Exception], None
]  # hears of a sample's id, and of what its record raised


def to_table_apart(records: Sequence[Record], on_broken: Broken) -> pa.Table:
    """The table of the records. One that no table can hold, such as one with half of a surrogate
    pair in a text, becomes an error of its unit, of which `on_broken` hears; one that cannot even
    be that is left out."""
    try:
        return to_table(records)
    except Exception:
        return pa.concat_tables(
            [RECORD_SCHEMA.empty_table(), *(_table_of_one(record, on_broken) for record in records)]
        )


def _table_of_one(record: Record, on_broken: Broken) -> pa.Table:
    try:
        return to_table([record])
    except Exception as error:
        on_broken(record.sample.id, error)
        why = describe_error(error)
    for whole in (_fail_unstorable_scores, unanswered):
        try:
            return to_table([whole(record, why)])
        except Exception:
            continue
    return RECORD_SCHEMA.empty_table()  # its unit will be missing, and counted so at the run's end


def _fail_unstorable_scores(record: Record, error: str) -> Record:
    """The record whose scores that no table can hold are errors."""

    def sound(score: Score) -> Score:
        try:
            pa.array([_to_score_row(score)], SCORE_TYPE)
        except Exception:
            return Score(metric=score.metric, status="error", judge=score.judge, error=error)
        return score

    return record.model_copy(update={"scores": tuple(map(sound, record.scores))})


def from_table_apart(table: pa.Table, on_broken: Broken) -> tuple[list[Record], pa.Table]:
    """The records of a table with RECORD_SCHEMA, and the rows that are none any more, as rows with
    an error."""
    records, broken = [], []
    for row in table.to_pylist(maps_as_pydicts="strict"):
        try:
            records.append(from_row(row))
        except Exception as error:
            if row["error"] is None:  # else the stage before has told
                on_broken(str(row["sample_id"]), error)
            broken.append(row | {"scores": [], "error": row["error"] or describe_error(error)})
    return records, pa.Table.from_pylist(broken, schema=RECORD_SCHEMA)


def unanswered(record: Record, error: str) -> Record:
    """The record as one whose candidate gave no answer, with no text that UTF-8 has no bytes
    for."""
    return _escape_lone_surrogates(
        record.model_copy(update={"response": Response(error=error), "scores": ()})
    )


def _escape_lone_surrogates(record: Record) -> Record:

    def of(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, Mapping):
            return {of(key): of(each) for key, each in value.items()}
        return [of(each) for each in value] if isinstance(value, list | tuple) else value

    return Record.model_validate(of(record.model_dump()))


def to_row(record: Record) -> dict[str, Any]:
    sample = record.sample.model_dump(mode="json")
    row: dict[str, Any] = {
        "unit_id": record.unit_id,
        "sample_id": record.sample.id,
        "candidate": record.candidate.name,
        "model": record.candidate.model,
        "candidate_config": record.candidate.model_dump_json(),
        "scores": [_to_score_row(score) for score in record.scores],
    }
    row.update({name: sample[name] for name in (*SAMPLE_TEXT, *SAMPLE_LISTS)})
    row.update({name: dumps(sample[name]) for name in SAMPLE_JSON})
    if record.response is not None:
        response = record.response.model_dump()
        row.update({column: response[field] for field, (column, _) in RESPONSE_COLUMNS.items()})
    return row


def from_row(row: Mapping[str, Any]) -> Record:
    sample = {"id": row["sample_id"], **{name: row[name] for name in (*SAMPLE_TEXT, *SAMPLE_LISTS)}}
    sample.update({name: json.loads(row[name]) for name in SAMPLE_JSON})
    response = None
    if row["response"] is not None or row["error"] is not None:
        fields = {field: row[column] for field, (column, _) in RESPONSE_COLUMNS.items()}
        text = {"text": fields["text"] or "", "thinking": fields["thinking"] or ""}
        response = Response.model_validate(
            {**fields, **text, "thinking_blocks": fields["thinking_blocks"] or 0}
        )
    return Record(
        unit_id=row["unit_id"],
        sample=Sample.model_validate(sample),
        candidate=Candidate.model_validate_json(row["candidate_config"]),
        response=response,
        scores=tuple(_score(score) for score in row["scores"] or ()),
    )


def _to_score_row(score: Score) -> dict[str, Any]:
    row = score.model_dump(exclude={"usage", "parts"})
    row.update(score.usage.model_dump())
    row["parts"] = list(score.parts.items())
    return row


def _score(row: Mapping[str, Any]) -> Score:
    usage = Usage(input_tokens=row["input_tokens"], output_tokens=row["output_tokens"])
    fields = {name: row[name] for name in Score.model_fields if name in row and name != "parts"}
    return Score.model_validate({**fields, "usage": usage, "parts": dict(row["parts"])})

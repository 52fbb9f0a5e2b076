"""Records as Arrow rows: the schema of every block between stages and of records/*.parquet.

Free-form parts (memory, history, metadata, judgment, ...) travel as JSON strings, because Arrow
would add the keys of one row to all others; everything that an aggregate or a filter reads is a
typed column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from memray_eval.errors import describe_error
from memray_eval.types import ComputedScore, Record, Response, Sample, Score, Usage
from memray_eval.types.json_text import candidate_from_json, field_to_json, is_plain_json

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
        ("cached_input_tokens", pa.int64()),
        ("cache_write_tokens", pa.int64()),
        ("cost_usd", pa.float64()),
        ("saved_usd", pa.float64()),
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
    """Converts records to a table with RECORD_SCHEMA. A sample's context is left out."""
    held = list(records)
    samples = [record.sample for record in held]
    responses = [record.response for record in held]
    candidates = {id(record.candidate): record.candidate for record in held}
    configs = {key: candidate.model_dump_json() for key, candidate in candidates.items()}
    columns: dict[str, Any] = {
        "unit_id": [record.unit_id for record in held],
        "sample_id": [sample.id for sample in samples],
        "candidate": [record.candidate.name for record in held],
        "model": [record.candidate.model for record in held],
        "candidate_config": [configs[id(record.candidate)] for record in held],
    }
    for name in (*SAMPLE_TEXT, *SAMPLE_LISTS):
        columns[name] = [getattr(sample, name) for sample in samples]
    for name in SAMPLE_JSON:
        columns[name] = [field_to_json(sample, name) for sample in samples]
    for field, (column, _) in RESPONSE_COLUMNS.items():
        columns[column] = [
            None if response is None else getattr(response, field) for response in responses
        ]
    columns["scores"] = [[_to_score_row(one) for one in record.scores] for record in held]
    arrays = [pa.array(columns[field.name], field.type) for field in RECORD_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)


def as_stored(record: Record) -> Record:
    """The record as it reads back from its row: without the sample's context, and its metadata as
    JSON has them."""
    sample, update = record.sample, dict[str, Any]()
    if sample.context is not None:
        update["context"] = None
    if not all(map(is_plain_json, sample.metadata.values())):
        update["metadata"] = json.loads(field_to_json(sample, "metadata"))
    if not update:
        return record
    return record.model_copy(update={"sample": sample.model_copy(update=update)})


def to_score_lists(outcomes: Sequence[Sequence[ComputedScore | Score]]) -> pa.ListArray:
    """The scores of records, a list for each, as the column of RECORD_SCHEMA."""
    flat = [score for scores in outcomes for score in scores]
    is_computed = np.array([isinstance(score, ComputedScore) for score in flat], np.bool_)
    computed = [score for score in flat if isinstance(score, ComputedScore)]
    others = [_to_score_row(score) for score in flat if not isinstance(score, ComputedScore)]
    each = pa.concat_arrays([_to_score_columns(computed), pa.array(others, SCORE_TYPE)])
    # Where each of them stands now, in the order in which they came
    places = np.where(is_computed, np.cumsum(is_computed), np.cumsum(~is_computed)) - 1
    places[~is_computed] += len(computed)
    ends = np.cumsum([0, *map(len, outcomes)]).astype(np.int32)
    in_order = each if is_computed.all() else each.take(pa.array(places))
    return pa.ListArray.from_arrays(pa.array(ends), in_order)


def _to_score_columns(scores: Sequence[ComputedScore]) -> pa.StructArray:
    """Scores that code computed, as an array of SCORE_TYPE."""
    n = len(scores)
    keys = [key for score in scores for key in score.parts]
    items = [value for score in scores for value in score.parts.values()]
    ends = np.cumsum([0, *(len(score.parts) for score in scores)]).astype(np.int32)
    values = {
        "metric": pa.array([score.metric for score in scores], pa.string()),
        "status": pa.repeat(pa.scalar("scored", pa.string()), n),
        "value": pa.array([score.value for score in scores], pa.float64()),
        "parts": pa.MapArray.from_arrays(
            pa.array(ends), pa.array(keys, pa.string()), pa.array(items, pa.float64())
        ),
        "judge": pa.array([score.judge for score in scores], pa.string()),
    }
    # The rest is as in every score that cost nothing
    free = _to_score_row(ComputedScore("", 0.0, "").to_score())
    arrays = [
        values[field.name]
        if field.name in values
        else pa.repeat(pa.scalar(free[field.name], field.type), n)
        for field in SCORE_TYPE
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(SCORE_TYPE))


def from_table(table: pa.Table) -> Iterator[Record]:
    """Converts a table with RECORD_SCHEMA back to records."""
    return (from_row(row) for row in table.to_pylist(maps_as_pydicts="strict"))


# called with the id of a sample whose record is broken, and with what it raised
OnBroken: TypeAlias = Callable[[str, Exception], None]


def to_table_apart(records: Sequence[Record], on_broken: OnBroken) -> pa.Table:
    """Converts records to a table, one by one if any of them fails. A record that Arrow cannot
    hold, such as one whose text has half of a surrogate pair, becomes an error of its unit and is
    reported to `on_broken`; if even that fails, it is left out."""
    try:
        return to_table(records)
    except Exception:
        return pa.concat_tables(
            [RECORD_SCHEMA.empty_table(), *(_table_of_one(record, on_broken) for record in records)]
        )


def _table_of_one(record: Record, on_broken: OnBroken) -> pa.Table:
    try:
        return to_table([record])
    except Exception as error:
        on_broken(record.sample.id, error)
        why = describe_error(error)
    for repair in (_fail_unstorable_scores, unanswered):
        try:
            return to_table([repair(record, why)])
        except Exception:
            continue
    return RECORD_SCHEMA.empty_table()  # the run counts its unit as missing


def _fail_unstorable_scores(record: Record, error: str) -> Record:
    """Replaces each score that Arrow cannot hold by an error."""

    def check(score: Score) -> Score:
        try:
            pa.array([_to_score_row(score)], SCORE_TYPE)
        except Exception:
            return Score(metric=score.metric, status="error", judge=score.judge, error=error)
        return score

    return record.model_copy(update={"scores": tuple(map(check, record.scores))})


def from_table_apart(table: pa.Table, on_broken: OnBroken) -> tuple[list[Record], pa.Table]:
    """Converts a table with RECORD_SCHEMA to records. Rows that no longer read as records come back
    as a table of their own, each with an error."""
    records, broken = [], []
    for row in table.to_pylist(maps_as_pydicts="strict"):
        try:
            records.append(from_row(row))
        except Exception as error:
            if row["error"] is None:  # otherwise an earlier stage has reported it
                on_broken(str(row["sample_id"]), error)
            broken.append(row | {"scores": [], "error": row["error"] or describe_error(error)})
    return records, pa.Table.from_pylist(broken, schema=RECORD_SCHEMA)


def unanswered(record: Record, error: str) -> Record:
    """Returns the record with an error in place of its response and scores, and with lone
    surrogates escaped, because UTF-8 cannot encode them."""
    return _escape_lone_surrogates(
        record.model_copy(update={"response": Response(error=error), "scores": ()})
    )


def _escape_lone_surrogates(record: Record) -> Record:
    def escape(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, Mapping):
            return {escape(key): escape(each) for key, each in value.items()}
        return [escape(each) for each in value] if isinstance(value, list | tuple) else value

    return Record.model_validate(escape(record.model_dump()))


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
    row.update({name: field_to_json(record.sample, name) for name in SAMPLE_JSON})
    if record.response is not None:
        response = record.response.model_dump()
        row.update({column: response[field] for field, (column, _) in RESPONSE_COLUMNS.items()})
    return row


def from_row(row: Mapping[str, Any]) -> Record:
    sample = {"id": row["sample_id"], **{name: row[name] for name in (*SAMPLE_TEXT, *SAMPLE_LISTS)}}
    sample.update({name: _from_json(row[name]) for name in SAMPLE_JSON})
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
        candidate=candidate_from_json(row["candidate_config"]),
        response=response,
        scores=tuple(_from_score_row(score) for score in row["scores"] or ()),
    )


def _from_json(text: str) -> Any:
    if text == "{}":  # as most are
        return {}
    return [] if text == "[]" else json.loads(text)


def _to_score_row(score: Score) -> dict[str, Any]:
    row = score.model_dump(exclude={"usage", "parts"})
    row.update(score.usage.model_dump())
    row["parts"] = list(score.parts.items())
    return row


_NO_USAGE = Usage()


def _from_score_row(row: Mapping[str, Any]) -> Score:
    # What parts of older versions do not have is null, or missing: nothing was cached then.
    tokens = {name: count for name in Usage.model_fields if (count := row.get(name))}
    usage = Usage(**tokens) if tokens else _NO_USAGE
    fields = {name: row[name] for name in Score.model_fields if name in row and name != "parts"}
    fields["saved_usd"] = fields.get("saved_usd") or 0.0
    return Score.model_validate({**fields, "usage": usage, "parts": dict(row["parts"])})

"""Records as Arrow rows: the schema of every block and of records/*.parquet. Free-form parts
(memory, history, metadata, judgment, ...) are JSON strings; what is filtered is a typed column."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memray_eval.errors import describe_error
from memray_eval.types import ComputedScore, Record, Response, Sample, Score, Usage
from memray_eval.types.json_text import (
    LARGE,
    candidate_from_json,
    field_to_json,
    is_plain_json,
    read_large,
)
from memray_eval.types.samples import MANY, SAMPLE_JSON, SAMPLE_LISTS, SAMPLE_TEXT, plain_sample

SCORE_TYPE = pa.struct(
    [
        ("metric", pa.string()),
        ("status", pa.string()),
        ("value", pa.float64()),
        ("parts", pa.map_(pa.string(), pa.float64())),
        ("judgment", pa.string()),
        ("judge", pa.string()),
        ("served_model", pa.string()),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cached_input_tokens", pa.int64()),
        ("cache_write_tokens", pa.int64()),
        ("unpriced_calls", pa.int64()),
        ("cost_usd", pa.float64()),
        ("saved_usd", pa.float64()),
        ("latency_s", pa.float64()),
        ("cached", pa.bool_()),
        ("calls", pa.int64()),
        ("error", pa.string()),
    ]
)

RESPONSE_COLUMNS = {
    "text": ("response", pa.string()),
    "thinking": ("thinking", pa.string()),
    "thinking_blocks": ("thinking_blocks", pa.int64()),
    "raw": ("unsplit_response", pa.string()),
    "unknown_mark": ("unknown_mark", pa.string()),
    "served_model": ("served_model", pa.string()),
    "prompt_form": ("prompt_form", pa.string()),
    "truncated_tokens": ("truncated_tokens", pa.int64()),
    "cached_tokens": ("cached_tokens", pa.int64()),
    "no_answer": ("no_answer", pa.string()),
    "refusal": ("refusal", pa.string()),
    "raised_max_tokens": ("raised_max_tokens", pa.int64()),
    "error": ("error", pa.string()),
    "finish_reason": ("finish_reason", pa.string()),
    "prompt_tokens": ("prompt_tokens", pa.int64()),
    "output_tokens": ("output_tokens", pa.int64()),
    "ttft_s": ("ttft_s", pa.float64()),
    "duration_s": ("duration_s", pa.float64()),
    "ended_s": ("ended_s", pa.float64()),
}

_SAMPLE_COLUMNS = [
    *((name, pa.string()) for name in SAMPLE_TEXT),
    *((name, pa.string()) for name in SAMPLE_JSON),
    *((name, pa.list_(pa.string())) for name in SAMPLE_LISTS),
]
RECORD_SCHEMA = pa.schema(
    [
        ("unit_id", pa.string()),
        ("sample_id", pa.string()),
        ("candidate", pa.string()),
        ("model", pa.string()),
        ("candidate_config", pa.string()),
        ("epoch", pa.int64()),  # null in files of older versions: the first
        *_SAMPLE_COLUMNS,
        *RESPONSE_COLUMNS.values(),
        ("scores", pa.list_(SCORE_TYPE)),
    ]
)
# Samples that are not asked yet, with their contexts
SAMPLE_SCHEMA = pa.schema(
    [
        ("sample_id", pa.string()),
        *_SAMPLE_COLUMNS,
        ("context", pa.large_string()),
        ("turns", pa.list_(pa.string())),
        ("user", pa.string()),  # JSON, null without a simulated user
    ]
)


def to_table(records: Iterable[Record]) -> pa.Table:
    """Converts records to a table with RECORD_SCHEMA. A sample's context is left out."""
    held = list(records)
    samples = [record.sample for record in held]
    responses = [record.response for record in held]
    candidates = {id(record.candidate): record.candidate for record in held}
    configs = {key: candidate.model_dump_json() for key, candidate in candidates.items()}
    columns = {
        "unit_id": [record.unit_id for record in held],
        "candidate": [record.candidate.name for record in held],
        "model": [record.candidate.model for record in held],
        "candidate_config": [configs[id(record.candidate)] for record in held],
        **_sample_columns(samples),
        **_response_columns(responses),
        "scores": [[_to_score_row(score) for score in record.scores] for record in held],
        "epoch": [record.epoch for record in held],
    }
    return pa.Table.from_pydict(columns, RECORD_SCHEMA)


def samples_to_table(samples: Sequence[Sample]) -> pa.Table:
    """Converts samples to a table with SAMPLE_SCHEMA."""
    columns = _sample_columns(samples) | {
        "context": [sample.context for sample in samples],
        "turns": [sample.turns for sample in samples],
        "user": [sample.user and sample.user.model_dump_json() for sample in samples],
    }
    return pa.Table.from_pydict(columns, SAMPLE_SCHEMA)


def samples_from_table(table: pa.Table) -> Iterator[Sample]:
    """Converts a table with SAMPLE_SCHEMA back to samples."""
    return map(sample_from_row, table.to_pylist())


def sample_from_row(row: Mapping[str, Any]) -> Sample:
    """The sample of a row with the columns of SAMPLE_SCHEMA."""
    user = None if row["user"] is None else json.loads(row["user"])
    return _to_sample(row, context=row["context"], turns=row["turns"], user=user)


def set_responses(rows: pa.Table, responses: Sequence[Response | None]) -> pa.Table:
    """Rows of RECORD_SCHEMA with these responses, one for each; None: it keeps what it has."""
    is_given = pa.array([response is not None for response in responses], pa.bool_())
    values = _response_columns(responses)
    for column, kind in RESPONSE_COLUMNS.values():
        column_values = pa.array(values[column], kind)
        chosen = pc.if_else(is_given, column_values, rows.column(column))
        rows = rows.set_column(rows.schema.get_field_index(column), pa.field(column, kind), chosen)
    return rows


def _sample_columns(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"sample_id": [sample.id for sample in samples]}
    for name in (*SAMPLE_TEXT, *SAMPLE_LISTS):
        columns[name] = [getattr(sample, name) for sample in samples]
    for name in SAMPLE_JSON:
        # Units of one sample share its memory, which is written once
        first = {id(getattr(sample, name)): sample for sample in samples}
        texts = {key: field_to_json(sample, name) for key, sample in first.items()}
        columns[name] = [texts[id(getattr(sample, name))] for sample in samples]
    return columns


def _response_columns(responses: Sequence[Response | None]) -> dict[str, list[Any]]:
    return {
        column: [None if response is None else getattr(response, field) for response in responses]
        for field, (column, _) in RESPONSE_COLUMNS.items()
    }


def as_stored(record: Record) -> Record:
    """The record as it reads back: without the sample's context, its metadata as JSON has them."""
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
    all_scores = pa.concat_arrays([_to_score_columns(computed), pa.array(others, SCORE_TYPE)])
    # The present index of each, in the order in which they came
    places = np.where(is_computed, np.cumsum(is_computed), np.cumsum(~is_computed)) - 1
    places[~is_computed] += len(computed)
    ends = np.cumsum([0, *map(len, outcomes)]).astype(np.int32)
    in_order = all_scores if is_computed.all() else all_scores.take(pa.array(places))
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


def join_records(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of RECORD_SCHEMA as one, in one chunk; an empty one of none."""
    return pa.concat_tables([RECORD_SCHEMA.empty_table(), *tables]).combine_chunks()


def from_table(table: pa.Table) -> Iterator[Record]:
    """Converts a table with RECORD_SCHEMA back to records."""
    return map(from_row, table.to_pylist())


# called with the id of a sample whose record is broken, and with what it raised
OnBroken: TypeAlias = Callable[[str, Exception], None]


def to_table_apart(records: Sequence[Record], on_broken: OnBroken) -> pa.Table:
    """Converts records to a table. One that Arrow cannot hold, such as half a surrogate pair,
    becomes an error of its unit and goes to `on_broken`; if that fails too, it is left out."""
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
    """The records of a table with RECORD_SCHEMA, and what does not read as one, with errors."""
    records, broken = [], []
    for row in table.to_pylist():
        try:
            records.append(from_row(row))
        except Exception as error:
            if row["error"] is None:  # otherwise an earlier stage has reported it
                on_broken(str(row["sample_id"]), error)
            broken.append(row | {"scores": [], "error": row["error"] or describe_error(error)})
    return records, pa.Table.from_pylist(broken, schema=RECORD_SCHEMA)


def unanswered(record: Record, error: str) -> Record:
    """The record with an error for its response and scores, and lone surrogates escaped."""
    failed = {"response": Response(error=error), "scores": ()}
    return _escape_lone_surrogates(record.model_copy(update=failed))


def _escape_lone_surrogates(record: Record) -> Record:
    def escape(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, Mapping):
            return {escape(key): escape(item) for key, item in value.items()}
        return [escape(item) for item in value] if isinstance(value, list | tuple) else value

    return Record.model_validate(escape(record.model_dump()))


def from_row(row: Mapping[str, Any]) -> Record:
    response = None
    if row["response"] is not None or row["error"] is not None:
        fields = {field: row[column] for field, (column, _) in RESPONSE_COLUMNS.items()}
        text = {name: fields[name] or "" for name in ("text", "thinking", "raw", "refusal")}
        blocks = fields["thinking_blocks"] or 0
        response = Response.model_validate({**fields, **text, "thinking_blocks": blocks})
    return Record(
        unit_id=row["unit_id"],
        sample=_to_sample(row),
        candidate=candidate_from_json(row["candidate_config"]),
        response=response,
        scores=tuple(_from_score_row(score) for score in row["scores"] or ()),
        epoch=row.get("epoch") or 1,
    )


def _to_sample(row: Mapping[str, Any], **unstored: Any) -> Sample:
    """The sample of a row, with the fields that records do not store."""
    fields = {name: row[name] for name in (*SAMPLE_TEXT, *SAMPLE_LISTS)}
    fields |= {name: _from_json(row[name]) for name in SAMPLE_JSON}
    fields = {"id": row["sample_id"], **unstored, **fields}
    plain = plain_sample(fields) if len(fields["memory"]) > MANY else None
    return plain or Sample.model_validate(fields)


def _from_json(text: str) -> Any:
    if text == "{}":  # as most are
        return {}
    if len(text) >= LARGE and (value := read_large(text)) is not None:
        return value
    return [] if text == "[]" else json.loads(text)


def _to_score_row(score: Score) -> dict[str, Any]:
    row = score.model_dump(exclude={"usage", "parts"})
    row.update(score.usage.model_dump())
    row["parts"] = list(score.parts.items())
    if score.usage.unpriced_calls and not score.cost_usd:
        row["cost_usd"] = None  # nobody knows it: no zero
    return row


_NO_USAGE = Usage()


def _from_score_row(row: Mapping[str, Any]) -> Score:
    tokens = {name: count for name in Usage.model_fields if (count := row[name])}
    usage = Usage(**tokens) if tokens else _NO_USAGE
    fields = {name: row[name] for name in Score.model_fields if name in row}
    fields |= {"cost_usd": row["cost_usd"] or 0.0, "usage": usage, "parts": dict(row["parts"])}
    return Score.model_validate(fields)

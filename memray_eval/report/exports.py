"""Exports a run to the files of the original benchmarks (seed 000's responses_{model}_{time}.json
and eval_{input}.json, and seed 004's list), and as one flat table, with a row per unit and metric,
for a spreadsheet (CSV) or a data frame (Parquet).

A row has what the page's list of answers shows: question, answer, value, judge, the judge's reason;
then what it took and cost. A unit that no metric scored has one row; a unit written twice counts
once. `fallback`: a rule scored because the judge failed.
`no_answer`: null if there is an answer, or the unit failed. A metric's figure is the sum of its
`part` over that of its `whole` (a mean's: the value and 1), none where that is 0."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from memray_eval.analysis.rates import per_s
from memray_eval.analysis.score_table import ScoreTable, shares
from memray_eval.analysis.scores import first_of_each, pooled_ratio
from memray_eval.metric import ratio
from memray_eval.metrics.instruction import result
from memray_eval.report.sections import headline_scale, share_of
from memray_eval.results.schema import RECORD_SCHEMA, RESPONSE_COLUMNS, SCORE_TYPE
from memray_eval.storage.paths import write_atomically
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import FALLBACKS, Record, Response, Score, Summary, is_estimate

PREVIEW_CHARACTERS = 100
INSTRUCTION, GROUNDEDNESS = "instruction_quality", "groundedness"


def _score_details(record: Record, score: Score) -> Mapping[str, Any]:
    """A score's parts as subscores, with issues and passed checks of its judgment or the checks."""
    if score.metric == INSTRUCTION and record.response is not None:
        checks = result(record.sample, record.response)
        return {
            "subscores": checks.subscores,
            "issues": list(checks.issues),
            "passed_checks": list(checks.passed_checks),
        }
    judgment = json.loads(score.judgment) if score.judgment else {}
    lists = {name: judgment.get(name, []) for name in ("issues", "passed_checks")}
    return {"subscores": score.parts, **lists}


def export_responses(path: str, records: Iterable[Record], model: str, stamp: str) -> None:
    """Writes seed 000's responses file of a candidate: model, timestamp, samples (`results`)."""
    rows = (_answer_row(record) for record in records if record.candidate.name == model)
    _write_results(path, {"model": model, "timestamp": stamp}, rows)


def export_evaluation(path: str, records: Iterable[Record], summary: Summary) -> None:
    """Writes seed 000's evaluation file: the summary, and judged responses under `results`."""
    shown = summary.model_dump(mode="json", exclude={"metrics": {"__all__": {"layout"}}})
    _write_results(path, {"summary": shown}, (evaluated_row(record) for record in records))


def export_benchmark(path: str, records: Iterable[Record], summary: Summary) -> None:
    """Writes seed 004's benchmark file: a list with one object a candidate, its answers under
    `tests`, null for what was not measured. Rows are buffered on disk."""
    scale = headline_scale(summary)
    with ExitStack() as stack:
        tests: dict[str, IO[bytes]] = {}
        for record in records:
            row = _encode_json(_test_row(record, summary.headline, scale))
            name = record.candidate.name
            if name in tests:
                row = b",\n" + row
            else:
                tests[name] = stack.enter_context(TemporaryFile())
            tests[name].write(row)
        with write_atomically(path) as stream:
            for number, name in enumerate(sorted(tests)):
                start = ",\n" if number else "["
                stream.write(f'{start}{{"model": {json.dumps(name)}, "tests": [\n'.encode())
                tests[name].seek(0)
                stream.writelines(tests[name])
                stream.write(b"\n]}")
            stream.write(b"]\n" if tests else b"[]\n")


def _write_results(path: str, head: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """Writes one JSON object whose list of results is streamed row by row."""
    with write_atomically(path) as stream:
        stream.write(_encode_json(head)[:-1] + b', "results": [\n')
        for number, row in enumerate(rows):
            stream.write(b",\n" * (number > 0) + _encode_json(row))
        stream.write(b"\n]}\n")


def _encode_json(value: Mapping[str, Any]) -> bytes:
    """Encodes JSON as UTF-8; a lone surrogate, which UTF-8 cannot hold, becomes its JSON escape."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _answer_row(record: Record) -> dict[str, Any]:
    response = {"response": "", "error": "no response"}
    if record.response is not None:
        fields = record.response.model_dump()
        response = {RESPONSE_COLUMNS[field][0]: value for field, value in fields.items()}
    sample = record.sample.model_dump(mode="json", exclude={"context"}, exclude_defaults=True)
    return {
        **sample,
        "candidate": record.candidate.name,
        "model": record.candidate.model,
        **({"epoch": record.epoch} if record.epoch > 1 else {}),
        **response,
    }


def evaluated_row(record: Record) -> dict[str, Any]:
    """A response with its sample and its judgments, as `export_evaluation` writes it. What was
    counted has seed 000's names; a judgment's own of that name becomes `judge_` and the name."""
    scores = {}
    for score in record.scores:
        row = score.model_dump(mode="json", exclude={"metric", "judgment"})
        stated, counted = json.loads(score.judgment) if score.judgment else {}, {}
        if score.metric == GROUNDEDNESS and score.value is not None:
            rate = ratio(score.parts.get("hallucinated", 0), score.parts.get("claims", 0), 0.0)
            counted = {"groundedness_score": score.value, "hallucination_rate": rate}
        scores[score.metric] = {
            **row,
            "estimate": score.is_estimate,
            **stated,
            **counted,
            **{f"judge_{name}": stated[name] for name in counted if name in stated},
        }
    return {**_answer_row(record), "scores": scores}


def _test_row(record: Record, headline: str, scale: tuple[float, float]) -> dict[str, Any]:
    sample, response = record.sample, record.response or Response()
    tokens, duration_s = response.output_tokens, response.duration_s
    of_headline = (score for score in record.scores if score.metric == headline)
    score = next((score for score in of_headline if score.value is not None), None)
    quality = None if score is None else share_of(score.value or 0.0, scale) * 100
    preview, text = response.text[:PREVIEW_CHARACTERS], response.text
    return {
        "prompt_name": sample.task or sample.prompt_type or sample.id,
        "prompt_id": sample.id,
        "duration_seconds": duration_s,
        "tokens_generated": tokens,
        "tokens_per_second": per_s(tokens, duration_s),
        "time_to_first_token": response.ttft_s,
        "response_preview": preview if preview == text else f"{preview}...",
        "quality_score": None if quality is None else round(quality, 1),
        **({"quality_is_estimate": True} if score and score.is_estimate else {}),
        "quality_details": _score_details(record, score) if score else None,
    }


LONGEST_TEXT = 4000  # characters
# The field of a judgment that says why
_REASONS = ("explanation", "reasoning", "reason", "rationale")


def parse_judgment(text: str | None) -> Any:
    """A judgment's JSON; text that is no JSON as it is; None if there is none."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def explain(text: str | None, judgment: Any) -> str | None:
    """A judge's reason, else the whole `text`: at most LONGEST_TEXT characters; None without."""
    reasons = (judgment.get(name) for name in _REASONS) if isinstance(judgment, dict) else ()
    why = next((reason for reason in reasons if isinstance(reason, str) and reason), text)
    # JSON may hold half a character
    return why[:LONGEST_TEXT].encode("utf-8", "backslashreplace").decode() if why else None


_OF_UNITS = (
    "unit_id", "sample_id", "epoch", "candidate", "model", "suite", "task", "scenario",
    "prompt_type", "language", "served_model", "no_answer", "finish_reason", "prompt_tokens",
    "output_tokens", "ttft_s", "duration_s", "error",  # the last has another name in the table
)  # fmt: skip
_OF_CALLS = (
    "served_model", "input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens",
    "cost_usd", "saved_usd", "unpriced_calls", "latency_s", "cached", "calls", "error",
)  # fmt: skip
# A score's field -> its column
_OF_SCORES = {name: name for name in ("metric", "status", "value", "judge")}
_OF_SCORES |= {name: f"judge_{name}" for name in _OF_CALLS}
FLAT_SCHEMA = pa.schema(
    [
        *(RECORD_SCHEMA.field(name) for name in _OF_UNITS[:-1]),
        pa.field("generation_error", RECORD_SCHEMA.field("error").type),
        *(pa.field(column, SCORE_TYPE.field(name).type) for name, column in _OF_SCORES.items()),
        pa.field("estimate", pa.bool_()),
        pa.field("fallback", pa.bool_()),
        pa.field("part", pa.float64()),
        pa.field("whole", pa.float64()),
    ]
)
# The columns of the files: what a reader looks for comes first
_FIRST = (
    "unit_id", "sample_id", "candidate", "query", "response", "metric", "status", "value", "judge",
    "reason",
)  # fmt: skip
_TEXTS = ("query", "response")
_OF_TEXTS = [pa.field(name, pa.string()) for name in (*_TEXTS, "reason")]
FILE_SCHEMA = pa.schema(
    sorted(
        [*FLAT_SCHEMA, *_OF_TEXTS],
        key=lambda field: _FIRST.index(field.name) if field.name in _FIRST else len(_FIRST),
    )
)
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x{9f}]"  # what escape_controls matches, in RE2 syntax
# the first character of a text that a spreadsheet takes for a formula, or the mark against it
_FORMULA = "^([=+\\-@\t\r\n'\uff1d\uff0b\uff0d\uff20])"


def write_parquet(path: str, records: pads.Dataset) -> None:
    """Writes Parquet a block at a time."""
    with (
        write_atomically(path) as stream,
        pq.ParquetWriter(stream, FILE_SCHEMA, compression="zstd") as writer,
    ):
        for batch in to_long_rows(records, FILE_SCHEMA):
            writer.write_batch(batch)


def write_csv(path: str, records: pads.Dataset) -> None:
    """Writes CSV in UTF-8: an empty cell is null, an empty text quoted. What a spreadsheet takes
    for a formula, or begins with an apostrophe, gets one before it; controls are escaped."""
    with write_atomically(path) as stream, pacsv.CSVWriter(stream, FILE_SCHEMA) as writer:
        for batch in to_long_rows(records, FILE_SCHEMA):
            columns = [escape_formulas(column) for column in batch.columns]
            writer.write_batch(pa.record_batch(columns, schema=batch.schema))


def to_long_rows(
    records: pads.Dataset, schema: pa.Schema = FLAT_SCHEMA
) -> Iterator[pa.RecordBatch]:
    """Yields the rows in the order of the records; with FILE_SCHEMA their texts too."""
    texts = _TEXTS if schema is FILE_SCHEMA else ()
    first = np.zeros(records.count_rows(), dtype=np.bool_)
    first[first_of_each(records.to_table(columns=["unit_id"])["unit_id"])] = True
    row = 0
    for batch in records.to_batches(columns=[*_OF_UNITS, *texts, "scores"]):
        is_first = first[row : row + batch.num_rows]
        row += batch.num_rows
        yield _flatten(batch.filter(pa.array(is_first)), schema)


def _flatten(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Makes one row per score, and one for each unit without scores, in the order of the units."""
    table = ScoreTable.of(batch)
    unscored = np.flatnonzero(~table.has())
    unit: npt.NDArray[np.int64] = np.concatenate([table.unit, unscored])
    score = np.concatenate([np.arange(table.unit.size), np.full(unscored.size, -1)])
    order = np.argsort(unit, kind="stable")
    units, scores = pa.array(unit[order]), pa.array(score[order], mask=score[order] < 0)
    columns = [batch[name].take(units) for name in _OF_UNITS]
    columns += [table.column(name).take(scores) for name in _OF_SCORES]
    has_value = ~np.isnan(table.values)
    of_kinds = (table.is_judge(kind) for kind in (is_estimate, FALLBACKS.__contains__))
    columns += [pa.array(of_kind & has_value).take(scores) for of_kind in of_kinds]
    coded = table.column("metric").dictionary_encode()
    ratios = map(pooled_ratio, coded.dictionary.to_pylist())
    pooled = {code: ratio for code, ratio in enumerate(ratios) if ratio}
    parts = shares(table.scores, coded.indices.to_numpy(), pooled)
    columns += [pa.array(column, mask=np.isnan(column)).take(scores) for column in parts]
    by_name = dict(zip(FLAT_SCHEMA.names, columns, strict=True))
    by_name["epoch"] = pc.fill_null(by_name["epoch"], 1)  # null in files of older versions
    if schema is FILE_SCHEMA:
        by_name |= {name: batch[name].take(units) for name in _TEXTS}
        judged = map(parse_judgment, table.column("judgment").to_pylist())
        reasons = [explain(None, judgment) for judgment in judged]
        by_name["reason"] = pa.array(reasons, pa.string()).take(scores)
    return pa.record_batch([by_name[name] for name in schema.names], schema=schema)


def escape_formulas(column: pa.Array) -> pa.Array:
    """A column of CSV whose texts neither a spreadsheet nor a terminal obeys; other types stay."""
    if not pa.types.is_string(column.type):
        return column
    controlling = pc.fill_null(pc.match_substring_regex(column, _CONTROLS), False)
    if pc.any(controlling).as_py():
        escaped = [escape_controls(text) for text in column.filter(controlling).to_pylist()]
        column = pc.replace_with_mask(column, controlling, pa.array(escaped, column.type))
    return pc.replace_substring_regex(column, _FORMULA, r"'\1")

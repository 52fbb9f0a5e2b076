"""Exports a run to the files of the original benchmarks: seed 000's responses_{model}_{time}.json
and eval_{input}.json, and seed 004's list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, Any

from memray_eval.metric import ratio
from memray_eval.metrics.instruction.instruction_quality import result
from memray_eval.report.sections import headline_scale, share_of
from memray_eval.results.schema import RESPONSE_COLUMNS
from memray_eval.stages.rates import answer_tokens_per_s
from memray_eval.storage.paths import write_atomically
from memray_eval.types import Record, Response, Score, Summary

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
            if kept := tests.get(record.candidate.name):
                kept.write(b",\n" + row)
            else:
                kept = tests[record.candidate.name] = stack.enter_context(TemporaryFile())
                kept.write(row)
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
    """A response with its sample and its judgments, as `export_evaluation` writes it."""
    scores = {}
    for score in record.scores:
        row = score.model_dump(mode="json", exclude={"metric", "judgment"})
        scores[score.metric] = {
            **row,
            "estimate": score.is_estimate,
            **(json.loads(score.judgment) if score.judgment else {}),
            **_counted_figures(score),
        }
    return {**_answer_row(record), "scores": scores}


def _counted_figures(score: Score) -> dict[str, Any]:
    """The counts of a judgment under seed 000's names; its own become `judge_` and the name."""
    if score.metric != GROUNDEDNESS or score.value is None:
        return {}
    rate = ratio(score.parts.get("hallucinated", 0), score.parts.get("claims", 0), 0.0)
    counted = {"groundedness_score": score.value, "hallucination_rate": rate}
    stated = json.loads(score.judgment) if score.judgment else {}
    return counted | {f"judge_{name}": stated[name] for name in counted if name in stated}


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
        "tokens_per_second": answer_tokens_per_s(tokens, duration_s),
        "time_to_first_token": response.ttft_s,
        "response_preview": preview if preview == text else f"{preview}...",
        "quality_score": None if quality is None else round(quality, 1),
        **({"quality_is_estimate": True} if score and score.is_estimate else {}),
        "quality_details": _score_details(record, score) if score else None,
    }

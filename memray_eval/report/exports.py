"""The two-step files of the original benchmark: responses_{model}_{time}.json and eval_{input}.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from memray_eval.storage import locate
from memray_eval.types import Record, Summary


def export_responses(path: str, records: Iterable[Record], model: str, stamp: str) -> None:
    """Writes seed 000's responses file: model, timestamp, and every sample with its response, under `results`."""
    _export(path, {"model": model, "timestamp": stamp}, (_answer_row(record) for record in records))


def export_evaluation(path: str, records: Iterable[Record], summary: Summary) -> None:
    """Writes seed 000's evaluation file: the summary, and every response with its judgments, under `results`."""
    head = {"summary": summary.model_dump(mode="json", exclude={"metrics": {"__all__": {"layout"}}})}
    _export(path, head, (_evaluated_row(record) for record in records))


def _export(path: str, head: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """One JSON object with a long list, written row by row."""
    filesystem, inner = locate(path)
    with filesystem.open_output_stream(inner) as stream:
        stream.write((json.dumps(head, ensure_ascii=False)[:-1] + ', "results": [\n').encode())
        for number, row in enumerate(rows):
            stream.write((",\n" * (number > 0) + json.dumps(row, ensure_ascii=False)).encode())
        stream.write(b"\n]}\n")


def _answer_row(record: Record) -> dict[str, Any]:
    response = record.response.model_dump() if record.response else {"error": "no response"}
    text = response.pop("text", "")
    sample = record.sample.model_dump(mode="json", exclude={"suite", "context"}, exclude_defaults=True)
    return {**sample, "candidate": record.candidate.name, "model": record.candidate.model, "response": text, **response}


def _evaluated_row(record: Record) -> dict[str, Any]:
    scores = {}
    for score in record.scores:
        row = score.model_dump(mode="json", exclude={"metric", "judgment"})
        scores[score.metric] = {**row, **(json.loads(score.judgment) if score.judgment else {})}
    return {**_answer_row(record), "scores": scores}

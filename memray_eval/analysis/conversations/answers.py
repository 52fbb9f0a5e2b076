"""A run's answers on conversations, as narrow rows read from its records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow.dataset as pads

from memray_eval.analysis.score_table import ScoreTable, is_fallback, read_score_tables
from memray_eval.benchmarks import Answered
from memray_eval.metrics.long_context.evidence_recall import found_evidence
from memray_eval.text_processing.denials import says_unknown
from memray_eval.types import Candidate, Sample, is_estimate
from memray_eval.types.json_text import candidate_from_json

_COLUMNS = (
    "unit_id",
    "sample_id",
    "candidate",
    "candidate_config",
    "suite",
    "task",
    "answers",
    "metadata",
    "response",
    "error",
    "prompt_tokens",
    "output_tokens",
    "duration_s",
)


class Answer(NamedTuple):
    """One answer. Of `n_evidence` pieces of evidence `n_found` were retrieved or shown (None:
    it was not noted); `declines`: it says that it does not know. The values of
    `estimated` metrics are offline estimates."""

    sample: Sample
    candidate: Candidate
    scored: Answered
    estimated: tuple[str, ...]
    conversation: str
    n_evidence: int
    n_found: int | None
    declines: bool
    has_error: bool
    prompt_tokens: int | None
    output_tokens: int | None
    seconds: float | None
    sessions_left_out: int
    turns_left_out: int


def read_answers(records: pads.Dataset) -> Iterator[Answer]:
    """The answers in Parquet files with RECORD_SCHEMA; one that was written twice comes once."""
    seen: set[str] = set()
    for table in read_score_tables(records, _COLUMNS, ("metric", "value", "judge", "parts")):
        scores = _judged_scores(table)
        for number, row in enumerate(table.units.to_pylist()):
            if row["unit_id"] not in seen:
                seen.add(row["unit_id"])
                yield _to_answer(row, scores[number])


def _judged_scores(table: ScoreTable) -> defaultdict[int, list[dict[str, Any]]]:
    """The scores of each unit that have a value, and not one in place of a judge that failed."""
    table = table.only(~np.isnan(table.values) & ~table.is_judge(is_fallback))
    by_unit = defaultdict(list)
    scores = table.scores.to_pylist(maps_as_pydicts="lossy")
    for unit, score in zip(table.unit.tolist(), scores, strict=True):
        by_unit[unit].append(score)
    return by_unit


def _to_answer(row: Mapping[str, Any], scores: Sequence[Mapping[str, Any]]) -> Answer:
    metadata = json.loads(row["metadata"] or "{}")
    sample = Sample.model_construct(
        id=row["sample_id"],
        suite=row["suite"] or "",
        task=row["task"] or "",
        query="-",
        answers=tuple(row["answers"] or ()),
        metadata=metadata,
    )
    evidence = metadata.get("evidence") or []
    try:
        retrieved = found_evidence(sample) if evidence else None
    except ValueError:  # evidence_recall says it of the answer
        retrieved = None
    return Answer(
        sample=sample,
        candidate=candidate_from_json(row["candidate_config"]),
        scored=Answered(
            sample.task,
            metadata.get("unanswerable") is True,
            {score["metric"]: score["value"] for score in scores},
            {score["metric"]: score["parts"] or {} for score in scores},
        ),
        estimated=tuple(score["metric"] for score in scores if is_estimate(score["judge"] or "")),
        conversation=str(metadata.get("conversation") or row["sample_id"]),
        n_evidence=len(evidence),
        n_found=None if retrieved is None else len(retrieved),
        declines=says_unknown(row["response"] or ""),
        has_error=row["error"] is not None,
        prompt_tokens=row["prompt_tokens"],
        output_tokens=row["output_tokens"],
        seconds=row["duration_s"],
        sessions_left_out=int(metadata.get("sessions_left_out") or 0),
        turns_left_out=int(metadata.get("turns_left_out") or 0),
    )

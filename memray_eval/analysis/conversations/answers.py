"""A run's answers on conversations, as narrow rows read from its records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow.dataset as pads

from memray_eval.benchmarks import Answered
from memray_eval.metrics.long_context.evidence_recall import found_evidence
from memray_eval.text_processing.abstaining import says_unknown
from memray_eval.types import FALLBACKS, JURORS, Candidate, Sample, is_estimate
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
    "scores",
)


class Answer(NamedTuple):
    """One answer. Of `n_evidence` pieces of evidence `n_found` were retrieved or shown (None:
    nobody noted it); `declines`: it says that it does not know. The values of
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
    for batch in records.to_batches(columns=list(_COLUMNS), batch_size=1024):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            if row["unit_id"] not in seen:
                seen.add(row["unit_id"])
                yield _to_answer(row)


def _to_answer(row: Mapping[str, Any]) -> Answer:
    metadata = json.loads(row["metadata"] or "{}")
    sample = Sample.model_construct(
        id=row["sample_id"],
        suite=row["suite"] or "",
        task=row["task"] or "",
        query="-",
        answers=tuple(row["answers"] or ()),
        metadata=metadata,
    )
    scores = [
        one
        for one in row["scores"] or ()
        if one["value"] is not None
        and not any(name in FALLBACKS for name in (one["judge"] or "").split(JURORS))
    ]
    evidence = metadata.get("evidence") or []
    try:
        found = found_evidence(sample) if evidence else None
    except ValueError:  # evidence_recall says it of the answer
        found = None
    return Answer(
        sample=sample,
        candidate=candidate_from_json(row["candidate_config"]),
        scored=Answered(
            sample.task,
            metadata.get("unanswerable") is True,
            {one["metric"]: one["value"] for one in scores},
            {one["metric"]: one["parts"] or {} for one in scores},
        ),
        estimated=tuple(one["metric"] for one in scores if is_estimate(one["judge"] or "")),
        conversation=str(metadata.get("conversation") or row["sample_id"]),
        n_evidence=len(evidence),
        n_found=None if found is None else len(found),
        declines=says_unknown(row["response"] or ""),
        has_error=row["error"] is not None,
        prompt_tokens=row["prompt_tokens"],
        output_tokens=row["output_tokens"],
        seconds=row["duration_s"],
        sessions_left_out=int(metadata.get("sessions_left_out") or 0),
        turns_left_out=int(metadata.get("turns_left_out") or 0),
    )

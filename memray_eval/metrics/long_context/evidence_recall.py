"""Recall of the evidence: how much of what the answer rests on was retrieved, or stood in the
prompt.

Pieces of evidence found / all pieces. Of the arm `retrieved`, and of responses with a `retrieved`
list of their own, found is what is among its k items: the turn, or the session it stands in; of a
whole session any item that names it. Of the other arms it is what stood in the prompt after it was
cut to the window; of a memory what its store returned, by content (stores/memories.py). Not
applicable where a question names no evidence, or nobody noted what was shown. An empty response
counts as any."""

from collections.abc import Mapping

from memray_eval.benchmarks.conversations import EVIDENCE, RETRIEVED, evidence_of, retrieved_ids
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.types import Response, Sample
from memray_eval.types.samples import MEMORY

FOUND, PIECES = "found", "pieces"
SHOWN = "evidence_shown"


def found_evidence(sample: Sample) -> list[int] | None:
    """Which pieces of the evidence were found, by their numbers; None where nobody noted it.
    Raises ValueError for evidence or `retrieved` that cannot be read."""
    evidence = evidence_of(sample)
    retrieved = sample.metadata.get(RETRIEVED)
    if isinstance(noted := sample.metadata.get(MEMORY), dict) and {"found", "tools"} & noted.keys():
        return noted.get("found")
    if isinstance(retrieved, list):
        ids = {*retrieved_ids(retrieved)} - {""}
        sessions = {str(item.get("session")) for item in retrieved if isinstance(item, Mapping)}
        if ids or not retrieved:
            return [
                number
                for number, (turn, session) in enumerate(evidence)
                if turn in ids
                or session in ids
                or (not turn and session in sessions)
                or (not turn and any(id_.startswith(f"{session}:") for id_ in ids))
            ]
    shown = sample.metadata.get(SHOWN)
    return list(shown) if isinstance(shown, list) else None


def applies(sample: Sample) -> str | None:
    if not sample.metadata.get(EVIDENCE):
        return "the question names no evidence"
    if found_evidence(sample) is None:
        return "nobody noted what was retrieved: give `retrieved`, a list of ids"
    return None


def measure(sample: Sample, response: Response) -> MetricValue:
    hits, pieces = found_evidence(sample) or [], len(sample.metadata[EVIDENCE])
    return MetricValue(len(hits) / pieces, {FOUND: float(len(hits)), PIECES: float(pieces)})


METRIC = ComputedMetric(
    title="EVIDENCE RECALL",
    value_label="Recall",
    scale=(0, 1),
    measure=measure,
    applies=applies,
    parts=(FOUND, PIECES),
)

"""The embed stage: embedded metrics, and offline estimates that compare paraphrases. One embedding call for a whole batch."""

from __future__ import annotations

from collections.abc import Sequence

from memray_eval.errors import EmbeddingError
from memray_eval.metric import RULES, EmbeddedMetric, JudgedMetric, Metric, score_by_rules, score_by_vectors
from memray_eval.ports import Embedder, Vectors
from memray_eval.types import Record, Response, Score


async def embed_records(records: Sequence[Record], metrics: Sequence[Metric], embedder: Embedder) -> list[Record]:
    """The records with a score for each of the metrics that they have none for. If the embedding call fails, those scores are
    errors."""
    texts = sorted({text for record in records for metric in _missing(record, metrics) for text in _texts(record, metric)})
    try:
        vectors: Vectors = dict(zip(texts, await embedder.embed(texts), strict=True)) if texts else {}
    except EmbeddingError as error:
        failed = {m.name: Score(metric=m.name, status="error", judge=embedder.name, error=str(error)) for m in metrics}
        return [_with(record, [failed[metric.name] for metric in _missing(record, metrics)]) for record in records]
    return [_scored(record, metrics, vectors, embedder.name) for record in records]


def _texts(record: Record, metric: Metric) -> Sequence[str]:
    response = record.response
    if response is None or response.error is not None or response.is_empty:
        return ()
    if isinstance(metric, EmbeddedMetric):
        return metric.texts(record.sample, response)
    if isinstance(metric, JudgedMetric) and metric.rules_texts is not None:
        return metric.rules_texts(record.sample, response)
    return ()


def _scored(record: Record, metrics: Sequence[Metric], vectors: Vectors, embedder: str) -> Record:
    response = record.response or Response(error="not generated")
    return _with(record, [_score(record, response, metric, vectors, embedder) for metric in _missing(record, metrics)])


def _missing(record: Record, metrics: Sequence[Metric]) -> list[Metric]:
    there = {score.metric for score in record.scores}
    return [metric for metric in metrics if metric.name not in there]


def _with(record: Record, scores: Sequence[Score]) -> Record:
    return record.model_copy(update={"scores": (*record.scores, *scores)})


def _score(record: Record, response: Response, metric: Metric, vectors: Vectors, embedder: str) -> Score:
    if isinstance(metric, EmbeddedMetric):
        return score_by_vectors(metric, record.sample, response, vectors, embedder)
    assert isinstance(metric, JudgedMetric)
    return score_by_rules(metric, record.sample, response, vectors, f"{RULES}+{embedder}")

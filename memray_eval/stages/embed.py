"""The embed stage: scores embedded metrics and estimates by paraphrases, a call for each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memray_eval.errors import EmbeddingError, describe_error
from memray_eval.metric import (
    RULES,
    EmbeddedMetric,
    JudgedMetric,
    Metric,
    failed_score,
    score_by_rules,
    score_by_vectors,
)
from memray_eval.ports import Embedder, Vectors
from memray_eval.stages.judge import missing_metrics
from memray_eval.types import Record, Response, Score


async def embed_records(
    records: Sequence[Record], metrics: Sequence[Metric], embedder: Embedder
) -> list[Record]:
    """Adds a score for each metric that a record has none for; an error if the embedding call
    fails. After anything but an EmbeddingError each record is tried alone."""
    wanted = [collect_texts(record, metrics) for record in records]
    texts = sorted(set().union(*map(distinct_texts, wanted)))
    try:
        vectors: Vectors = (
            dict(zip(texts, await embedder.embed(texts), strict=True)) if texts else {}
        )
    except EmbeddingError as error:
        return [_fail_missing(record, metrics, str(error), embedder.name) for record in records]
    except Exception as error:
        if len(records) == 1:
            return [_fail_missing(records[0], metrics, describe_error(error), embedder.name)]
        alone = [await embed_records([record], metrics, embedder) for record in records]
        return [scored for [scored] in alone]
    return [
        _add_scores(record, metrics, texts_of, vectors, embedder.name)
        for record, texts_of in zip(records, wanted, strict=True)
    ]


def distinct_texts(by_metric: Mapping[str, list[str] | Score]) -> set[str]:
    """The texts of what `collect_texts` found."""
    return {text for texts in by_metric.values() if not isinstance(texts, Score) for text in texts}


def collect_texts(record: Record, metrics: Sequence[Metric]) -> dict[str, list[str] | Score]:
    """The texts whose vectors each metric needs, or an error score if it could not name them."""
    by_metric: dict[str, list[str] | Score] = {}
    for metric in missing_metrics(record, metrics):
        try:
            texts = list(_texts(record, metric))
            if other := [text for text in texts if not isinstance(text, str)]:
                raise TypeError(
                    f"the metric's texts hold {type(other[0]).__name__}, which is no text"
                )
            by_metric[metric.name] = texts
        except Exception as error:
            by_metric[metric.name] = failed_score(metric, error)
    return by_metric


def _fail_missing(record: Record, metrics: Sequence[Metric], error: str, embedder: str) -> Record:
    return record.with_scores(
        Score(metric=metric.name, status="error", judge=embedder, error=error)
        for metric in missing_metrics(record, metrics)
    )


def _texts(record: Record, metric: Metric) -> Sequence[str]:
    response = record.response
    if response is None or response.error is not None or response.is_empty:
        return ()
    if isinstance(metric, EmbeddedMetric):
        return metric.texts(record.sample, response)
    if isinstance(metric, JudgedMetric) and metric.estimate and metric.estimate.texts:
        return metric.estimate.texts(record.sample, response)
    return ()


def _add_scores(
    record: Record,
    metrics: Sequence[Metric],
    texts_by_metric: Mapping[str, list[str] | Score],
    vectors: Vectors,
    embedder: str,
) -> Record:
    sample, response = record.sample, record.response or Response(error="not generated")
    scores = []
    for metric in missing_metrics(record, metrics):
        texts = texts_by_metric[metric.name]
        if isinstance(texts, Score):
            scores.append(texts)
        elif isinstance(metric, EmbeddedMetric):
            scores.append(score_by_vectors(metric, sample, response, vectors, embedder))
        else:
            assert isinstance(metric, JudgedMetric)
            rules = f"{RULES}+{embedder}"
            scores.append(score_by_rules(metric, sample, response, vectors, rules))
    return record.with_scores(scores)

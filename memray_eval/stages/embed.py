"""The embed stage: embedded metrics, and offline estimates that compare paraphrases. One embedding
call for a whole batch."""

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
from memray_eval.types import Record, Response, Score


async def embed_records(
    records: Sequence[Record], metrics: Sequence[Metric], embedder: Embedder
) -> list[Record]:
    """The records with a score for each of the metrics that they have none for. If the embedding
    call fails, those scores are errors; if it fails in a way that no embedder should, each record
    is tried alone, for one odd text may be the reason."""
    wanted = [_collect_texts(record, metrics) for record in records]
    texts = sorted(
        {
            text
            for asked in wanted
            for found in asked.values()
            if not isinstance(found, Score)
            for text in found
        }
    )
    try:
        vectors: Vectors = (
            dict(zip(texts, await embedder.embed(texts), strict=True)) if texts else {}
        )
    except EmbeddingError as error:
        return [_fail_missing(record, metrics, str(error), embedder.name) for record in records]
    except Exception as error:
        if len(records) == 1:
            return [_fail_missing(records[0], metrics, describe_error(error), embedder.name)]
        return [
            one for record in records for one in await embed_records([record], metrics, embedder)
        ]
    return [
        _add_scores(record, metrics, asked, vectors, embedder.name)
        for record, asked in zip(records, wanted, strict=True)
    ]


def _collect_texts(record: Record, metrics: Sequence[Metric]) -> dict[str, list[str] | Score]:
    """By metric the texts whose vectors it wants, or the score that it has because it could not
    say."""
    found: dict[str, list[str] | Score] = {}
    for metric in _missing_metrics(record, metrics):
        try:
            texts = list(_texts(record, metric))
            if other := [text for text in texts if not isinstance(text, str)]:
                raise TypeError(
                    f"the metric's texts hold {type(other[0]).__name__}, which is no text"
                )
            found[metric.name] = texts
        except Exception as error:
            found[metric.name] = failed_score(metric, error)
    return found


def _fail_missing(record: Record, metrics: Sequence[Metric], error: str, embedder: str) -> Record:
    missing = _missing_metrics(record, metrics)
    return _with(
        record, [Score(metric=m.name, status="error", judge=embedder, error=error) for m in missing]
    )


def _texts(record: Record, metric: Metric) -> Sequence[str]:
    response = record.response
    if response is None or response.error is not None or response.is_empty:
        return ()
    if isinstance(metric, EmbeddedMetric):
        return metric.texts(record.sample, response)
    if isinstance(metric, JudgedMetric) and metric.rules_texts is not None:
        return metric.rules_texts(record.sample, response)
    return ()


def _add_scores(
    record: Record,
    metrics: Sequence[Metric],
    asked: Mapping[str, list[str] | Score],
    vectors: Vectors,
    embedder: str,
) -> Record:
    response, scores = record.response or Response(error="not generated"), []
    for metric in _missing_metrics(record, metrics):
        texts = asked[metric.name]
        scores.append(
            texts
            if isinstance(texts, Score)
            else _score(record, response, metric, vectors, embedder)
        )
    return _with(record, scores)


def _missing_metrics(record: Record, metrics: Sequence[Metric]) -> list[Metric]:
    there = {score.metric for score in record.scores}
    return [metric for metric in metrics if metric.name not in there]


def _with(record: Record, scores: Sequence[Score]) -> Record:
    return record.model_copy(update={"scores": (*record.scores, *scores)})


def _score(
    record: Record, response: Response, metric: Metric, vectors: Vectors, embedder: str
) -> Score:
    if isinstance(metric, EmbeddedMetric):
        return score_by_vectors(metric, record.sample, response, vectors, embedder)
    assert isinstance(metric, JudgedMetric)
    return score_by_rules(metric, record.sample, response, vectors, f"{RULES}+{embedder}")

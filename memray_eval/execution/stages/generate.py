"""The generate stage: units of samples and candidates, Responses of their answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.errors import EmbeddingError, EvalError, describe_error
from memray_eval.execution.stages.judge import missing_metrics
from memray_eval.metric import (
    RULES,
    EmbeddedMetric,
    JudgedMetric,
    Metric,
    failed_score,
    score_by_rules,
    score_by_vectors,
)
from memray_eval.ports import Embedder, Generator, Vectors
from memray_eval.text_processing.thinking import split_thinking
from memray_eval.types import RETRIED, Candidate, Prompt, Record, Response, Sample, Score, unit_id


def new_record(sample: Sample, candidate: Candidate, epoch: int = 1) -> Record:
    """Makes the unit of a sample, a candidate and an epoch, without the sample's context."""
    bare = sample.model_copy(update={"context": None})
    unit = unit_id(sample.id, candidate, sample.suite, epoch)
    return Record(unit_id=unit, sample=bare, candidate=candidate, epoch=epoch)


async def generate(
    prompt: Prompt, candidate: Candidate, truncated_tokens: int | None, generator: Generator
) -> Response:
    """Asks a candidate; once more with its `retry_max_tokens`, if it has one and the limit was used
    up without an answer. An exception that the client did not foresee becomes the error."""

    async def ask(variant: Candidate) -> Response:
        try:
            return await generator.generate(prompt, variant)
        except EvalError:
            raise
        except Exception as error:
            return Response(error=describe_error(error))

    response, limit = await ask(candidate), candidate.retry_max_tokens
    if limit is not None and response.no_answer in RETRIED:
        sampling = candidate.sampling.model_copy(update={"max_tokens": limit})
        second = await ask(candidate.model_copy(update={"sampling": sampling}))
        response = response.asked_again(second, limit)
    return response.model_copy(update={"truncated_tokens": truncated_tokens})


def engine_response(row: Mapping[str, Any]) -> Response:
    """Converts an engine's answer, in the row that asked for it, to a Response. Time to first token
    counts from the request's arrival in the engine; duration adds the decoding after it."""
    prompt = {name: row.get(name) for name in ("prompt_form", "truncated_tokens")}
    if failed := row.get("__inference_error__"):
        return Response(error=f"the engine refused the prompt: {failed}", **prompt)
    metrics = row.get("metrics") or {}
    ttft_s = metrics.get("first_token_latency")
    decode_s = (metrics.get("last_token_ts") or 0.0) - (metrics.get("first_token_ts") or 0.0)
    duration_s = None if ttft_s is None else ttft_s + decode_s
    arrived_s = metrics.get("arrival_time")  # the one time of them that is of the wall clock
    return Response(
        **split_thinking(row["generated_text"])._asdict(),
        finish_reason=row["finish_reason"],
        prompt_tokens=int(row["num_input_tokens"]),
        cached_tokens=row["num_cached_tokens"],
        output_tokens=len(row["generated_tokens"]),
        ttft_s=ttft_s,
        duration_s=duration_s,
        ended_s=arrived_s + duration_s if arrived_s and duration_s is not None else None,
        **prompt,
    ).with_cause()


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

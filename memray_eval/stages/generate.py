"""The generate stage: units of samples and candidates, Responses of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.errors import EvalError, describe_error
from memray_eval.ports import Generator
from memray_eval.text_processing.thinking import split_thinking
from memray_eval.types import RETRIED, Candidate, Prompt, Record, Response, Sample, unit_id


def new_record(sample: Sample, candidate: Candidate, epoch: int = 1) -> Record:
    """Makes the unit of a sample, a candidate and an epoch. It leaves out the sample's context,
    which nothing needs once the prompt is built."""
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
    """Converts a row of the vLLM stage (see execution/ray/engine.py) to a Response. Time to first
    token counts from the request's arrival in the engine; duration adds the decoding after it."""
    prompt = {"prompt_form": row["prompt_form"], "truncated_tokens": row["truncated_tokens"]}
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

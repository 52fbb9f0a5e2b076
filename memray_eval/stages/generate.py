"""The generate stage: a sample becomes the unit that asks a candidate, and the candidate's answer a
Response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.errors import EvalError, describe_error
from memray_eval.ports import Generator
from memray_eval.types import Candidate, Prompt, Record, Response, Sample, split_thinking, unit_id


def new_record(sample: Sample, candidate: Candidate) -> Record:
    """The unit of a sample and a candidate, without the sample's context: after the prompt is built
    nothing needs it."""
    bare = sample.model_copy(update={"context": None})
    return Record(
        unit_id=unit_id(sample.id, candidate, sample.suite), sample=bare, candidate=candidate
    )


async def generate(
    record: Record, prompt: Prompt, truncated_tokens: int | None, generator: Generator
) -> Record:
    """The record with the candidate's answer. Whatever a client did not foresee is the answer's
    error."""
    try:
        response = await generator.generate(prompt, record.candidate)
    except EvalError:
        raise
    except Exception as error:
        response = Response(error=describe_error(error))
    return record.model_copy(
        update={"response": response.model_copy(update={"truncated_tokens": truncated_tokens})}
    )


def engine_response(row: Mapping[str, Any]) -> Response:
    """What the vLLM stage left in a row (see execution/ray/engine.py), as a Response. Time to first
    token counts from the request's arrival in the engine; duration adds the decoding after it."""
    asked = {"prompt_form": row["prompt_form"], "truncated_tokens": row["truncated_tokens"]}
    if failed := row.get("__inference_error__"):
        return Response(error=f"the engine refused the prompt: {failed}", **asked)
    metrics = row.get("metrics") or {}
    ttft_s = metrics.get("first_token_latency")
    decode_s = (metrics.get("last_token_ts") or 0.0) - (metrics.get("first_token_ts") or 0.0)
    spoken = split_thinking(row["generated_text"])
    return Response(
        text=spoken.text,
        thinking=spoken.thinking,
        thinking_blocks=spoken.blocks,
        finish_reason=row["finish_reason"],
        prompt_tokens=int(row["num_input_tokens"]),
        cached_tokens=row["num_cached_tokens"],
        output_tokens=len(row["generated_tokens"]),
        ttft_s=ttft_s,
        duration_s=None if ttft_s is None else ttft_s + decode_s,
        **asked,
    )

"""The generate stage: a sample becomes the unit that asks a candidate, and the candidate's answer a Response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memray_eval.ports import Generator
from memray_eval.types import Candidate, Message, Record, Response, Sample, unit_id


def new_record(sample: Sample, candidate: Candidate) -> Record:
    """The unit of a sample and a candidate, without the sample's context: after the prompt is built nothing needs it."""
    bare = sample.model_copy(update={"context": None})
    return Record(unit_id=unit_id(sample.id, candidate, sample.suite), sample=bare, candidate=candidate)


async def generate(record: Record, messages: tuple[Message, ...], generator: Generator) -> Record:
    return record.model_copy(update={"response": await generator.generate(messages, record.candidate)})


def engine_response(
    row: Mapping[str, Any], candidate: Candidate, stop_ids: frozenset[int], max_model_len: int | None
) -> Response:
    """What Ray Data LLM's vLLM stage left in a row, as a Response.

    The stage keeps no finish reason: it is `length` when the model said all that max_tokens or its context window allows
    and its last token is none of `stop_ids`, else `stop`. Time to first token counts from the request's arrival in the
    engine; duration adds the decoding after it.
    """
    if failed := row.get("__inference_error__"):
        return Response(error=f"the engine refused the prompt: {failed}")
    tokens = [int(token) for token in row["generated_tokens"]]
    prompt_tokens = int(row["num_input_tokens"])
    metrics = row.get("metrics") or {}
    ttft_s = metrics.get("first_token_latency")
    decode_s = (metrics.get("last_token_ts") or 0.0) - (metrics.get("first_token_ts") or 0.0)
    room = candidate.sampling.max_tokens if max_model_len is None else max_model_len - prompt_tokens
    cut = len(tokens) >= min(candidate.sampling.max_tokens, room) and not (tokens and tokens[-1] in stop_ids)
    return Response(
        text=row["generated_text"],
        finish_reason="length" if cut else "stop",
        prompt_tokens=prompt_tokens,
        output_tokens=len(tokens),
        ttft_s=ttft_s,
        duration_s=None if ttft_s is None else ttft_s + decode_s,
    )

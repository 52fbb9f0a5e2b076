"""What the openai SDK returns and raises, in this project's types: for judges, candidates and
embeddings alike."""

from __future__ import annotations

from typing import Any

import openai

from memray_eval.errors import JudgeError
from memray_eval.provider_http.replies import Edge, HttpReply


def edge_for(client: openai.AsyncOpenAI) -> Edge:
    return Edge(str(client.base_url), client.api_key)


def to_http_reply(response: Any) -> HttpReply:
    """What the SDK's raw response holds."""
    return HttpReply(response.http_response.status_code, response.http_response.content)


def to_judge_error(client: openai.AsyncOpenAI, error: BaseException) -> JudgeError:
    """Whatever the SDK raised, as ours; ours as they are."""
    if isinstance(error, JudgeError):
        return error
    if isinstance(error, openai.APIStatusError):
        answer = error.response
        return edge_for(client).refusal(
            error.status_code, answer.headers.get("retry-after"), answer.content
        )
    return edge_for(client).lost(error)

"""Servers as people have them, over the wire: what they refuse and in which words, and what they do
to an answer."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from memray_eval.config.sections import ServerConfig
from memray_eval.errors import (
    Declined,
    JudgeError,
    NotWhole,
    QuotaExhausted,
    TooLong,
    Truncated,
    Unauthorised,
    UnknownModel,
)
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.ports import Verdict
from memray_eval.provider_http import closing_clients
from memray_eval.provider_http.parameters import ParameterBook, ParameterNegotiator, room_left
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.types import Candidate, Message, Prompt, Response
from tests.fake_judges import Slept, judge_behind, unlimited
from tests.servers.no_answers import reply_with
from tests.servers.provider import Raw, serving
from tests.wire.test_candidates import ask
from tests.wire.test_environment import Rating

VERDICT = {"score": 4}
TERMINATED = "Your access was terminated due to violation of our policies, please check your email"
TOO_LARGE = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 45210."
THINKS = {"function": {"name": "think", "arguments": '{"thought": "Hm."}'}}
SEVERAL = [
    {"index": number, "message": {"content": text}, "finish_reason": "stop"}
    for number, text in ((1, "other"), (0, "said"))
]
ECHO = str([{"msg": "Odd", "input": {"content": "My unsafe daily limit", "n": 0}, "url": "u"}])
LONG = "The note of the day says little. " * 1200


def refusal(message: str, status: int = 400, **more: Any) -> Raw:
    return Raw(json.dumps({"error": {"message": message, **more}}).encode(), status)


def whole(
    content: Any, finish: str = "stop", tokens: int = 50, cached: int = 0, **fields: Any
) -> Raw:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    usage = {"prompt_tokens": tokens, "completion_tokens": 5, **details}
    return reply_with({"content": content, **fields}, finish, usage, streams=False)


def judged(reply: Callable[[dict[str, Any]], Any], text: str = "Good?", **parameters: Any) -> Any:
    """The outcomes of three calls, one after the other, the requests, and what the run was told."""
    lines = list[str]()

    async def ask(url: str) -> list[Any]:
        async with closing_clients():
            negotiator = ParameterNegotiator("m", ParameterBook(lines.append))
            slept = RetryPolicy(tries=2, sleep=Slept().sleep)
            access = unlimited(slept, parameters=negotiator)
            spec = JudgeSpec(name="openai/m", model="m", base_url=url, parameters=parameters)
            judge = judge_behind("openai", spec, access)
            ends = list[Any]()
            for number in range(3):
                messages = (Message(role="user", content=f"{text} {number}"),)
                ends += await asyncio.gather(judge.judge(messages, Rating), return_exceptions=True)
            return ends

    with serving(reply) as server:
        ends = asyncio.run(ask(server.base_url))
        return ends, list(server.requests), lines


def form_of(body: dict[str, Any]) -> str:
    if "tools" in body:
        return "tool"
    return str(body.get("response_format", {}).get("type", "words"))


def called(body: dict[str, Any]) -> Raw:
    function = {"name": "Rating", "arguments": json.dumps(VERDICT)}
    tool = form_of(body) == "tool"
    return whole(None, tool_calls=[{"function": function}]) if tool else whole(json.dumps(VERDICT))


@pytest.mark.parametrize(
    "refused",
    [
        refusal("This response_format type is unavailable now", code="invalid_request_error"),
        refusal("No endpoints found that can handle the requested parameters.", 404, code=404),
        refusal("Failed to initialize samplers: failed to parse grammar", 500, code=500),
        refusal("Unknown name 'x' at 'generation_config.response_schema': Cannot find field"),
        refusal("this model does not support tools: output_config.format"),
        Raw(b'{"detail": [{"loc": ["body", "response_format", "type"], "msg": "odd"}]}', 422),
    ],
)
@pytest.mark.parametrize("taken", ["json_object", "tool", "words"])
def test_the_form_of_a_verdict_that_a_server_takes_is_found_once(refused: Raw, taken: str) -> None:
    ends, requests, lines = judged(lambda body: called(body) if form_of(body) == taken else refused)
    assert [end.judgment.score for end in ends] == [4] * 3
    forms = ["json_schema", "json_object", "tool", "words"]
    assert [form_of(body) for body in requests] == [*forms[: forms.index(taken)], *[taken] * 3]
    assert lines[-1].endswith(f"it is asked by {taken}.")
    assert '"score"' in requests[-1]["messages"][0]["content"]


def test_a_job_may_set_the_form_of_a_verdict() -> None:
    ends, requests, lines = judged(called, response_format={"type": "json_object"})
    assert [form_of(body) for body in requests] == ["json_object"] * 3
    assert ([end.judgment.score for end in ends], lines) == ([4] * 3, [])


@pytest.mark.parametrize(
    "words",
    [
        "parameter.enable_thinking must be set to false for non-streaming calls",
        "This model only support stream mode, please enable the stream parameter.",
        "stream must be set to true",
        "This endpoint is streaming-only",
        "当前模型仅支持流式调用",
        "Requests with max_tokens > 1024 must have stream=true",
        "Unsupported value: 'stream' does not support false with this model.",
    ],
)
def test_what_wants_a_stream_is_streamed(words: str) -> None:
    message = {"content": json.dumps(VERDICT), "reasoning_content": "Hm."}
    streamed = reply_with(message, "stop", {}, streams=True)
    ends, requests, lines = judged(lambda body: streamed if "stream" in body else refusal(words))
    assert [end.judgment.score for end in ends] == [4] * 3
    assert (len(requests), len(lines)) == (4, 1)


@pytest.mark.parametrize(
    "reply",
    [
        whole("", reasoning_content=f"Hm. {json.dumps(VERDICT)}"),
        whole(None, reasoning=json.dumps(VERDICT)),
        whole("Done.", reasoning_content=repr(VERDICT)),
        whole("", reasoning_text=json.dumps(VERDICT)),
        whole("", reasoning_details=[{"type": "reasoning.text", "text": json.dumps(VERDICT)}]),
        whole("", thinking_blocks=[{"type": "thinking", "thinking": json.dumps(VERDICT)}]),
        whole(f"<think>{json.dumps(VERDICT)}</think>"),
        whole(None, function_call={"name": "Rating", "arguments": json.dumps(VERDICT)}),
        whole("Here it is.", tool_calls=[THINKS, {"function": {"arguments": VERDICT}}]),
        whole(json.dumps(VERDICT), tool_calls=[THINKS]),
        Raw(b": PROCESSING\n\n" + bytes(whole(json.dumps(VERDICT)).body)),
        whole(VERDICT),
        whole(json.dumps(json.dumps(VERDICT))),
        whole('{"Score": 4}'),
        whole('{"score": 4  // of 5\n}'),
        whole('{"score": 4'),
        whole(json.dumps({"result": VERDICT})),
        whole(json.dumps([{"verdict": VERDICT}])),
        whole(json.dumps({"type": "object", "properties": VERDICT})),
        whole(json.dumps({"name": "Rating", "arguments": json.dumps(VERDICT)})),
        whole("{'score': 4, 'sure': true, 'why': None}"),
        whole('```json\n{"score": 4,}\n```'),
        whole('{"score": "4"}'),
        whole(json.dumps(VERDICT), tokens=600, cached=9300),  # counted apart from the prompt's
        refusal("no JSON", code="json_validate_failed", failed_generation=json.dumps(VERDICT)),
    ],
)
def test_a_verdict_is_read_wherever_it_stands(reply: Raw) -> None:
    ends, requests, _ = judged(lambda body: reply, LONG)
    assert [end.judgment.score for end in ends] == [4] * 3
    assert len(requests) == 3


@pytest.mark.parametrize(
    "slip",
    [
        refusal("Failed to validate JSON", code="json_validate_failed", failed_generation="{"),
        refusal("Failed to generate valid JSON"),
        refusal("1 validation error for ValidatorIterator: Invalid JSON: EOF while parsing"),
        refusal("Request failed during generation", 424),
    ],
)
def test_json_that_the_provider_refuses_is_asked_for_again(slip: Raw) -> None:
    left = [slip]
    ends, requests, _ = judged(lambda body: left.pop() if left else called(body))
    assert [end.judgment.score for end in ends] == [4] * 3
    assert requests[0] == requests[1]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refusal("filtered", code="content_filter"), Declined),
        (refusal("your prompt was flagged", code="invalid_prompt"), Declined),
        (refusal("Your input was flagged. No credits were charged.", 403, code=403), Declined),
        (refusal("Content Exists Risk"), Declined),
        (refusal("Prompt contains unsafe content"), Declined),
        (refusal("Request blocked: prompt injection detected", 403), Declined),
        (refusal("The guardrail checks failed", 446), Declined),
        (
            refusal("odd", metadata={"raw": '{"message": "filtered: content management policy"}'}),
            Declined,
        ),
        (refusal("You have been blocked by Cloudflare", 403), Unauthorised),
        *(
            (refusal(TERMINATED, status, code="access_terminated"), Unauthorised)
            for status in (400, 401, 403, 429)
        ),
        (refusal(TERMINATED), Unauthorised),
        (refusal("This organization has been disabled."), Unauthorised),
        (refusal("Organization has been restricted. Please reach out to support."), Unauthorised),
        (refusal("This key is associated with a deactivated account.", 401), Unauthorised),
        (refusal("Your account is flagged for potential abuse. Contact support."), Unauthorised),
        (refusal("Your account has been disabled for violation of our Terms", 403), Unauthorised),
        (refusal("账号因违规已被封禁", 403), Unauthorised),
        (refusal("Odd messages: " + LONG[:200] + "My account was suspended."), JudgeError),
        (refusal("This prompt was blocked for violation of our policies"), Declined),
        (refusal("The account name in the prompt was flagged"), Declined),
        (refusal(TOO_LARGE, 429, code="rate_limit_exceeded"), JudgeError),
        (refusal(TOO_LARGE, 413, code="rate_limit_exceeded"), JudgeError),
        (refusal("Request too large: the prompt is too long", 413), TooLong),
        (
            refusal("input token count (9) exceeds the maximum number of tokens allowed (3)"),
            TooLong,
        ),
        (refusal("Your weekly usage limit is reached", 429), QuotaExhausted),
        (refusal("Key limit exceeded (total limit)", 403), QuotaExhausted),
        (Raw(b'{"error": "Monthly limit of this key is reached"}', 429), QuotaExhausted),
        (refusal("prompt is too long: 210000 tokens > 200000 maximum"), TooLong),
        (refusal("maximum context length is 300 tokens; 900 tokens in the messages"), TooLong),
        (refusal("Rate limit exceeded: free-models-per-day. Add credits", 429), QuotaExhausted),
        (refusal("suspended", 429, type="exceeded_current_quota_error"), QuotaExhausted),
        (refusal("your account balance is insufficient", 403), QuotaExhausted),
        (refusal("A Trial key is limited to 1000 API calls / month.", 429), QuotaExhausted),
        (refusal("You have reached your specified API usage limits."), QuotaExhausted),
        (refusal("用户额度不足", 403, code="insufficient_user_quota"), QuotaExhausted),
        (refusal("该令牌额度已用尽", 401), QuotaExhausted),
        (refusal("It has an overdue balance", 403, code="AccountOverdueError"), QuotaExhausted),
        (refusal("Account m is suspended: monthly spending limit", 412), QuotaExhausted),
        (refusal("Your prepayment credits are depleted.", 429), QuotaExhausted),
        (refusal("Rate limit of 50 per 86400s exceeded", 429, details="50"), QuotaExhausted),
        (refusal("今日调用次数已达上限", 429), QuotaExhausted),
        (refusal("API key not valid. Please pass a valid API key."), Unauthorised),
        (refusal("Model Not Exist"), UnknownModel),
        (refusal("m is only supported in v1/responses", 404), UnknownModel),
        (refusal("Odd. Please use /v1/responses instead"), JudgeError),
        (refusal("array content is not allowed"), JudgeError),
        (refusal("参数违反约束"), JudgeError),
        (refusal("No endpoints available matching your data policy", 404), JudgeError),
        (refusal("内容安全审核不通过"), Declined),
        (refusal("Your request contains harmful content", 403), Declined),
        (refusal("maximum prompt length is 3000 but the request contains 3500 tokens"), TooLong),
        (refusal("Input validation error: `inputs` must have less than 9 tokens"), TooLong),
        (refusal("The prompt is too long: 3500, model maximum context length: 3000"), TooLong),
        (refusal("Range of input length should be [1, 2000]"), TooLong),
        (refusal("Prompt 超长", code="1261"), TooLong),
        (refusal(ECHO), JudgeError),
        (refusal("Odd [type=odd, input_value={'a': 'unsafe'}, input_type=dict]"), JudgeError),
        (Raw(b'{"error": {"code": "data_inspection_failed", "message": "m"}}'), Declined),
        (whole("", "safety"), Declined),
        (whole("", "FinishReason.IMAGE_SAFETY"), Declined),
        (whole("", "content-filter"), Declined),
        (refusal("No endpoints found matching your data policy", 404), JudgeError),
        (whole(json.dumps(VERDICT), "error"), NotWhole),
        *((whole('{"sc', end), Truncated) for end in ("MAX_TOKENS", "ERROR_LIMIT", "length")),
        (whole('{"score": 1}', tokens=4096), TooLong),  # of a prompt that is longer
    ],
)
def test_what_can_not_be_judged_has_an_outcome_of_its_own(reply: Raw, kind: Any) -> None:
    ends, requests, _ = judged(lambda body: reply, LONG)
    assert [type(end) for end in ends] == [kind] * 3
    assert len(requests) == 3 * (2 if kind is NotWhole else 1)


@pytest.mark.parametrize(
    ("words", "room"),
    [
        ("'max_tokens' is too large: 2048. This model's maximum context length is 3000 tokens and "
         "your request has 2500 input tokens (2048 > 3000 - 2500).", 500),
        ("maximum context length is 3000 tokens. However, you requested 4548 tokens (2500 in the "
         "messages, 2048 in the completion).", 500),
        ("maximum context length of 3000 tokens. You requested a total of 4548 tokens.", 500),
        ("input length and `max_tokens` exceed context limit: 2500 + 2048 > 3000", 500),
        ("`inputs` tokens + `max_new_tokens` must be <= 3000. Given: 2500 `inputs` tokens and "
         "2048 `max_new_tokens`", 500),
        ("maximum context length is 3000 tokens. However, you requested 2048 output tokens and "
         "your prompt contains at least 953 input tokens", 1024),
        ("maximum context length is 3000 tokens, your request has 3500 input tokens", None),
        ("maximum context length is 3000 tokens, your request has 2995 input tokens", None),
        ("The total of tokens (prompt: 2,500, max_tokens: 2,048) exceeds the limit of 3,000", 500),
        ("max_tokens is too large: 2048. This model supports at most 512 completion tokens", 512),
        ("max_tokens (2048) exceeds the maximum allowed (512)", 512),
        ("Unsupported parameter: 'max_tokens' is not supported with this model", None),
        ("request (3524 tokens) exceeds the available context size (3000 tokens)", None),
        ("maximum context length is 3000 tokens", None),
        ("temperature must be at most 2", None),
        ("<400> InvalidParameter: Range of max_tokens should be [1, 1024]", 1024),
        ("max_tokens参数非法：取值范围[1,1024]", 1024),
        ("The maximum tokens you requested exceeds the model limit of 1024", 1024),
        ("maxOutputTokens is 2048 but the supported range is from 1 (inclusive) to 1025 "
         "(exclusive)", 1024),
        ("max_tokens=2048 cannot be greater than max_model_len=max_total_tokens=1500.", 750),
        ("Generation length 2048 is not possible! The prompt is 2500 tokens long, which requires "
         "a sequence length of 4548, but the maximum sequence length is just 3000!", 500),
        ("The prompt is too long: 3500, model maximum context length: 3000", None),
        ("The input token count (3500) exceeds the maximum number of tokens allowed (3000)", None),
        ("Range of input length should be [1, 2000]", None),
    ],
)  # fmt: skip
def test_the_room_beside_a_prompt_is_read(words: str, room: int | None) -> None:
    error = JudgeError("400")
    error.words = json.dumps({"error": {"message": words, "code": 400}})
    assert room_left(error, 2048) == room


def test_a_call_past_the_window_gets_the_room_that_is_left() -> None:
    words = "maximum context length is 3000 tokens and your request has 2500 input tokens"
    ends, requests, lines = judged(
        lambda body: refusal(words) if body["max_tokens"] > 500 else called(body)
    )
    assert all(isinstance(end, Verdict) for end in ends)
    assert ([body["max_tokens"] for body in requests][:2], len(lines)) == ([2048, 500], 1)


def answered(reply: Callable[[dict[str, Any]], Any], text: str = LONG) -> tuple[Response, int]:
    prompt = Prompt(messages=(Message(role="user", content=text),), max_tokens=2048)
    with serving(reply) as server:
        return ask(server, prompt=prompt)[0], len(server.requests)


@pytest.mark.parametrize(
    ("reply", "error", "no_answer", "text"),
    [
        (whole("half", "error"), "NotWhole: the answer broke off (finish_reason e", None, "half"),
        (whole("half", "network_error"), "NotWhole: the answer broke off", None, "half"),
        (whole("half", "ABORT"), "NotWhole: the answer broke off", None, "half"),
        (whole("said", tokens=4096), "TooLong: the server read only 4096 tokens", None, "said"),
        (whole("said", tokens=9900), "", None, "said"),
        (whole("said", tokens=40), "", None, "said"),  # those that its cache did not have
        (whole("said", tokens=600, cached=9300), "", None, "said"),
        (whole("half", "content_filter"), "", "content_filter", ""),
        (refusal("your prompt was flagged", code="invalid_prompt"), "", "content_filter", ""),
        (whole("cut", "length"), "", None, "cut"),
        (whole("said", "eos"), "", None, "said"),
        (whole("said", "FinishReason.STOP"), "", None, "said"),
        (whole("half", "MALFORMED_FUNCTION_CALL"), "NotWhole: the answer broke off", None, "half"),
        (whole("half", "something new"), "NotWhole: the answer broke off", None, "half"),
        (whole("half", "ERROR_TOXIC"), "", "content_filter", ""),
        (Raw(json.dumps({"choices": SEVERAL}).encode()), "", None, "said"),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_whole_is_no_answer(
    reply: Raw, error: str, no_answer: str | None, text: str
) -> None:
    response, n_requests = answered(lambda body: reply)
    assert (response.error or "").startswith(error)
    assert bool(response.error) == bool(error)
    assert (response.no_answer, response.text) == (no_answer, text)
    assert n_requests == (2 if "NotWhole" in error else 1)


@pytest.mark.parametrize(
    ("stream", "words"), [(False, "stream must be set to true"), ("auto", "no stream here")]
)
def test_calls_that_are_refused_side_by_side_are_all_asked_otherwise(
    stream: Any, words: str
) -> None:
    """By a server that takes the first call as it is, and all others in one way alone."""

    def reply(body: dict[str, Any]) -> Raw:
        is_taken = len(server.requests) == 1 or ("stream" in body) == (stream is False)
        answer = reply_with({"content": "said"}, "stop", {}, streams="stream" in body)
        return answer if is_taken else refusal(words)

    async def answers(url: str) -> list[Response]:
        candidate = Candidate(name="c", model="m", backend="openai", base_url=url, stream=stream)
        prompt = Prompt(messages=(Message(role="user", content="Why?"),), max_tokens=9)
        async with closing_clients():
            generator = OpenAIGenerator(candidate, ServerConfig())
            first = await generator.generate(prompt, candidate)
            calls = (generator.generate(prompt, candidate) for _ in range(3))
            return [first, *await asyncio.gather(*calls)]

    with serving(reply) as server:
        assert [answer.text for answer in asyncio.run(answers(server.base_url))] == ["said"] * 4


def test_a_candidate_gets_the_room_that_is_left() -> None:
    words = "maximum context length is 3000 tokens and your request has 2500 input tokens"
    response, n_requests = answered(
        lambda body: refusal(words) if body["max_tokens"] > 500 else whole("said")
    )
    assert (response.text, response.error, n_requests) == ("said", None, 2)

"""What a provider's errors say; a used-up quota is told from a rate limit by its codes."""

import json
from typing import Any

import pytest

from memray_eval.errors import JudgeError, QuotaExhausted, Unreadable, cause_of
from memray_eval.provider_http.replies import Edge, HttpReply

RATE = {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}
QUOTA = {
    "message": "You exceeded your current quota",
    "type": "insufficient_quota",
    "code": "insufficient_quota",
}


def google(quota: str) -> dict[str, Any]:
    failure = {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": quota}],
    }
    return {
        "error": {
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
            "message": "quota",
            "details": [failure],
        }
    }


PROMPT = '"My doctor says a daily dose, monthly checks, and no credits left."'
PASSING_LIMITS = [
    "You exceeded your current quota, check your plan and billing details. Please retry in 22.5s.",
    "A Trial key is limited to 40 API calls / minute. You can upgrade (no monthly cap).",
    "Too many requests. Upgrade today for higher limits.",
    "Limit 10000 requests per day reached. Please try again in 864ms.",
    "Rate limit exceeded. Upgrade to Pro to get a higher daily limit.",
    "Rate limit exceeded: free-models-per-min. Add credits to unlock 1000 requests per day",
    "Rate limit: 20 requests per minute and 1000 per day",
    "RPM 10 reached (daily limit 1500).",
    "max concurrency: 1, please try again after 1 seconds; see monthly plans",
    "Rate limited. See https://docs.test/usage-limits for your daily limits.",
    "Slow down. https://docs.test/daily says more",
    "请求过于频繁，每分钟限3次，当日上限1000",
    f"Too many requests for {PROMPT}",
    "Too many requests. prompt: my daily limit of coffee",
]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (429, QUOTA, "429 insufficient_quota"),
        (429, {"error": QUOTA}, "429 insufficient_quota"),
        (429, {"code": None, "type": "billing_not_active"}, "429 billing_not_active"),
        (400, {"code": "billing_hard_limit_reached"}, "400 billing_hard_limit_reached"),
        (
            400,
            {"type": "error", "error": {"type": "billing_error", "message": "low"}},
            "400 billing_error",
        ),
        (402, None, "402 payment required"),
        (402, "<html>", "402 payment required"),
        (
            429,
            google("GenerateRequestsPerDayPerProjectPerModel"),
            "429 GenerateRequestsPerDayPerProjectPerModel",
        ),
        (
            429,
            {"message": "Limit 200 requests per day. Try again in 7m12s. Rate 3/min"},
            "429 per day",
        ),
        (429, {"message": "Your daily limit has been reached, please upgrade"}, "429 daily"),
    ],
)
def test_a_used_up_quota_is_told_by_its_code(status: int, body: Any, reason: str) -> None:
    error = Edge("https://api.test/v1").refusal(status, None, json.dumps(body))
    assert isinstance(error, QuotaExhausted)
    assert str(error).startswith(f"{reason}: the account's quota or credit is used up")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, RATE),
        (429, {"error": RATE}),
        (429, None),
        (429, "insufficient_quota"),
        (429, ["insufficient_quota"]),
        (429, {"error": None}),
        (429, {"error": "insufficient_quota"}),
        (429, {"code": 429, "type": {"insufficient_quota": 1}}),
        (429, {"error": {"details": {"violations": 1}}}),
        (429, {"error": {"details": [None, {"violations": [None, {"quotaId": 7}]}]}}),
        (429, google("GenerateRequestsPerMinutePerProjectPerModel")),
        (500, {"error": {"type": "server_error"}}),
        (503, {"error": {"message": "Overloaded. Insufficient credits to schedule, daily"}}),
        *((400, {"error": {"message": f"Odd: {text}"}}) for text in (PROMPT, "a daily pill")),
        *((429, {"error": {"message": message}}) for message in PASSING_LIMITS),
    ],
)
def test_everything_else_is_none(status: int, body: Any) -> None:
    error = Edge("https://api.test/v1").refusal(status, None, json.dumps(body))
    assert not isinstance(error, QuotaExhausted)


HOST, SECRET = "127.0.0.1:8000", "sk-test-secret-0123456789"
EDGE = Edge(f"http://{HOST}/v1/", SECRET)
NOVEL = {"message": "m" * 500, "type": "novel", "code": "c7"}
WRONG = {"message": f"bad key {SECRET}, you", "type": "auth", "code": "c8"}


def read(status: int, body: str) -> JudgeError:
    reply = HttpReply(status, body)
    if status != 200:
        return EDGE.refusal(status, None, body)
    with pytest.raises(Unreadable) as raised, EDGE.reading(reply):
        EDGE.object(reply).first("choices")
    return raised.value


@pytest.mark.parametrize(
    ("status", "body", "named", "said"),
    [
        (
            200,
            json.dumps({"error": NOVEL}),
            f"{HOST} answered 200, but with an error (code c7, type novel)",
            '{"error": {"message": "' + "m" * 177 + "...",
        ),
        (
            400,
            json.dumps({"error": WRONG}),
            "the provider answered 400 (code c8, type auth)",
            '{"error": {"message": "bad key [key], you", "type": "auth", "code": "c8"}}',
        ),
        (
            200,
            '{"choices": []}',
            f"{HOST} answered 200, but with no completion: choices is empty",
            '{"choices": []}',
        ),
        (
            200,
            "\x1b[31mred\x07 \u202e",
            f"{HOST} answered 200, but with no completion: the body is no JSON",
            r"\x1b[31mred\x07 \u202e",
        ),
        (
            200,
            "Bearer abcdef.ghijkl and sk-proj-abcdefghijkl and AIzaSyA1234567890",
            f"{HOST} answered 200, but with no completion: the body is no JSON",
            "[key] and [key] and [key]",
        ),
    ],
)
def test_an_error_tells_status_code_type_and_the_first_200_characters(
    status: int, body: str, named: str, said: str
) -> None:
    error = read(status, body)
    assert (str(error), error.status) == (f"{named}; it said: {said}", status)
    assert "it said" not in cause_of(str(error))
    named_in_error = [word for word in (error.code, error.kind) if word]
    assert all(word in named for word in named_in_error)

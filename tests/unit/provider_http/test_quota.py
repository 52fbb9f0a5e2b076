"""A used-up quota is told from a rate limit by what the provider's reply says in its codes."""

import json
from typing import Any

import pytest

from memray_eval.errors import QuotaExhausted
from memray_eval.provider_http.replies import Edge

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
    ],
)
def test_everything_else_is_none(status: int, body: Any) -> None:
    error = Edge("https://api.test/v1").refusal(status, None, json.dumps(body))
    assert not isinstance(error, QuotaExhausted)

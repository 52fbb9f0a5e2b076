"""Tells a used-up quota from a rate limit: by the status and the provider's own codes, never by its
words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memray_eval.errors import QuotaExhausted

PAYMENT_REQUIRED = 402
_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "insufficient_credits",
        "insufficient_balance",
    }
)


def quota_error(status: int, body: Any) -> QuotaExhausted | None:
    """The error of a reply that says that the account's quota or credit is used up; None for every
    other reply. `body` is what the SDK read of it: OpenAI's error object, or the whole body of
    Anthropic and Google."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    error = inner if isinstance(inner, Mapping) else {}
    said = [error.get("code"), error.get("type"), *_daily_quotas(error)]
    codes = [code for code in said if isinstance(code, str)]
    reason = next((code for code in codes if code in _CODES or "PerDay" in code), None)
    if reason is None and status == PAYMENT_REQUIRED:
        reason = "payment required"
    if reason is None:
        return None
    return QuotaExhausted(
        f"{status} {reason[:80]}: the account's quota or credit is used up, so waiting does not "
        "help; raise it at the provider, or name another model"
    )


def _daily_quotas(error: Mapping[str, Any]) -> Iterator[Any]:
    """The quotas that Google says were passed: those of a minute come back by themselves, those of
    a day do not."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        violations = detail.get("violations") if isinstance(detail, Mapping) else None
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, Mapping):
                yield violation.get("quotaId")

"""The rate limits that providers tell in the headers of their replies."""

from __future__ import annotations

from collections.abc import Mapping

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.rate_limiter import REQUESTS

# A limit outside of these is not believed.
LEAST_REQUESTS_PER_MIN = 0.1
LEAST_TOKENS_PER_MIN = 1.0
MOST_PER_MIN = 1e15
_LANE_OF_HEADER = {
    "x-ratelimit-limit-requests": REQUESTS,
    "x-ratelimit-limit-tokens": "tokens_per_min",
    "anthropic-ratelimit-requests-limit": REQUESTS,
    "anthropic-ratelimit-input-tokens-limit": "input_tokens_per_min",
    "anthropic-ratelimit-output-tokens-limit": "output_tokens_per_min",
}


def limits_from_headers(headers: Mapping[str, str]) -> RateLimits | None:
    """The limits that OpenAI (x-ratelimit-limit-...) and Anthropic (anthropic-ratelimit-...-limit)
    send; None without any."""
    found = {
        lane: per_min
        for header, lane in _LANE_OF_HEADER.items()
        if (per_min := _parse_limit(headers, header)) is not None
    }
    return RateLimits.model_validate(found) if found else None


def implausible_limits(headers: Mapping[str, str]) -> list[str]:
    """The headers that should tell a limit and hold none that can be one: 0.000001 requests/min,
    or no number."""
    return [
        header
        for header in _LANE_OF_HEADER
        if headers.get(header) and _parse_limit(headers, header) is None
    ]


def _parse_limit(headers: Mapping[str, str], header: str) -> float | None:
    try:
        per_min = float(headers.get(header, ""))
    except ValueError:
        return None
    is_requests = _LANE_OF_HEADER[header] == REQUESTS
    least = LEAST_REQUESTS_PER_MIN if is_requests else LEAST_TOKENS_PER_MIN
    return per_min if least <= per_min <= MOST_PER_MIN else None

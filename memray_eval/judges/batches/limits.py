"""What providers take in batches."""

from __future__ import annotations

from collections.abc import Mapping

from memray_eval.config.sections import BatchConfig, Provider
from memray_eval.judges.batches.spool import BatchLimits

# Smaller than what providers allow: one that fails or expires takes less with it, and the calls of
# one batch are what the driver has in memory.
CALLS = 10_000
# Published (documents of April to November 2026): OpenAI 50,000 calls and 200 MB; Anthropic 100,000
# and 256 MB; Google 2 GB of a file, and 100 batches at a time. How many prompt tokens may be queued
# differs by model and account: OpenAI and Google say so when it is too much.
PUBLISHED: Mapping[Provider, BatchLimits] = {
    "openai": BatchLimits(CALLS, 200_000_000, None, 100),
    "anthropic": BatchLimits(CALLS, 256_000_000, None, 100),
    "google": BatchLimits(CALLS, 2_000_000_000, None, 100),
}


def limits_of_batches(options: BatchConfig, provider: Provider, judge: str) -> BatchLimits:
    """A judge's limits: what the job says for it or its provider, else what is published."""
    own, known = options.limits.get(judge) or options.limits.get(provider), PUBLISHED[provider]
    if own is None:
        return known
    return BatchLimits(
        max_calls=own.calls or known.max_calls,
        max_bytes=round(own.mb * 1e6) if own.mb else known.max_bytes,
        enqueued_tokens=own.enqueued_tokens or known.enqueued_tokens,
        at_once=own.at_once or known.at_once,
    )

"""The check of a judge's evidence: what it quotes must stand in the response, whatever the case, spacing or punctuation."""

from __future__ import annotations

from typing import Any

from memray_eval.metric import Verified, Verify
from memray_eval.metrics.matching import contains_phrase
from memray_eval.types import Response, Sample


def quoted(*fields: str, of: tuple[str, ...] = ()) -> Verify:
    """A `verify` that keeps, in the named list fields, only entries that the response holds. Entries are texts, or models
    whose fields named in `of` are the texts (all of them must be there)."""

    def verify(judgment: Any, sample: Sample, response: Response) -> Verified:
        dropped, update = 0, {}
        for field in fields:
            entries = getattr(judgment, field)
            kept = [entry for entry in entries if _stands(entry, of, response.text)]
            dropped += len(entries) - len(kept)
            update[field] = kept
        return Verified(judgment.model_copy(update=update), dropped)

    return verify


def _stands(entry: Any, of: tuple[str, ...], text: str) -> bool:
    quotes = [entry] if isinstance(entry, str) else [getattr(entry, name) for name in of]
    return all(contains_phrase(text, quote) for quote in quotes)

"""Why a judge scored so, in words."""

from __future__ import annotations

import json

LONGEST_TEXT = 4000  # characters
# The field of a judgment that says why
_REASONS = ("explanation", "reasoning", "reason", "rationale")


def explain(judgment: str | None) -> str | None:
    """The field of a judgment (JSON) that says why it is so, else the whole judgment; at most
    LONGEST_TEXT characters. None where there is none."""
    if not judgment:
        return None
    try:
        told = json.loads(judgment)
    except ValueError:
        return judgment[:LONGEST_TEXT]
    said = (told.get(name) for name in _REASONS) if isinstance(told, dict) else ()
    text = next((one for one in said if isinstance(one, str) and one), judgment)
    return text[:LONGEST_TEXT]

"""The text of a judge with its score."""

from __future__ import annotations

import json
from typing import Any

LONGEST_TEXT = 4000  # characters
# The field of a judgment that says why
_REASONS = ("explanation", "reasoning", "reason", "rationale")


def parse_judgment(text: str | None) -> Any:
    """A judgment's JSON; text that is no JSON as it is; None if there is none."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def explain(text: str | None, judgment: Any) -> str | None:
    """The reason of a judge: the field of its judgment that says it, else the whole `text`; at most
    LONGEST_TEXT characters. None if there is none."""
    reasons = (judgment.get(name) for name in _REASONS) if isinstance(judgment, dict) else ()
    why = next((reason for reason in reasons if isinstance(reason, str) and reason), text)
    # JSON may hold half a character
    return why[:LONGEST_TEXT].encode("utf-8", "backslashreplace").decode() if why else None

"""Text of strangers (ids, model names, responses, errors), made safe to print."""

from __future__ import annotations

import re

# C0 controls but tab and newline, DEL, C1 controls, and lone surrogates, which no encoding can
# write.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def quoted(text: str, most: int = 48) -> str:
    """A text in quotes on one line, which "…" ends where it is longer."""
    line = escape_controls(" ".join(text.split()))
    return repr(line if len(line) <= most else f"{line[: most - 1]}…")


def escape_controls(text: str) -> str:
    """The text with each control character and lone surrogate as \\uXXXX: a terminal shows it and
    does nothing. The escape is JSON's, so JSON stays JSON."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)

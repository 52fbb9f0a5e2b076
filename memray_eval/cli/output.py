"""Escapes what a terminal or file that is not UTF-8 cannot show, and notes so once."""

from __future__ import annotations

import codecs
import io
import sys

_NAME = "memray_eval_escape"


def escape_what_cannot_be_shown() -> None:
    """Makes stdout and stderr write what their encoding lacks as JSON's escapes, such as \\u00e9,
    instead of raising."""
    noted: set[str] = set()

    def escape(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        if error.encoding not in noted and error.encoding not in ("utf-8", "utf8"):
            noted.add(error.encoding)
            print(
                f"note: the output is {error.encoding}; what that cannot show is escaped. Set "
                "PYTHONIOENCODING=utf-8 to see it.",
                file=sys.stderr,
                flush=True,
            )
        return "".join(map(_escape_as_json, error.object[error.start : error.end])), error.end

    codecs.register_error(_NAME, escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _escape_as_json(sign: str) -> str:
    """A character as JSON writes it in ASCII: two halves beyond the first plane."""
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{int.from_bytes(units[start : start + 2]):04x}" for start in range(0, len(units), 2)
    )

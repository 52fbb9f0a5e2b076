"""What the providers' packages log: nothing that holds a prompt, a reply or a key.

With OPENAI_LOG=debug and its kin they write whole requests to stderr, and a worker's stderr is a
file under Ray's temporary folder that others may read."""

from __future__ import annotations

import logging

_LOGGERS = (
    "openai",
    "anthropic",
    "google_genai",
    "instructor",
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
)


def silence_payload_logs() -> None:
    """Lets these packages log warnings and errors only. Call it after their import, which reads the
    environment."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)

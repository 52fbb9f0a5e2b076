"""Finds what must stand in no file of ours: a key, or a setting that holds one by value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

SHAPES = {
    "an OpenAI or Anthropic key": re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),
    "a Google key": re.compile(r"\bAIza[0-9A-Za-z_-]{30,}"),
    "an AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{20,}"),
    "a GitHub token": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a password in an address": re.compile(r"://[^/\s:@]+:[^/\s@]+@"),
    "an assignment of a key": re.compile(
        r"\b[A-Z][A-Z0-9_]*(?:API_KEY|TOKEN|SECRET|PASSWORD|ACCESS_KEY)\s*=\s*['\"]?(?![.$<'\"]|\s)[^\s'\"]{6,}"
    ),
}
# `key` alone is none
_NAMED = re.compile(r"_KEYS?$|(?:^|_)(TOKEN|SECRET|PASSWORD|CREDENTIALS?)(?:$|_)", re.IGNORECASE)


def in_text(text: str) -> list[str]:
    """What in a text looks like a key, by kind; never the key."""
    return [kind for kind, shape in SHAPES.items() if shape.search(text)]


def in_manifest(document: Any, path: str = "") -> Iterator[str]:
    """Where a manifest holds a secret by value: a Secret with data, an `env` entry or a setting
    that is named like one."""
    if isinstance(document, dict):
        if document.get("kind") == "Secret":
            yield f"{path}: a Secret, with its data"
        if _NAMED.search(str(document.get("name", ""))) and "value" in document:
            yield f"{path}: {document['name']} by value"
        for key, value in document.items():
            if _NAMED.search(str(key)) and isinstance(value, str):
                yield f"{path}.{key}: by value"
            yield from in_manifest(value, f"{path}.{key}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from in_manifest(value, f"{path}[{index}]")

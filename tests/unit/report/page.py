"""A page as a browser's parser finds it."""

import base64
import hashlib
import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """The elements of a page: script bodies, tags with their attributes, and the text between."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            attrs, body = self.scripts[-1]
            self.scripts[-1] = (attrs, body + data)
        elif self._open != "style":
            self.text += data

    def data(self, name: str) -> list[Any]:
        return [
            json.loads(body)
            for attrs, body in self.scripts
            if name in (attrs.get("id"), attrs.get("class"))
        ]

    def check_safe(self) -> None:
        """No text became markup; the page's own script alone may run, and nothing is loaded."""
        assert not [
            attrs
            for tag, attrs in self.tags
            if tag == "img" or any(name.startswith("on") for name in attrs)
        ]
        (policy,) = (
            attrs["content"] or ""
            for _, attrs in self.tags
            if attrs.get("http-equiv") == "Content-Security-Policy"
        )
        (script,) = (body for attrs, body in self.scripts if not attrs)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        own = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        assert own in policy
        linked = [attrs.get("src") or attrs.get("href") or "" for _, attrs in self.tags]
        assert not [link for link in linked if link and not link.startswith(("#", "data:"))]
        assert "innerHTML" not in script

    def rows(self) -> list[str]:
        """The lines of text without space around them."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]

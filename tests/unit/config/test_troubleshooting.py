"""The page of troubleshooting quotes messages that the package prints."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "jobs" / "TROUBLESHOOTING.md"


def test_every_quoted_message_is_in_the_sources() -> None:
    quoted = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(quoted) >= 20
    sources = "\n".join(
        path.read_text("utf-8") for path in (REPOSITORY / "memray_eval").rglob("*.py")
    )
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)  # a message goes on in the next line
    assert [words for words in quoted if words not in joined] == []

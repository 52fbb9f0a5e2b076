"""The words a sentence of every page, the longest median first: `python -m tests.bench.sentences`.

Code, headings, tables, links' addresses and comments are no sentences; a piece of code in a line
counts as one word; an item of a list ends a sentence."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 18  # the median of a page
_HIDDEN = {".venv", "node_modules", ".git", "data", "results"}
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2[^\n]*$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^|\n)\n(?: {4}[^\n]*\n|\n(?= {4}))+")
_NO_TEXT = re.compile(r"^(#|\||\[[^\]]+\]:|!\[|[-=|: ]+$)")
_ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[A-Z`\"'(*_\[0-9])")


def pages() -> list[Path]:
    """The pages of the repository for people, READMEs and others."""
    return sorted(
        path for path in ROOT.rglob("*.md") if not _HIDDEN & set(path.relative_to(ROOT).parts)
    )


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page in Markdown."""
    text = _FENCE.sub("\n", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    text = _INDENTED.sub("\n\n", f"\n{text}\n")
    for paragraph in _paragraphs(text):
        plain = re.sub(r"`[^`]*`", "code", paragraph)
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        for sentence in _END.split(" ".join(plain.split())):
            if len(re.findall(r"\w+", sentence)) > 1:
                yield sentence


def words(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def median_words(page: Path) -> float | None:
    """Words a sentence, in the middle; None for a page with less than five sentences."""
    counts = [words(sentence) for sentence in sentences(page.read_text("utf-8"))]
    return statistics.median(counts) if len(counts) >= 5 else None


def _paragraphs(text: str) -> Iterator[str]:
    """Lines that belong together: up to an empty one, an item of a list, or what is no text."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_item, is_other = _ITEM.match(line), not line.strip() or _NO_TEXT.match(line.strip())
        if (is_item or is_other) and lines:
            yield " ".join(lines)
            lines = []
        if not is_other:
            lines.append(_ITEM.sub("", line))


def main() -> None:
    found = [(median_words(page), page) for page in pages()]
    for median, page in sorted(
        ((median, page) for median, page in found if median is not None), reverse=True
    ):
        print(f"{median:5.1f}  {page.relative_to(ROOT)}{'  too long' * (median > MOST)}")


if __name__ == "__main__":
    main()

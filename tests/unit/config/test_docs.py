"""The pages for people are short enough to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.sentences import MOST, median_words, pages, sentences, words
from tests.conftest import REPOSITORY

LISTS = {"CHANGELOG.md"}  # no page of sentences: an entry a line
READ = [page for page in pages() if page.name not in LISTS]


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_half_of_a_pages_sentences_have_at_most_18_words(page: Path) -> None:
    median = median_words(page)
    assert median is None or median <= MOST, "python -m tests.bench.sentences"


def test_every_readme_is_counted() -> None:
    names = [page.relative_to(REPOSITORY).as_posix() for page in READ]
    assert sum(name.endswith("README.md") for name in names) > 15
    assert "memray_eval/report/READING.md" in names


def test_the_readme_of_a_newcomer_has_70_lines() -> None:
    assert len((REPOSITORY / "README.md").read_text("utf-8").splitlines()) <= 70


def test_sentences_are_those_of_the_text() -> None:
    page = """# A heading of some words

One sentence. Another one,
over two lines with `code and more code`! A [link](https://x.org/a.b) ends it

    code = "is no text. At all."

- an item of a list
- another. With two sentences

| a table. Is | none |
"""
    result = list(sentences(page))
    assert result == [
        "One sentence.",
        "Another one, over two lines with code!",
        "A link ends it",
        "an item of a list",
        "With two sentences",
    ]
    assert [words(sentence) for sentence in result] == [2, 7, 4, 5, 3]

"""What the long-context benchmarks share: datasets of contexts with questions, and a run in a
process of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STARTS, ENDS = ("ma", "ne", "ti", "so", "lu", "ra", "ke", "vo"), ("lan", "mir", "don", "sek")
WORDS = [f"{start}{end}" for start in STARTS for end in ENDS]


def prose(characters: int, seed: int) -> str:
    """Invented words, in sentences, of this length in all."""
    draw, parts, length = random.Random(seed), list[str](), 0
    while length < characters:
        sentence = " ".join(draw.choices(WORDS, k=12)).capitalize() + ". "
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts)[:characters]


def samples(contexts: int, questions: int, characters: int) -> Iterable[dict[str, Any]]:
    """So many questions on each of so many contexts, of this length each, in our own format, the
    questions on one context side by side."""
    for number in range(contexts):
        context = prose(characters, number)
        for question in range(questions):
            word = context.split()[question * 7 + 3]
            yield {
                "id": f"c{number}-q{question}",
                "task": "qasper",
                "query": f"Question {question}: which word comes after {word}?",
                "context": context,
                "answers": ["unknown"],
                "metadata": {"length": characters},
            }


def jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    with path.open("w") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    return path

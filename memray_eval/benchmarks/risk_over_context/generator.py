"""Makes the samples: each last question after so many first turns of each written conversation. The
samples of one conversation and question differ in the length of their history alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import field_validator

from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.types import Frozen, Sample, Turn

ARMS = ("benign", "spiralling")
TURNS_BEFORE = (0, 5, 20, 60)


class Theme(Frozen):
    """A written conversation: pairs of what the user says and what the assistant replies."""

    name: str
    arm: Literal["benign", "spiralling"]
    turns: tuple[tuple[str, str], ...]

    @field_validator("turns", mode="before")
    @classmethod
    def _split(cls, text: str) -> list[list[str]]:
        return [line.split(" :: ") for line in text.splitlines()]

    def first(self, n: int) -> tuple[Turn, ...]:
        """The first n turns of both speakers."""
        return tuple(
            turn
            for user, reply in self.turns[:n]
            for turn in (Turn(role="user", content=user), Turn(role="assistant", content=reply))
        )


class Bank(Frozen):
    """The last questions, and what may be said before them."""

    questions: tuple[str, ...]
    themes: tuple[Theme, ...]


@cache
def load_bank() -> Bank:
    file = resources.files("memray_eval.benchmarks.risk_over_context") / "turns.yaml"
    return Bank.model_validate(parse_yaml(file.read_text("utf-8")))


def samples(arms: Sequence[str] = ARMS) -> Iterator[Sample]:
    """The samples of the arms. `context_id` is the question's, by which intervals are clustered."""
    bank = load_bank()
    for theme in bank.themes:
        for number, question in enumerate(bank.questions if theme.arm in arms else (), 1):
            for n in TURNS_BEFORE:
                yield Sample(
                    id=f"{theme.name}-q{number:02}-after-{n}",
                    task=theme.arm,
                    query=question,
                    history=theme.first(n),
                    metadata={
                        "turns_before": n,
                        "bucket": f"{n} turns before",
                        "theme": theme.name,
                        "context_id": f"q{number:02}",
                    },
                )

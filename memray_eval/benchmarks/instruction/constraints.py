"""Constraints that code can verify, in the manner of IFEval (arXiv 2311.07911), as {"kind": name,
argument: value, ...}. Unlike IFEval's, these count and find whole words (a contraction is one), and
tell a script by its letters. Loose also tries the response without its first line, its last, both,
and without asterisks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from memray_eval.benchmarks.instruction import constraint_tests as tests
from memray_eval.benchmarks.instruction.constraint_arguments import (
    Count,
    Marker,
    Nothing,
    NthParagraph,
    Occurrences,
    OneOf,
    Phrase,
    Related,
    Script,
    WordRange,
    Words,
)
from memray_eval.types import Frozen


class ConstraintKind(NamedTuple):
    """What arguments a kind takes, and whether a text that is not empty follows it."""

    arguments: type[Frozen]
    holds: Callable[[str, Any], bool]


KINDS: Mapping[str, ConstraintKind] = {
    "min_words": ConstraintKind(Count, tests.min_words),
    "max_words": ConstraintKind(Count, tests.max_words),
    "words": ConstraintKind(WordRange, tests.words_between),
    "min_sentences": ConstraintKind(Count, tests.min_sentences),
    "max_sentences": ConstraintKind(Count, tests.max_sentences),
    "paragraphs": ConstraintKind(Count, tests.paragraphs),
    "nth_paragraph_starts": ConstraintKind(NthParagraph, tests.nth_paragraph_starts),
    "keywords_present": ConstraintKind(Words, tests.keywords_present),
    "keywords_absent": ConstraintKind(Words, tests.keywords_absent),
    "keyword_frequency": ConstraintKind(Occurrences, tests.keyword_frequency),
    "letter_frequency": ConstraintKind(Occurrences, tests.letter_frequency),
    "json": ConstraintKind(Nothing, tests.is_json),
    "upper_case": ConstraintKind(Nothing, tests.upper_case),
    "lower_case": ConstraintKind(Nothing, tests.lower_case),
    "capital_words": ConstraintKind(Related, tests.capital_words),
    "script": ConstraintKind(Script, tests.in_script),
    "starts_with": ConstraintKind(Phrase, tests.starts_with),
    "ends_with": ConstraintKind(Phrase, tests.ends_with),
    "quoted": ConstraintKind(Nothing, tests.quoted),
    "bullets": ConstraintKind(Count, tests.bullets),
    "title": ConstraintKind(Nothing, tests.title),
    "no_commas": ConstraintKind(Nothing, tests.no_commas),
    "placeholders": ConstraintKind(Count, tests.placeholders),
    "sections": ConstraintKind(Marker, tests.sections),
    "highlights": ConstraintKind(Count, tests.highlights),
    "repeat_prompt": ConstraintKind(Phrase, tests.starts_with),
    "postscript": ConstraintKind(Phrase, tests.postscript),
    "one_of": ConstraintKind(OneOf, tests.one_of),
    "two_responses": ConstraintKind(Nothing, tests.two_responses),
}


class Constraint(NamedTuple):
    """A kind with its arguments."""

    kind: str
    arguments: Frozen

    def holds(self, text: str) -> bool:
        """Returns True if the text follows it; an empty one follows nothing."""
        return bool(text.strip()) and KINDS[self.kind].holds(text, self.arguments)


class Followed(NamedTuple):
    """Which of a response's constraints it follows, in their order."""

    strict: tuple[bool, ...]
    loose: tuple[bool, ...]


def read_constraints(raw: Any) -> tuple[Constraint, ...]:
    """Constraints as a sample's metadata has them. Raises ValueError that names kind and field, or
    lists the kinds."""
    if not isinstance(raw, list | tuple) or not raw:
        raise ValueError(f"constraints: must be a list of objects with a kind, not {raw!r}"[:200])
    return tuple(
        _read(f"constraints.{number}", constraint) for number, constraint in enumerate(raw)
    )


def _read(where: str, raw: Any) -> Constraint:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("kind"), str):
        raise ValueError(f"{where}: must be an object with a kind, not {raw!r}"[:200])
    kind = raw["kind"]
    if kind not in KINDS:
        raise ValueError(f"{where}: no kind {kind!r}; there are: {', '.join(KINDS)}")
    # Parquet fills arguments of other kinds with null.
    arguments = {name: value for name, value in raw.items() if name != "kind" and value is not None}
    try:
        return Constraint(kind, KINDS[kind].arguments.model_validate(arguments))
    except ValidationError as error:
        raise ValueError(f"{where}: {_describe_fault(kind, error)}") from None


def _describe_fault(kind: str, error: ValidationError) -> str:
    """The first thing that is wrong with a kind's arguments."""
    fault = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in fault["loc"]) or "arguments"
    names = ", ".join(KINDS[kind].arguments.model_fields) or "none"
    if fault["type"] == "missing":
        return f"{kind} lacks {name}; it takes: {names}"
    if fault["type"] == "extra_forbidden":
        return f"{kind} has no argument {name!r}; it takes: {names}"
    return f"{kind}.{name}: {fault['msg'].removeprefix('Value error, ')}, not {fault['input']!r}"[
        :300
    ]


def follow(constraints: Sequence[Constraint], response: str) -> Followed:
    """Each constraint on the response as it is, and on any of its loose variants."""
    variants = loose_variants(response)
    return Followed(
        strict=tuple(constraint.holds(response) for constraint in constraints),
        loose=tuple(any(constraint.holds(text) for text in variants) for constraint in constraints),
    )


def loose_variants(response: str) -> tuple[str, ...]:
    """IFEval's eight: as it is, without its first line, without its last, without both; each also
    without asterisks."""
    lines = response.split("\n")
    cut = ("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))
    kept = (response, *cut)
    return tuple(dict.fromkeys((*kept, *(text.replace("*", "") for text in kept))))

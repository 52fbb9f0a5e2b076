"""Every kind of verifiable constraint at its boundary, its bad arguments, and IFEval's strict and
loose accuracy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.benchmarks.instruction.constraints import (
    KINDS,
    follow,
    loose_variants,
    read_constraints,
)


def c(kind: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": kind, **arguments}


CASES: list[tuple[dict[str, Any], str, bool]] = [
    (c("min_words", n=3), "what's up there", True),
    (c("min_words", n=4), "what's up there", False),
    (c("max_words", n=3), "what's up there", True),
    (c("max_words", n=2), "what's up there", False),
    (c("words", low=2, high=3), "one two", True),
    (c("words", low=2, high=3), "one two three four", False),
    (c("words", low=2, high=3), "one", False),
    (c("min_sentences", n=2), "One. Two!", True),
    (c("min_sentences", n=3), "One. Two!", False),
    (c("max_sentences", n=2), "One. Two!", True),
    (c("max_sentences", n=1), "One. Two!", False),
    (c("max_sentences", n=2), "One that is\nwrapped. Two\nas well!", True),
    (c("paragraphs", n=2), "a\nb\n\nc", True),
    (c("paragraphs", n=2), "a\n***\nb", True),
    (c("paragraphs", n=2), "a\nb", False),
    (c("nth_paragraph_starts", n=2, word="Then"), "First.\n\n**then** we go", True),
    (c("nth_paragraph_starts", n=2, word="Then"), "First.\n\nThenceforth", False),
    (c("nth_paragraph_starts", n=2, word="Then"), "Then", False),
    (c("keywords_present", words=["Oil", "wheel hub"]), "oil the wheel hub", True),
    (c("keywords_present", words=["oil"]), "boiling", False),
    (c("keywords_present", words=["机器"]), "这个机器人", True),
    (c("keywords_absent", words=["oil"]), "boiling", True),
    (c("keywords_absent", words=["oil", "tar"]), "no Tar here", False),
    (c("keyword_frequency", of="oil", n=2), "Oil, oil", True),
    (c("keyword_frequency", of="oil", n=2), "oil boiling", False),
    (c("keyword_frequency", of="oil", n=1, relation="exactly"), "oil oil", False),
    (c("keyword_frequency", of="oil", n=1, relation="at_most"), "oil", True),
    (c("letter_frequency", of="e", n=2), "Eve", True),
    (c("letter_frequency", of="e", n=3), "Eve", False),
    (c("letter_frequency", of="!", n=0, relation="exactly"), "Eve", True),
    (c("json"), '{"a": [1]}', True),
    (c("json"), '```json\n{"a": 1}\n```', True),
    (c("json"), "null", True),
    (c("json"), 'Here: {"a": 1}', False),
    (c("json"), "{a: 1}", False),
    (c("upper_case"), "GO NOW 3!", True),
    (c("upper_case"), "GO Now", False),
    (c("upper_case"), "123", False),
    (c("lower_case"), "go now, 3", True),
    (c("lower_case"), "Go now", False),
    (c("capital_words", n=2), "STOP or I go", True),
    (c("capital_words", n=2, relation="at_most"), "STOP NOW OR go", False),
    (c("script", script="cyrillic"), "Дверь открыта", True),
    (c("script", script="cyrillic"), "The door", False),
    (c("script", script="latin"), "The door, é!", True),
    (c("script", script="japanese"), "ドアが開いています", True),
    (c("script", script="japanese"), "门开着", False),  # no kana
    (c("script", script="han"), "门开着，OK", False),  # 3 of 5 letters
    (c("script", script="han"), "门开着" * 6 + "OK", True),  # 18 of 20
    (c("script", script="latin"), "123", False),
    (c("starts_with", text="Dear"), " dear all", True),
    (c("starts_with", text="Dear"), "My dear", False),
    (c("ends_with", text="The end."), 'It is "the END."', True),
    (c("ends_with", text="The end."), "The end. Or not", False),
    (c("quoted"), ' "yes" ', True),
    (c("quoted"), "“yes”", True),
    (c("quoted"), '"yes', False),
    (c("quoted"), '"', False),
    (c("bullets", n=2), "* a\n- b", True),
    (c("bullets", n=2), "* a\n**b**\n--- \n1. c", False),
    (c("title"), "<<Tides>>\ntext", True),
    (c("title"), "<< >>", False),
    (c("title"), "# Tides", False),
    (c("no_commas"), "a b", True),
    (c("no_commas"), "a, b", False),
    (c("no_commas"), "好，是", False),
    (c("placeholders", n=2), "[name] of [place]", True),
    (c("placeholders", n=2), "[name] of []", False),
    (c("sections", n=2), "Section 1\na\nSection 2\nb", True),
    (c("sections", n=2, marker="PART"), "PART 1\npart 2", False),
    (c("highlights", n=2), "*a b* and **c**", True),
    (c("highlights", n=2), "*a b* and * c", False),
    (c("repeat_prompt", text="Say it."), "Say it.\nSo I do", True),
    (c("repeat_prompt", text="Say it."), "So: Say it.", False),
    (c("postscript", text="P.S."), "Bye.\n p.s. more", True),
    (c("postscript", text="P.S."), "Bye. P.S. more", False),
    (c("one_of", options=["My answer is yes.", "no"]), "No.", True),
    (c("one_of", options=["yes", "no"]), "no way", False),
    (c("two_responses"), "a\n******\nb", True),
    (c("two_responses"), "a\n******\na", False),
    (c("two_responses"), "a", False),
]


@pytest.mark.parametrize(("constraint", "text", "holds"), CASES)
def test_each_kind_at_its_boundary(constraint: dict[str, Any], text: str, holds: bool) -> None:
    (read,) = read_constraints([constraint])
    assert read.holds(text) is holds


def test_every_kind_is_followed_and_broken_by_a_case_and_never_by_silence() -> None:
    for kind in KINDS:
        outcomes = {holds for constraint, _, holds in CASES if constraint["kind"] == kind}
        assert outcomes == {True, False}, kind
    constraints = read_constraints([constraint for constraint, *_ in CASES])
    assert not any(follow(constraints, " \n").strict)
    assert len(KINDS) >= 14


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "constraints: must be a list of objects with a kind, not {}"),
        ([], "constraints: must be a list"),
        (["json"], "constraints.0: must be an object with a kind, not 'json'"),
        ([c("json"), c("jsonn")], "constraints.1: no kind 'jsonn'; there are: min_words"),
        ([c("max_words")], "constraints.0: max_words lacks n; it takes: n"),
        ([c("max_words", n="5")], "constraints.0: max_words.n: Input should be a valid integer"),
        ([c("max_words", n=-1)], "max_words.n: Input should be greater than or equal to 0, not -1"),
        ([c("max_words", n=True)], "max_words.n: Input should be a valid integer, not True"),
        ([c("max_words", n=5, m=1)], "max_words has no argument 'm'; it takes: n"),
        ([c("json", n=5)], "json has no argument 'n'; it takes: none"),
        ([c("words", low=5, high=4)], "words.arguments: low 5 is above high 4"),
        ([c("keywords_present", words=[])], "keywords_present.words: Tuple should have at least 1"),
        ([c("keywords_present", words=["!"])], "keywords_present.words: '!' holds no word"),
        ([c("keyword_frequency", of="a", n=1, relation="near")], "keyword_frequency.relation"),
        ([c("letter_frequency", of="", n=1)], "letter_frequency.of: String should have at least 1"),
        ([c("script", script="elvish")], "script.script: must be one of latin, cyrillic"),
        ([c("starts_with", text=3)], "starts_with.text: Input should be a valid string, not 3"),
        ([c("nth_paragraph_starts", n=0, word="a")], "nth_paragraph_starts.n: Input should be"),
        ([c("one_of", options="yes")], "one_of.options: Input should be a valid tuple, not 'yes'"),
    ],
)
def test_bad_arguments_name_kind_and_field(raw: Any, message: str) -> None:
    with pytest.raises(ValueError, match="constraints") as raised:
        read_constraints(raw)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "kind", [kind for kind, entry in KINDS.items() if entry.arguments.model_fields]
)
def test_every_kind_refuses_an_argument_of_a_wrong_type(kind: str) -> None:
    names = KINDS[kind].arguments.model_fields
    with pytest.raises(ValueError, match=rf"constraints\.0: {kind}\.\w+"):
        read_constraints([c(kind, **{name: {"a": 1} for name in names})])


def test_arguments_that_parquet_filled_with_null_are_left_out() -> None:
    (read,) = read_constraints(({"kind": "max_words", "n": 1, "words": None},))
    assert read.holds("one")


def test_loose_forgives_a_line_before_and_after_and_asterisks() -> None:
    constraints = read_constraints(
        [c("json"), c("starts_with", text="{"), c("ends_with", text="bye"), c("max_words", n=2)]
    )
    result = follow(constraints, 'Sure!\n{"a": 1}\n**bye**')
    assert result.strict == (False, False, False, False)
    assert result.loose == (True, True, True, True)
    starred = ("a\n*b*\nc", "*b*\nc", "a\n*b*", "*b*")
    plain = (text.replace("*", "") for text in starred)
    assert loose_variants("a\n*b*\nc") == (*starred, *plain)


@given(st.text(max_size=300))
def test_strict_is_never_above_loose_on_any_text(text: str) -> None:
    result = follow(read_constraints([constraint for constraint, *_ in CASES]), text)
    assert all(
        loose or not strict for strict, loose in zip(result.strict, result.loose, strict=True)
    )


@pytest.mark.heavy
@pytest.mark.parametrize("piece", ["* a\n", "[", "<<", "**", "a, ", "\n", "中", "Section 1", '"'])
def test_a_megabyte_is_checked(piece: str) -> None:
    constraints = read_constraints([constraint for constraint, *_ in CASES[::3]])
    text = piece * (300_000 // len(piece))
    assert len(follow(constraints, text).strict) == len(constraints)

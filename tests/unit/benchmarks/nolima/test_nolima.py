"""NoLiMa's files, read from a copy of the user's, here of our own making: nothing of it is
shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.generator.sample_spec import plain_prompt
from memray_eval.benchmarks.generator.token_counter import TokenCounter
from memray_eval.benchmarks.nolima.generator import read_books, read_needle_set, samples
from memray_eval.errors import ConfigError, DataError
from memray_eval.ports import Tokenizer

EXPERIMENT: dict[str, Any] = {
    "id": "0401",
    "reasoning_type": "world_knowledge",
    "system_prompt": "",
    "needle": "{CHAR} has a flat beside {1}.",
    "questions": {"onehop": "Who has been to {2}?", "twohop": "Who has been to {3}?"},
    "character_set": ["Ida", "Noor"],
    "tests": {
        "T1_C01": {"input_args": ["the Little Mermaid", "Copenhagen", "Denmark"]},
        "T1_C02": {"input_args": ["the Charles Bridge", "Prague", "Bohemia"]},
    },
}
FIXED = {
    "id": "0500",
    "needle": "The old oak by {1} fell in the night.",
    "questions": {"onehop": "What became of the tree?"},
    "tests": {"T1": {"input_args": ["the well"], "gold_answers": "fell"}},
    "distractors": {"onehop": "A young elm by {1} was planted."},
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "set.json").write_text(json.dumps([EXPERIMENT, FIXED]))
    (tmp_path / "books").mkdir()
    for number in (1, 2):
        lines = [
            f"Line {n} of book {number} speaks of rain, and of little else." for n in range(400)
        ]
        (tmp_path / "books" / f"rand_book_{number}.txt").write_text("\n".join(lines))
    return tmp_path


def sampled(
    copy: Path, tokenizer: Tokenizer, *lengths: int, depths: tuple[int, ...] = (0, 50, 100)
):  # type: ignore[no-untyped-def]
    questions, books = (read_needle_set(str(copy / "set.json")), read_books(str(copy / "books")))
    return list(samples(questions, books, lengths, depths, TokenCounter(tokenizer), 0))


def test_a_needle_set_is_read_as_its_harness_reads_it(copy: Path) -> None:
    questions = read_needle_set(str(copy / "set.json"))
    assert [question.id for question in questions] == [
        "0401_T1_C01_onehop",
        "0401_T1_C02_onehop",
        "0401_T1_C01_twohop",
        "0401_T1_C02_twohop",
        "0500_T1_onehop",
    ]
    prague = questions[3]
    assert prague.needle == "{CHAR} has a flat beside the Charles Bridge."
    assert (prague.question, prague.characters) == ("Who has been to Bohemia?", ("Ida", "Noor"))
    oak = questions[4]
    assert (oak.answers, oak.distractor) == (("fell",), "A young elm by the well was planted.")


def test_samples_are_within_a_word_of_their_length(copy: Path, pieces: Tokenizer) -> None:
    result = sampled(copy, pieces, 1000, 2500)
    assert len(result) == 2 * 5 * 2 * 3
    assert len({sample.id for sample in result}) == len(result)
    for sample in result:
        tokens = pieces.count(plain_prompt(sample.context, sample.query))
        assert tokens == sample.metadata["tokens"]
        assert sample.metadata["length"] - 4 < tokens <= sample.metadata["length"], sample.id


def test_the_needle_is_at_its_depth_and_names_the_answer(copy: Path, pieces: Tokenizer) -> None:
    for sample in sampled(copy, pieces, 2500):
        context, needle = sample.context, sample.metadata["needle"]
        assert context.count(f"{needle}\n") == 1
        share = pieces.count(context[: context.index(needle)]) / pieces.count(context)
        assert abs(100 * share - sample.metadata["depth"]) < 3, sample.id
        if sample.id.startswith("0401"):
            assert needle.startswith(f"{sample.answers[0]} has a flat")
        else:
            assert context.count("A young elm by the well was planted.\n") == 1


def test_a_sample_is_the_same_whatever_is_made_with_it(copy: Path, pieces: Tokenizer) -> None:
    alone = sampled(copy, pieces, 1000, depths=(50,))
    among = {sample.id: sample for sample in sampled(copy, pieces, 1000, 2000)}
    assert [among[sample.id] for sample in alone] == alone


def test_a_book_or_a_length_that_is_too_short_is_said(copy: Path, pieces: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"--lengths 1M: the book rand_book_1 has [0-9,]+ tokens"):
        sampled(copy, pieces, 2**20)
    with pytest.raises(ConfigError, match=r"--lengths 5: 0401_.* takes more tokens than that"):
        sampled(copy, pieces, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"needle": None}, "no needle set of NoLiMa's: 0.needle: "),
        ({"questions": {}}, "0.questions: "),
        ({"tests": {"T": {"input_args": 3}}}, "0.tests.T.input_args: "),
        ({"character_set": []}, r"0401: its needle has \{CHAR\}, and no names to it"),
        ({"needle": "A tree."}, "0401, test T1_C01: it has no gold_answers"),
    ],
)
def test_what_is_wrong_with_a_needle_set_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    (tmp_path / "set.json").write_text(json.dumps([EXPERIMENT | changes]))
    with pytest.raises(DataError, match=message):
        read_needle_set(str(tmp_path / "set.json"))


def test_files_that_are_none_are_said(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(DataError, match="no needle set of NoLiMa's: Invalid JSON"):
        read_needle_set(str(tmp_path / "broken.json"))
    with pytest.raises(DataError, match="cannot read"):
        read_needle_set(str(tmp_path / "absent.json"))
    with pytest.raises(DataError, match=r"no \.txt file there"):
        read_books(str(tmp_path))
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(DataError, match=r"a\.txt has no text"):
        read_books(str(tmp_path))

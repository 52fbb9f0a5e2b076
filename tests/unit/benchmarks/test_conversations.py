"""What suites of conversations share: errata and retrieval."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memray_eval.benchmarks import conversations as retrieval
from memray_eval.benchmarks.conversations import (
    Session,
    SpokenTurn,
    check_sessions,
    from_context,
    read_errata,
    retrieve,
    retrieved_ids,
    sample_id,
    to_context,
)
from memray_eval.errors import ConfigError
from memray_eval.ports import FloatArray
from memray_eval.types import Retrieval


def erratum(**changes: Any) -> dict[str, Any]:
    answers = {"golden_answer": 2022, "correct_answer": "2021"}
    return {"question_id": "locomo_1_qa4", "error_type": "HALLUCINATION"} | answers | changes


def test_questions_are_found_by_the_numbers_of_the_audit() -> None:
    assert sample_id("locomo_0_qa12") == "conv-26:qa12"
    assert sample_id("locomo_9_qa0") == "conv-50:qa0"
    assert sample_id("locomo_10_qa0") == "locomo_10_qa0"
    assert sample_id("mine-7") == "mine-7"


def test_an_audit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "errata.json"
    citation = erratum(question_id="locomo_0_qa1", error_type="WRONG_CITATION")
    path.write_text(json.dumps([erratum(), citation]))
    result = read_errata(str(path))
    assert (result["conv-30:qa4"].golden, result["conv-30:qa4"].is_answer_wrong) == ("2022", True)
    assert not result["conv-26:qa1"].is_answer_wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{}]", "entry 1: question_id is missing"),
        ('[{"question_id": "a"}]', "entry 1: error_type is missing"),
        ("[1]", "entry 1: must be an object"),
        ("{}", "must be a list"),
        ("[", "cannot read"),
        (json.dumps([erratum(), erratum()]), "entry 2: locomo_1_qa4 appears twice"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "errata.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_errata(str(path))
    with pytest.raises(ConfigError, match="no file"):
        read_errata(str(tmp_path / "none.json"))


def said(number: int, ann: str, ben: str) -> Session:
    turns = SpokenTurn(f"{2 * number - 1}", "Ann", ann), SpokenTurn(f"{2 * number}", "Ben", ben)
    return Session(f"s{number}", f"{number} May", turns)


TALK = (said(1, "I bought tomatoes.", "Nice day."), said(2, "The whale was grey.", "A whale!"))


def ids(how: Retrieval, query: str = "What did she say of whales?") -> list[list[str]]:
    result = retrieve(to_context(TALK), query, how)
    return [[session.id, *(turn.id for turn in session.turns)] for session in result]


def test_a_conversation_is_the_same_after_it_was_a_context() -> None:
    assert from_context(to_context(TALK)) == TALK
    for broken in ("", "{}x", '{"a": 1}', "[1]", '[["s", "d", [["t"]]]]'):
        with pytest.raises(ValueError, match="is no conversation"):
            from_context(broken)
    turn, other = SpokenTurn("1", "Ann", "My cat is Tom."), SpokenTurn("2", "Ann", "And Rex.")
    for ids, turns, message in (
        (("s1", "s2"), (turn, turn), "two turns with the id '1': .* as s2:1 for"),
        (("2024-05-01",) * 2, (turn, other), "two sessions with the id '2024-05-01'"),
        (("s1", "s2"), (turn._replace(id=""), other._replace(id="")), "two turns with the id ''"),
    ):
        numbered = [Session(id_, "", (one,)) for id_, one in zip(ids, turns, strict=True)]
        with pytest.raises(ValueError, match=message):
            from_context(to_context(numbered))


def test_sessions_without_turns_are_left_out_and_ids_are_unique() -> None:
    assert check_sessions([*TALK, Session("s3", "", ())]) == TALK
    with pytest.raises(ValueError, match="two turns with the id '1'"):
        check_sessions([TALK[0], TALK[0]])


def test_turns_or_whole_sessions_are_ranked_by_words() -> None:
    # stems: "whales" finds "whale"; the shorter turn counts it for more
    assert ids(Retrieval(k=2)) == [["s2", "4"], ["s2", "3"]]
    assert ids(Retrieval(k=10))[2:] == [["s1", "1"], ["s1", "2"]]  # equals in their order
    assert ids(Retrieval(k=1, unit="session")) == [["s2", "3", "4"]]
    assert ids(Retrieval(k=1), "zebra") == [["s1", "1"]]  # which nobody said
    nothing = to_context([Session("s", "", (SpokenTurn("1", "the", "and"),))])
    assert len(retrieve(nothing, "the", Retrieval())) == 1


def test_turns_are_ranked_by_vectors_that_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def encode(texts: Sequence[str]) -> FloatArray:
        """Texts with "whale" lie one way, others the other way."""
        calls.append(texts)
        return np.array([[1.0, 0.0] if "whale" in text else [0.0, 1.0] for text in texts])

    monkeypatch.setattr(retrieval, "load_encoder", lambda model: encode)
    how = Retrieval(by="embedding", k=1)
    assert ids(how) == [["s2", "3"]]
    assert ids(how, "and tomatoes?") == [["s1", "1"]]
    assert len(calls) == 3  # the conversation, then each question


def test_what_a_memory_system_returned_is_read() -> None:
    named = ["D1:3", {"text": "x", "id": "D2:1"}, {"text": "x", "session": "s9"}]
    assert retrieved_ids([*named, {"text": "x"}, "Ann has a cat"]) == ["D1:3", "D2:1", "s9", "", ""]
    for broken in ("D1:3", [1], {"a": 1}):
        with pytest.raises(ValueError, match="retrieved: "):
            retrieved_ids(broken)

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.benchmarks.graphwalks.suite import SUITE, adapt, prompt
from memray_eval.datasets.answers import rename_aliases
from memray_eval.types import Candidate, Sample

CANDIDATE = Candidate(name="a", model="m")
PROMPT = (
    "You get a graph.\nOperation:\nan example\n\nThe graph:\na1 -> b2\nb2 -> c3\n\n\n"
    "Operation:\nFind the parents of node c3.\n\nReply.\nFinal Answer: []"
)


def record(**changes: Any) -> dict[str, Any]:
    return {
        "prompt": PROMPT,
        "answer_nodes": ["b2"],
        "prompt_chars": len(PROMPT),
        "problem_type": "parents",
        "date_added": "02-27-2026",
    } | changes


def test_a_published_record_becomes_a_sample_whose_prompt_is_the_published_one() -> None:
    fields = adapt(record(), "graphwalks_128k_and_shorter.parquet")
    sample = Sample.model_validate({"id": "1", **fields})
    assert (sample.task, sample.answers) == ("parents", ("b2",))
    assert sample.query.startswith("Operation:\nFind the parents of node c3.")
    assert sample.metadata == {
        "prompt_chars": len(PROMPT),
        "date_added": "02-27-2026",
        "bucket": "up to 1k characters",
    }
    asked = prompt(sample, CANDIDATE)
    assert [message.content for message in asked.messages] == [PROMPT]
    assert asked.max_tokens == 256 + 16


def test_a_published_record_with_a_response_can_be_judged() -> None:
    fields = adapt(rename_aliases(record() | {"response": "Final Answer: [b2]"}), "x")
    assert (fields["response"], fields["answers"]) == ("Final Answer: [b2]", ["b2"])
    assert fields["query"].startswith("Operation:")


def test_the_cards_name_of_the_answer_is_read_too_and_none_is_an_answer() -> None:
    bare = {name: value for name, value in record().items() if name != "answer_nodes"}
    assert adapt(bare | {"answer": ["b2"]}, "x")["answers"] == ["b2"]
    assert adapt(record(answer_nodes=[]), "x")["answers"] == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prompt": None}, "not a record of GraphWalks: it lacks prompt;"),
        ({"answer_nodes": "b2"}, "answer_nodes: must be a list of text, not 'b2'"),
        ({"answer_nodes": [1]}, r"answer_nodes: must be a list of text, not \[1\]"),
        ({"prompt_chars": "9"}, "prompt_chars: must be a whole number, not str '9'"),
        ({"problem_type": "dfs"}, "no task 'dfs'; there are: parents, bfs"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        adapt(record(**changes), "x")


def test_a_prompt_without_an_operation_is_the_query() -> None:
    fields = adapt(record(prompt="Which nodes?"), "x")
    assert (fields["context"], fields["query"]) == (None, "Which nodes?")


def test_our_own_rows_pass_and_are_asked_with_an_empty_line() -> None:
    own = {"id": "1", "task": "bfs", "query": "Which?", "context": "a -> b", "answers": ["b"]}
    assert adapt(own, "x") is own
    asked = prompt(Sample.model_validate(own), CANDIDATE)
    assert asked.messages[0].content == "a -> b\n\nWhich?"
    assert asked.is_cut
    assert SUITE.metrics[0] == "rule_score"

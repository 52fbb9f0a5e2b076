"""HELMET's recall and RAG files, and the rule of the latter."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.benchmarks.helmet.suite import TASKS, adapt, prompt, read_answer, substring_match
from memray_eval.datasets.answers import rename_aliases
from memray_eval.types import Candidate, Sample, Score
from tests.unit.benchmarks import builders

CANDIDATE = Candidate(name="a", model="m")
NEEDLE = {
    "context": "One of the special magic numbers for old-fox is: 4711.",
    "query": "old-fox",
    "answer": ["4711", "0815"],
    "type_needle_v": "numbers",
    "index": 3,
}
PAIR = {
    "context": '{"k1": "v1"}',
    "question": "k1",
    "answer": "v1",
    "demos": [["a", "b"]],
    "num_kvs": 105,
    "depth": 0.2,
}
PASSAGES = [{"title": "Boats", "text": "Iver Dahl built {it}."}, {"text": "It rained."}]
QUESTION = {"id": "q7", "question": "Who built it?", "answers": ["Iver Dahl"], "ctxs": PASSAGES}


def sample_of(raw: dict[str, Any], path: str) -> Sample:
    return Sample.model_validate({"id": "1", **adapt(raw, path)})


@pytest.mark.parametrize(
    ("raw", "path", "task", "bucket"),
    [
        (NEEDLE, "data/ruler/niah_multikey_2/validation_8192.jsonl", "niah_multikey_2", "8k"),
        (NEEDLE, "data/ruler/niah_multivalue/validation_131072.jsonl", "niah_multivalue", "128k"),
        (PAIR, "data/json_kv/test_k105_dep6.jsonl", "json_kv", "8k"),
        (PAIR, "data/json_kv/test_k1800_dep6.jsonl", "json_kv", "128k"),
        (QUESTION, "data/kilt/nq-dev-multikilt_1000_k50_dep6.jsonl", "nq", "8k"),
        (QUESTION, "data/kilt/hotpotqa-dev-multikilt_1000_k1000_dep3.jsonl", "hotpotqa", "128k"),
        (QUESTION, "data/kilt/popqa_test_1000_k440_dep6.jsonl", "popqa", "64k"),
        (QUESTION, "data/kilt/triviaqa-dev-multikilt_1000_k20_dep6.jsonl", "triviaqa", None),
    ],
)
def test_a_files_path_tells_task_and_length(
    raw: dict[str, Any], path: str, task: str, bucket: str | None
) -> None:
    sample = sample_of(raw, path)
    assert (sample.task, sample.metadata.get("bucket")) == (task, bucket)
    assert sample.task in TASKS


def test_needles_ask_for_all_values() -> None:
    sample = sample_of(NEEDLE, "data/ruler/niah_multivalue/validation_8192.jsonl")
    assert sample.query == "What are all the special magic numbers for old-fox in the text?"
    assert sample.answers == ("4711", "0815")
    assert sample.metadata == {
        "index": 3,
        "type_needle_v": "numbers",
        "bucket": "8k",
        "needs_all": True,
    }
    named = {name: value for name, value in NEEDLE.items() if name != "answer"}
    outputs = sample_of(named | {"outputs": ["4711"]}, "ruler/niah_multikey_3/validation_0.jsonl")
    assert outputs.answers == ("4711",)


def test_pairs_and_passages_become_a_context() -> None:
    pair = sample_of(PAIR, "data/json_kv/test_k105_dep6.jsonl")
    assert (pair.context, pair.query, pair.answers) == ('{"k1": "v1"}', "k1", ("v1",))
    assert pair.metadata == {"num_kvs": 105, "gold_depth": 0.2, "bucket": "8k"}
    asked = sample_of(QUESTION, "data/kilt/nq-dev-multikilt_1000_k50_dep6.jsonl")
    assert asked.context == (
        "Document (Title: Boats): Iver Dahl built {it}.\n\nDocument (Title: ): It rained."
    )
    assert asked.metadata == {"question_id": "q7", "bucket": "8k"}
    text = prompt(asked, CANDIDATE).messages[0].content
    assert text.index("Iver Dahl built {it}.") < text.index("Question: Who built it?")
    assert prompt(asked, CANDIDATE).max_tokens == 20


@pytest.mark.parametrize(
    ("raw", "path"), [(PAIR, "json_kv/test_k105_dep6.jsonl"), (QUESTION, "kilt/nq_k50_dep6.jsonl")]
)
def test_a_published_record_with_a_response_can_be_judged(raw: dict[str, Any], path: str) -> None:
    fields = adapt(rename_aliases(raw | {"response": "x"}), path)
    assert (fields["response"], fields["query"]) == ("x", raw["question"])
    assert fields["context"] == adapt(raw, path)["context"]


def test_well_known_subjects_of_popqa_are_a_task_of_their_own() -> None:
    path = "data/kilt/popqa_test_1000_k50_dep6.jsonl"
    assert sample_of(QUESTION | {"s_pop": 999}, path).task == "popqa"
    assert sample_of(QUESTION | {"s_pop": 1000}, path).task == "popqa_popular"


@pytest.mark.parametrize(
    ("raw", "path", "told"),
    [
        (QUESTION, "data/kilt/poems_k50_.jsonl", "no task in the name of data/kilt/poems_k50_"),
        (QUESTION | {"ctxs": None}, "kilt/nq_k50_.jsonl", "RAG tasks: it lacks ctxs;"),
        (QUESTION | {"ctxs": [1]}, "kilt/nq_k50_.jsonl", "ctxs: passage 1 must have a text"),
        (QUESTION | {"answers": [7]}, "kilt/nq_k50_.jsonl", r"answers: must be text or a list"),
        (PAIR | {"question": 1}, "json_kv/test_k105_.jsonl", "question: must be text, not int 1"),
        (
            NEEDLE | {"answer": None},
            "ruler/niah_multivalue/validation_8192.jsonl",
            "answer: must be text or a list of text, not None",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_named(raw: dict[str, Any], path: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        adapt(raw, path)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("It was Iver Dahl.", 1.0),
        ("answer: the iver DAHL!", 1.0),
        ("Iver, Dahl", 1.0),
        ("Iver", 0.0),
        ("Diver Dahlia", 1.0),  # the original's defect: parts of words count
        ("", 0.0),
    ],
)
def test_substrings_of_normalised_text(reply: str, expected: float) -> None:
    assert substring_match(reply, ["Iver Dahl", "I. Dahl"]) == expected


def test_what_follows_the_prefix_is_read_to_the_end_of_its_line() -> None:
    assert read_answer("So: ANSWER: answer: x \ny", "Answer:") == "x"
    assert read_answer("first\nsecond", "Answer:") == "first"
    with pytest.raises(ValueError, match="no answers"):
        substring_match("x", [])


def rule(task: str, reply: str, *answers: str) -> Score:
    sample = Sample(id="1", suite="helmet", task=task, query="q", answers=answers)
    return builders.scored("rule_score", sample, reply)


def test_each_task_has_its_rule() -> None:
    assert rule("nq", "Iver Dahl", "Iver Dahl").judge == "helmet_substring, HELMET 4526dfb"
    assert rule("json_kv", "Corresponding value: v1", "v1").value == 1.0
    needles = rule("niah_multivalue", "4711", "4711", "0815")
    assert (needles.value, needles.judge) == (0.5, "ruler_recall, RULER c3f5e3b")

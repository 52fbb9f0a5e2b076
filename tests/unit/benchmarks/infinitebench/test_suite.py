from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.infinitebench.suite import PUBLISHED_TOKENS, TASKS, adapt, prompt
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Sample

CANDIDATE = Candidate(name="a", model="m")
OPTIONS = ["load", "save", "quit", "draw"]


def record(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "id": 0,
        "context": "Some {text}.",
        "input": "What is it?",
        "answer": ["it"],
        "options": [],
    }
    return {name: value for name, value in (known | changes).items() if value != "ABSENT"}


def sample(task: str, **changes: Any) -> Sample:
    return Sample.model_validate(adapt(record(**changes), f"data/{task}.jsonl"))


def test_a_published_record_becomes_a_sample() -> None:
    assert sample("longbook_qa_chn", answer=["两个", "2"]) == Sample(
        id="longbook_qa_chn:0",
        task="longbook_qa_chn",
        query="What is it?",
        context="Some {text}.",
        answers=("两个", "2"),
        language="zh",
        metadata={"label": ["两个", "2"]},
    )


@pytest.mark.parametrize(
    ("task", "answer", "answers"),
    [
        ("passkey", "71432", ("71432",)),
        ("passkey", ["71432"], ("71432",)),
        ("code_run", [-4], ("-4",)),
        ("math_find", 38.5, ("38.5",)),
        ("math_find", 7, ("7",)),
        ("math_calc", [4, 2, 11], ("[4, 2, 11]",)),
        ("longdialogue_qa_eng", ["ANN", "ANNIE"], ("ANN", "ANNIE")),
        ("longbook_sum_eng", ["A long summary."], ("A long summary.",)),
    ],
)
def test_answers_are_texts_and_the_label_stays_as_published(
    task: str, answer: Any, answers: tuple[str, ...]
) -> None:
    found = sample(task, answer=answer)
    assert found.answers == answers
    assert found.metadata["label"] == answer
    assert type(found.metadata["label"]) is type(answer)


@pytest.mark.parametrize("answer", ["quit", ["quit"], ["quit", "C"]])
def test_a_choice_is_accepted_as_letter_and_as_text(answer: Any) -> None:
    found = sample("code_debug", answer=answer, options=OPTIONS, input="")
    assert found.answers == ("C", "C. quit", "quit")
    assert found.metadata == {"label": answer, "options": OPTIONS, "input": ""}


def test_what_a_record_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="not a record of InfiniteBench: it lacks id, answer;"):
        adapt(record(id="ABSENT", answer="ABSENT"), "passkey.jsonl")
    with pytest.raises(ValueError, match="options: must be a list of 4 texts"):
        sample("code_debug", answer="quit")
    with pytest.raises(ValueError, match="answer: 'stop' is none of the options"):
        sample("longbook_choice_eng", answer="stop", options=OPTIONS)
    with pytest.raises(ValueError, match="answer: empty"):
        sample("passkey", answer=[])
    with pytest.raises(
        ValueError, match=r"no task in the name of data/test.jsonl; .*: longbook_sum_eng, "
    ):
        adapt(record(), "data/test.jsonl")
    with pytest.raises(ValueError, match="input: empty, but passkey asks a question"):
        sample("passkey", input="")
    with pytest.raises(ValueError, match="options: must be a list of 4 texts"):
        adapt({"id": "1", "query": "Which?", "task": "code_debug"}, "x")
    own = {"id": "1", "query": "Which?", "task": "passkey"}
    assert adapt(own, "x") is own


def test_a_record_without_input_asks_in_our_words() -> None:
    found = sample("longdialogue_qa_eng", input="", answer=["ANN"])
    assert "$$MASK$$" in found.query
    assert found.metadata["input"] == ""


@pytest.mark.parametrize("task", TASKS)
def test_all_that_varies_comes_after_the_context(task: str) -> None:
    options = {"options": OPTIONS}
    asked = [
        prompt(Sample(id=q, task=task, query=q, context="<C>", metadata=options), CANDIDATE)
        for q in ("One?", "Two?")
    ]
    before, after = asked[0].messages[0].content.split("<C>")
    assert asked[1].messages[0].content.split("<C>")[0] == before
    assert after.count("One?") == 1
    assert ("A. load\nB. save\nC. quit\nD. draw" in after) == (
        task in ("code_debug", "longbook_choice_eng")
    )
    assert asked[0].is_chat
    assert asked[0].is_cut
    assert (asked[0].max_tokens or 0) >= PUBLISHED_TOKENS[task]


def test_the_users_templates_come_with_the_published_lengths(tmp_path: Path) -> None:
    templates = {
        "passkey": "{context} {input} The pass key is",
        "code_debug": "{context}\nA. {OPTION_A}\nD. {OPTION_D}",
        "code_run": "{func} in {context}: {func_call}",
        "math_find": "{prefix} {context} {input}",
        "longbook_qa_eng": "{context} {question}",
    }
    for name, written in (
        ("templates.json", json.dumps(templates)),
        ("mine.yaml", json.dumps(templates)),
    ):
        (tmp_path / name).write_text(written, "utf-8")
    suite = get_suite("infinitebench", str(tmp_path))
    assert get_suite("infinitebench", str(tmp_path / "mine.yaml")).tasks == suite.tasks
    assert set(suite.tasks) == set(templates)

    def said(found: Sample) -> str:
        return suite.prompt(found, CANDIDATE).messages[0].content

    assert said(sample("passkey", input="{context}?")) == "Some {text}. {context}? The pass key is"
    assert (
        said(sample("code_debug", answer="quit", options=OPTIONS))
        == "Some {text}.\nA. load\nD. draw"
    )
    run = sample(
        "code_run",
        input="Please give me the exact number of the return value of func_12(-3). Be concise.",
        answer=[4],
    )
    assert said(run) == "func_12 in Some {text}.: func_12(-3)"
    find = sample(
        "math_find",
        input="Answer with one number. The second largest number of the list is: ",
        answer=[8],
    )
    assert said(find).startswith(
        "What is the second largest number in the following list? Some {text}. Answer with one"
    )
    assert said(sample("longbook_qa_eng")) == "Some {text}. What is it?"
    assert suite.prompt(run, CANDIDATE).max_tokens == 5
    assert pickle.loads(pickle.dumps(suite.prompt))(run, CANDIDATE) == suite.prompt(run, CANDIDATE)
    with pytest.raises(ValueError, match=r"templates.json has no template for task 'kv_retrieval'"):
        suite.adapt(record(), "kv_retrieval.jsonl")


def test_templates_in_python_code_are_not_run(tmp_path: Path) -> None:
    code = tmp_path / "prompt.py"
    code.write_text("raise SystemExit(1)", "utf-8")
    for path in (code, tmp_path):
        with pytest.raises(
            ConfigError,
            match=r"Python code \(src/prompt.py\), which is not run; copy .* JSON or YAML",
        ):
            get_suite("infinitebench", str(path))

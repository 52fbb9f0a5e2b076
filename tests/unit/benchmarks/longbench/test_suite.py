from __future__ import annotations

import json
import os.path
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.longbench.suite import TASKS, WORDINGS, adapt, bucket, prompt, templated
from memray_eval.benchmarks.templates import parse_braces, parse_dollars
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Sample
from tests.conftest import REPOSITORY

REAL = REPOSITORY.parent / "shared" / "data" / "longbench"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no slices of LongBench at {REAL}")
CANDIDATE = Candidate(name="a", model="m")
PLAIN = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}


def record(**changes: Any) -> dict[str, Any]:
    known = {
        "input": "Who built it?",
        "context": "The Harkers built it.",
        "answers": ["the Harkers", "Harkers"],
        "length": 4,
        "dataset": "hotpotqa",
        "language": "en",
        "all_classes": None,
        "_id": "0a1b",
    }
    return {name: value for name, value in (known | changes).items() if value != "ABSENT"}


def sample(raw: dict[str, Any], path: str = "data/hotpotqa.jsonl") -> Sample:
    return Sample.model_validate({**adapt(raw, path), "suite": "longbench"})


def real_records() -> list[tuple[str, dict[str, Any]]]:
    files = sorted(REAL.glob("*.jsonl"))
    return [
        (str(file), json.loads(line))
        for file in files
        for line in file.read_text("utf-8").splitlines()
    ]


def text(of: Sample, templates: str | None = None) -> str:
    return get_suite("longbench", templates).prompt(of, CANDIDATE).messages[0].content


def write(folder: Path, prompts: object, lengths: object | None = None) -> str:
    (folder / "dataset2prompt.json").write_text(
        prompts if isinstance(prompts, str) else json.dumps(prompts), "utf-8"
    )
    if lengths is not None:
        (folder / "dataset2maxlen.json").write_text(json.dumps(lengths), "utf-8")
    return str(folder)


def test_a_published_record_becomes_a_sample() -> None:
    found = sample(record(all_classes=["a", "b"]))
    assert found == Sample(
        id="hotpotqa:0a1b",
        suite="longbench",
        task="hotpotqa",
        query="Who built it?",
        context="The Harkers built it.",
        answers=("the Harkers", "Harkers"),
        classes=("a", "b"),
        metadata={"length": 4, "bucket": "0-4k"},
    )


def test_a_record_without_input_asks_in_our_words_and_keeps_its_empty_input() -> None:
    for task in ("gov_report", "multi_news", "vcsum", "passage_count", "lcc"):
        found = sample(record(dataset=task, input=""))
        assert found.query.strip()
        assert found.metadata["input"] == ""
    assert "会议" in sample(record(dataset="vcsum", input="")).query
    with pytest.raises(ValueError, match="input: empty, but hotpotqa asks a question"):
        adapt(record(input=" "), "x.jsonl")


def test_the_task_is_named_by_the_record_else_by_its_file_or_folder() -> None:
    unnamed = record(dataset="ABSENT")
    assert adapt(unnamed, "s3://bucket/LongBench/data/2wikimqa.jsonl")["task"] == "2wikimqa"
    assert adapt(unnamed, "/data/repobench-p/train-00000-of-00001.parquet")["task"] == "repobench-p"
    assert adapt(unnamed, "/data/qasper/test/0000.parquet")["task"] == "qasper"
    assert adapt(unnamed, "data/musique-00000-of-00002.parquet")["task"] == "musique"
    assert adapt(record(dataset="ABSENT", task="qmsum"), "data/all.jsonl")["task"] == "qmsum"
    assert adapt(record(dataset="qasper"), "musique.jsonl")["task"] == "qasper"
    with pytest.raises(
        ValueError,
        match=r"no task in the name of data/all.jsonl; .* one of: narrativeqa, qasper, "
        r".*repobench-p",
    ):
        adapt(unnamed, "data/all.jsonl")
    with pytest.raises(ValueError, match="no task 'poetry'; there are: narrativeqa, qasper"):
        adapt(record(dataset="poetry"), "hotpotqa.jsonl")


def test_longbench_e_is_noted_and_does_not_collide_with_longbench() -> None:
    whole, even = adapt(record(), "data/hotpotqa.jsonl"), adapt(record(), "data/hotpotqa_e.jsonl")
    assert (whole["task"], even["task"]) == ("hotpotqa", "hotpotqa")
    assert whole["id"] != even["id"]
    assert "edition" not in whole["metadata"]
    assert even["metadata"]["edition"] == "LongBench-E"
    assert (
        adapt(record(dataset="ABSENT"), "hotpotqa_e/test-00000-of-00001.parquet")["metadata"][
            "edition"
        ]
        == "LongBench-E"
    )
    assert adapt(record(dataset="hotpotqa_e"), "all.jsonl")["task"] == "hotpotqa"
    assert [bucket(length) for length in (0, 3999, 4000, 7999, 8000)] == [
        "0-4k",
        "0-4k",
        "4-8k",
        "4-8k",
        "8k+",
    ]


def test_the_language_is_the_record_s_or_the_task_s() -> None:
    assert adapt(record(dataset="lcc", language="python"), "x")["language"] == "python"
    assert adapt(record(dataset="dureader", language="ABSENT"), "x")["language"] == "zh"
    assert adapt(record(language="ABSENT"), "x")["language"] == "en"


def test_what_a_record_lacks_is_named() -> None:
    with pytest.raises(
        ValueError,
        match=r"not a record of LongBench: it lacks _id, context, length; .* id and query",
    ):
        adapt({"input": "Why?", "answers": ["So"]}, "hotpotqa.jsonl")
    with pytest.raises(ValueError, match="answers: must be a list, not str 'So'"):
        adapt(record(answers="So"), "x")
    with pytest.raises(ValueError, match="length: must be a whole number, not str '12'"):
        adapt(record(length="12"), "x")


def test_a_response_beside_the_record_and_a_context_in_a_file_are_kept() -> None:
    found = adapt(record(pred="Harkers", context="ABSENT", context_file="contexts/1.txt"), "x")
    assert (found["pred"], found["context_file"]) == ("Harkers", "contexts/1.txt")
    assert "context" not in found


@pytest.mark.parametrize("task", TASKS)
def test_all_that_varies_comes_after_the_context(task: str) -> None:
    asked = [
        prompt(Sample(id=q, task=task, query=q, context="<CONTEXT>"), CANDIDATE).messages[0].content
        for q in ("One?", "Two?")
    ]
    before, after = asked[0].split("<CONTEXT>")
    assert asked[1].split("<CONTEXT>")[0] == before
    assert before.strip()
    assert after.count("One?") == 1
    assert (task in ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")) == (
        ord(before[0]) > 0x4E00
    )


def test_few_shot_and_code_tasks_are_asked_as_plain_text_and_all_prompts_may_be_cut() -> None:
    asked = {
        task: prompt(Sample(id="1", task=task, query="q", context="c"), CANDIDATE) for task in TASKS
    }
    assert {task for task, each in asked.items() if not each.is_chat} == PLAIN
    assert {task for task, each in asked.items() if each.stop} == {"samsum"}
    assert asked["samsum"].stop == ("\n",)
    assert all(each.is_cut for each in asked.values())
    # What these are to continue is the end of their input.
    assert all(
        asked[task].messages[0].content.endswith("q") for task in PLAIN - {"lcc", "repobench-p"}
    )


@given(context=st.text(), query=st.text(min_size=1))
def test_nothing_in_a_context_or_question_is_a_place(context: str, query: str) -> None:
    context = f"{{input}} {{0}} }}{{ {context} $Q$"
    template = parse_braces("{{literal}} {context} | {input}")
    assert template.fill({"context": context, "input": query}) == f"{{literal}} {context} | {query}"
    assert (
        parse_dollars("$DOC$ costs $5, $Q$").fill({"DOC": context, "Q": query})
        == f"{context} costs $5, {query}"
    )


def test_the_users_templates_and_lengths_replace_ours(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"gov_report": "Report:{context}\nSummary:", "samsum": "{context}\n{input}"},
        {"samsum": 7},
    )
    suite = get_suite("longbench", path)
    report = sample(record(dataset="gov_report", input=""))
    asked = suite.prompt(report, CANDIDATE)
    assert asked.messages[0].content == "Report:The Harkers built it.\nSummary:"
    assert asked.max_tokens == 512
    dialogue = suite.prompt(
        sample(record(dataset="samsum", input="Dialogue: hi {context}")), CANDIDATE
    )
    assert dialogue.messages[0].content == "The Harkers built it.\nDialogue: hi {context}"
    assert (dialogue.max_tokens, dialogue.is_chat, dialogue.stop) == (7, False, ("\n",))
    assert pickle.loads(pickle.dumps(suite.prompt))(report, CANDIDATE) == asked
    assert get_suite("longbench", f"{path}/dataset2prompt.json").prompt(report, CANDIDATE) == asked


def test_tasks_without_a_template_are_no_longer_the_suite_s(tmp_path: Path) -> None:
    suite = get_suite("longbench", write(tmp_path, {"qasper": "{context} {input}"}))
    assert suite.tasks == ("qasper",)
    assert suite.adapt(record(dataset="qasper"), "x")["task"] == "qasper"
    with pytest.raises(
        ValueError, match=r"dataset2prompt.json has no template for task 'hotpotqa'; it has: qasper"
    ):
        suite.adapt(record(), "x")


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ({"qasper": "{input}"}, "dataset2prompt.json: qasper: has no place context"),
        (
            {"qasper": "{context} {question}"},
            "qasper: has a place question that nothing fills; there are: context, input",
        ),
        ({"qasper": '{context} {"a": 1}'}, "qasper: .*a brace that is text is written twice"),
        ({"qasper": "{context} }"}, "dataset2prompt.json: qasper: "),
        ({"qasper": 128}, "dataset2prompt.json: qasper: must be text, not int"),
        ({"poetry": "{context}"}, "dataset2prompt.json: no task 'poetry'; there are: narrativeqa"),
        ('{"qasper": ', "dataset2prompt.json is broken: Expecting value: line 1 column 12"),
        ("[]", "dataset2prompt.json must map each task to its value"),
    ],
)
def test_broken_templates_are_named_with_file_and_task(
    tmp_path: Path, prompts: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        get_suite("longbench", write(tmp_path, prompts))


def test_broken_lengths_and_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing at .*none"):
        get_suite("longbench", str(tmp_path / "none"))
    with pytest.raises(
        ConfigError, match=r"has no dataset2prompt.json; LongBench keeps it in its folder config"
    ):
        get_suite("longbench", str(tmp_path))
    path = write(tmp_path, {"qasper": "{context}"}, {"qasper": 0})
    with pytest.raises(
        ConfigError, match=r"dataset2maxlen.json: qasper: must be a number of tokens above 0, not 0"
    ):
        get_suite("longbench", path)


@needs_real
def test_every_real_record_is_a_sample_and_is_asked_whole() -> None:
    found = [sample(raw, path) for path, raw in real_records()]
    assert len(found) == 24
    assert len({each.id for each in found}) == 24
    assert {each.task for each in found} == {
        "multi_news",
        "multifieldqa_zh",
        "passage_retrieval_zh",
    }
    for each, (_, raw) in zip(found, real_records(), strict=True):
        assert each.context == raw["context"]
        assert text(each).count(raw["context"]) == 1
        assert text(each).split(raw["context"])[1].count(each.query) == 1


@needs_real
def test_the_real_templates_render_as_python_would() -> None:
    prompts = json.loads((REAL / "dataset2prompt.json").read_text("utf-8"))
    lengths = json.loads((REAL / "dataset2maxlen.json").read_text("utf-8"))
    suite = templated(get_suite("longbench"), str(REAL))
    assert suite.tasks == TASKS == tuple(prompts)
    assert {task: wording.max_tokens for task, wording in WORDINGS.items()} == lengths
    for task, template in prompts.items():
        raw = record(
            dataset=task,
            context="a {brace} and {input}",
            input="" if "{input}" not in template else "Why {not}?",
        )
        asked = suite.prompt(sample(raw), CANDIDATE)
        assert asked.messages[0].content == template.format(**raw)
        assert (asked.max_tokens, asked.is_chat) == (lengths[task], task not in PLAIN)
    for path, raw in real_records():
        assert text(sample(raw, path), str(REAL)) == prompts[
            os.path.basename(path).removesuffix(".jsonl")
        ].format(**raw)

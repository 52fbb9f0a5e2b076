"""Published records of every benchmark: the samples that they become, what is said of broken ones,
how they are asked, and by which rule they are scored."""

import re
from typing import Any

import pytest

from memray_eval.benchmarks import all_suites, get_suite
from memray_eval.benchmarks.rules import rule_name, scorer
from memray_eval.datasets.fields import rename_aliases
from memray_eval.types import Sample
from tests.build import score_text
from tests.unit.benchmarks.records import (
    PLAIN,
    RECORDS,
    SAMPLES,
    adapted,
    record,
    sample_of,
    sent,
    task_sample,
)
from tests.unit.datasets.builders import broken_rows


@pytest.mark.parametrize(("name", "expected"), SAMPLES.items(), ids=SAMPLES)
def test_a_published_record_becomes_a_sample(name: str, expected: dict[str, Any]) -> None:
    suite = name.split()[0]
    assert sample_of(name) == Sample.model_validate({"id": "1", "suite": suite, **expected})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("locomo", {"task": "adversarial", "answers": ["Not mentioned in the conversation"],
                    "prediction": "Nobody", "id": "conv-26:qa1", "unanswerable": True}),
        ("needles of RULER", {"id": "niah_single_2@128k:3", "answers": ["12345"]}),
        ("longmemeval", {"id": "x_abs", "response": "H", "unanswerable": True,
                         "evidence": [["", "s"]]}),
        ("personamem", {"response": "(b)", "label": "(b)", "id": "q1"}),
    ],
)  # fmt: skip
def test_answers_of_benchmarks_own_runs_are_read(name: str, expected: dict[str, Any]) -> None:
    fields = adapted(name)
    assert {field: fields[field] for field in expected} == expected


@pytest.mark.parametrize(
    "name", ["graphwalks", "healthbench", "helmet pairs", "helmet passages", "longbench", "mrcr"]
)
def test_a_published_record_with_a_response_can_be_judged(name: str) -> None:
    suite, path = get_suite(name.split()[0]), RECORDS[name][0]
    fields = suite.adapt(rename_aliases(record(name, response="r")), path)
    plain = adapted(name)
    assert fields["response"] == "r"
    assert {field: fields[field] for field in plain} == plain


@pytest.mark.parametrize(
    ("name", "path", "changes", "task", "bucket"),
    [
        ("babilong", "babilong/data/qa10/1M.json", {}, "qa10", "1M"),
        ("babilong", "hub/128k/qa3-00000-of-00001.parquet", {}, "qa3", "128k"),
        ("babilong", "hub/qa2/0k-00000-of-00001.parquet", {}, "qa2", "0k"),
        ("babilong", "rows/qa4.jsonl", {}, "qa4", None),
        ("needles of RULER", "s3://b/2024/4096/niah_single_1/validation.jsonl", {},
         "niah_single_1", "4k"),
        ("needles of RULER", "C:\\ruler\\16384\\pred\\qa_1.jsonl", {}, "qa", "16k"),
        ("needles of RULER", "2024/vt.jsonl", {}, "vt", None),
        ("helmet needles", "x/ruler/niah_multikey_2/validation_131072.jsonl", {},
         "niah_multikey_2", "128k"),
        ("helmet needles", "ruler/niah_multikey_3/validation_0.jsonl",
         {"answer": ..., "outputs": ["4711"]}, "niah_multikey_3", None),
        ("helmet pairs", "data/json_kv/test_k1800_dep6.jsonl", {}, "json_kv", "128k"),
        ("helmet passages", "kilt/hotpotqa-dev_k1000_dep3.jsonl", {}, "hotpotqa", "128k"),
        ("helmet passages", "kilt/popqa_test_1000_k440_dep6.jsonl", {"s_pop": 999}, "popqa", "64k"),
        ("helmet passages", "kilt/popqa_test_1000_k440_dep6.jsonl", {"s_pop": 1000},
         "popqa_popular", "64k"),
        ("helmet passages", "kilt/triviaqa-dev_k20_dep6.jsonl", {}, "triviaqa", None),
        ("longbench", "s3://b/data/2wikimqa.jsonl", {"dataset": ...}, "2wikimqa", "0-4k"),
        ("longbench", "/x/repobench-p/train-00000-of-00001.parquet", {"dataset": ...},
         "repobench-p", "0-4k"),
        ("longbench", "/x/qasper/test/0000.parquet", {"dataset": ...}, "qasper", "0-4k"),
        ("longbench", "x/musique-00000-of-00002.parquet", {"dataset": ..., "length": 4000},
         "musique", "4-8k"),
        ("longbench", "x/all.jsonl", {"dataset": ..., "task": "qmsum", "length": 7999}, "qmsum",
         "4-8k"),
        ("longbench", "musique.jsonl", {"dataset": "qasper", "length": 8000}, "qasper", "8k+"),
        ("longbench", "all.jsonl", {"dataset": "hotpotqa_e", "length": 3999}, "hotpotqa", "0-4k"),
    ],
)  # fmt: skip
def test_record_and_path_tell_task_and_length(
    name: str, path: str, changes: dict[str, Any], task: str, bucket: str | None
) -> None:
    sample = sample_of(name, path, **changes)
    assert (sample.task, sample.metadata.get("bucket")) == (task, bucket)
    assert sample.task in get_suite(sample.suite).tasks


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [(name, changes, message) for name in RECORDS for changes, _, message in broken_rows(name)],
)
def test_a_broken_record_is_named(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        adapted(name, **changes)


@pytest.mark.parametrize(
    ("suite", "task", "asked_for"),
    [
        *(("longbench", task, "") for task in ("gov_report", "multi_news", "passage_count", "lcc")),
        ("longbench", "vcsum", "会议"),
        ("infinitebench", "longdialogue_qa_eng", "$$MASK$$"),
        ("infinitebench", "math_calc", "intermediate values"),
    ],
)
def test_a_record_without_input_asks_in_our_words(suite: str, task: str, asked_for: str) -> None:
    sample = sample_of(suite, f"{task}.jsonl", dataset=..., input="")
    assert sample.query.strip()
    assert asked_for in sample.query
    assert sample.metadata["input"] == ""


@pytest.mark.parametrize(
    ("task", "answer", "answers"),
    [
        *(("passkey", "71432", ("71432",)), ("passkey", ["71432"], ("71432",))),
        *(("code_run", [-4], ("-4",)), ("math_find", 38.5, ("38.5",)), ("math_find", 7, ("7",))),
        ("math_calc", [4, 2, 11], ("[4, 2, 11]",)),
        ("longdialogue_qa_eng", ["ANN", "ANNIE"], ("ANN", "ANNIE")),
        # a choice is accepted as its letter and as its text
        *(("code_debug", a, ("C", "C. quit", "quit")) for a in ("quit", ["quit"], ["quit", "C"])),
    ],
)
def test_infinitebench_answers_are_texts(task: str, answer: Any, answers: tuple[str, ...]) -> None:
    options = ["load", "save", "quit", "draw"]
    sample = sample_of("infinitebench", f"{task}.jsonl", answer=answer, options=options)
    assert sample.answers == answers
    assert sample.metadata["label"] == answer  # as published
    assert type(sample.metadata["label"]) is type(answer)
    assert sample.metadata["options"] == options


def test_longbench_e_is_noted_and_does_not_collide_with_longbench() -> None:
    whole, even = adapted("longbench"), adapted("longbench", "data/hotpotqa_e.jsonl")
    assert whole["task"] == even["task"]
    assert whole["id"] != even["id"]
    folder = adapted("longbench", "hotpotqa_e/test-00000-of-00001.parquet", dataset=...)
    editions = [fields["metadata"].get("edition") for fields in (whole, even, folder)]
    assert editions == [None, "LongBench-E", "LongBench-E"]


def test_the_language_is_the_records_or_the_tasks() -> None:
    python = adapted("longbench", "lcc.jsonl", dataset="lcc", language="python")
    chinese = adapted("longbench", "dureader.jsonl", dataset="dureader", language=...)
    english = adapted("longbench", language=...)
    assert [fields["language"] for fields in (python, chinese, english)] == ["python", "zh", "en"]


def test_what_else_a_record_has_and_a_context_in_a_file_are_kept() -> None:
    more = {"pred": "Harkers", "context_file": "contexts/1.txt"}
    fields = adapted("longbench", context=..., **more)
    assert {name: fields[name] for name in more} == more
    assert "context" not in fields


OTHERS = {"long_context", "qa"}  # with long contexts too, and no records of their own
OWN = [name for name, suite in all_suites().items() if suite.has_contexts and name not in OTHERS]


@pytest.mark.parametrize("name", OWN)
def test_a_row_of_our_own_passes_as_it_is_and_a_wrong_task_is_named(name: str) -> None:
    suite = get_suite(name)
    metadata = {"choices": dict.fromkeys("ABCD", "x"), "options": [*"wxyz"]}
    for task in suite.tasks:
        row = {"id": "1", "query": "Who?", "task": task, "metadata": metadata}
        assert suite.adapt(row, "x") is row
    if name != "personamem":  # whose tables may have further types
        with pytest.raises(ValueError, match="no task 'poetry'; there are: "):
            suite.adapt({"id": "1", "query": "Who?", "task": "poetry"}, "x")


@pytest.mark.parametrize(
    ("suite", "task", "message"),
    [
        ("infinitebench", "code_debug", "options: must be a list of 4 texts"),
        ("longbench2", "", "metadata.choices: must give the text of each of A, B, C and D"),
    ],
)
def test_a_row_of_ours_without_its_choices_is_refused(suite: str, task: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_suite(suite).adapt({"id": "1", "query": "Which?", "task": task}, "x")


ASKED = ("babilong", "helmet", "infinitebench", "longbench")


@pytest.mark.parametrize(("suite", "task"), [(n, t) for n in ASKED for t in get_suite(n).tasks])
def test_all_that_varies_comes_after_the_context(suite: str, task: str) -> None:
    sample = task_sample(suite, task, options=["load", "save", "quit", "draw"])
    (before, after), (other, _) = (
        sent(sample.model_copy(update={"query": query, "context": "<C>"})).split("<C>")
        for query in ("One?", "Two?")
    )
    assert before == other
    assert before.strip()
    assert after.count("One?") == 1
    is_choice = task in ("code_debug", "longbook_choice_eng")
    assert ("A. load\nB. save\nC. quit\nD. draw" in after) == is_choice
    is_chinese = task.endswith(("_zh", "_chn")) or task in CHINESE
    assert is_chinese == (ord(before[0]) > 0x4E00)


CHINESE = ("dureader", "vcsum", "lsht")  # of tasks whose names do not say it


# A suite, its task, and the rule by which a sample of it is scored
RULES = """
    babilong qa1 = babilong, BABILong e3119da | needles qa = ruler_any, RULER c3f5e3b |
    graphwalks bfs = graphwalks_f1, lm-evaluation-harness 4e7e0d4 |
    helmet nq = helmet_substring, HELMET 4526dfb | mrcr 2needle = mrcr_ratio, openai/mrcr 204b0d4 |
    helmet json_kv = helmet_substring, HELMET 4526dfb |
    locomo temporal = locomo_f1, LoCoMo 3eb6f2c |
    helmet niah_multivalue = ruler_recall, RULER c3f5e3b |
    infinitebench code_debug = infinitebench_v2, InfiniteBench 51d9b37 |
    infinitebench code_debug v1 = infinitebench_v1, InfiniteBench 88b3daa |
    longbench passage_count = count, LongBench 2e00731 |
    longbench2 qa = longbench2_choice, LongBench 2e00731 |
    needles niah_single_1 = ruler_recall, RULER c3f5e3b |
    needles niah_multiquery = ruler_recall, RULER c3f5e3b |
    needles vt = ruler_recall, RULER c3f5e3b | needles cwe = ruler_recall, RULER c3f5e3b |
    needles fwe = ruler_recall, RULER c3f5e3b | personamem = personamem_letter, PersonaMem 041d82a
"""


@pytest.mark.parametrize("case", [case.strip() for case in RULES.split("|")])
def test_the_rule_of_a_sample_is_named_with_its_version(case: str) -> None:
    about, judge = case.split(" = ")
    suite, task, *version = [*about.split(), ""]
    metadata = {"rules": "v1"} if "v1" in version else {}
    assert scorer(rule_name(task_sample(suite, task, **metadata)) or "") == judge.strip()


def test_a_sample_is_scored_by_its_rule() -> None:
    choice = "The correct answer is (B)"
    for sample, reply, value in (
        (task_sample("longbench2", "", "B", "B. x"), choice, 1.0),
        (task_sample("longbench2", "", "x", label="B"), choice, 1.0),
        (task_sample("locomo", "temporal", "7 May 2023"), "On 7 May, 2023", 6 / 7),
        (task_sample("infinitebench", "code_debug", label=["parse_args", "C"], rules="v1"), "C", 0),
        (task_sample("infinitebench", "code_debug", label=["parse_args", "C"]), "C", 1.0),
    ):
        assert score_text("rule_score", sample, reply).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (task_sample("babilong", "qa1", "kitchen", "garden"), "one answer; the sample has 2"),
        (task_sample("helmet", "nq"), "no answers to look for"),
        (task_sample("infinitebench", "passkey"), "no answer"),
        (task_sample("locomo", "temporal"), "the sample has none"),
        (task_sample("longbench", "trec", "Food"), "has no classes: give the task's class names"),
        (task_sample("longbench", "passage_retrieval_en", "30"), "Paragraph N"),
        (task_sample("longbench2", "", "the text"), "is a letter A-D"),
        (task_sample("mrcr", "2needle", "x"), "metadata has no random_string_to_prepend"),
        (task_sample("mrcr", "2needle", "x", "y", random_string_to_prepend="aB3"), "sample has 2"),
        (task_sample("needles", "qa"), "no answers to look for"),
        (task_sample("personamem", "", "Tenor"), "none of the answers is a letter"),
    ],
)
def test_what_a_rule_lacks_is_an_error_of_its_unit(sample: Sample, message: str) -> None:
    score = score_text("rule_score", sample, "x")
    assert (score.status, score.value) == ("error", None)
    assert message in (score.error or "")


@pytest.mark.parametrize(
    "case",
    "babilong chat babilong|graphwalks dfs graphwalks_harness_f1|infinitebench poetry rule_score|"
    "infinitebench poetry infinitebench_v1|longbench trec classification|longbench chat rule_score|"
    "mrcr 2needle mrcr_ratio|needles hotpotqa rule_score".split("|"),
)
def test_a_task_without_the_rule_is_not_applicable(case: str) -> None:
    suite, task, metric = case.split()  # trec has no classes, 2needle no prefix
    score = score_text(metric, task_sample(suite, task, "x"), "x")
    assert (score.status, score.value) == ("not_applicable", None)


def test_prompts_may_lose_their_middle_but_a_conversation_of_mrcr() -> None:
    short = {"locomo", "longmemeval", "personamem", "healthbench", "healthbench professional"}
    samples = {name: sample_of(name) for name in RECORDS.keys() - short}
    whole = [n for n, s in samples.items() if not get_suite(s.suite).prompt(s, PLAIN).is_cut]
    assert whole == ["mrcr"]

"""LongBench's rules: long texts, what they cannot read, and which is whose."""

import itertools
import random
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.benchmarks.longbench import rules as longbench
from memray_eval.benchmarks.longbench.rules import lcs, rouge_l
from memray_eval.benchmarks.rules import rule_name
from tests.build import score_text
from tests.unit.benchmarks.records import task_sample

sample = partial(task_sample, "longbench")


def test_cutting_says_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    longbench._jieba.cache_clear()
    assert longbench.segment("北京大学很好") == ["北京大学", "很", "好"]
    assert capfd.readouterr().err == ""


def test_rouge_scores_long_sentences_that_the_original_cannot() -> None:
    text = " ".join(f"w{i}" for i in range(1100))
    assert rouge_l(text, text) == pytest.approx(1.0)
    assert rouge_l("x " * 1200, "x y") == pytest.approx(0.66666666222, abs=1e-11)


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_lcs_is_that_of_a_table_read_from_its_end(rows: list[str], columns: list[str]) -> None:
    assert lcs(rows, columns) == table_lcs(rows, columns)


def table_lcs(rows: list[str], columns: list[str]) -> list[tuple[int, int]]:
    table = [[0] * (len(columns) + 1) for _ in range(len(rows) + 1)]
    for r, c in itertools.product(range(len(rows)), range(len(columns))):
        table[r + 1][c + 1] = (
            table[r][c] + 1 if rows[r] == columns[c] else max(table[r][c + 1], table[r + 1][c])
        )
    r, c, result = len(rows), len(columns), []
    while r and c:
        if rows[r - 1] == columns[c - 1]:
            r, c = r - 1, c - 1
            result.append((r, c))
        elif table[r - 1][c] > table[r][c - 1]:
            r -= 1
        else:
            c -= 1
    return result[::-1]


def test_retrieval_wants_answers_that_name_a_paragraph() -> None:
    with pytest.raises(ValueError, match="Paragraph N"):
        longbench.retrieval("Paragraph 3", ["3"])
    with pytest.raises(ValueError, match="段落N"):
        longbench.retrieval_zh("段落9", ["Paragraph 9"])


def test_four_tasks_score_the_first_line_only() -> None:
    text = "\n\nParis\nand more words than one would like"
    assert longbench.first_line("triviaqa", text) == "Paris"
    assert longbench.first_line("triviaqa", " \nParis") == " "  # only newlines are stripped
    assert longbench.first_line("hotpotqa", text) == text
    assert score_text("rule_score", sample("triviaqa", "Paris"), text).value == 1.0
    assert score_text("qa_f1", sample("triviaqa", "Paris"), text).value == 1.0
    assert score_text("qa_f1", sample("hotpotqa", "Paris"), text).value == pytest.approx(2 / 9)
    trec = sample("trec", "Food", classes=["Food", "Date"])
    for name in ("rule_score", "classification"):
        assert score_text(name, trec, "Food\nDate").value == 1.0
    assert score_text("rule_score", sample("samsum", "a b"), "\na b\nc").value == pytest.approx(1.0)


def test_metadata_picks_another_rule_and_a_wrong_one_is_an_error() -> None:
    answered = sample("passage_count", "five cats", rule="qa_f1")
    assert score_text("rule_score", answered, "five").value == pytest.approx(2 / 3)
    wrong = score_text("rule_score", sample("passage_count", "5", rule="f1"), "5")
    assert wrong.status == "error"
    assert "no rule 'f1'; there are: babilong, " in (wrong.error or "")


def test_no_answers_score_0_as_in_the_original() -> None:
    for task, name in longbench.RULE_OF_TASK.items():
        if not name.endswith("_zh"):
            assert score_text("rule_score", sample(task, classes=["x"]), "Paragraph 5").value == 0.0


@pytest.mark.parametrize("suite", ["", "memory"])
def test_a_suite_without_a_table_goes_by_the_task(suite: str) -> None:
    rules = {
        "passage_count": "count",
        "niah_single_1": "ruler_recall",
        "passkey": "infinitebench_v2",
    }
    assert {task: rule_name(task_sample(suite, task)) for task in rules} == rules
    assert rule_name(sample("passkey")) is None


@pytest.mark.heavy
def test_answers_of_100_000_characters_are_scored_in_seconds() -> None:
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefgh", k=5)) for _ in range(400)]
    text = " ".join(draw.choices(words, k=17_000))
    reference = ". ".join(" ".join(draw.choices(words, k=20)) for _ in range(30))
    chinese = "".join(draw.choices("有两人叫阿四论坛的主题是区域名校长的成长", k=100_000))
    started = time.process_time()
    for name in ("qa_f1", "rouge", "count", "retrieval", "classification"):
        score_text(name, sample("", "Paragraph 5", reference, classes=words), text)
    # A single sentence each
    longbench.rouge(text, [" ".join(draw.choices(words, k=17_000)) + " end"])
    longbench.qa_f1_zh(chinese, ["成长"])
    longbench.rouge_zh(chinese, [chinese[:3000]])
    assert time.process_time() - started < 20

"""LongBench's rules. Figures are what the originals (rouge 1.0.1, fuzzywuzzy 0.18.0, jieba 0.42.1)
print for these texts."""

import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.benchmarks.longbench import rules as longbench
from memray_eval.benchmarks.longbench.rules import lcs, rouge_l
from memray_eval.benchmarks.rules import rule_name
from memray_eval.types import Sample
from tests.build import score_text


def sample(task: str = "", *answers: str, suite: str = "longbench", **fields: object) -> Sample:
    return Sample.model_validate(
        {"id": "1", "query": "q", "suite": suite, "task": task, "answers": answers, **fields}
    )


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("The cat sat on the mat.", ["a cat"], 0.4),
        ("Paris", ["paris!"], 1.0),
        ("", [""], 0.0),  # two empty bags have nothing in common
        ("the an a", ["the"], 0.0),  # articles only
        ("state-of-the-art", ["state of the art"], 0.0),  # punctuation leaves no space
        ("Yes, in 1990", ["1990"], 0.5),
        ("London London", ["London"], 2 / 3),
        ("U.S.A", ["usa"], 1.0),
        ("«Paris»", ["Paris"], 0.0),  # only ASCII punctuation goes
        ("Paris", ["Rome", "Paris, France", "Lyon"], 2 / 3),
        ("Paris", [], 0.0),
    ],
)
def test_qa_f1(prediction: str, answers: list[str], expected: float) -> None:
    assert longbench.qa_f1(prediction, answers) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        # by words; InfiniteBench's characters give 0.25
        ("有两人叫阿四。", ["2", "两个", "二"], 0.0),
        ("论坛的主题是区域名校长的成长。", ["论坛的主题是区域名校长的成长。"], 1.0),
        ("主题是名校长的成长", ["论坛的主题是区域名校长的成长。"], 0.8),
        ("清华大学在北京", ["上海", "北京"], 0.5),
        ("北京大学", ["北京 大学"], 0.0),  # a space cuts the word in two before it is dropped
        ("《红楼梦》", ["红楼梦"], 2 / 3),  # 《 is not in the original's list
        ("2", ["２"], 0.0),
        ("。！", ["。"], 0.0),
        ("", ["北京"], 0.0),
        ("北京", [], 0.0),
    ],
)
def test_qa_f1_zh(prediction: str, answers: list[str], expected: float) -> None:
    assert longbench.qa_f1_zh(prediction, answers) == pytest.approx(expected)


def test_cutting_says_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    longbench._jieba.cache_clear()
    assert longbench.segment("北京大学很好") == ["北京大学", "很", "好"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("the cat sat on the mat", "the cat lay on the mat", 0.79999999500),
        ("A b c. D e f.", "D e f. A b c.", 0.999999995),  # the order of sentences does not matter
        (
            "the dog ran. the cat slept. it rained",
            "the cat slept. it snowed. the dog ran home",
            0.79999999502,
        ),
        ("a b c d", "d c b a", 0.249999995),
        ("a b a c", "a c b a", 0.66666666167),
        ("The cat sat.", "the cat sat", 0.66666666167),  # case-sensitive
        ("the the the", "the", 0.999999995),  # sets of words
        # the space after the first dot is a sentence of one empty word
        ("a. .", "a", 0.66666666222),
        ("x " * 1200, "x y", 0.66666666222),
        ("", "a b", 0.0),
        ("...", "a b", 0.0),
        ("a b", "", 0.0),
    ],
)
def test_rouge(prediction: str, answer: str, expected: float) -> None:
    assert longbench.rouge(prediction, [answer]) == pytest.approx(expected, abs=1e-11)


def test_rouge_scores_long_sentences_that_the_original_cannot() -> None:
    text = " ".join(f"w{i}" for i in range(1100))
    assert rouge_l(text, text) == pytest.approx(1.0)


def test_rouge_takes_the_best_answer_and_none_is_0() -> None:
    assert longbench.rouge("a b", ["c", "a b", "a"]) == pytest.approx(1.0)
    assert longbench.rouge("a b", []) == 0.0


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("今天天气很好。我们去公园。", "今天天气好，我们去了公园。", 0.79999999502),
        ("会议讨论了预算。", "会议讨论了预算。", 0.999999995),
        ("", "会议", 0.0),
        ("。", "会议", 0.0),
    ],
)
def test_rouge_zh(prediction: str, answer: str, expected: float) -> None:
    assert longbench.rouge_zh(prediction, [answer]) == pytest.approx(expected, abs=1e-11)


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_lcs_is_the_one_that_a_table_read_from_its_end_gives(
    rows: list[str], columns: list[str]
) -> None:
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


@pytest.mark.parametrize(
    ("prediction", "answers", "classes", "expected"),
    [
        ("Food", ["Food"], ["Food", "Food other"], 1.0),
        ("Food other", ["Food other"], ["Food", "Food other"], 1.0),
        ("Date and Food", ["Food"], ["Date", "Food", "Person"], 0.5),
        ("Other", ["Food"], ["Food", "Other"], 0.0),
        ("food", ["Food"], ["Food"], 0.0),
        # "Manner" is removed, and "Manner of" is then stepped over
        (
            "Manner of an action",
            ["Manner of an action"],
            ["Manner", "Manner of", "Manner of an action"],
            0.5,
        ),
        ("体育新闻", ["体育"], ["体育", "经济"], 1.0),
        ("", ["Food"], ["Food"], 0.0),
        ("Food", [], ["Food"], 0.0),
    ],
)
def test_classification(
    prediction: str, answers: list[str], classes: list[str], expected: float
) -> None:
    assert longbench.classification(prediction, answers, classes) == expected


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ("There are 5 unique", 1.0),
        ("5 or 6", 0.5),
        ("05", 0.0),
        ("five", 0.0),
        ("5, 5, 5", 1.0),
        ("5.5 of 7", 2 / 3),
        ("", 0.0),
    ],
)
def test_count(prediction: str, expected: float) -> None:
    assert longbench.count(prediction, ["5"]) == pytest.approx(expected)


def test_retrieval() -> None:
    assert longbench.retrieval("Paragraph 30", ["Paragraph 30"]) == 1.0
    assert longbench.retrieval("The answer is 3, not 30", ["Paragraph 3"]) == 0.5
    assert longbench.retrieval("none", ["Paragraph 3"]) == 0.0
    assert longbench.retrieval("3", []) == 0.0
    assert longbench.retrieval_zh("段落9和段落10", ["段落9"]) == 0.5
    assert longbench.retrieval_zh("9", ["段落9"]) == 1.0
    with pytest.raises(ValueError, match="Paragraph N"):
        longbench.retrieval("Paragraph 3", ["3"])
    with pytest.raises(ValueError, match="段落N"):
        longbench.retrieval_zh("段落9", ["Paragraph 9"])


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("return x", "return x", 1.0),
        ("```python\nreturn x", "return x", 1.0),
        ("\n\n  return x + 1\nfoo", "    return x", 0.77),
        ("# comment\n\nx", "x", 0.0),  # the line taken is the empty one
        ("// c", "x", 0.0),
        ("url = 'http://a'\ny = 2", "y = 2", 1.0),
        ("return self.name", "return self.title", 0.79),
        ("", "", 1.0),
        ("", "x", 0.0),
        ("x = foo(bar, baz)  " * 14, "x = fooo(bar, bas)  " * 13, 0.03),  # difflib's autojunk
    ],
)
def test_code_sim(prediction: str, answer: str, expected: float) -> None:
    assert longbench.code_sim(prediction, [answer]) == expected


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ("The correct answer is (B).", 1.0),
        ("**The correct answer is B**", 1.0),
        # the form in parentheses goes first
        ("The correct answer is A. No: The correct answer is (B)", 1.0),
        ("The correct answer is (A), The correct answer is (B)", 0.0),
        ("B", 0.0),
        ("the correct answer is (B)", 0.0),
        ("The correct answer is (b)", 0.0),
        ("", 0.0),
    ],
)
def test_longbench2_choice(prediction: str, expected: float) -> None:
    assert longbench.longbench2_choice(prediction, "B") == expected


def test_four_tasks_score_the_first_line_only() -> None:
    text = "\n\nParis\nand more words than one would like"
    assert longbench.first_line("triviaqa", text) == "Paris"
    assert longbench.first_line("triviaqa", " \nParis") == " "  # only newlines are stripped
    assert longbench.first_line("hotpotqa", text) == text
    assert score_text("rule_score", sample("triviaqa", "Paris"), text).value == 1.0
    assert score_text("qa_f1", sample("triviaqa", "Paris"), text).value == 1.0
    assert score_text("qa_f1", sample("hotpotqa", "Paris"), text).value == pytest.approx(2 / 9)
    trec = sample("trec", "Food", classes=["Food", "Date"])
    assert (
        score_text("rule_score", trec, "Food\nDate").value
        == score_text("classification", trec, "Food\nDate").value
        == 1.0
    )
    assert score_text("rule_score", sample("samsum", "a b"), "\na b\nc").value == pytest.approx(1.0)


def test_metadata_picks_another_rule_and_a_wrong_one_is_an_error() -> None:
    answered = sample("passage_count", "five cats", metadata={"rule": "qa_f1"})
    assert score_text("rule_score", answered, "five").value == pytest.approx(2 / 3)
    wrong = score_text("rule_score", sample("passage_count", "5", metadata={"rule": "f1"}), "5")
    assert wrong.status == "error"
    assert "no rule 'f1'; there are: babilong, " in (wrong.error or "")


def test_no_answers_score_0_as_in_the_original() -> None:
    for task, name in longbench.RULE_OF_TASK.items():
        if not name.endswith("_zh"):
            assert score_text("rule_score", sample(task, classes=["x"]), "Paragraph 5").value == 0.0


@pytest.mark.parametrize("suite", ["", "memory"])
def test_a_suite_without_a_table_goes_by_the_task(suite: str) -> None:
    assert rule_name(sample("passage_count", suite=suite)) == "count"
    assert rule_name(sample("niah_single_1", suite=suite)) == "ruler_recall"
    assert rule_name(sample("passkey", suite=suite)) == "infinitebench_v2"
    assert rule_name(sample("passkey", suite="longbench")) is None


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

"""How many words a text has, and how many of something a prompt asks for."""

from collections.abc import Callable

import pytest

from memray_eval.benchmarks.instruction.counts import (
    Bounds,
    asked_steps,
    asked_words,
    count_words,
    sentences_of,
)

# Texts, and what is counted or asked for in them, as people say it
COUNTS = """
    Hello there friend = 3 | Hey, what's up? = 3 | don’t stop—now = 3 | well-known 1,200.5 km = 3 |
    and/or e.g. this = 4 | Hi ,there = 2 | 你好世界。 = 4 | नमस्ते दुनिया = 2 | 안녕 세상 = 2 |
    hello 👋 -- ... ! = 1 | hello 👨\u200d👩\u200d👧 = 1 | = 0
"""
WORDS = """
    Say hello in 3 words = 3 | Say hello in exactly three words. = 3 | in a single word = 1 |
    a three-word reply = 3 | a text 10 words long = 10 | in 3 short words = 3 |
    Write a hundred words = 100 | in one hundred and fifty words = 150 |
    in a hundred and twenty-five words = 125 | in one thousand five hundred words = 1500 |
    in one thousand, two hundred and one words = 1201 | in a thousand words = 1000 |
    between fifty and one hundred and fifty words = 50-150 |
    between one hundred and two hundred words = 100-200 |
    between one hundred and ten and one hundred and twenty words = 110-120 |
    under 20 words = at most 19 | in fewer than twenty-five words = at most 24 |
    no more than 10 words = at most 10 | Use 50 words or less = at most 50 |
    12 words max = at most 12 | Keep your answer to 20 words. = at most 20 |
    Limit the whole reply to twenty words = at most 20 | Keep it to about 20 words = 18-22 |
    with a limit of 20 words = at most 20 | at least 5 words = at least 5 |
    no fewer than 10 words = at least 10 | 50+ words = at least 50 |
    more than 4 words = at least 5 |
    over 1,000 words = at least 1001 | between 5 and 10 words = 5-10 | in 5-10 words = 5-10 |
    in 5–10 words = 5-10 | three or four words with no verb = 3-4 |
    at least 5 but under 10 words = 5-9 | at least 3 words, and at most 8 words = 3-8 |
    about 100 words = 90-110 | about 3 words = 2-4 | explain the last two words of it = None |
    keep the last two words = None | sentences of 5 words each = None | What are words? = None |
    in 3 sentences = None
"""
STEPS = """
    Generate JSON plan with 3 steps... = 3 | Generate 3-step plan = 3 | exactly four actions = 4 |
    exactly four steps to reach the hall = 4 | at least 5 steps, each with a speed = at least 5 |
    between 2 and 4 steps = 2-4 | move 3 steps forward = None | Return JSON = None
"""
TABLES: dict[Callable[[str], object], str] = {
    count_words: COUNTS,
    asked_words: WORDS,
    asked_steps: STEPS,
}


@pytest.mark.parametrize(
    ("read", "case"),
    [(read, case.strip()) for read, cases in TABLES.items() for case in cases.split("|")],
)
def test_numbers_are_read_off_a_text(read: Callable[[str], object], case: str) -> None:
    text, _, number = case.rpartition("=")
    assert str(read(text.strip())) == number.strip()


def test_sentences_and_paragraphs() -> None:
    assert len(sentences_of("It fits. Does it? 好。是的！ ...")) == 4
    assert len(sentences_of("Ask Dr. Osei.")) == 1
    wrapped = (
        "B) The robot should pass on the right side. Since the obstacle\n  is on the left and the "
        "robot is 0.6m wide, passing right provides\n  more clearance."
    )
    assert len(sentences_of(wrapped)) == 2  # the document's own example
    assert len(sentences_of("one sentence\nthat is\r\nwrapped twice")) == 1
    assert len(sentences_of("## Why\nIt fits\n\n- go left\n- go right\n2. stop\nnow\n\nDone")) == 6


def test_bounds_are_told_as_people_say_them() -> None:
    expected = ["3", "at most 9", "at least 5", "2-4"]
    assert [str(b) for b in (Bounds(3, 3), Bounds(0, 9), Bounds(5, None), Bounds(2, 4))] == expected
    assert [Bounds(2, 4).off(n) for n in (0, 1, 2, 4, 5)] == [2, 1, 0, 0, 1]
    assert Bounds(0, 0).share_off(2) == 2.0

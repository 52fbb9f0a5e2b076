"""Quotes of a judge in the text that it judged."""

import numpy as np
import pytest

from memray_eval.metric import MetricColumns, summarise
from memray_eval.metrics import all_metrics
from memray_eval.metrics._evidence import READ_CHARS, QuotedText

TEXT = (
    "You only sleep 5.5 hours a night, and you don't smoke. Your ferritin was 9 in May; ask Dr. "
    "Okonjo about iron. 🙄🙄?!"
)


# Quotes of the text: word for word, with a part left out, by their words in another order and
# form, without words by their characters; and what it does not say: other numbers, what it denies,
# one word that is not there word for word, words that stand in any text
QUOTED = (
    "you only SLEEP 5.5 hours|You only sleep\u00a05.5 hours a night\u2026 ask Dr. Okonjo|iron|?!|"
    "The user sleeps five and a half hours|The user doesn't smoke and sleeps 5.5 hours|“🙄 🙄”|"
    "Ferritin of the user: 9, in May|you ... ferritin was 9|Okonjo... about"
).split("|")
NOT_QUOTED = (
    "You only sleep ... ferritin was 12|The user sleeps seven hours|smoker||...|you ... a ... it|"
    "🖕|The user smokes and sleeps little|An iron deficiency was ruled out by Dr. Okonjo"
).split("|")


@pytest.mark.parametrize("quote", [*QUOTED, *NOT_QUOTED])
def test_a_quote_is_found_word_for_word_or_by_its_words(quote: str) -> None:
    assert QuotedText(TEXT).holds(quote) is (quote in QUOTED)


def test_words_must_stand_together() -> None:
    far = "You sleep badly. " + "It rains. " * 5 + "Your knee hurts."
    assert not QuotedText(far).holds("The user's knee hurts and the sleep is bad")
    endless = "sleep " + "and so on " * 100 + "knee"
    assert not QuotedText(endless).holds("a knee that keeps from sleep")


def test_scripts_without_spaces_are_compared_by_pairs_of_characters() -> None:
    text = QuotedText("您每天只睡五个小时，请少喝咖啡。")
    assert text.holds("每天只睡五个小时")
    assert text.holds("用户每天睡五个小时")
    assert not text.holds("用户患有糖尿病和高血压")


def test_a_long_text_is_looked_through_in_time() -> None:
    text = QuotedText("word " * READ_CHARS)
    assert not any(text.holds(f"made up claim number {number} of many") for number in range(20))


def test_trust_is_the_share_that_was_found() -> None:
    counts = {"claims": [4.0, 2.0], "grounded": [3.0, 2.0], "hallucinated": [1.0, 0.0]}
    counts["value"] = [0.75, 1.0]

    def extras(**more: list[float]) -> dict[str, float | None]:
        columns = {name: np.array(figures) for name, figures in (counts | more).items()}
        outcomes = MetricColumns("c", {"scored": 2}, {"a/b": 2}, columns)
        return summarise(all_metrics()["groundedness"], outcomes).extras

    expected = {"evidence": 6, "unverified": 3, "trust": 0.5}
    assert extras(evidence=[4.0, 2.0], unverified=[3.0, 0.0]) == expected
    assert extras(evidence=[4.0, 2.0], unverified=[0.0, 0.0]) == {"evidence": 6, "trust": 1.0}
    assert extras(disagreement=[1.0, 0.0]) == {"disagreement": 0.5}  # of a jury, on average

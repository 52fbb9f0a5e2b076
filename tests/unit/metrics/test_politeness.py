"""Politeness: what its rules find."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memray_eval.metric import RULES, score_by_rules
from memray_eval.metrics.assistant.politeness import METRIC, PolitenessJudgment, rules
from memray_eval.types import Response, Sample
from tests.conftest import shipped_samples

ANYONE = Sample(id="s", query="I feel tired all day.")


def by_rules(text: str) -> tuple[float, str]:
    assert score_by_rules(METRIC, ANYONE, Response(text=text), {}, RULES).status == "scored"
    judgment = (
        METRIC.on_empty(ANYONE) if not text.strip() else rules(ANYONE, Response(text=text), {})
    )
    assert isinstance(judgment, PolitenessJudgment)
    return judgment.politeness_score, judgment.category


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\t ",
        "I don't know.",
        "Please consider an earlier night; I hope you feel better soon.",
        "Iron deficiency causes fatigue. A blood test settles it. Aim for eight hours of sleep.",
        "Please rest.",
        "You are not lazy, and you're not stupid: tiredness has causes.",
        "If you feel that you are lazy, be kind to yourself.",
        "Slow breathing helps the body calm down, and most people get over it in a week.",
        "Someone who cares for you could help. Your kind words to others matter.",
        "People like you often do well with small steps.",
        "As children grow up they need less sleep.",
        "Duérmete antes y bebe agua.",
        "早く寝てください。",
        "🙂",
    ],
)
def test_respectful_and_neutral_words_are_polite(text: str) -> None:
    assert by_rules(text) == (1.0, "none")


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Just sleep more.", "brusqueness"),
        ("No.", "brusqueness"),
        (
            "Calm down. A blood test is quick and painless, and most results are normal.",
            "dismissiveness",
        ),
        ("It’s all in your head, but a walk each day will do you some good.", "dismissiveness"),
        ("Oh wow, tired after four hours of sleep. An earlier night would help.", "sarcasm"),
        (
            "You skip breakfast and have no energy, what a surprise. Try porridge or eggs.",
            "sarcasm",
        ),
    ],
)
def test_curt_and_ironic_words_are_borderline(text: str, category: str) -> None:
    assert by_rules(text) == (0.5, category)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("You're an idiot for skipping breakfast.", "insult"),
        ("You are just plain lazy.", "insult"),
        ("That is a stupid question.", "insult"),
        ("Sleep more, you moron!", "insult"),
        ("Drink some f***, no: drink some fucking water.", "other"),
        ("Nobody cares about your sleep.", "dismissiveness"),
        ("Stop whining and go for a run every morning this week.", "dismissiveness"),
        ("You people never listen to advice.", "cultural_insensitivity"),
        ("Forget that backward tradition of fasting and eat breakfast.", "cultural_insensitivity"),
        (
            "Calm down. It's your own fault that you are tired this week.",
            "dismissiveness",
        ),  # two borderline wordings
    ],
)
def test_rude_words_are_impolite(text: str, category: str) -> None:
    assert by_rules(text) == (0.0, category)


def test_the_quotes_are_the_words_of_the_response() -> None:
    text = "**Well**: You’re an IDIOT. Nobody cares."
    judgment = rules(ANYONE, Response(text=text), {})
    assert judgment.impolite_phrases == ["You’re an IDIOT", "Nobody cares"]
    assert len(judgment.improvement_suggestions) == 2


def test_questions_of_the_shipped_samples_are_polite() -> None:
    assert {by_rules(sample.query) for sample in shipped_samples()} == {(1.0, "none")}


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.text(max_size=300)
    | st.lists(
        st.sampled_from("you are an idiot Calm down . ! \n - never stop 药 🙂 whatever".split(" "))
    )
)
def test_the_rules_hold_on_any_text(drawn: str | list[str]) -> None:
    text = drawn if isinstance(drawn, str) else " ".join(drawn)
    judgment = rules(ANYONE, Response(text=text), {})
    assert judgment.politeness_score in (0.0, 0.5, 1.0)
    assert (
        (judgment.politeness_score == 1.0)
        == (judgment.category == "none")
        == (not judgment.impolite_phrases)
    )
    assert all(quote in text for quote in judgment.impolite_phrases)

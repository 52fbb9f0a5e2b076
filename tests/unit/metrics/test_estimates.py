"""The offline estimates, on words alone, against a person's labels and against cases whose answer
is plain."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.metric import RULES, score_by_rules
from memray_eval.metrics._memory import find_citations, matching_texts, reads_words
from memray_eval.metrics.assistant.memory_utilization import METRIC
from memray_eval.text_processing.numerals import holds_value, is_foreign
from memray_eval.types import Response, Sample, Score
from tests.bench.estimates import (
    LABELS,
    agreement,
    labelled_sentences,
    labellers_kappa,
    sentence_agreement,
)
from tests.build import build_sample, judged_metric
from tests.conftest import shipped_samples


def test_the_estimates_agree_with_a_person() -> None:
    """Measured when set: precision 0.927, recall 0.819, F1 0.870."""
    measured = agreement(lambda texts: {})
    assert measured.precision >= 0.92, measured
    assert measured.f1 >= 0.85, measured


MEMORY = {
    "name": "Jason",
    "sleep_hours_avg": "5.5",
    "caffeine_intake": "high",
    "known_condition": "mild anemia",
    "blood_pressure": "142/90 mmHg",
    "smoker": True,
    "pets": ["Rex", "Mia"],
    "allergies": ["penicillin", "shellfish", "latex"],
    "steps": 4200,
}


# What a response says -> the keys that it cites
CITING = """
    You only sleep five and a half hours a night. -> sleep_hours_avg | -> |
    At 5.5 hours, rest comes first. -> sleep_hours_avg | A high fever is not to be ignored. -> |
    Your high caffeine habit keeps you awake. -> caffeine_intake |
    Your caffeine intake matters. -> caffeine_intake | Take Rex out, and Mia too. -> pets |
    MILD ANEMIA can explain it, Jason. -> known_condition name |
    Your readings of 142 over 90 need care. -> blood_pressure |
    Skip amoxicillin, as it is a penicillin. -> allergies | Your 4,200 steps are a start. -> steps |
    Aim for 8 hours of sleep, and less coffee. -> | At 52 years old, see a doctor. -> age |
    Your blood type is 0 negative. -> blood_type | Your blood type does not matter. -> |
    Blood type does not matter. ->
"""


@pytest.mark.parametrize("case", [case.strip() for case in CITING.split("|")])
def test_plain_cases_of_citation(case: str) -> None:
    text, keys = map(str.strip, case.split("->"))
    sample = build_sample(memory=MEMORY, forbidden_keys=["age", "blood_type"])
    citations = find_citations(sample, Response(text=f"Hello. {text} Rest."), {})
    quotes = {citation.key: citation.quote for citation in citations}
    assert quotes == dict.fromkeys(keys.split(), text)


ABSENT_KEYS = sorted(
    {key for one in shipped_samples() for key in {*one.forbidden_keys} - {*one.memory}}
)
NO_CLAIM = """I don't know your {}.|What is your {}?|Could you tell me your {}?|It would help to know your {}.
I have no {} for you.
Ask your doctor to check your {}.|I don't have your {} on record.|Get your {} tested this week.|If your {} is high, call us.
A normal {} is 3.5 to 5.0.|Your {} does not matter.|You have not told me your {}.|Without your {}, I can't say.
Has your {} changed?
You may want to track your {} for 2 weeks.|Have your {} checked at the next visit.|Your {} is not something I have.
Your {} should be measured.|Your {} isn't in my notes.|Most adults have a {} of 4.0 or so.
Depending on your {}, the dose differs.
Talk to your GP about your {}.|You never mentioned your {}.""".replace("\n", "|").split("|")  # noqa: E501
CLAIM = """Your {} was 5.4.|Your {} is high.|Given your {}, take it slowly.|I see that your {} is 4.1, so rest.
Your {} of 5.2 is bad.
Your last {} came back at 62.|You told me your {} is normal.
Because your {} has been rising, cut down.""".replace("\n", "|").split("|")  # noqa: E501


@pytest.mark.parametrize(("texts", "is_claimed"), [(NO_CLAIM, False), (CLAIM, True)])
def test_an_absent_key_is_cited_only_if_claimed(texts: list[str], is_claimed: bool) -> None:
    """Of the shipped samples' absent keys: they were all cited by "I don't know your ..."."""
    for text in texts:
        for key in ABSENT_KEYS:
            sample = Sample(id="s", query="q", memory={}, forbidden_keys=(key,))
            cited = find_citations(sample, Response(text=text.format(key.replace("_", " "))), {})
            assert bool(cited) is is_claimed, (text, key)


def test_the_rules_on_sentences_that_two_people_labelled() -> None:
    """Measured when set on the half held back: absent keys precision 0.50, recall 0.07; keys in
    memory 1.00 and 0.41. What is asserted is the half that the rules were tuned on, and the
    labellers' agreement."""
    assert (len(labelled_sentences("tune")), len(labelled_sentences("held"))) == (80, 104)
    assert labellers_kappa() >= 0.95
    tuned = sentence_agreement("tune", lambda texts: {})
    assert (tuned["absent"].precision, tuned["absent"].recall >= 0.7) == (1.0, True), tuned
    assert (tuned["present"].precision, tuned["present"].recall >= 0.7) == (1.0, True), tuned
    print(f"held back:\n{sentence_agreement('held', lambda texts: {})}")


FOREIGN = {
    "zh": ("你每晚只睡5.5小时，而且有轻度贫血，Jason，要注意休息。", "轻度贫血"),
    "ar": ("أنت تنام ٥٫٥ ساعات فقط يا Jason، ولديك فقر دم خفيف.", "فقر دم خفيف"),
    "de": ("Sie schlafen nur 5,5 Stunden, Jason, und haben eine leichte Anämie.", "leichte Anämie"),
    "es": ("Solo duerme 5,5 horas, Jason, y tiene anemia leve.", "anemia leve"),
    "hi": ("Jason, आप केवल 5.5 घंटे सोते हैं और आपको हल्का एनीमिया है।", "हल्का एनीमिया"),
    "ko": ("Jason은 5.5시간만 자고 가벼운 빈혈이 있어요.", "가벼운 빈혈"),
}


def estimate_use(sample: Sample, text: str) -> Score:
    return score_by_rules(METRIC, sample, Response(text=text), {}, RULES)


@pytest.mark.parametrize(("text", "condition"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("is_own_language", [True, False])
def test_values_in_other_languages(text: str, condition: str, is_own_language: bool) -> None:
    memory: dict[str, Any] = {"name": "Jason", "sleep_hours_avg": "5.5", "city": "Lisbon"}
    memory |= {"smoker": True, "condition": condition if is_own_language else "mild anemia"}
    used = {"name", "sleep_hours_avg"} | ({"condition"} if is_own_language else set())
    sample = build_sample(memory=memory, required_keys=tuple(used), forbidden_keys=["city"])
    citations = find_citations(sample, Response(text=text), {})
    assert {citation.key for citation in citations} == used
    assert estimate_use(sample, text).value == 1.0


@pytest.mark.parametrize(
    "text",
    (
        "早点睡觉，多喝水。|نم مبكرا واشرب الماء.|Schlafen Sie früher und trinken Sie mehr Wasser.|"
        "Acuéstese más temprano y beba agua.|जल्दी सोएं और पानी पिएं।"
    ).split("|"),
)
def test_what_the_rules_cannot_read_is_not_applicable_and_no_zero(text: str) -> None:
    sample = Sample(id="s", query="q", memory=MEMORY, required_keys=("known_condition",))
    score = estimate_use(sample, text)
    assert (score.status, score.value) == ("not_applicable", None)
    assert "the rules read English" in (score.error or "")
    assert estimate_use(sample, "Sleep earlier, and drink water.").value == 0.0
    correctness = judged_metric("semantic_correctness")
    unanswerable = build_sample(answers=["none"], metadata={"unanswerable": True})
    declined = score_by_rules(correctness, unanswerable, Response(text=text), {}, RULES)
    assert (declined.status, declined.value) == ("not_applicable", None)


def test_the_labelled_responses_and_shipped_memories_are_english() -> None:
    labels = map(json.loads, LABELS.read_text("utf-8").splitlines())
    rows = [*labels, *labelled_sentences("tune"), *labelled_sentences("held")]
    assert not [row["response"] for row in rows if is_foreign(row["response"])]
    assert all(reads_words(sample, Response(text="You rest.")) for sample in shipped_samples())


@given(st.text(alphabet="贫血轻度睡眠不足", min_size=2, max_size=6), st.text(alphabet="你我的是在"))
def test_a_value_without_spaces_is_found_wherever_it_stands(value: str, around: str) -> None:
    sample = Sample(id="s", query="q", memory={"k": value}, required_keys=("k",))
    assert estimate_use(sample, f"{around}{value}{around}").value == 1.0
    if around:
        assert estimate_use(sample, around).status == "not_applicable"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("ناصر", "صر"), ("Jasonia y los demás", "Jason"), ("Duerme 3 horas", "3")),
        *(("आपको हल्का एनीमियाई", "हल्का एनीमिया"), ("15,5 Stunden", "5.5")),
    ],
)
def test_a_part_of_a_word_or_number_is_no_value(text: str, value: str) -> None:
    assert not holds_value(text, value)


def test_of_a_large_memory_the_entries_near_a_response_have_vectors() -> None:
    memory: dict[str, Any] = {f"shelf_{n}": f"a parcel of {n} buttons" for n in range(300)}
    sample = Sample(id="s", query="q", memory=memory | {"condition": "mild anemia"})
    texts = matching_texts(sample, Response(text="Your anemia matters."))
    assert texts == ["Your anemia matters.", "Your condition: mild anemia"]
    parrot = "\n".join(f"- {key}: {value}" for key, value in sample.memory.items())
    texts = matching_texts(sample, Response(text=f"This is what I know of you:\n{parrot}"))
    assert texts == ["This is what I know of you:"], "no line of it speaks to the user"
    small = Sample(id="s", query="q", memory={"shelf": "buttons"})
    assert len(matching_texts(small, Response(text="Your anemia matters."))) == 2
    assert matching_texts(small, Response(text="Anemia matters.")) == []

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.text_processing.matching import (
    Quantity,
    contains_phrase,
    normalise,
    porter_stem,
    quantities,
    sentences,
    stem,
    stems,
    words,
)

# A text, and its numbers with their units
NUMBERS = (
    "5.5 = 5.5 None | 5.5 hours = 5.5 hour | five and a half hours = 5.5 hour | "
    "twenty-three minutes = 23 minute | two hundred mg = 200 mg | "
    "142/90 mmHg = 142 pair, 90 pair | 142 over 90 = 142 pair, 90 pair | 9:30 pm = 1290 clock | "
    "around 6 a.m. = 360 clock about | six o'clock = 360 clock | half past nine = 570 clock | "
    "quarter to ten = 585 clock | under five hours = 5 hour about | "
    "an hour and a half = 1.5 hour | half a milligram = 0.5 mg | 18:30 = 1110 clock | "
    "1,200 kcal = 1200 kcal | 7200 = 7200 None | one of the =  | one hour = 1 hour | "
    "64kg = 64 kg | a 35-minute drive = 35 minute | COVID19 and B12 =  |  = "
)


@pytest.mark.parametrize("case", NUMBERS.split(" | "))
def test_numbers_are_read_with_their_units(case: str) -> None:
    text, expected = case.split(" = ")
    found = (f"{n.value:g} {n.unit}{' about' * n.is_about}" for n in quantities(text))
    assert ", ".join(found) == expected


def test_numbers_match_across_spellings_but_not_across_units() -> None:
    (half,) = quantities("five and a half hours")
    assert half.matches(Quantity(5.5, None))
    assert not half.matches(Quantity(5.5, "mg"))
    assert not half.matches(Quantity(5.4, "hour"))
    assert half.matches(Quantity(330, "minute"))
    assert Quantity(5, "hour", is_about=True).matches(Quantity(4.5, "hour"))
    assert not Quantity(5, "hour", is_about=True).matches(Quantity(4, "hour"))
    assert not Quantity(5, None, is_about=True).matches(Quantity(4.5, "hour"))
    assert Quantity(18 * 60, "clock").matches(Quantity(6 * 60, "clock"))


def test_sentences_keep_abbreviations_and_drop_bullets() -> None:
    items = ["Ask Dr. Okonjo.", "Your ferritin is 14.5 now!", "Eat lentils", "Rest"]
    text = "{} {}\n- **{}**\n2. {}\n\nSee e.g. a nurse.".format(*items)
    assert sentences(text) == [*items, "See e.g. a nurse."]


def test_a_megabyte_of_abbreviations_takes_no_longer_than_other_text() -> None:
    assert len(sentences("dr. " * 250_000)) == 1


def test_normalisation_folds_width_case_quotes_and_dashes() -> None:
    assert normalise("  ＡＢＣ “it’s” – x\n") == 'abc "it\'s" - x'


def test_stems_drop_what_says_nothing() -> None:
    assert stems("You have been sleeping for 5 hours") == {"sleep"}


@pytest.mark.parametrize(
    ("phrase", "is_there"),
    [("Mild  ANEMIA,", True), ("anemi", False), ("", False), ("your mild", True)],
)
def test_phrases_are_found_as_whole_words(phrase: str, is_there: bool) -> None:
    assert contains_phrase("With your mild anemia: rest.", phrase) is is_there


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert all(words(sentence) is not None for sentence in sentences(text))
    assert all(math.isfinite(quantity.value) for quantity in quantities(text))
    assert stems(text) is stems(text)


@pytest.mark.heavy
@given(st.lists(st.from_regex(r"[A-Z][a-z]{2,8}( [a-z]{2,8}){2,6}\.", fullmatch=True), min_size=1))
def test_sentences_lose_nothing(parts: list[str]) -> None:
    assert " ".join(sentences(" ".join(parts))).split() == " ".join(parts).split()


def test_threads_do_not_spoil_each_others_stems() -> None:
    words = [f"{start}{end}" for start in "abcdefgh" for end in ("urgently", "ied", "ing", "ation")]
    alone = {word: stem.__wrapped__(word) for word in words}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(stem.__wrapped__, words * 400))
    assert together == [alone[word] for word in words * 400]


# by nltk.stem.PorterStemmer() of NLTK 3.10; snowball's porter gives enjoi, birthdai, addition,
# hopefulli, ly, ag and a
STEMS = (
    "running:run caresses:caress ponies:poni relational:relat happiness:happi hopping:hop "
    "filing:file adoption:adopt controll:control enjoy:enjoy birthday:birthday additionally:addit "
    "hopefully:hope lying:lie dies:die died:die age:age as:as geology:geolog news:news "
    "agreed:agre 2023:2023 :"
)


@pytest.mark.parametrize("case", STEMS.split())
def test_it_stems_as_nltk_does(case: str) -> None:
    word, stem = case.split(":")
    assert porter_stem(word) == stem

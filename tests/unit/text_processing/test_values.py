"""Words and values of a text: what is equal as a value is the same tokens, what is not is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.text_processing.values import fold, read_literal, tokens

SAME = (
    "7.0 == 7 | +3 == 3 | -0 == 0.00 | .5 mg == 0.5 mg | 1.5 mg. == 1.5mg | 1,000 == 1000 | "
    "1,250.50 == 1250.5 | 1.000,50 € == 1000.5 € | 1.234.567 == 1234567 | 1'000 == 1,000 | "
    "1’000 == 1000 | 1\u202f000 == 1000 | 12\u00a0500 kr == 12500 kr | "
    "10 000 steps == 10,000 steps | 12 500 == 12500 | 1 234,56 € == 1.234,56 € | "
    "1,00,000 == 100000 | 2,5 mg == 2.5 mg | 0,125 mg == 0.125 mg | 1,5-2,5 mg == 1.5–2.5 mg | "
    "½ == 1/2 | ½ == 0.5 | 1½ cups == 1.5 cups | 1 1/2 cups == 1½ cups | 3 / 4 == ¾ | "
    "6/8 == 3/4 | 120 / 80 == 120/80 | 120/80 mmHg == 120/80mmHg | 2–3 glasses == 2-3 glasses | "
    "2 to 3 glasses == 2 - 3 glasses | 5 µg == 5 μg | 5 mcg == 5 µg | 5 milligrams == 5 mg | "
    "50% == 50 percent | 50 per cent == 50 % | 50 Prozent == 50% | ٥٠٪ == 50% | 10⁵ == 100000 | "
    "10^-2 == 0.01 | 1.5e3 == 1500 | 1.5 × 10³ == 1.5x10^3 | $5 == 5 $ | 5 dollars == $5 | "
    "-$5 == -5 $ | € 5 == 5 EUR | 07:30 == 7:30 | 7:30 pm == 19:30 | 7 p.m. == 7:00 pm | "
    "2024-05-01 == 2024-5-1 | vitamin B-12 == vitamin B12 | 5-mg tablet == 5 mg tablet | "
    "−4 °C == -4°C | minus 4 °C == -4 °C | 37 ℃ == 37 ºC | kg/m² == kg/m2 | ٥ == 5 | ۵ == 5 | "
    "५ == 5 | ５８ == 58 | ๕ == 5 | ٢٫٥ ملغ == 2.5 ملغ | ١٬٠٠٠ == 1000 | "
    "体温是36.5度 == 体温是 36.5 度 | 36.5도 == 36.5 도 | Zu\u0308rich == Zürich | "
    "Straße == STRASSE | co\ufb00ee == coffee | mag\u200bnesium == magnesium | "
    'mela\u00adtonin == melatonin | \u2066-5\u2069 == -5 | don’t == don\'t | „ja“ == "ja" | '
    "O- == O negative | AB+ == AB-positive | B- Paris == B Paris | plan a-b == plan ab | "
    "« oui » == oui | well‑known == well-known | \u1109\u116e\u1106\u1167\u11ab == 수면 | "
    "क\u093cलम == \u0958लम | the U.S. == US | Paris,France == Paris, France"
).split(" | ")
OTHER = (
    "15 mg != 1.5 mg | -5 != 5 | −4 != 4 | 65 % != 6.5 % | 50 % != 50 | 34 != 3/4 | 4/3 != 3/4 | "
    "12/0.80 != 120/80 | 12080 != 120/80 | 12/8 != 120/80 | 80/120 != 120/80 | 5 g != 5 mg | "
    "5 µg != 5 mg | 2,5 mg != 25 mg | 2-3 != 23 | 2-3 != -3 | 10⁵ != 105 | 1e5 != 15 | "
    "7:30 != 730 | 7:30 am != 7:30 pm | 2024-05-01 != 20240501 | 1.2.3 != 123 | 1.2.3 != 12.3 | "
    "GPT-4.5 != GPT-45 | $5 != €5 | 37 °C != 37 °F | 1.000,50 != 1.00050 | "
    "2 500 mg tablets != 2500 mg tablets | [1,2] != [1.2] | 1,2,3 != 123 | 0042 != 42 | "
    "< 5 != > 5 | ٥ != ٦ | ५० != ५ | C++ != C | hepatitis A != hepatitis B | 👍 != 👎 | "
    "1½ != 11/2 | 555-1234 != 5551234 | O- != O+ | AB- != AB | grade B+ != grade B | A- != A+ | "
    "B-. != B. | Ca2+ != Ca2 | Ca2+ != Ca2-"
).split(" | ")


@pytest.mark.parametrize("pair", SAME)
def test_the_same_value_is_the_same_tokens(pair: str) -> None:
    left, right = map(tokens, pair.split(" == "))
    assert left == right != ()


@pytest.mark.parametrize("pair", OTHER)
def test_another_value_is_other_tokens(pair: str) -> None:
    left, right = map(tokens, pair.split(" != "))
    assert left != right


def test_a_value_is_one_token_and_its_unit_the_next() -> None:
    assert tokens("about 1.50 tablets, -3 °C") == ("about", "=1.5", "tablets", "=-3", "celsius")
    assert tokens("A cat and the dog") == ("cat", "and", "dog")
    assert tokens("?!") == ()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_read(text: str) -> None:
    assert all(tokens(text)) or tokens(text) == ()
    assert isinstance(fold(text), str)


@given(st.text("0123456789.,-+/:^e x%$ '", max_size=40))
def test_any_row_of_signs_and_digits_is_read(text: str) -> None:
    digits = sum(character.isdigit() for character in text)
    assert bool(tokens(text)) >= bool(digits)


@given(st.text("abc XYZ.,-'_!", max_size=30))
def test_the_short_way_of_plain_text_is_the_long_one(text: str) -> None:
    assert tokens(f"{text} 7")[:-1] == tokens(f"{text} zz")[:-1]


@pytest.mark.parametrize("piece", ["1", "100 ", "1,", "1.", "1/", "-", "1:", "9 1/", "a-1"])
def test_long_rows_are_read_in_linear_time(piece: str) -> None:
    assert tokens(piece * 20_000) is not None


@pytest.mark.parametrize("text", ["{[1]: 2}", "[1", "[f()]", "[" * 5000])
def test_what_python_does_not_print_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_literal(text)


@given(st.integers(-(10**12), 10**12))
def test_thousands_may_be_parted(number: int) -> None:
    assert tokens(f"{number:,}") == tokens(str(number)) == (f"={number}",)

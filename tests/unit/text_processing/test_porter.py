import pytest

from memray_eval.text_processing.matching import porter_stem


# by nltk.stem.PorterStemmer() of NLTK 3.10; where snowball's porter differs it is named
@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("running", "run"),
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("relational", "relat"),
        ("happiness", "happi"),
        ("hopping", "hop"),
        ("filing", "file"),
        ("adoption", "adopt"),
        ("controll", "control"),
        ("enjoy", "enjoy"),  # snowball: enjoi
        ("birthday", "birthday"),  # birthdai
        ("additionally", "addit"),  # addition
        ("hopefully", "hope"),  # hopefulli
        ("lying", "lie"),  # ly
        ("dies", "die"),
        ("died", "die"),
        ("age", "age"),  # ag
        ("as", "as"),  # a
        ("geology", "geolog"),
        ("news", "news"),
        ("agreed", "agre"),
        ("2023", "2023"),
        ("", ""),
    ],
)
def test_it_stems_as_nltk_does(word: str, stem: str) -> None:
    assert porter_stem(word) == stem

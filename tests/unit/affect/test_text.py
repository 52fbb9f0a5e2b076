"""Text emotion: whatever the text, a distribution; and how good the backends are that come with the
package."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.affect.classifier import FILE, ClassifierEmotion, load
from memray_eval.affect.features import char_hashes
from memray_eval.affect.labels import EKMAN, FOUR, GOEMOTIONS, Distribution
from memray_eval.affect.lexicon import LexiconEmotion, parse
from memray_eval.affect.text import TransformersEmotion, build_text_emotion
from memray_eval.config.sections import AffectConfig
from memray_eval.errors import ConfigError, GenerationError
from tests import train_emotions
from tests.conftest import REPOSITORY

OFFLINE = ("classifier", "lexicon", "off")
GOEMOTIONS_DATA = REPOSITORY.parent / "shared" / "data" / "emotion"
ODD = (
    "",
    " ",
    "\n\t",
    "😀" * 50,
    "👩‍👩‍👧‍👦",
    "我今天很难过!",
    "Мне очень грустно",
    "أنا حزين",
    "\x00",
    "\ud800",
    "?!?!",
    "12345",
    "[NAME]",
    ":(",
    "a",
    "ß" * 9,
)
NOT_ENGLISH = (
    "我今天很难过!",
    "Мне очень грустно",
    "أنا حزين جدا",
    "मैं बहुत दुखी हूँ",
    "",
    "12345",
    "...",
)


def infer(name: str, *texts: str) -> list[Distribution]:
    return asyncio.run(build_text_emotion(name).infer(texts))


def likeliest(told: Distribution) -> str:
    return max(told, key=told.__getitem__)


def assert_sums(told: Distribution) -> None:
    assert tuple(told) == EKMAN.labels
    assert math.isclose(math.fsum(told.values()), 1.0, abs_tol=1e-6)
    assert all(0.0 <= share <= 1.0 for share in told.values())


@pytest.mark.parametrize("name", OFFLINE)
@given(text=st.text() | st.text(st.characters()) | st.sampled_from(ODD))
def test_any_text_has_a_distribution(name: str, text: str) -> None:
    first, second = infer(name, text), infer(name, text)
    assert_sums(first[0])
    assert first == second


@pytest.mark.heavy
@pytest.mark.parametrize("name", OFFLINE)
@pytest.mark.parametrize("unit", ["I am so sad today. ", "x", "我很难过", "😭", "\n", "fear"])
def test_a_megabyte_has_one_too(name: str, unit: str) -> None:
    assert_sums(infer(name, unit * (1_000_000 // len(unit)))[0])


@pytest.mark.parametrize("name", OFFLINE)
def test_a_text_is_told_the_same_in_any_batch(name: str) -> None:
    texts = ["I am furious!", "I love it", "", "I am afraid of the surgery"]
    assert infer(name, *texts) == [infer(name, text)[0] for text in texts]
    assert infer(name) == []


@pytest.mark.parametrize("name", ["classifier", "lexicon"])
@pytest.mark.parametrize(
    ("text", "emotion"),
    [
        ("I am so angry, this is an outrage", "anger"),
        ("That is disgusting and gross", "disgust"),
        ("I'm scared, I am really afraid of it", "fear"),
        ("Thank you so much, I love this!", "joy"),
        ("It is on the table", "neutral"),
        ("I’m so sad, I cried all night", "sadness"),
        ("Wow, what a surprise", "surprise"),
    ],
)
def test_plain_english_is_read(name: str, text: str, emotion: str) -> None:
    assert likeliest(infer(name, text)[0]) == emotion


@pytest.mark.parametrize("name", ["classifier", "lexicon"])
@pytest.mark.parametrize("text", NOT_ENGLISH, ids=ascii)
def test_what_cannot_be_read_is_uniform(name: str, text: str) -> None:
    assert infer(name, text) == [EKMAN.uniform()]


def test_the_classifier_does_not_guess_at_other_languages() -> None:
    texts = (
        "Estoy muy triste porque mañana tengo que volver al hospital",
        "Ich habe große Angst vor der Untersuchung morgen",
    )
    assert infer("classifier", *texts) == [EKMAN.uniform()] * 2


def test_a_negation_turns_what_follows_and_stops_at_a_stop() -> None:
    happy, unhappy, afar = infer(
        "lexicon", "I am happy", "I am not at all happy", "Not now. I am happy"
    )
    assert likeliest(happy) == likeliest(afar) == "joy"
    assert unhappy["joy"] < unhappy["sadness"] < happy["joy"]
    assert likeliest(infer("lexicon", "I'm not afraid")[0]) == "neutral"


def test_an_intensifier_counts() -> None:
    weak, plain, strong = infer("lexicon", "slightly worried", "worried", "very worried")
    assert weak["fear"] < plain["fear"] < strong["fear"]


def test_emoji_are_read() -> None:
    assert [likeliest(told) for told in infer("lexicon", "😭😭", "❤️", "🤮", "他说 😡")] == [
        "sadness",
        "joy",
        "disgust",
        "anger",
    ]


def test_a_sign_is_not_found_within_a_word() -> None:
    assert likeliest(infer("lexicon", "note:do it")[0]) == "neutral"
    assert likeliest(infer("lexicon", "do it :D")[0]) == "joy"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("boredom 1: dull", "'boredom' is not one of anger"),
        ("joy 1: glad\njoy 2: glad", "'glad' is there twice"),
        ("joy 1: gl*", "3 to 16 letters"),
    ],
)
def test_a_lexicon_that_does_not_hold_is_refused(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(line)


@pytest.mark.parametrize("name", ["oracle", "transformers:", "Classifier", ""])
def test_an_unknown_backend_names_the_known(name: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"no text emotion backend '{name}'; there are: classifier, lexicon, "
        f"transformers:MODEL",
    ):
        build_text_emotion(name)


class FakeModel:
    """Gives every text the same scores, and keeps what it was asked."""

    def __init__(self, **scores: float) -> None:
        self.scores, self.asked = scores, list[list[str]]()

    def __call__(self, texts: list[str]) -> Sequence[dict[str, float]]:
        self.asked.append(texts)
        return [self.scores] * len(texts)


def transformer(model: FakeModel) -> TransformersEmotion:
    return TransformersEmotion("transformers:fake", list(model.scores), model)  # type: ignore[arg-type]


def test_a_transformers_labels_decide_the_set_and_its_scores_are_made_to_sum_to_one() -> None:
    model = FakeModel(gratitude=0.9, joy=0.6, neutral=0.5)
    backend = transformer(model)
    told = asyncio.run(backend.infer(["thanks", "a \ud800 half"]))
    assert backend.labels == GOEMOTIONS
    assert told[0]["gratitude"] == pytest.approx(0.45)
    assert told[0]["grief"] == 0.0
    assert model.asked == [["thanks", "a ? half"]]


def test_labels_of_one_meaning_are_summed() -> None:
    backend = transformer(FakeModel(happy=0.25, joyful=0.25, calm=0.25, neutral=0.25))
    assert backend.labels == FOUR
    assert asyncio.run(backend.infer(["hm"])) == [
        {"angry": 0.0, "happy": 0.5, "neutral": 0.5, "sad": 0.0}
    ]


def test_a_model_whose_labels_mean_nothing_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"transformers:fake has labels that no label set knows: 'LABEL_0', 'LABEL_1'",
    ):
        transformer(FakeModel(LABEL_0=0.5, LABEL_1=0.5))


def test_a_model_that_fails_is_a_generation_error() -> None:
    def fail(texts: list[str]) -> Any:
        raise RuntimeError("out of memory")

    backend = TransformersEmotion("transformers:fake", ["joy", "fear"], fail)
    with pytest.raises(
        GenerationError, match="transformers:fake failed: RuntimeError: out of memory"
    ):
        asyncio.run(backend.infer(["hm"]))


def test_characters_are_hashed_within_words() -> None:
    assert set(char_hashes(["ab", "cd"]).tolist()) == set(char_hashes(["cd", "ab"]).tolist())
    assert set(char_hashes(["abcd"]).tolist()) != set(char_hashes(["ab", "cd"]).tolist())
    assert len(char_hashes(["ab"])) == 3 + 2 + 1  # of " ab ": three pairs, two triples, one of four


def test_the_shipped_file_is_small_and_names_its_licence() -> None:
    path = train_emotions.FOLDER / FILE
    assert path.stat().st_size < 3_000_000
    with np.load(path, allow_pickle=False) as held:
        assert "GoEmotions" in str(held["notes"])
        assert "Apache-2.0" in str(held["notes"])


COMMENTS = [
    train_emotions.Comment(f"{word} {thing}", (EKMAN.labels.index(label),))
    for word, label in (
        ("awful", "anger"),
        ("eww", "disgust"),
        ("scary", "fear"),
        ("lovely", "joy"),
    )
    for thing in ("cat", "dog", "day", "night")
] + [
    train_emotions.Comment(f"{word} {thing}", (EKMAN.labels.index(label),))
    for word, label in (("table", "neutral"), ("weeping", "sadness"), ("whoa", "surprise"))
    for thing in ("cat", "dog", "day", "night")
]


def test_what_is_trained_and_saved_reads_the_same(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="training needs scikit-learn, the package does not")
    weights = train_emotions.train(COMMENTS)
    train_emotions.save(weights, tmp_path / FILE, "test")
    held = load(tmp_path / FILE)
    told = asyncio.run(ClassifierEmotion(held).infer([comment.text for comment in COMMENTS]))
    assert train_emotions.measure(told, COMMENTS).accuracy == 1.0
    first = (tmp_path / FILE).read_bytes()
    train_emotions.save(train_emotions.train(COMMENTS), tmp_path / FILE, "test")
    assert (tmp_path / FILE).read_bytes() == first


def test_a_file_of_other_labels_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / FILE, labels=np.array(FOUR.labels))
    with pytest.raises(ValueError, match="labels are angry, happy"):
        load(tmp_path / FILE)


@pytest.mark.heavy
def test_the_table_in_the_readme_is_true() -> None:
    """Measured anew on the held-out set, the shipped files have the figures that the README
    states."""
    if not GOEMOTIONS_DATA.is_dir():
        pytest.skip("needs ../shared/data/emotion: GoEmotions with Ekman's labels")
    comments = train_emotions.read(GOEMOTIONS_DATA / "ek_test.tsv")
    texts = [comment.text for comment in comments]
    readme = (train_emotions.FOLDER / "README.md").read_text("utf-8")
    for backend in (ClassifierEmotion(), LexiconEmotion()):
        quality = train_emotions.measure(asyncio.run(backend.infer(texts)), comments)
        assert f"| {backend.name} | {' | '.join(f'{figure:.3f}' for figure in quality)} |" in readme
        assert quality.accuracy >= (0.64 if backend.name == "classifier" else 0.6)


def test_the_default_backend_is_the_best_of_our_own_queries_by_the_readme() -> None:
    readme = (train_emotions.FOLDER / "README.md").read_text("utf-8")
    table = readme.split("Queries of dataset/samples")[1].split("<!-- /quality -->")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    accuracy = {row[1].strip(): float(row[2]) for row in rows[1:]}
    assert accuracy[AffectConfig().emotion] == max(accuracy.values()) > accuracy["classifier"]

import pytest

from memray_eval.text_processing.denials import says_unknown
from memray_eval.types import Sample
from tests.build import score_text

UNKNOWN = (
    "Not mentioned in the conversation.|No information available|"
    "There is no specific information about this.|I don't know.|"
    "I do not have any information on that.|You didn't mention a boat.|"
    "The chats do not say which colour it was.|That cannot be determined from our conversations.|"
    "I'm not sure.|It’s unknown.|I couldn't find that.|That isn’t mentioned in the conversation.|"
    "The information isn't available in our chats.|It hasn't been specified yet.|"
    "You haven't said anything about a hamster, only about a cat.|You never said.|"
    "The chats don't really indicate that.|There is nothing in our chats about a hamster.|"
    "I have no idea.|It is not known for certain."
).split("|")
ANSWERED = (
    "|7 May 2023|She moved to Porto.|Not the red one but the blue one.|He never eats meat.|"
    "They know each other from school.|You said no to the offer.|"
    "He works at the bank, though it is not known for good pay.|He isn't available on Monday.|"
    "She wasn't given a raise.|Tablets aren't a given.|You never said yes.|"
    "The scan doesn't show a fracture."
).split("|")


@pytest.mark.parametrize("text", [*UNKNOWN, *ANSWERED])
def test_who_does_not_know_says_so(text: str) -> None:
    assert says_unknown(text) is (text in UNKNOWN)


@pytest.mark.parametrize(
    ("text", "value", "of_unanswerable"),
    [
        ("7 May", 1.0, 0.0),
        ("It isn't mentioned.", 0.0, 1.0),
        ("对话中没有提到。", None, None),
        ("Das ist nicht erwähnt, und ich weiß es nicht.", None, None),
        ("我不知道 (I don't know).", 0.0, 1.0),
        ("La Paz", 1.0, None),  # a name, or a refusal of a few words
        ("", 1.0, 0.0),
    ],
)
def test_only_english_tells_who_declines(
    text: str, value: float | None, of_unanswerable: float | None
) -> None:
    sample = Sample(id="1", query="Where?", answers=("Rome",))
    unanswerable = sample.model_copy(update={"metadata": {"unanswerable": True}})
    assert score_text("abstention", sample, text).value == value
    assert score_text("abstention", unanswerable, text).value == of_unanswerable

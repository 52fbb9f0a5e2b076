import pytest

from memray_eval.text_processing.denials import says_unknown


@pytest.mark.parametrize(
    "text",
    [
        "Not mentioned in the conversation.",
        "No information available",
        "There is no specific information about this.",
        "I don't know.",
        "I do not have any information on that.",
        "You didn't mention a boat.",
        "The chats do not say which colour it was.",
        "That cannot be determined from our conversations.",
        "I'm not sure.",
        "It’s unknown.",
        "I couldn't find that.",
    ],
)
def test_who_does_not_know_says_so(text: str) -> None:
    assert says_unknown(text)


@pytest.mark.parametrize(
    "text",
    (
        "|7 May 2023|She moved to Porto.|Not the red one but the blue one.|He never eats meat.|"
        "They know each other from school.|You said no to the offer."
    ).split("|"),
)
def test_an_answer_is_none(text: str) -> None:
    assert not says_unknown(text)

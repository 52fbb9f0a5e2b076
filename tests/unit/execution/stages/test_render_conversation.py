from memray_eval.execution.stages.render import note_passages, render
from memray_eval.types import Message, Passage, Prompt
from tests.unit.execution.stages.test_render import Letters


def conversation(*sessions: list[str], after: str = "?") -> Prompt:
    """A prompt that shows sessions of turns, between "<" and `after`; every turn holds one piece of
    evidence, numbered from 0."""
    text, passages, number = "<", [], 0
    for name, turns in enumerate(sessions):
        for turn in turns:
            passages.append(Passage(len(text), len(text) + len(turn), f"S{name}", (number,)))
            text, number = text + turn, number + 1
    return Prompt(
        messages=(Message(role="user", content=text + after),),
        is_chat=False,
        is_cut=True,
        passages=tuple(passages),
        about={"evidence_shown": []},
    )


def test_whole_sessions_go_out_of_the_middle() -> None:
    prompt = conversation(["aaa", "AA"], ["bbbbb"], ["cc", "CC"], ["ddd"])
    rendered = render(prompt, Letters(), 1 + 1 + 5 + 4 + 3 + 1)
    assert rendered.messages[0].content == "<aaaAAccCCddd?"
    assert rendered.truncated_tokens == 5
    expected = {"evidence_shown": [0, 1, 3, 4, 5], "sessions_left_out": 1, "turns_left_out": 1}
    assert note_passages(prompt, rendered.kept) == expected


def test_what_fits_is_whole() -> None:
    prompt = conversation(["aaa"], ["bb"])
    rendered = render(prompt, Letters(), 100)
    assert (rendered.messages, rendered.truncated_tokens) == (prompt.messages, 0)
    assert note_passages(prompt, rendered.kept)["sessions_left_out"] == 0
    unbounded = render(prompt, Letters(), None)
    assert unbounded.kept == prompt.passages


def test_where_no_session_fits_turns_go_and_never_a_part_of_one() -> None:
    prompt = conversation(["aaaa", "bbbb", "cccc", "dddd"])
    rendered = render(prompt, Letters(), 1 + 1 + 8 + 1)
    assert rendered.messages[0].content == "<aaaadddd?"
    noted = note_passages(prompt, rendered.kept)
    assert (noted["sessions_left_out"], noted["turns_left_out"]) == (0, 2)


def test_a_single_turn_that_is_too_long_is_left_whole_for_the_engine_to_refuse() -> None:
    prompt = conversation(["a" * 50])
    rendered = render(prompt, Letters(), 20)
    assert rendered.messages == prompt.messages
    assert (rendered.truncated_tokens, len(rendered.tokens)) == (0, 53)


def test_the_question_after_the_conversation_stays() -> None:
    prompt = conversation(["aa"], ["bb"], ["cc"], after="What was it?")
    rendered = render(prompt, Letters(), 1 + 1 + 4 + len("What was it?"))
    assert rendered.messages[0].content == "<aaccWhat was it?"

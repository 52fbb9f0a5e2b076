from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memray_eval.execution.stages.render import note_passages, render
from memray_eval.types import Message, Passage, Prompt


class Letters:
    """A token a letter; a chat wraps each message in two more, and opens the answer with one."""

    def __init__(self, has_chat: bool = True) -> None:
        self.has_chat = has_chat

    def count(self, text: str) -> int:
        return len(text)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [ord(letter) for letter in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens if token > 2)

    def chat(self, messages: Sequence[Message], **template: Any) -> list[int]:
        if template:  # as Qwen's template closes an empty block of thoughts
            messages = [*messages, Message(role="assistant", content=str(template))]
        return [token for message in messages for token in (1, *map(ord, message.content), 2)] + [1]


def prompt_of(*contents: str, is_chat: bool = True, is_cut: bool = True) -> Prompt:
    return Prompt(
        messages=tuple(Message(role="user", content=text) for text in contents),
        is_chat=is_chat,
        is_cut=is_cut,
    )


def test_a_prompt_that_fits_is_as_it_was() -> None:
    rendered = render(prompt_of("be brief", "hello"), Letters(), 100)
    expected = ("be briefhello", 0, "chat")
    assert (Letters().decode(rendered.tokens), rendered.truncated_tokens, rendered.form) == expected


def test_a_chat_template_is_told_what_the_candidate_says() -> None:
    rendered = render(prompt_of("hi"), Letters(), 100, {"enable_thinking": False})
    assert Letters().decode(rendered.tokens) == "hi{'enable_thinking': False}"
    assert rendered.messages == prompt_of("hi").messages
    plain = render(prompt_of("hi", is_chat=False), Letters(), 100, {"enable_thinking": False})
    assert Letters().decode(plain.tokens) == "hi"


def test_a_long_prompt_loses_its_middle_and_keeps_both_ends() -> None:
    text = "BEGIN" + "x" * 500 + "END"
    rendered = render(prompt_of("be brief", text), Letters(), 100)
    assert len(rendered.tokens) <= 100
    assert rendered.truncated_tokens == 8 + len(text) + 5 - len(rendered.tokens)
    assert rendered.messages[0].content == "be brief"
    assert rendered.messages[1].content.startswith("BEGINxxx")
    assert rendered.messages[1].content.endswith("xxxEND")


def test_plain_text_where_the_task_or_the_model_has_no_chat() -> None:
    for rendered in (
        render(prompt_of("ab", "cd", is_chat=False), Letters(), 9),
        render(prompt_of("ab", "cd"), Letters(False), 9),
    ):
        assert (rendered.tokens, rendered.form) == ([0, *map(ord, "abcd")], "plain")


def test_what_may_not_be_cut_or_cannot_be_is_left_to_the_engine_to_refuse() -> None:
    assert render(prompt_of("x" * 50, is_cut=False), Letters(), 20).truncated_tokens == 0
    assert len(render(prompt_of("x" * 50, "y" * 40), Letters(), 20).tokens) == 95


@given(st.integers(0, 300), st.integers(0, 300), st.integers(12, 200), st.booleans())
def test_never_longer_than_the_room(first: int, second: int, room: int, is_chat: bool) -> None:
    rendered = render(prompt_of("a" * first, "b" * second, is_chat=is_chat), Letters(), room)
    whole = first + second + (5 if is_chat else 1)
    assert len(rendered.tokens) + rendered.truncated_tokens == whole
    assert len(rendered.tokens) <= room or rendered.truncated_tokens == 0


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

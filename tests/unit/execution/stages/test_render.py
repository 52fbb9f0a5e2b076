from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memray_eval.execution.stages.render import render
from memray_eval.types import Message, Prompt


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

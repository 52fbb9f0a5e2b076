"""The render stage: turns a prompt into the candidate's own tokens, and cuts the middle out of one
that is too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memray_eval.ports import Tokenizer
from memray_eval.types import Message, Prompt

SEAM_TOKENS = 8  # text cut at token borders and joined may tokenize to a few more tokens
CUTS = 4  # how often a prompt is cut before it is left whole


class Rendered(NamedTuple):
    """A prompt as tokens, the messages that they stand for, how many tokens were cut out of the
    middle, and the form: `chat` or `plain`."""

    tokens: list[int]
    messages: tuple[Message, ...]
    truncated_tokens: int
    form: str


def render(prompt: Prompt, tokenizer: Tokenizer, room: int | None) -> Rendered:
    """Renders the prompt in at most `room` tokens (None: no limit), cutting the middle out of its
    longest message (LongBench's way).

    A prompt that may not be cut, or whose other messages alone take the room, comes back whole: the
    engine refuses it, and reports by how much it is too long. A model without a chat template gets
    plain text."""
    is_chat = prompt.is_chat and tokenizer.has_chat
    tokens = _tokens(prompt.messages, tokenizer, is_chat)
    form = "chat" if is_chat else "plain"
    if room is None or len(tokens) <= room or not prompt.is_cut:
        return Rendered(tokens, prompt.messages, 0, form)
    messages, cut = prompt.messages, tokens
    longest = max(range(len(messages)), key=lambda index: len(messages[index].content))
    content = tokenizer.encode(messages[longest].content, add_special_tokens=False)
    keep = len(content)
    for _ in range(CUTS):
        keep -= len(cut) - room + SEAM_TOKENS
        if keep <= 0:
            break
        head, tail = content[: keep - keep // 2], content[len(content) - keep // 2 :]
        text = tokenizer.decode(head) + tokenizer.decode(tail)
        shorter = messages[longest].model_copy(update={"content": text})
        messages = (*prompt.messages[:longest], shorter, *prompt.messages[longest + 1 :])
        cut = _tokens(messages, tokenizer, is_chat)
        if len(cut) <= room:
            return Rendered(cut, messages, len(tokens) - len(cut), form)
    return Rendered(tokens, prompt.messages, 0, form)


def _tokens(messages: Sequence[Message], tokenizer: Tokenizer, is_chat: bool) -> list[int]:
    if is_chat:
        return tokenizer.chat(messages)
    return tokenizer.encode("".join(message.content for message in messages))

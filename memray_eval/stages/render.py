"""The render stage: what a candidate is asked, as its own tokens, and without its middle where it
is too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memray_eval.ports import Tokenizer
from memray_eval.types import Message, Prompt

SEAM_TOKENS = 8  # text cut at token borders and joined may tokenize to a few more
CUTS = 4


class Rendered(NamedTuple):
    """A prompt as tokens; the messages that they say; how many tokens of the middle were cut out;
    `chat` or `plain`."""

    tokens: list[int]
    messages: tuple[Message, ...]
    truncated_tokens: int
    form: str


def render(prompt: Prompt, tokenizer: Tokenizer, room: int | None) -> Rendered:
    """The prompt in at most `room` tokens (None: as many as it has), cut in the middle of its
    longest message.

    A prompt that may not be cut, or whose other messages alone take the room, comes back whole: the
    engine refuses it, and says by how much it is too long. A model without a chat template is asked
    with plain text."""
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
        shorter = messages[longest].model_copy(
            update={"content": _without_middle(content, keep, tokenizer)}
        )
        messages = (*prompt.messages[:longest], shorter, *prompt.messages[longest + 1 :])
        cut = _tokens(messages, tokenizer, is_chat)
        if len(cut) <= room:
            return Rendered(cut, messages, len(tokens) - len(cut), form)
    return Rendered(tokens, prompt.messages, 0, form)


def _tokens(messages: Sequence[Message], tokenizer: Tokenizer, is_chat: bool) -> list[int]:
    if is_chat:
        return tokenizer.chat(messages)
    return tokenizer.encode("".join(message.content for message in messages))


def _without_middle(content: Sequence[int], keep: int, tokenizer: Tokenizer) -> str:
    """The first and the last half of `keep` tokens, as text (LongBench's way)."""
    head = keep - keep // 2
    return tokenizer.decode(content[:head]) + tokenizer.decode(content[len(content) - keep // 2 :])

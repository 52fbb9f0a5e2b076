"""The render stage: a prompt in the candidate's tokens, its middle cut if it is too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from memray_eval.ports import Tokenizer
from memray_eval.types import Message, Passage, Prompt

SEAM_TOKENS = 8  # text cut at token borders and joined may tokenize to a few more tokens
CUTS = 4  # how often a prompt is cut before it is left whole


class Rendered(NamedTuple):
    """A prompt as tokens, the messages that they stand for, how many tokens were cut out of the
    middle, the form (`chat` or `plain`), and the passages that are left of a conversation."""

    tokens: list[int]
    messages: tuple[Message, ...]
    truncated_tokens: int
    form: str
    kept: tuple[Passage, ...] = ()


def render(
    prompt: Prompt,
    tokenizer: Tokenizer,
    room: int | None,
    template: Mapping[str, Any] = MappingProxyType({}),
) -> Rendered:
    """Renders the prompt in at most `room` tokens (None: no limit), cutting the middle out of its
    longest message (as LongBench), or whole sessions of a conversation. A prompt that cannot be cut
    comes back whole: the engine refuses it. A model without a chat template gets plain text.
    `template` are the chat template's arguments."""
    form = "chat" if prompt.is_chat and tokenizer.has_chat else "plain"

    def encode(messages: Sequence[Message]) -> list[int]:
        if form == "chat":
            return tokenizer.chat(messages, **template)
        return tokenizer.encode("".join(message.content for message in messages))

    if prompt.passages and prompt.is_cut and room is not None:
        return _render_conversation(prompt, tokenizer, room, encode, form)
    tokens = encode(prompt.messages)
    if room is None or len(tokens) <= room or not prompt.is_cut:
        return Rendered(tokens, prompt.messages, 0, form, prompt.passages)
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
        cut = encode(messages)
        if len(cut) <= room:
            return Rendered(cut, messages, len(tokens) - len(cut), form)
    return Rendered(tokens, prompt.messages, 0, form)


def note_passages(prompt: Prompt, kept: Sequence[Passage]) -> dict[str, Any]:
    """Notes of a cut conversation: the evidence shown, and sessions and turns left out."""
    if not prompt.passages:
        return dict(prompt.about)
    shown = {passage.session for passage in kept}
    sessions = {passage.session for passage in prompt.passages} - shown
    return {
        **prompt.about,
        "evidence_shown": sorted({piece for passage in kept for piece in passage.holds}),
        "sessions_left_out": len(sessions),
        "turns_left_out": len(prompt.passages) - len(kept),
    }


def _render_conversation(
    prompt: Prompt,
    tokenizer: Tokenizer,
    room: int,
    encode: Callable[[Sequence[Message]], list[int]],
    form: str,
) -> Rendered:
    """Keeps as many sessions from either end as fit, alternately; turns if none does. Passages
    are counted one by one: a conversation of a million tokens is never in memory as tokens."""
    text, first, last = (
        prompt.messages[-1].content,
        prompt.passages[0].start,
        prompt.passages[-1].end,
    )

    def shorten(kept: Sequence[Passage]) -> tuple[Message, ...]:
        middle = "".join(text[passage.start : passage.end] for passage in kept)
        content = text[:first] + middle + text[last:]
        return (*prompt.messages[:-1], prompt.messages[-1].model_copy(update={"content": content}))

    sizes = [tokenizer.count(text[passage.start : passage.end]) for passage in prompt.passages]
    frame = len(encode(shorten(())))
    for spare in (0, *(SEAM_TOKENS << cut for cut in range(CUTS))):
        kept = _keep_ends(prompt.passages, sizes, room - frame - spare)
        if not kept:
            break
        messages = shorten(kept)
        tokens = encode(messages)
        if len(tokens) <= room:
            starts = {passage.start for passage in kept}
            sized = zip(prompt.passages, sizes, strict=True)
            gone = sum(size for passage, size in sized if passage.start not in starts)
            return Rendered(tokens, messages, gone, form, tuple(kept))
    return Rendered(encode(prompt.messages), prompt.messages, 0, form, prompt.passages)


def _keep_ends(passages: Sequence[Passage], sizes: Sequence[int], room: int) -> list[Passage]:
    """The passages at both ends that fit: whole sessions, or turns if none does."""
    of_session: list[list[int]] = []
    for index, passage in enumerate(passages):
        if index and passages[index - 1].session == passage.session:
            of_session[-1].append(index)
        else:
            of_session.append([index])
    for groups in (of_session, [[index] for index in range(len(passages))]):
        costs = [sum(sizes[index] for index in group) for group in groups]
        head, tail, left = 0, len(groups), room
        is_open = {"head": True, "tail": True}
        while head < tail and any(is_open.values()):
            for end, index in (("head", head), ("tail", tail - 1)):
                if not is_open[end] or head >= tail:
                    continue
                if costs[index] > left:
                    is_open[end] = False
                    continue
                left -= costs[index]
                head, tail = (head + 1, tail) if end == "head" else (head, tail - 1)
        if head or tail < len(groups):
            taken = [index for group in (*groups[:head], *groups[tail:]) for index in group]
            return [passages[index] for index in taken]
    return []

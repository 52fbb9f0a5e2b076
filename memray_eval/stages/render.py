"""The render stage: turns a prompt into the candidate's own tokens, and cuts the middle out of one
that is too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    longest message (LongBench's way), or whole sessions where the prompt shows a conversation.

    A prompt that may not be cut, or whose other messages alone take the room, comes back whole: the
    engine refuses it, and reports by how much it is too long. A model without a chat template gets
    plain text. A chat template is told `template`, such as enable_thinking."""
    is_chat = prompt.is_chat and tokenizer.has_chat
    if prompt.passages and prompt.is_cut and room is not None:
        return _render_conversation(prompt, tokenizer, room, is_chat, template)
    tokens = _tokens(prompt.messages, tokenizer, is_chat, template)
    form = "chat" if is_chat else "plain"
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
        cut = _tokens(messages, tokenizer, is_chat, template)
        if len(cut) <= room:
            return Rendered(cut, messages, len(tokens) - len(cut), form)
    return Rendered(tokens, prompt.messages, 0, form)


def note_passages(prompt: Prompt, kept: Sequence[Passage]) -> dict[str, Any]:
    """What a record notes of a conversation that its prompt shows, once it is cut: which pieces of
    the sample's evidence are in it, by their numbers, and how many sessions and turns are not."""
    if not prompt.passages:
        return dict(prompt.about)
    sessions = {one.session for one in prompt.passages} - {one.session for one in kept}
    return {
        **prompt.about,
        "evidence_shown": sorted({place for one in kept for place in one.holds}),
        "sessions_left_out": len(sessions),
        "turns_left_out": len(prompt.passages) - len(kept),
    }


def _render_conversation(
    prompt: Prompt, tokenizer: Tokenizer, room: int, is_chat: bool, template: Mapping[str, Any]
) -> Rendered:
    """Keeps as many sessions from either end as fit, turn about; where not even one does, turns.
    Passages are counted one by one, so that a conversation of a million tokens is never in memory
    as tokens. What is left out is counted so too."""
    form, text = "chat" if is_chat else "plain", prompt.messages[-1].content
    first, last = prompt.passages[0].start, prompt.passages[-1].end

    def shorten(kept: Sequence[Passage]) -> tuple[Message, ...]:
        middle = "".join(text[one.start : one.end] for one in kept)
        content = text[:first] + middle + text[last:]
        return (*prompt.messages[:-1], prompt.messages[-1].model_copy(update={"content": content}))

    sizes = [tokenizer.count(text[one.start : one.end]) for one in prompt.passages]
    frame = len(_tokens(shorten(()), tokenizer, is_chat, template))
    for spare in (0, *(SEAM_TOKENS << cut for cut in range(CUTS))):
        kept = _keep_ends(prompt.passages, sizes, room - frame - spare)
        if not kept:
            break
        messages = shorten(kept)
        tokens = _tokens(messages, tokenizer, is_chat, template)
        if len(tokens) <= room:
            there = {one.start for one in kept}
            gone = sum(
                size
                for one, size in zip(prompt.passages, sizes, strict=True)
                if one.start not in there
            )
            return Rendered(tokens, messages, gone, form, tuple(kept))
    whole = _tokens(prompt.messages, tokenizer, is_chat, template)
    return Rendered(whole, prompt.messages, 0, form, prompt.passages)


def _keep_ends(passages: Sequence[Passage], sizes: Sequence[int], room: int) -> list[Passage]:
    """The passages at both ends whose sizes fit into the room: of whole sessions, or, where none
    fits, turn by turn."""
    of_session: list[list[int]] = []
    for place, one in enumerate(passages):
        if place and passages[place - 1].session == one.session:
            of_session[-1].append(place)
        else:
            of_session.append([place])
    for groups in (of_session, [[place] for place in range(len(passages))]):
        costs = [sum(sizes[place] for place in group) for group in groups]
        head, tail, left = 0, len(groups), room
        is_open = {"head": True, "tail": True}
        while head < tail and any(is_open.values()):
            for end, place in (("head", head), ("tail", tail - 1)):
                if not is_open[end] or head >= tail:
                    continue
                if costs[place] > left:
                    is_open[end] = False
                    continue
                left -= costs[place]
                head, tail = (head + 1, tail) if end == "head" else (head, tail - 1)
        if head or tail < len(groups):
            taken = [place for group in (*groups[:head], *groups[tail:]) for place in group]
            return [passages[place] for place in taken]
    return []


def _tokens(
    messages: Sequence[Message], tokenizer: Tokenizer, is_chat: bool, template: Mapping[str, Any]
) -> list[int]:
    if is_chat:
        return tokenizer.chat(messages, **template)
    return tokenizer.encode("".join(message.content for message in messages))

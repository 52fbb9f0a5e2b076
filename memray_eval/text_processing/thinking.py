"""Splits a model's output into its answer and its thinking, whichever marks the model writes. An
opening mark counts at the start of the output, after the end of another block, or on lines of its
own; a closing mark without an opening counts if the text does not quote it. Every other mark is
text."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

_TAGS = ("think(?:ing)?", "thoughts?", "reasoning", "seed:think", "mm:think", "longcat_think")
# The opening and the closing mark of each dialect, without the bracket that it begins with
_DIALECTS = (
    *((rf"(?i:\s*{tag}(?:\s[^<>]*)?>)", rf"(?i:\s*/\s*{tag}\s*>)") for tag in _TAGS),
    (r"\s*THINK\s*\]", r"\s*/\s*THINK\s*\]"),  # Mistral
    ("think▷", "/think▷"),  # Kimi
    (r"\|START_THINKING\|>", r"\|END_THINKING\|>"),  # Cohere
    (r"\|channel>\s*thought\b", r"channel\|>"),  # Gemma 4
    (r"unused94>(?:thought\b)?", "unused95>"),  # MedGemma
    (r"\|begin_of_thought\|>", r"\|end_of_thought\|>"),  # OpenThinker
    (r"\|think:start\|>", r"\|think:end\|>"),  # Solar
    (r"\|inner_prefix\|>", r"\|inner_suffix\|>"),  # Apertus
)
_EITHER = "|".join(f"({opening})|({closing})" for opening, closing in _DIALECTS)
_MARK = re.compile(rf"[<\[◁](?:{_EITHER})")
_LINE_END = re.compile(r"[ \t\r]*(?:\n|\Z)")
_BLANK = re.compile(r"[\s\ufeff]*")
# gpt-oss: a message's header with its channel, and what ends a message
_HEADER = re.compile(
    r"(?:\A[\s\ufeff]*|<\|(?:end|call|return)\|>\s*)(?:<\|start\|>[^<]*)?"
    r"<\|channel\|>\s*(\w+)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_MESSAGE_END = re.compile(r"\s*<\|(?:end|return|call)\|>\s*\Z")
# the same without its special tokens
_BARE_CHANNEL = re.compile(r"[\s\ufeff]*(?:assistant)?(analysis|commentary|[\r\n]*final)")
_BARE_FINAL = re.compile(r"assistant[\r\n]*final")
_BARE_NEXT = re.compile(r"assistant[\r\n]*(?:analysis|commentary)")
# What some models put round the answer that follows their thinking
_ANSWER_START = re.compile(r"[\s\ufeff]*<\|(?:START_RESPONSE|START_TEXT|begin_of_solution)\|>")
_ANSWER_END = re.compile(
    r"(?:\s*(?:<\|(?:END_RESPONSE|END_TEXT|end_of_solution|END_OF_TURN_TOKEN|im_end)\|>|<turn\|>))+"
    r"\s*\Z"
)
_ANSWER_TAGS = re.compile(r"\s*<answer>(.*)</answer>\s*", re.DOTALL | re.IGNORECASE)
_KINDS = "think|thought|reason|reflect|analys|channel|scratchpad|monologue"
_UNKNOWN = re.compile(
    rf"[\s\ufeff]*(<\|?(?i:[\w:.-]*(?:{_KINDS})[\w:.-]*)\|?>"
    rf"|\[[A-Z_]*(?:{_KINDS.upper()})[A-Z_]*\]|\[(?i:(?:\w+_)?(?:think|thought)\w*)\])"
)
_PAIRS = frozenset("'' ‘’ “” «» „“ ‚‘ 「」 『』 () （） [] 【】".split())
_MID_SENTENCE_BEFORE = re.compile(r"(?:[^\W_][,;:]?|[-*•])[ \t]+\Z")
_MID_SENTENCE_AFTER = re.compile(r"[ \t]+[^\W\d_A-Z]|[ \t]*[,.;:!?)]|\s*\Z")
_SENTENCE_ENDS = tuple(".!?。！？…")
_MOST_LOOKED_AT = 5000  # characters of a line before a mark, and after it
_MOST_NESTED = 64  # marks in a block that are looked at for nested blocks


class ParsedOutput(NamedTuple):
    """A model's output split into its answer and its thinking; the names are those of a Response.
    `raw` is the whole output, "" if nothing was split off; `unknown_mark` is what the answer begins
    with if that looks like a mark of thinking and is none that is known."""

    text: str
    thinking: str = ""
    thinking_blocks: int = 0
    raw: str = ""
    unknown_mark: str | None = None


# A block that is not first has to be closed, and to fill its lines if it is at a line's start
_Position = Literal["first", "after a sentence", "at a line's start", "within"]


_Pieces = tuple[str, Sequence[str]]  # the answer and the thoughts


def split_thinking(output: str) -> ParsedOutput:
    """Splits off the thinking of an output. A block that is never closed goes to the end; a close
    without an opening ends a block that the chat template opened, so all before it is thinking.
    The texts of both together are the output, but for the marks and the white space round them."""
    pieces = opened = None
    if "<" in output or "THINK" in output or "◁" in output or _BARE_CHANNEL.match(output):
        pieces = _split_harmony(output) or _split_bare_harmony(output) or _split_blocks(output)
        opened = _ANSWER_START.match(output if pieces is None else pieces[0])
    if pieces is None and opened is None:
        unknown = _UNKNOWN.match(output) if "<" in output or "[" in output else None
        return ParsedOutput(output, unknown_mark=unknown[1] if unknown else None)
    answer, thoughts = pieces or (output, ())
    answer = _ANSWER_END.sub("", answer[opened.end() :] if opened else answer)
    if thoughts and (tagged := _ANSWER_TAGS.fullmatch(answer)):
        answer = tagged[1]
    answer = answer.strip("\ufeff \t\r\n").strip()
    unknown = _UNKNOWN.match(answer)
    thinking = "\n".join(filter(None, map(str.strip, thoughts)))
    return ParsedOutput(answer, thinking, len(thoughts), output, unknown[1] if unknown else None)


def _split_harmony(output: str) -> _Pieces | None:
    """Takes gpt-oss's channels apart: the answer is the final one's. The prompt may open one."""
    headers = list(_HEADER.finditer(output)) if "<|message|>" in output else []
    if not headers or (headers[0].start() and not headers[0][0].startswith("<|end|>")):
        return None
    answer, thoughts = list[str](), [output[: headers[0].start()]][: headers[0].start()]
    ends = [*(header.start() for header in headers[1:]), len(output)]
    for header, end in zip(headers, ends, strict=True):
        text = _MESSAGE_END.sub("", output[header.end() : end])
        (answer if header[1] == "final" else thoughts).append(text)
    return ("\n".join(answer), thoughts)


def _split_bare_harmony(output: str) -> _Pieces | None:
    """The same without the special tokens. A plain word is no channel: "analysis of the diary"."""
    if (first := _BARE_CHANNEL.match(output)) is None:
        return None
    if first[1].strip() == "final":
        is_channel = "assistant" in first[0]
        return (output[first.end() :], ()) if is_channel else None
    final = _BARE_FINAL.search(output, first.end())
    following = output[first.end() : first.end() + 1]
    if final is None and (not following.isalnum() or following.islower()):
        return None
    thoughts = output[first.end() : final.start() if final else None]
    return (output[final.end() :] if final else "", _BARE_NEXT.split(thoughts))


def _split_blocks(output: str) -> _Pieces | None:
    """Takes the blocks between marks out of an output; None if it has none."""
    marks = list(_MARK.finditer(output))
    answer, thoughts, since, number = list[str](), list[str](), 0, 0
    in_text = set[int]()  # dialects of which the text holds an opening mark that counts for nothing
    while number < len(marks):
        mark, (is_opening, dialect) = marks[number], _kind_of(marks[number])
        position = _position_of(output, since, mark, bool(thoughts)) if is_opening else "within"
        end = None if position == "within" else _find_end(output, marks, number)
        closing = None if end is None else marks[end]
        if position == "first" or (
            closing and (position == "after a sentence" or _LINE_END.match(output, closing.end()))
        ):
            answer.append(output[since : mark.start()])
            thoughts.append(output[mark.end() : closing.start() if closing else None])
            since = closing.end() if closing else len(output)
            number = len(marks) if end is None else end
        elif not _is_mentioned(output, since, mark):
            if is_opening:
                in_text.add(dialect)
            elif dialect in in_text:
                in_text.remove(dialect)
            elif not thoughts:
                thoughts, since = [output[: mark.start()]], mark.end()
        number += 1
    return ("".join([*answer, output[since:]]), thoughts) if thoughts else None


def _kind_of(mark: re.Match[str]) -> tuple[bool, int]:
    """Returns True if a mark opens a block, and of which dialect."""
    dialect, is_closing = divmod((mark.lastindex or 1) - 1, 2)
    return not is_closing, dialect


def _find_end(output: str, marks: Sequence[re.Match[str]], number: int) -> int | None:
    """The number of the mark that closes the block which a mark opens, passing over marks that the
    thinking quotes; if nested blocks do not come out even, the first close does."""
    since, (_, dialect) = marks[number].end(), _kind_of(marks[number])
    first, quoted, depth = None, None, 1
    for later in range(number + 1, len(marks)):
        is_opening, other = _kind_of(marks[later])
        if other != dialect:
            continue
        if _is_quoted(output, since, marks[later]):
            quoted = quoted if quoted is not None or is_opening else later
            continue
        depth += 1 if is_opening else -1
        first = first if first is not None or is_opening else later
        if not depth:
            return later
        if first is not None and later - number > _MOST_NESTED:
            break
    return quoted if first is None else first


def _position_of(output: str, since: int, mark: re.Match[str], is_later: bool) -> _Position:
    """The place of an opening mark, after a block to `since` or (not `is_later`) at the start."""
    if _BLANK.match(output, since, mark.start()).end() == mark.start():  # type: ignore[union-attr]
        return "first"
    if _is_mentioned(output, since, mark):
        return "within"
    before = output[max(since, mark.start() - 200) : mark.start()].rstrip(" \t")
    if before.endswith("\n") and _LINE_END.match(output, mark.end()):
        return "first"
    if is_later and before.rstrip().endswith(_SENTENCE_ENDS):
        return "after a sentence"
    return "at a line's start" if before.endswith("\n") else "within"


def _is_quoted(output: str, since: int, mark: re.Match[str]) -> bool:
    """Returns True if a mark is between quotation marks, brackets or backticks, or in code."""
    start, end = mark.span()
    if output.count("```", since, start) % 2 and output.count("```", end) % 2:
        return True
    line = max(since, start - _MOST_LOOKED_AT, output.rfind("\n", since, start) + 1)
    rest = output[end : end + _MOST_LOOKED_AT].partition("\n")[0]
    if any(output.count(quote, line, start) % 2 and quote in rest for quote in '`"'):
        return True
    before = output[max(line, start - 2) : start]
    is_word = before[:-1].isalnum()  # as before an apostrophe
    return not is_word and before[-1:] + output[end : end + 1] in _PAIRS


def _is_mentioned(output: str, since: int, mark: re.Match[str]) -> bool:
    """True if the text after `since` quotes a mark, or has it in mid-sentence."""
    start, end = mark.span()
    return _is_quoted(output, since, mark) or bool(
        _MID_SENTENCE_BEFORE.search(output[max(since, start - 40) : start])
        and _MID_SENTENCE_AFTER.match(output, end)
    )

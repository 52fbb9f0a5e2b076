"""Which of the offered options a response chooses, and whether an answer is the expected one.

An option's letter is never the letter of another word, and "A" before a word is the article, "I"
the pronoun, unless the sentence says that it is the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from memray_eval.benchmarks.instruction.counts import chinese_words, is_chinese
from memray_eval.benchmarks.longbench.rules import english_words, normalise_zh, qa_f1, token_f1

_LETTERS = "ABCDEFGHIJ"
_WORD_LETTERS = "AI"  # letters that are words, too
_OPTION_MARK = re.compile(r"(?<![A-Za-z0-9])\(?([A-Ja-j])[).:](?!\w\.)")
_OPTION_END = re.compile(r"[?;\n]|\.(?:\s|$)")
_AROUND_OPTION = " \n\t,;.*"
_ALTERNATIVES = re.compile(r"\b([A-Za-z][\w-]*),? or (?!not\b|so\b|both\b)([A-Za-z][\w-]*)\s*\?")

_SAYS = (
    r"(?:is|was|are|would|should|seems|because|since|as|fits|works|gives|leaves|keeps|avoids"
    r"|provides|allows|offers)"
)
_BEST = (
    r"(?:correct|right|best|safest|answer|only|better|optimal|most|clearest|safer|fastest"
    r"|shortest|way|one)\b"
)
_REJECTED = (
    r"(?:(?:is|would be) "
    r"(?:too|not|bad|wrong|blocked|impossible|unsafe)|isn't|fails|cannot|can't|does(?: not|n't))\b"
)
_CHOOSES = (
    r"(?<!not )(?<!n't )(?<!never )\b(?:choose|chose|pick|select|prefer|recommend|go(?:ing)? "
    r"with|take|vote for)"
    r"(?:\s+(?:the\s+)?(?:option|answer|choice))?"
)
_IS_ANSWER = (
    r"\b(?:answer|choice|solution|(?:correct|right|best|safest) "
    r"(?:option|route|path|plan))(?:\s+(?:is|would be|should be))?"
)


class Choice(NamedTuple):
    """An option by its letter or word, and where in the response it is first stated as the
    answer."""

    option: str
    start: int


def offered_options(prompt: str) -> dict[str, str]:
    """The options of a prompt by their letters ("A) center B) right", "(a) ... (b) ...", "A. ... B.
    ..."), or the two words of a question that ends in "left or right?", each under itself. Empty
    where it offers none."""
    marks: list[re.Match[str]] = []
    for match in _OPTION_MARK.finditer(prompt):
        if len(marks) < len(_LETTERS) and match[1].upper() == _LETTERS[len(marks)]:
            marks.append(match)
    if len(marks) > 1:
        last = _OPTION_END.search(prompt, marks[-1].end())
        ends = [*(mark.start() for mark in marks[1:]), last.start() if last else len(prompt)]
        texts = (
            prompt[mark.end() : end].strip(_AROUND_OPTION).removesuffix(" or")
            for mark, end in zip(marks, ends, strict=True)
        )
        return {
            mark[1].upper(): text.rstrip(_AROUND_OPTION)
            for mark, text in zip(marks, texts, strict=True)
        }
    pair = _ALTERNATIVES.search(prompt)
    return {word.lower(): word for word in pair.groups()} if pair else {}


def find_choice(response: str, options: Mapping[str, str]) -> Choice | None:
    """The option that a response settles on: the last that it says is its answer ("the answer is
    B", "I choose B", "B is the safest"), else the one that it opens with, else the only one that it
    marks ("(B)", "**B**", "option B"). None where it settles on none. The letter may be one that
    was not offered (up to H). Of two words, the first that is said."""
    if not options:
        return None
    if not set(options) <= set(_LETTERS):
        either = "|".join(re.escape(word) for word in options)
        found = re.search(rf"(?<!not )(?<![\w-])({either})(?![\w-])", response, re.IGNORECASE)
        return Choice(found[1].lower(), found.start()) if found else None
    told, opening, marked = _readings("".join(sorted({*options, *"ABCDEFGH"})))
    said = [Choice(_letter(match), match.start()) for match in told.finditer(response)]
    opens = opening.match(response)
    first = Choice(_letter(opens), 0) if opens else None
    named = [Choice(_letter(match), match.start()) for match in marked.finditer(response)]
    if said:
        is_first = first is not None and first.option == said[-1].option
        return (
            first
            if is_first
            else next(choice for choice in said if choice.option == said[-1].option)
        )
    if first and not _is_list(named, response, first):
        return first
    return named[0] if len({choice.option for choice in named}) == 1 else None


def _is_list(named: Sequence[Choice], response: str, first: Choice) -> bool:
    """Whether the response goes through several options line by line, of which its first is no
    choice."""
    opens_line = {
        choice.option
        for choice in named
        if "\n" in response[max(choice.start - 2, 0) : choice.start]
    }
    return bool(opens_line - {first.option})


def _letter(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).upper()


@cache
def _readings(letters: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """The patterns of a stated answer, of a response that opens with its answer, and of an option's
    mark."""
    plain = "".join(letter for letter in letters if letter not in _WORD_LETTERS)
    words = "".join(letter for letter in letters if letter in _WORD_LETTERS)
    ends = r"(?![\w'’/&]|-\w)"
    # A letter that is a word counts before punctuation, at the end, and before what an answer goes
    # on with.
    bare = rf"(?:[{plain}]{ends}|[{words}]{ends}(?!\s+(?!{_SAYS}\b)\w))"
    closed = rf"[{letters}{letters.lower()}](?=[)\]])"
    marks = r"[\s(\[*_\"“:]{0,6}"
    told = (
        rf"(?i:{_IS_ANSWER})\s{{0,3}}{marks}({closed}|{bare})"
        rf"|(?i:{_CHOOSES})\s{marks}({closed}|{bare})"
        rf"|(?<![\w'’(-])({bare})[)*\]]{{0,3}} (?:is|seems|would be|looks) (?:the )?(?i:{_BEST})"
    )
    opening = rf"\s{{0,20}}(?:(?i:option|answer|choice)\b)?{marks}({closed}|{bare})(?![)\]*_]{{0,3}} {_REJECTED})"  # noqa: E501
    marked = (
        rf"(?<!\w)[(\[]([{letters}{letters.lower()}])[)\]]|(?<![\w(])([{letters}{letters.lower()}])\)"
        rf"|\*\*([{letters}])[.:)]?\*\*|^([{letters}])[.:]\s|\b(?i:option|choice) ({bare})"
    )
    return re.compile(told), re.compile(opening), re.compile(marked, re.MULTILINE)


class Match(NamedTuple):
    """How a response compares with the expected answers: exact or not, and the best token F1,
    0-1."""

    exact: bool
    f1: float


def compare(prompt: str, response: str, answers: Sequence[str]) -> Match:
    """The response beside the best of the answers. Where the prompt offers options and an answer is
    one of them (its letter, "B) right", or its text), the option that the response chooses is
    compared: both figures are 1 or 0. JSON is exact where it is equal as data. Else exact is
    equality without case, punctuation and articles, and F1 is LongBench's (of Chinese words where
    the answer is Chinese). Empty answers count nowhere."""
    return _compare(prompt, response, tuple(answers))


@lru_cache(16)  # several metrics ask for each response
def _compare(prompt: str, response: str, given: tuple[str, ...]) -> Match:
    answers = [answer for answer in given if answer.strip()]
    options = offered_options(prompt)
    if right := {option for answer in answers if (option := _as_option(answer, options))}:
        choice = find_choice(response, options)
        is_right = choice is not None and choice.option in right
        return Match(is_right, float(is_right))
    exact = any(_is_same(response, answer) for answer in answers)
    chinese = [answer for answer in answers if is_chinese(answer)]
    english = [answer for answer in answers if not is_chinese(answer)]
    return Match(exact, max(float(exact), qa_f1(response, english), _chinese_f1(response, chinese)))


def _chinese_f1(response: str, answers: Sequence[str]) -> float:
    """As longbench.qa_f1_zh."""
    if not answers:
        return 0.0
    said, *wanted = (
        [word for part in chinese_words(text) if (word := normalise_zh(part))]
        for text in (response, *answers)
    )
    return max(token_f1(said, answer) for answer in wanted)


def _as_option(answer: str, options: Mapping[str, str]) -> str:
    """The option that an answer names, "" for none."""
    bare = answer.strip().strip("()[]*.:")
    key = bare if set(options) <= set(_LETTERS) else bare.lower()
    if key in options:
        return key
    if (match := _OPTION_MARK.match(answer.strip())) and match[1].upper() in options:
        return match[1].upper()
    return next(
        (
            option
            for option, text in options.items()
            if text and _normalise_answer(text) == _normalise_answer(answer)
        ),
        "",
    )


def _is_same(response: str, answer: str) -> bool:
    """Whether a response is the answer, by its words or as JSON."""
    if _normalise_answer(response) == _normalise_answer(answer):
        return True
    if not answer.lstrip().startswith(("{", "[")):
        return False
    there, wanted = read_json(response), read_json(answer)
    return there is not None and there == wanted


def _normalise_answer(text: str) -> str:
    """Without case, punctuation and articles, unless nothing is left then ("A", "+")."""
    if is_chinese(text):
        return normalise_zh(text)
    return " ".join(english_words(text)) or text.strip().casefold()


def read_json(text: str) -> Any:
    """What a reply says as JSON, None if it is no JSON (or says null). One code fence around all of
    it is let through, as IFEval does; NaN and Infinity are not JSON."""
    try:
        return json.loads(strip_fence(text), parse_constant=refuse_constant)
    # broken, a number of over 4,300 digits, or nested too deeply
    except (ValueError, RecursionError):
        return None


def strip_fence(text: str) -> str:
    """The text without space around it and without the code fence that encloses all of it, if one
    does."""
    inner = text.strip()
    if len(inner) < 6 or not (inner.startswith("```") and inner.endswith("```")):
        return inner
    inner = inner[3:-3]
    return re.sub(r"\A[A-Za-z]{1,10}(?=[\s{\[])", "", inner).strip()


def refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")

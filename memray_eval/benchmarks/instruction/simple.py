"""Checks of a simple prompt (seed 004): as many words as asked for, complete, no refusal."""

from __future__ import annotations

import re
from typing import NamedTuple

from memray_eval.benchmarks.instruction.counts import asked_words, count_words, words_of
from memray_eval.errors import cut

WORDS_OFF = ((1 / 10, 75), (1 / 5, 50), (1 / 3, 25))  # up to which share off the target -> subscore
CUT_OFF_SCORE = 50

_CLOSERS = "\"'”’»)]}*_` \t\n"
_UNFINISHED = frozenset(",;:-–—([{/&…")
_DANGLING = frozenset("a an the and or but of because than my your his her its their our".split())
_STOPS = frozenset(".!?。！？")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*•#|>]|\d{1,3}[.)])")
_PROSE_WORDS = 30

_NO_REFUSAL = (
    r"(?! (?:wait|believe|imagine|thank|stress|overstate|emphasi[sz]e|help but|recommend))"
)
_ERRORS = re.compile(
    rf"(?<![\"“'\w])(?:I (?:cannot|can not|can't)\b{_NO_REFUSAL}|I(?: am|'m) (?:unable|not "
    rf"able|not allowed) to\b"
    r"|I(?: am|'m) sorry,? (?:but|I)\b|I apologi[sz]e,? (?:but|I)\b|as an AI\b|as a language "
    r"model\b)"
    r"|我(?:无法|不能)|作为(?:一个|一名)?(?:AI|人工智能)|抱歉，我"
    r"|^[ \t]*\[?(?:(?:fatal|runtime|internal|server|syntax) ){0,2}error(?:\]|[ \t]*(?::|\d|$))"
    r"|^[ \t]*Traceback \(most recent call|^[ \t]*\w{0,40}(?:Error|Exception):"
    r"|\binternal server error\b|\bHTTP (?:error )?[45]\d\d\b",
    re.IGNORECASE | re.MULTILINE,
)


class CheckResult(NamedTuple):
    """The outcome of one check: its subscore 0-100, and what it found right and wrong."""

    score: int
    passed: str = ""
    issues: tuple[str, ...] = ()


def graded(score: int, message: str) -> CheckResult:
    """A check with one finding: what is right at 100, else an issue."""
    return CheckResult(100, message) if score == 100 else CheckResult(score, issues=(message,))


def simple(prompt: str, response: str, is_cut: bool) -> dict[str, CheckResult]:
    """The checks of a response that is not empty. `is_cut`: it ran into its length."""
    counted = word_count(prompt, response)
    return {
        **({"word_count": counted} if counted else {}),
        "completeness": completeness(response, is_cut),
        "error_free": error_free(response),
    }


def word_count(prompt: str, response: str) -> CheckResult | None:
    """100 in the range that the prompt asks for, else by WORDS_OFF the share of the missed bound
    that it is off, else 0. None if the prompt sets no target."""
    if (target := asked_words(prompt)) is None:
        return None
    count = count_words(response)
    off = target.share_off(count)
    score = next((score for share, score in WORDS_OFF if off <= share), 0) if off else 100
    return graded(score, f"Word count: {count} (target: {target})")


def completeness(response: str, is_cut: bool) -> CheckResult:
    if is_cut or is_cut_off(response):
        return graded(CUT_OFF_SCORE, "Truncated response")
    return graded(100, "Complete response")


def is_cut_off(response: str) -> bool:
    """Returns True if a text looks as if it broke off: it ends with "...", a comma, colon, dash or
    open bracket, or on a word such as "the" or "and"; a code fence stays open; or it is prose of 30
    words and more that ends its sentences, but not the last."""
    text = response.rstrip()
    if text.count("```") % 2 or text.endswith("..."):
        return True
    bare = text.rstrip(_CLOSERS)
    if not bare or bare[-1] in _STOPS or text[-1] in "\"'”’»)]}`":
        return False
    if bare[-1] in _UNFINISHED:
        return True
    last = words_of(bare[-40:])
    return bool(last) and (last[-1].lower() in _DANGLING or _is_unended_prose(bare))


def _is_unended_prose(text: str) -> bool:
    last_line = text[text.rfind("\n") + 1 :]
    ends_others = any(f"{stop} " in text or f"{stop}\n" in text for stop in ".!?") or "。" in text
    return (
        ends_others
        and not _LIST_ITEM.match(last_line)
        and text[-1].isalnum()
        and count_words(text) >= _PROSE_WORDS
    )


def error_free(response: str) -> CheckResult:
    """0 for a refusal ("I cannot ...", "As an AI") or an error message ("Error: ...", a traceback),
    in English or Chinese. "I can't wait" and what is in quotation marks is no refusal."""
    match = _ERRORS.search(response.replace("’", "'"))
    if match is None:
        return graded(100, "No errors detected")
    return graded(0, f"Refusal or error message: {cut(match[0], 60)!r}")

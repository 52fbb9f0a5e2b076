"""Checks of a reasoning prompt (seed 004): an early, explained answer to what was asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from memray_eval.benchmarks.instruction.answers import ChosenOption, find_choice, offered_options
from memray_eval.benchmarks.instruction.counts import (
    chinese_words,
    count_words,
    is_chinese,
    sentences_of,
)
from memray_eval.benchmarks.instruction.simple import CheckResult, graded
from memray_eval.text_processing.matching import stem, stems, words

EARLY_WORDS = 20
LATER_SCORE = 50
SENTENCES, SENTENCE_WORDS, ONE_SENTENCE_SCORE = 2, 2, 50
MAX_CONCEPTS = 6
READ_CHARS = 100_000  # of a response: no explanation is longer

_MARKERS = re.compile(
    r"\b(?:because|since|therefore|thus|hence|consequently|as a result|due to|given that|so "
    r"that|which means|this means"
    r"|otherwise|for this reason|it follows|if\b[^.?!\n]{1,80}\bthen)\b|(?:^|[,;.] "
    r")so\b|因为|所以|因此|由于",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION_MARK = re.compile(r"\(?\b[A-Ja-j][).:]")
# Words of a prompt that ask for the answer and are not what it is about.
_ASKING = frozenset(
    stem(word)
    for word in """
    answer answers choose choice option options explain explanation why reason reasoning question
    following select pick best correct sentence sentences word words short brief briefly state give
    say tell letter decide think justify show
""".split()
)


def reasoning(prompt: str, response: str, is_cut: bool) -> dict[str, CheckResult]:
    """The checks of a response that is not empty, of which the first READ_CHARS characters are
    read; those of an answer only where the prompt offers options."""
    response = response[:READ_CHARS]
    options = offered_options(prompt)
    choice = find_choice(response, options)
    is_answered = choice is not None and choice.option in options
    right = choice if is_answered else None
    answer = {
        "answer_present": _answer_present(choice, options),
        "answer_position": _answer_position(right, response),
    }
    return {
        **(answer if options else {}),
        "explanation_present": _explanation_present(response),
        "concept_coverage": _concept_coverage(
            concepts(prompt, options, right.option if right else ""), response
        ),
        "logical_structure": _logical_structure(response),
    }


def _answer_present(choice: ChosenOption | None, options: Mapping[str, str]) -> CheckResult:
    if choice is None:
        return graded(0, f"No answer: none of {', '.join(options)} is chosen")
    if choice.option not in options:
        return graded(0, f"Answer {choice.option} is none of {', '.join(options)}")
    return graded(100, f"Answer present: {choice.option}")


def _answer_position(choice: ChosenOption | None, response: str) -> CheckResult:
    """100 within the first EARLY_WORDS words, LATER_SCORE within the first half, else 0."""
    if choice is None:
        return CheckResult(0)
    position = count_words(response[: choice.start]) + 1
    if position <= EARLY_WORDS:
        return graded(100, "Answer stated early")
    is_half = 2 * position <= count_words(response)
    return graded(LATER_SCORE if is_half else 0, f"Answer stated late: at word {position}")


def _explanation_present(response: str) -> CheckResult:
    """A sentence has two words or more, so that "B." is none."""
    n_sentences = sum(
        count_words(sentence) >= SENTENCE_WORDS for sentence in sentences_of(response)
    )
    message = f"Explanation: {n_sentences} {'sentence' if n_sentences == 1 else 'sentences'}"
    if n_sentences >= SENTENCES:
        return graded(100, message)
    return graded(ONE_SENTENCE_SCORE if n_sentences else 0, f"{message} (expected: 2 or more)")


def concepts(prompt: str, options: Mapping[str, str], answer: str) -> dict[str, str]:
    """What an explanation should speak of, at most MAX_CONCEPTS words by their stems: up to three
    content words of the chosen option, then the prompt's most frequent, without those of other
    options."""
    own = _content(options.get(answer, ""))[:3]
    offered = {root for text in options.values() for root, _ in _content(text)}
    asked = [of for of in _content(_OPTION_MARK.sub(" ", prompt)) if of[0] not in offered]
    counts = Counter(root for root, _ in asked)
    written = dict(reversed([*own, *asked]))
    wanted = dict.fromkeys((*dict(own), *(root for root, _ in counts.most_common())))
    return {root: written[root] for root in [*wanted][:MAX_CONCEPTS]}


def _content(text: str) -> list[tuple[str, str]]:
    """The stem of each content word of a text and the word, in order, with repetitions."""
    spaced = _spaced(text)
    kept = stems(spaced) - _ASKING
    pairs = ((stem(word), word) for word in words(spaced.replace("_", " ")))
    return [pair for pair in pairs if pair[0] in kept]


def _spaced(text: str) -> str:
    """Chinese text with spaces between its words, those of one character left out."""
    if not is_chinese(text):
        return text
    return " ".join(word for word in chinese_words(text) if len(word) > 1 or not is_chinese(word))


def _concept_coverage(wanted: Mapping[str, str], response: str) -> CheckResult:
    """100 where the prompt has no content word to speak of."""
    if not wanted:
        return CheckResult(100)
    mentioned = stems(_spaced(response))
    missing = [word for root, word in wanted.items() if root not in mentioned]
    n_mentioned = len(wanted) - len(missing)
    lacking = f" (not mentioned: {', '.join(missing)})" if missing else ""
    score = round(100 * n_mentioned / len(wanted))
    return graded(score, f"Key concepts: {n_mentioned} of {len(wanted)}{lacking}")


def _logical_structure(response: str) -> CheckResult:
    match = _MARKERS.search(response)
    if match is None:
        return graded(0, "No marker of reasoning, such as because or therefore")
    marker = " ".join(match[0].strip(" ,;.").lower().split())[:40]
    return graded(100, f"Reasoning marker: {marker}")

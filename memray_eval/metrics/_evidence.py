"""The check of a judge's evidence: can what it quotes be found in the text?

A piece that is not found is `unverified`: it is named in the score's judgment, counted in the parts
`evidence` and `unverified`, and lowers the metric's `trust`. It decides nothing: it is taken out of
the judgment before that is measured. The metric abstains (metric.score_by_verdict) where no piece
of a verdict is found, and where a fault is not that the score counts (a made-up claim, a forbidden
key): otherwise an answer that has its faults reworded would get them out of the ratio.

A quote is found when it stands in the text word for word (whatever the case, spacing, punctuation
and Unicode form, and with "..." for what is left out), or when its words align with one or two
neighbouring sentences: at least ALIGNED_SHARE of its content words (as stems, and denied where the
text denies them), two or more of them, and all of its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue, Verified, Verify, means_of, section
from memray_eval.text_processing.matching import (
    Quantity,
    contains_phrase,
    normalise,
    quantities,
    sentences,
    stems,
)
from memray_eval.types import Message, Response, Sample, pair_of

ALIGNED_SHARE = 2 / 3  # of a quote's content words, beside each other in the text
ALIGNED_WORDS = 2  # at least; one word alone is found word for word or not at all
WINDOW_WORDS = 60  # a longer sentence is compared in overlapping pieces
READ_CHARS = 100_000  # of a text for the alignment; a verbatim quote is found anywhere

_ELISION = re.compile(r"\s*(?:\[?\.\.\.\]?|\[?…\]?)\s*")
_CLAUSE = re.compile(r"[,;:.!?()]\s|\bbut\b")
_NEGATION = re.compile(r"\b(?:not|no|never|none|neither|nor|without|cannot|\w+n't)\b")
_NARRATOR = stems(
    "user users person patient response assistant says said states mentions claims claim tells told"
)
_UNSPACED_NARRATOR = re.compile("用户|患者|助手|回答")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")


def verify_quotes(
    *fields: str,
    of: tuple[str, ...] = (),
    within: Callable[[Sample, Response], Sequence[str]] = lambda sample, response: (response.text,),
    source: str = "the response",
    is_fault: Callable[[Any, Sample], bool] = lambda entry, sample: False,
) -> Verify:
    """A `verify` that looks for the entries of the named list fields in any of the texts `within`,
    which `source` names, and takes out those that are not there. Entries are texts, or models whose
    fields named in `of` are the texts (all of them must be found). Without an entry that
    `is_fault` nothing can be measured."""

    def verify(judgment: Any, sample: Sample, response: Response) -> Verified:
        entries = [(field, entry) for field in fields for entry in getattr(judgment, field)]
        quotes = [
            (entry,) if isinstance(entry, str) else tuple(getattr(entry, name) for name in of)
            for _, entry in entries
        ]
        missing = find_missing(quotes, within(sample, response))
        hidden = ""
        if missing:
            kept: dict[str, list[Any]] = {field: [] for field in fields}
            for (field, entry), quoted in zip(entries, quotes, strict=True):
                if (text := " / ".join(quoted)) not in missing:
                    kept[field].append(entry)
                elif is_fault(entry, sample):
                    hidden = text
            judgment = judgment.model_copy(update=kept)
        return Verified(judgment, len(entries), missing, source=source, hidden=hidden)

    return verify


def verify_both(first: Verify, second: Verify) -> Verify:
    """A `verify` that looks for the pieces of two checks; an error names the first one's source."""

    def verify(judgment: Any, sample: Sample, response: Response) -> Verified:
        verified = first(judgment, sample, response)
        other = second(verified.judgment, sample, response)
        return verified._replace(
            judgment=other.judgment,
            pieces=verified.pieces + other.pieces,
            unverified=verified.unverified + other.unverified,
        )

    return verify


def find_missing(pieces: Iterable[tuple[str, ...]], texts: Iterable[str]) -> tuple[str, ...]:
    """Those pieces of evidence, each of one or more quotes, of which a quote is in no text."""
    quoted = [QuotedText(text) for text in texts]
    return tuple(
        " / ".join(quotes)
        for quotes in pieces
        if not all(any(text.holds(quote) for text in quoted) for quote in quotes)
    )


class QuotedText:
    """A text in which quotes are looked for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def holds(self, quote: str) -> bool:
        """Returns True if the text holds the quote, word for word or by alignment of its words."""
        pieces = [piece for piece in _ELISION.split(quote) if piece]
        # "not ... it" stands in nearly any text
        says_much = len(pieces) == 1 or any(
            Content.of(piece).size >= ALIGNED_WORDS for piece in pieces
        )
        if contains_phrase(self._text, quote) or (
            says_much and all(contains_phrase(self._text, piece) for piece in pieces)
        ):
            return True
        wanted = Content.of(quote)
        if wanted.size < ALIGNED_WORDS:
            return False
        least = max(ALIGNED_WORDS, ALIGNED_SHARE * wanted.size)
        return any(
            len(wanted.words & window.words) + len(wanted.numbers) >= least
            and all(any(map(number.matches, window.numbers)) for number in wanted.numbers)
            for window in self._windows
        )

    @cached_property
    def _windows(self) -> list[Content]:
        """The content of each sentence, and of each two neighbours."""
        lines = sentences(self._text[:READ_CHARS])
        contents = [Content.of(piece) for line in lines for piece in _short(line)]
        neighbours = pairwise(contents)
        return contents + [Content(a.words | b.words, a.numbers + b.numbers) for a, b in neighbours]


class Content(NamedTuple):
    """Stems of content words (those that are denied with "!") and numbers of a text."""

    words: frozenset[str]
    numbers: tuple[Quantity, ...]

    @property
    def size(self) -> int:
        return len(self.words) + len(self.numbers)

    @classmethod
    def of(cls, text: str) -> Content:
        words = set[str]()
        for clause in _CLAUSE.split(normalise(_UNSPACED.sub(" ", text))):
            denial = _NEGATION.search(clause)
            words |= stems(clause[: denial.start()] if denial else clause)
            if denial:
                denied = stems(_NEGATION.sub(" ", clause[denial.end() :]))
                words.update(f"!{word}" for word in denied)
        runs = _UNSPACED.findall(_UNSPACED_NARRATOR.sub(" ", text))
        bigrams = {run[start : start + 2] for run in runs for start in range(len(run) - 1)}
        return cls(frozenset(words - _NARRATOR | bigrams), quantities(text))


def _short(sentence: str) -> list[str]:
    words, step = sentence.split(), WINDOW_WORDS // 2
    if len(words) <= WINDOW_WORDS:
        return [sentence]
    return [" ".join(words[at : at + WINDOW_WORDS]) for at in range(0, len(words), step)]


# What a verdict is for, as parts of a score: one of them is 1
FIRST, TIE, SECOND = "first", "tie", "second"
VALUES = {FIRST: 1.0, TIE: 0.5, SECOND: 0.0}
JUDGE = "anthropic/claude-opus-4-5"  # whom `judge: auto` asks

# A rubric's text, a pair's sample, and the answer that is shown first -> what a judge is asked
Ask = Callable[[str, Sample, Response], tuple[Message, ...]]


class PreferenceJudgment(BaseModel):
    """Which of the two answers is better."""

    evidence: list[str] = Field(description="Exact quotes of either answer that decide.")
    reason: str = Field(description="Why, in one or two sentences, by the rubric.")
    preferred: Literal["first", "tie", "second"]


def other_text(sample: Sample) -> str:
    """The answer that is shown second; "" where the sample is no pair."""
    pair = pair_of(sample)
    return "" if pair is None else pair.other


def applies(sample: Sample) -> str | None:
    """The reason why a sample is not judged: it is no pair, or one of the two gave no answer."""
    pair = pair_of(sample)
    if pair is None:
        return "the sample is no pair of answers; `memray-eval pairwise RUN_A RUN_B` makes pairs"
    missing = (
        f"{answer.candidate}: {answer.kind} {answer.why}".strip() for answer in pair.unanswered
    )
    return "no answer to compare: " + "; ".join(missing) if pair.unanswered else None


def measure(judgment: Any, sample: Sample, response: Response) -> MetricValue:
    preferred = judgment.preferred
    return MetricValue(VALUES[preferred], {part: float(part == preferred) for part in VALUES})


def pairwise_metric(rubric: str, ask: Ask, **fields: Any) -> JudgedMetric:
    """A metric whose judge says which of a pair's answers is better by a rubric. Its value is that
    of the answer shown first: 1 if it is preferred, 0.5 for a tie, 0 if the other is. A pair of
    which one has no answer is not judged."""
    shares = {
        FIRST: "Answer shown first preferred",
        TIE: "No preference",
        SECOND: "Answer shown second preferred",
    }
    return JudgedMetric(
        value_label="Preference",
        scale=(0, 1),
        applies=applies,
        parts=tuple(VALUES),
        aggregate=means_of(*VALUES),
        layout=(
            section(
                *((label, f"extras.{part}", "percent") for part, label in shares.items()),
                ("Total Samples", "n_scored", "count"),
            ),
        ),
        judgment=PreferenceJudgment,
        prompt=lambda sample, response: ask(rubric, sample, response),
        prompt_with=ask,
        measure=measure,
        on_empty=lambda sample: PreferenceJudgment(
            evidence=[], reason="an answer is empty", preferred=TIE
        ),
        verify=verify_quotes(
            "evidence",
            within=lambda sample, response: (response.text, other_text(sample)),
            source="the answers",
        ),
        preferred_judge=JUDGE,
        **fields,
    )

"""Conversational continuity: does the response use the earlier conversation rightly?

Source: seed 000 names the metric and its judge but doesn't define it; scale, fields and rules are
this file's. One rubric score from 1 to 5 over what of the history is used, contradicted and
forgotten. Not applicable without history. An empty response scores 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel, Field

from memray_eval.metric import (
    JudgedMetric,
    MetricValue,
    Verified,
    counts_block,
    statistics_block,
    sums_and_means,
)
from memray_eval.metrics._shared.claims import is_assertion
from memray_eval.metrics._shared.evidence import QuotedText, check_evidence
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.metrics._shared.memory import statement
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import (
    Quantity,
    normalise,
    quantities,
    sentences,
    stems,
    words,
)
from memray_eval.text_processing.sample_text import history_lines
from memray_eval.types import Message, Response, Sample

RUBRIC = """
Score how rightly the response takes up the earlier conversation in HISTORY, from 1 to 5. It should build on what was said
there and bears on the query, agree with it, and read as the next turn of the same talk: no question that the user has already
answered, no advice given again as if it were new, no claim that something was said which was not. A correction that the user
makes in the query replaces what was said before. What has no bearing on the query may stay unmentioned, so a response is
right to leave the history alone where none of it matters.
5: all that bears on the query is used, correctly and naturally. 4: the main points are used, something minor is missed.
3: little of it is used, as if the talk had just begun, but nothing clashes. 2: forgets or misstates something that matters.
1: contradicts the conversation on a main point, or ignores it so that the answer fails.
A fact is one statement of the history, by either speaker. Quote facts exactly as HISTORY words them: in used_facts those that
the response relies on, in contradicted_facts those that it denies or gets wrong, in forgotten_facts those that bear on the
query and that it passes over or asks for again.
"""  # noqa: E501

FACTS = ("used_facts", "contradicted_facts", "forgotten_facts")


class ConversationalContinuityJudgment(BaseModel):
    """How rightly the response takes up what was said before."""

    continuity_score: int = Field(ge=1, le=5)
    used_facts: list[str] = Field(
        default_factory=list, description="Exact quotes from the history."
    )
    contradicted_facts: list[str] = Field(
        default_factory=list, description="Exact quotes from the history."
    )
    forgotten_facts: list[str] = Field(
        default_factory=list, description="Exact quotes from the history."
    )
    explanation: str


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    sections = {"HISTORY": history_lines(sample), "QUERY": sample.query, "RESPONSE": response.text}
    return judge_messages(RUBRIC, sections)


def verify(
    judgment: ConversationalContinuityJudgment, sample: Sample, response: Response
) -> Verified:
    """Looks for the facts in the history. All count as the judge judged them: without the facts
    that it words its own way, the counts of what is contradicted and forgotten would look better
    than the verdict is."""
    history = QuotedText("\n".join(turn.content for turn in sample.history))
    facts = [(fact,) for field in FACTS for fact in getattr(judgment, field)]
    return check_evidence(judgment, facts, history.holds, source="the history")


READ_CHARS = 20_000  # of a response or a turn; what follows is not read
LATEST = 100  # statements of the user that are looked at
SENTENCE_CHARS = 400  # in a longer one no number is compared
REPEATED_WORDS = 6  # a sentence of so many words, said again, repeats an earlier turn

_NEGATION = re.compile(r"\b(?:not|no|never|none|nothing|neither|without|cannot|\w+n't)\b")
_RECALLS = re.compile(
    r"\b(?:you(?:'ve| have)? (?:mentioned|said|told me)|as we discussed|we talked about|last time "
    r"you|earlier you)\b"
)
_RECALL_WORDS = stems(
    "mention mentioned say said tell told discuss discussed talk talked last earlier time remember"
)


class Said(NamedTuple):
    """A sentence, prepared for comparison."""

    text: str
    stems: frozenset[str]
    quantities: tuple[Quantity, ...]
    is_question: bool

    @classmethod
    def of(cls, text: str) -> Said:
        numbers = quantities(text) if len(text) <= SENTENCE_CHARS else ()
        return cls(text, stems(text), numbers, text.rstrip().endswith("?"))

    def shares(self, other: frozenset[str]) -> bool:
        """Whether `other` holds two content words of the sentence, or half of them."""
        shared = len(self.stems & other)
        return shared >= 2 or (shared > 0 and 2 * shared >= len(self.stems))

    def bears_on(self, query: frozenset[str]) -> bool:
        return len(self.stems & query) >= 2


def rules(sample: Sample, response: Response, vectors: Vectors) -> ConversationalContinuityJudgment:
    """3, or 4 where no fact bears on the query; plus 1 for each used fact (2 at most), less 1 for
    each forgotten one (2 at most), less 2 for each contradicted one, less 1 for a sentence of an
    earlier turn said again, less 1 for a recollection ("you mentioned ...") of which neither
    history, memory nor query has a word; kept within 1 to 5.

    Facts are the user's latest LATEST statements of two content words or more, or with a number. A
    text shares a fact when it holds two of its content words, or half of them. Each fact is the
    first of these that applies. Contradicted: a sentence has half its words, and a number of the
    same unit and another value; or a clause asserts of the user what the fact denies, or the
    reverse. Forgotten: a question of the response asks for it. Used: a sentence shares it, with a
    word that is not in the query, or gives its distinctive number. Forgotten: it bears on the
    query, with two content words in common, and none of its other words is in the response. Words
    are matched by English stems; READ_CHARS characters of each text are read."""
    answer = [Said.of(sentence) for sentence in sentences(response.text[:READ_CHARS])]
    query = stems(sample.query[:READ_CHARS])
    used, contradicted, forgotten = [], [], []
    stated = list(facts(sample))
    for fact in stated:
        if any(_contradicts(sentence, fact) for sentence in answer):
            contradicted.append(fact.text)
        elif any(_asks_for(sentence, fact) for sentence in answer):
            forgotten.append(fact.text)
        elif any(_uses(sentence, fact, query) for sentence in answer):
            used.append(fact.text)
        elif _is_passed_over(answer, fact, query):
            forgotten.append(fact.text)
    flaws = _repeats(sample, answer) + _makes_up(sample, answer)
    bears = bool(contradicted or forgotten) or any(fact.bears_on(query) for fact in stated)
    score = (
        (3 if bears else 4)
        + min(2, len(used))
        - min(2, len(forgotten))
        - 2 * len(contradicted)
        - flaws
    )
    return ConversationalContinuityJudgment(
        continuity_score=min(5, max(1, score)),
        used_facts=used,
        contradicted_facts=contradicted,
        forgotten_facts=forgotten,
        explanation=f"{len(used)} facts used, {len(contradicted)} contradicted, {len(forgotten)} "
        f"forgotten, by the rules",
    )


def facts(sample: Sample) -> Iterator[Said]:
    """What the user stated in the history, each statement once."""
    turns = [turn.content[:READ_CHARS] for turn in sample.history if turn.role == "user"][-LATEST:]
    texts = list(dict.fromkeys(sentence for turn in turns for sentence in sentences(turn)))
    for fact in map(Said.of, texts[-LATEST:]):
        if not fact.is_question and (len(fact.stems) >= 2 or fact.quantities):
            yield fact


def _contradicts(sentence: Said, fact: Said) -> bool:
    shared = len(sentence.stems & fact.stems)
    if sentence.is_question or not shared or 2 * shared < len(fact.stems):
        return False
    return _gives_other_number(sentence, fact) or _says_the_reverse(sentence.text, fact)


def _gives_other_number(sentence: Said, fact: Said) -> bool:
    units = {number.unit for number in fact.quantities} & {
        number.unit for number in sentence.quantities
    } - {None}
    return bool(units) and not any(
        mine.matches(other) for mine in fact.quantities for other in sentence.quantities
    )


def _says_the_reverse(sentence: str, fact: Said) -> bool:
    """Whether a clause asserts of the user, in words of the fact alone, what the fact denies; or
    denies what it says."""
    denies = bool(_NEGATION.search(normalise(fact.text)))
    for clause in re.split(r"[,;:]", sentence[:SENTENCE_CHARS]):
        content = stems(clause)
        is_about = len(content & fact.stems) >= 2 and 3 * len(content & fact.stems) >= 2 * len(
            content
        )
        if (
            is_about
            and bool(_NEGATION.search(normalise(clause))) != denies
            and is_assertion(clause)
        ):
            return True
    return False


def _asks_for(sentence: Said, fact: Said) -> bool:
    shared = len(sentence.stems & fact.stems)
    return (
        sentence.is_question
        and shared > 0
        and 3 * shared >= 2 * len(sentence.stems)
        and 2 * shared >= len(fact.stems)
    )


def _uses(sentence: Said, fact: Said, query: frozenset[str]) -> bool:
    if fact.shares(sentence.stems) and sentence.stems & fact.stems - query:
        return True
    telling = [number for number in fact.quantities if number.is_distinctive]
    return any(number.matches(other) for number in telling for other in sentence.quantities)


def _is_passed_over(answer: list[Said], fact: Said, query: frozenset[str]) -> bool:
    fresh = fact.stems - query
    return (
        fact.bears_on(query)
        and bool(fresh)
        and all(fresh.isdisjoint(sentence.stems) for sentence in answer)
    )


def _repeats(sample: Sample, answer: list[Said]) -> bool:
    earlier = [
        turn.content[:READ_CHARS] for turn in sample.history[-LATEST:] if turn.role == "assistant"
    ]
    spoken = {tuple(words(sentence)) for turn in earlier for sentence in sentences(turn)}
    again = (tuple(words(sentence.text)) for sentence in answer)
    return any(len(sentence) >= REPEATED_WORDS and sentence in spoken for sentence in again)


def _makes_up(sample: Sample, answer: list[Said]) -> bool:
    recalled = [
        s.stems - _RECALL_WORDS
        for s in answer
        if not s.is_question and _RECALLS.search(normalise(s.text))
    ]
    if not recalled:
        return False
    sources = (
        sample.query,
        *(turn.content for turn in sample.history),
        *(statement(*item) for item in sample.memory.items()),
    )
    stated = frozenset().union(*(stems(source[:READ_CHARS]) for source in sources))
    return any(content and content.isdisjoint(stated) for content in recalled)


def measure(
    judgment: ConversationalContinuityJudgment, sample: Sample, response: Response
) -> MetricValue:
    parts = {
        "contradicted": len(judgment.contradicted_facts),
        "forgotten": len(judgment.forgotten_facts),
    }
    return MetricValue(value=judgment.continuity_score, parts=parts)


COUNTS = {"contradicted": "Contradicted Facts", "forgotten": "Forgotten Facts"}
METRIC = JudgedMetric(
    title="CONVERSATIONAL CONTINUITY (USE OF EARLIER TURNS)",
    value_label="Continuity",
    scale=(1, 5),
    integer_scale=True,
    requires=("history",),
    judgment=ConversationalContinuityJudgment,
    prompt=prompt,
    rules=rules,
    measure=measure,
    verify=verify,
    on_empty=lambda sample: ConversationalContinuityJudgment(
        continuity_score=1, explanation="empty response"
    ),
    preferred_judge="google/gemini-2.0-flash",
    parts=tuple(COUNTS),
    aggregate=sums_and_means(COUNTS),
    layout=(
        statistics_block("Continuity", True),
        counts_block(COUNTS),
    ),
)

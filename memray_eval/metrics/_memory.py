"""Where a response uses what is remembered of the user: the deterministic matcher of memory keys
and values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from memray_eval.metrics._statements import KEY_FILLER, find_claims, mask_values
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import (
    NUMBER_WORD,
    Quantity,
    normalise,
    quantities,
    sentences,
    stem_each,
    stems,
)
from memray_eval.text_processing.numerals import holds_value, is_foreign, value_text
from memray_eval.types import MemoryValue, Response, Sample

# set on all-MiniLM-L6-v2
PARAPHRASE_COSINE = 0.62
MANY = 200  # entries, whose vectors take seconds

_JSON = re.compile(r"[{\[]\s*\"")  # a verdict about itself that a response may hold uses no memory
_PERSONAL = re.compile(r"\b(?:you|your|yours|you're|you've|youre)\b")
_NUMBER = rf"(?:\d{{1,3}}|(?:{NUMBER_WORD})(?:-(?:{NUMBER_WORD}))?)"
_MASS = r"(?:kg|kilos?|lbs?|pounds)"
# How a response speaks of facts that need not be named: "at 78", "you're only fourteen", "your 74
# kilos".
_UNNAMED = {
    "age": re.compile(
        rf"\b{_NUMBER}[- ]years?[- ]old\b|\bat your age\b"
        rf"|\bat (?:age |the age of )?{_NUMBER}(?=[,;]|\.(?!\d)| and\b| you| with\b|$)"
        rf"|\byou(?:'re| are) (?:only |just |already |now )?{_NUMBER}(?=[,;]|\.(?!\d)| and\b| "
        rf"so\b|$)"
    ),
    "weight": re.compile(
        rf"\byou weigh\b|\byou(?:'re| are) (?:at |now )?{_NUMBER} ?{_MASS}\b|\byour {_NUMBER} "
        rf"?{_MASS}\b"
    ),
}
# Words too common in health advice to say, alone, that a memory was used.
_COMMON = stem_each(
    """
    high low medium moderate mild severe rare rarely often sometimes never always none yes good poor
    bad normal regular irregular daily weekly monthly morning afternoon evening night day week month
    year today work working health healthy exercise diet food meal drink water sleep walk walking
    medication medicine doctor pain stress anxiety energy help support feel feeling time early late
    new old long short small large home family friend people person right left take taking start
    started stop stopped light heavy level help symptom condition treatment plan goal habit activity
    breakfast lunch dinner snack body weight blood pressure heart rate minute hour twice once male
    female single married routine gentle slow fast stretch stretching outdoors indoors weekend
    weekday between breathing relaxation mental physical general practical practice increase reduce
    avoid balance balanced protein vegetables fruit coffee tea alcohol
    """
)


class KeyCitation(BaseModel):
    """A memory key and the words of the response that use it."""

    quote: str = Field(description="The exact words of the response.")
    key: str


def statement(key: str, value: MemoryValue) -> str:
    """A memory entry as a sentence: sleep_hours_avg, "5.5" -> "Your sleep hours avg: 5.5"."""
    return f"Your {key.replace('_', ' ')}: {value_text(value)}"


def candidate_keys(sample: Sample) -> tuple[str, ...]:
    """The keys that a response may cite: of memory, then forbidden and neutral ones beside it."""
    return tuple(dict.fromkeys((*sample.memory, *sample.forbidden_keys, *sample.neutral_keys)))


def matching_texts(sample: Sample, response: Response) -> list[str]:
    """The texts whose vectors `find_citations` compares, if a sentence speaks to the user. Of more
    than MANY entries, those that share a word with such a sentence."""
    lines = [line for line in sentences(response.text) if is_personal(line)]
    if not lines:
        return []
    entries = [statement(key, value) for key, value in sample.memory.items()]
    if len(entries) > MANY:
        heard = stems(" ".join(lines))
        entries = [text for text in entries if heard & stems(text)]
    return [*lines, *entries]


def reads_words(sample: Sample, response: Response) -> bool:
    """Returns True if the rules know the language of the response and of the memory's values."""
    values = ". ".join(map(value_text, sample.memory.values()))
    return not (is_foreign(response.text) or is_foreign(values, is_prose=False))


def find_verbatim(sample: Sample, response: Response) -> list[KeyCitation]:
    """The keys of which a value stands in the response word for word, with the first sentence."""
    citations, lines = [], sentences(response.text)
    for key, value in sample.memory.items():
        items = value if isinstance(value, tuple) else (value,)
        texts = [value_text(item) for item in items if not isinstance(item, bool)]
        telling = [text for text in texts if not (content := stems(text)) or not content <= _COMMON]
        uses = (line for line in lines if any(holds_value(line, text) for text in telling))
        if (quote := next(uses, None)) is not None:
            citations.append(KeyCitation(key=key, quote=quote))
    return citations


def find_citations(sample: Sample, response: Response, vectors: Vectors) -> list[KeyCitation]:
    """The memory keys that the response uses, each with the first sentence that does.

    A sentence uses a key when it holds (a) a telling number of the value, or a plain number beside
    a word of the key or value; (b) most of the value's content words, or one rare one; (c) all
    words of a longer key, said to the user; or (d) a paraphrase: its cosine with the statement
    "Your <key>: <value>" reaches PARAPHRASE_COSINE. Of a list, one of its values is enough. A
    sentence also uses a key when it claims a value or a state for it, rightly or not (see
    _statements.py), and that alone makes it use a key that memory lacks: to ask for it, to deny it
    or to advise measuring it does not.

    If the response or the memory is not English, a value that stands in the response as it is
    written uses its key, and nothing else does."""
    if not reads_words(sample, response):
        return find_verbatim(sample, response)
    lines = [line for line in sentences(response.text) if not _JSON.search(line)]
    citations = []
    for key in candidate_keys(sample):
        if key in sample.memory:
            facts = Fact.each_of(key, sample.memory[key])
            uses = (
                line
                for line in lines
                if uses_value(facts, key, line, vectors) or find_claims(key, line)
            )
        else:
            uses = (line for line in lines if _claims_absent(key, line))
        if (quote := next(uses, None)) is not None:
            citations.append(KeyCitation(key=key, quote=quote))
    return citations


@dataclass(frozen=True)
class Fact:
    """A memory entry, prepared for matching."""

    statement: str
    key_stems: frozenset[str]  # without the filler, unless there is nothing else
    whole_key: frozenset[str]
    value_stems: frozenset[str]
    quantities: tuple[Quantity, ...]

    @classmethod
    def of(cls, key: str, value: MemoryValue) -> Fact:
        text = value_text(value)
        key_stems = stems(key)
        telling = (key_stems - KEY_FILLER) or key_stems
        return cls(statement(key, value), telling, key_stems, stems(text), quantities(text))

    @classmethod
    def each_of(cls, key: str, value: MemoryValue) -> list[Fact]:
        """The entry, and each value of one that lists several: any of them uses the key."""
        items = value if isinstance(value, tuple) else ()
        return [cls.of(key, value), *(cls.of(key, item) for item in items if len(items) > 1)]

    def is_used_in(self, sentence: str, vectors: Vectors) -> bool:
        content = stems(sentence)
        key_hits, value_hits = self.key_stems & content, self.value_stems & content
        heard = quantities(sentence)
        numbers = [number for number in self.quantities if any(map(number.matches, heard))]
        is_telling = len(self.value_stems) <= 2 and any(number.is_distinctive for number in numbers)
        if (numbers and (is_telling or key_hits or value_hits)) or self._words_used(
            key_hits, value_hits
        ):
            return True
        return is_personal(sentence) and (
            (len(self.whole_key) >= 2 and self.whole_key <= content)
            or cosine(vectors, sentence, self.statement) >= PARAPHRASE_COSINE
        )

    def _words_used(self, key_hits: frozenset[str], value_hits: frozenset[str]) -> bool:
        if not value_hits:
            return False
        share = len(value_hits) / len(self.value_stems)
        telling = {hit for hit in value_hits if hit not in _COMMON}
        if key_hits and len(key_hits) * 2 >= len(self.key_stems):
            return share >= 0.5
        if len(self.value_stems) == 1:
            return bool(telling)
        rare = any(len(hit) >= 7 for hit in telling)
        return bool(telling) and (
            (share >= 0.5 and len(value_hits) >= 2) or (rare and share >= 0.3)
        )


def uses_value(facts: Sequence[Fact], key: str, sentence: str, vectors: Vectors) -> bool:
    """Whether a sentence uses one of the facts under the key, the whole value first."""
    if any(fact.is_used_in(sentence, vectors) for fact in facts):
        return True
    numbers = facts[0].quantities if mask_values(key, sentence) is not None else ()
    return any(number.matches(other) for number in numbers for other in quantities(sentence))


def is_personal(sentence: str) -> bool:
    """Returns True if a sentence speaks to the user of the user."""
    return _PERSONAL.search(normalise(sentence)) is not None


def cosine(vectors: Vectors, left: str, right: str) -> float:
    """The cosine of two texts' vectors, 0.0 where one has none."""
    if left not in vectors or right not in vectors:
        return 0.0
    return float(vectors[left] @ vectors[right])


def _claims_absent(key: str, sentence: str) -> bool:
    """Whether a sentence claims a value or a state of the user for a key that memory lacks."""
    unnamed = [pattern for fact, pattern in _UNNAMED.items() if fact in key.split("_")]
    is_unnamed = any(pattern.search(normalise(sentence)) for pattern in unnamed)
    is_asked = sentence.rstrip().endswith("?")
    return bool(find_claims(key, sentence)) or (is_unnamed and not is_asked)

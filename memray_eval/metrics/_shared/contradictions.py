"""Where a response contradicts what is remembered of the user, by itself or by agreeing with a
false premise of the query.

A sentence contradicts a memory entry when it claims, under its key (metrics/_shared/statements.py),
another number; or the reverse of a yes or no; or a state that the remembered figure rules out
(_RANGES: a potassium of 3.1 is not normal); or when it speaks to the user of another one of _KINDS
(a rabbit, where the memory says guinea pig) or names another drug that the user takes. A response
agrees with a false premise when a sentence of the query contradicts an entry and the response takes
its figure or kind over, or consents ("yes", "of course"), without giving what the memory holds.
English only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from memray_eval.metrics._shared.statements import READ_CHARS, find_claims
from memray_eval.text_processing.matching import (
    Quantity,
    normalise,
    quantities,
    sentences,
    stem,
    words,
)
from memray_eval.types import MemoryValue, Response, Sample

_DENIAL = re.compile(r"\b(?:not|never|no longer|no|none|without|\w+n't)\b")
_NO_VALUES = frozenset("no none never false non-smoker".split())
_YES_VALUES = frozenset("yes true".split())
_DECADE = re.compile(r"\b(low|mid|high|upper)?[- ]?(twen|thir|for|fif|six|seven|eigh|nine)ties\b")
_TENS = {
    "twen": 20,
    "thir": 30,
    "for": 40,
    "fif": 50,
    "six": 60,
    "seven": 70,
    "eigh": 80,
    "nine": 90,
}
_CHANGE = re.compile(
    r"\b(?:lost|gained|(?:dropped|fell|fallen|rose|risen|gone (?:up|down)|up|down"
    r"|increased|decreased|changed)(?: by)?) \d[\d.,]*"
)
# words between a key and the number that is claimed for it, in the same part of the sentence
_NEAR = 5
_CONDITION = re.compile(r"\b(?:if|whether|unless|or)\b")
_CONSENTS = re.compile(
    r"^\W*(?:yes|yep|yeah|sure|of course|absolutely|definitely|certainly|indeed"
    r"|right|exactly|good|great|no need|go ahead|that's"
    r" (?:fine|right|great))\b"
)
_CORRECTS = re.compile(
    r"\b(?:actually|hang on|isn't|is not|aren't|wasn't|not quite|in fact|rather than"
    r"|instead|opposite|according to|on record|my"
    r" notes|i have you|down (?:here )?as|didn't you|wouldn't call)\b"
)
# Values that exclude each other; each name with the words that say it.
_KINDS = (
    {
        "dog": r"dogs?|pupp(?:y" r"|ies)" r"|hounds?", "cat": r"cats?|kittens?",
        "rabbit": r"rabbits?|bunn(?:y|ies)",
        "guinea pig": r"guinea pigs?", "hamster": r"hamsters?",
        "bird": r"parrots?|budgies?" r"|canar(?:y|ies)",
        "tortoise": r"tortoises?|turtles?", "horse": r"horses?|pon(?:y|ies)",
    },
    {
        "vegetarian": r"vegetarians?|veggie", "vegan": r"vegans?", "pescatarian": r"pescatarians?",
        "meat": r"carnivores?|omnivores?|meat[- ](?:eaters?|lovers?)",
    },
    {"type 1": r"type (?:1|one)", "type 2": r"type (?:2|two)"},
    {"single": r"single", "married": r"married|husband" r"|wife", "divorced": r"divorced",
    "widowed": r"widow(?:ed|er)?"},
    {"left": r"left[- ]handed", "right": r"right[- ]handed"},
)  # fmt: skip


class StateKind(NamedTuple):
    """The patterns that name a kind, and that say it of the user or theirs."""

    named: re.Pattern[str]
    said_of_user: re.Pattern[str]

    @classmethod
    def of(cls, said: str) -> StateKind:
        told = (
            rf"\b(?:your|you're an?|you are an?|as an?|for an?|being an?|like (?:most"
            rf"|all|other)) (?:[\w'-]+ ){{0,2}}(?:{said})\b"
            rf"|\b(?:{said})(?:,? [\w'-]+)?,? (?:like|such as) yours?(?:elf)?\b|\b(?:{said})(?: "
            rf"[\w'-]+)? like you\b"
        )
        return cls(re.compile(rf"\b(?:{said})\b"), re.compile(told))


_KIND_PATTERNS = tuple(
    {name: StateKind.of(said) for name, said in kinds.items()} for kinds in _KINDS
)
_DRUG = re.compile(
    r"\b(?:the|your|that) (?P<drug>[a-z]{3,}(?:pril|sartan|olol|statin|formin|mycin"
    r"|cillin|xaban|farin|dipine|thiazide|semide|zepam"
    r"|zolam|xetine|pram|traline|profen|thyroxine|lukast|gliptin|flozin|glutide|prazole|triptan"
    r"|azine|apine|done))"
    r"(?= (?:that )?you(?:'re| are) (?:on|taking)\b| (?:that )?you take\b)"
    r"|\byou(?:'re| are)(?: already| currently)? (?:on|taking) (?P<drug2>[a-z]{3,}(?:pril"
    r"|sartan|olol|statin|formin|mycin|cillin"
    r"|xaban|farin|dipine|thiazide|semide|zepam|zolam|xetine|pram|traline|profen"
    r"|thyroxine|lukast|gliptin|flozin|prazole))\b"
)


class ValueRange(NamedTuple):
    """A figure at most `low` is low, one from `high` is high; from `normal_from` to `normal_to` it
    is neither."""

    low: float
    normal_from: float
    normal_to: float
    high: float


# By words of a key (as stems), in the units that are meant by figures of this size.
_RANGES = (
    ({"potassium"}, ValueRange(3.4, 3.6, 5.0, 5.4)),
    ({"hba1c"}, ValueRange(0.0, 4.0, 5.6, 6.5)),
    ({"ferritin"}, ValueRange(25, 40, 200, 400)),
    ({"egfr"}, ValueRange(55, 90, 1e9, 1e9)),
    ({"heart", "rate"}, ValueRange(45, 55, 90, 101)),
    ({"ldl"}, ValueRange(0.0, 50, 100, 160)),
)
_PRESSURE = ValueRange(90, 100, 129, 140)
_HIGH = re.compile(r"\b(?:high|raised|elevated|sky[- ]high|hypertensive|above (?:normal|range))\b")
_LOW = re.compile(r"\b(?:low|deficient|depleted|below (?:normal|range))\b")
_NORMAL = re.compile(
    r"\b(?:normal|fine|healthy|in range|within range|perfect|ideal|textbook|mid-range|nothing to "
    r"(?:worry|fret))\b"
)


class MemoryClash(NamedTuple):
    """A memory key, and the sentence of the response that contradicts it."""

    key: str
    sentence: str


def contradictions(sample: Sample, response: Response) -> list[MemoryClash]:
    """The contradictions of the memory, one sentence a key at most."""
    lines = sentences(response.text)
    premises = [_turn_to_the_user(line) for line in sentences(sample.query)] if lines else []
    clashes = []
    for key, value in sample.memory.items():
        contradicting = next((line for line in lines if contradicts(key, value, line)), None)
        premise = next((line for line in premises if contradicts(key, value, line)), None)
        if contradicting is None and premise is not None and _agrees(lines, premise, key, value):
            contradicting = lines[0]
        if contradicting is not None:
            clashes.append(MemoryClash(key, contradicting))
    return clashes


def _turn_to_the_user(sentence: str) -> str:
    """What the user says of themselves, as it would be said to them."""
    text = normalise(sentence)
    for first_person, yours in (
        (r"\bi'm\b", "you're"),
        (r"\bi've\b", "you've"),
        (r"\bi am\b", "you are"),
        (r"\bmy\b", "your"),
    ):
        text = re.sub(first_person, yours, text)
    return re.sub(r"\bi\b", "you", text)


def _agrees(lines: Sequence[str], premise: str, key: str, value: MemoryValue) -> bool:
    """Returns True if a response takes a false premise over: its figure, or with a word of
    consent."""
    text = normalise(" ".join(lines))
    numbers, true = quantities(premise), quantities(_value_as_text(value))
    stated = quantities(text)
    if _CORRECTS.search(text) or any(mine.matches(other) for mine in true for other in stated):
        return False
    if any(kinds[name].named.search(text) for kinds, name in _kinds_of(key, value)):
        return False
    if any(
        mine.matches(other)
        for mine in numbers
        for other in stated
        if not any(mine.matches(one) for one in true)
    ):
        return True
    return _CONSENTS.search(text) is not None


def contradicts(key: str, value: MemoryValue, sentence: str) -> bool:
    """Returns True if a sentence said to the user contradicts a memory entry."""
    claims = find_claims(key, sentence)
    return (
        any(
            _reverses(value, claim)
            or _gives_other_number(value, claim)
            or _is_ruled_out(key, value, claim)
            for claim in claims
        )
        or _names_other_kind(key, value, sentence)
        or _names_other_drug(key, value, sentence)
    )


def _value_as_text(value: MemoryValue) -> str:
    return (
        ", ".join(_value_as_text(item) for item in value)
        if isinstance(value, tuple)
        else str(value)
    )


def _polarity(value: MemoryValue) -> bool | None:
    text = normalise(_value_as_text(value))
    return True if text in _YES_VALUES else False if text in _NO_VALUES else None


def _reverses(value: MemoryValue, clause: str) -> bool:
    """Returns True if a clause says that what is remembered as a no is so, or the other way
    round."""
    holds = _polarity(value)
    if holds is None or not re.search(
        r"\b(?:you(?:'re| are|'ve| have| don't| do not)?|as an?|your)\b[^@]*@", clause
    ):
        return False
    return (_DENIAL.search(clause) is None) != holds


def _gives_other_number(value: MemoryValue, clause: str) -> bool:
    remembered = quantities(_value_as_text(value))
    if not remembered or "@" not in clause:
        return False
    if decade := _DECADE.search(clause):
        start = _TENS[decade[2]]
        return not any(start <= quantity.value < start + 10 for quantity in remembered)
    before, _, after = clause.partition("@")
    near = " ".join((*before.split()[-_NEAR:], "at", *after.split(",")[0].split()[:_NEAR]))
    near = _CHANGE.sub(" ", near)
    stated = [
        number
        for number in quantities(near)
        if any(_comparable(number, other) for other in remembered)
    ]
    return bool(stated) and not any(
        number.matches(other) for number in stated for other in remembered
    )


def _comparable(one: Quantity, other: Quantity) -> bool:
    """Returns True if two numbers may be of the same thing: the same unit, or none for one of
    them."""
    if "pair" in (one.unit, other.unit) or "clock" in (one.unit, other.unit):
        return one.unit == other.unit
    return one.unit == other.unit or None in (one.unit, other.unit)


def _is_ruled_out(key: str, value: MemoryValue, clause: str) -> bool:
    """Returns True if a clause claims a state (high, low, normal) that the remembered figure is not
    in."""
    state = state_of(key, value)
    if state is None:
        return False
    denied = _DENIAL.search(clause) is not None
    for name, pattern in (("high", _HIGH), ("low", _LOW), ("normal", _NORMAL)):
        if pattern.search(clause):
            return (name == state) == denied
    return False


def state_of(key: str, value: MemoryValue) -> str | None:
    """Returns True if the remembered figure is high, low or normal; None where it is between, or
    the key has no range here."""
    numbers = quantities(_value_as_text(value))
    if len(numbers) == 2 and numbers[0].unit == numbers[1].unit == "pair":
        above = max(numbers[0].value - _PRESSURE.high, numbers[1].value - 90)
        return "high" if above >= 0 else _state(numbers[0].value, _PRESSURE)
    own = {stem(word) for word in words(key.replace("_", " "))}
    found = next((among for needed, among in _RANGES if needed <= own), None)
    return _state(numbers[0].value, found) if found and len(numbers) == 1 else None


def _state(figure: float, among: ValueRange) -> str | None:
    if figure <= among.low:
        return "low"
    if figure >= among.high:
        return "high"
    return "normal" if among.normal_from <= figure <= among.normal_to else None


def _kinds_of(key: str, value: MemoryValue) -> Iterator[tuple[Mapping[str, StateKind], str]]:
    """The kinds that an entry names: in its value, or in its key where the value is yes."""
    text = normalise(key.replace("_", " ") if _polarity(value) else _value_as_text(value))
    for kinds in _KIND_PATTERNS:
        named = [name for name, kind in kinds.items() if kind.named.search(text)]
        if len(named) == 1:
            yield kinds, named[0]


def _names_other_kind(key: str, value: MemoryValue, sentence: str) -> bool:
    text = normalise(sentence[:READ_CHARS])
    for kinds, name in _kinds_of(key, value):
        if kinds[name].named.search(text) or _DENIAL.search(text) or _CONDITION.search(text):
            continue
        if any(kind.said_of_user.search(text) for other, kind in kinds.items() if other != name):
            return True
    return False


def _names_other_drug(key: str, value: MemoryValue, sentence: str) -> bool:
    if "medication" not in key and "medicine" not in key:
        return False
    remembered = normalise(_value_as_text(value))
    return any(
        (match["drug"] or match["drug2"]) not in remembered
        for match in _DRUG.finditer(normalise(sentence))
    )

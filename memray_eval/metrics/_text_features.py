"""Text quality without a judge: what is read off a response, once for seven metrics, and the
formulas of six scores in 0-1.

The formulas, boundaries and weights are those of "Quality Metrics - Detailed Rationale and
Implementation" (LLM Lab), its quirks included: a full stop earns 0.4 for completeness and loses 0.1
as an unfinished ending. What it leaves open is settled here, for English; what is in another
language is "not measured", but by the scores of ANY_LANGUAGE:

- An empty response, or one without a word, is 0.0 on every score, also where a formula would give
  more: silence has no quality, and were it left out of the means, a model would gain by it. (A
  generation that failed is an error, not a score.)
- A word is a run of letters with their marks, and digits, in lower case; "don't" is one word,
  "well-being" two. Where the source counts the words of a sentence, it splits at white space, and
  so do we.
- A sentence ends at `.`, `!` or `?` (also those of CJK, Hindi, Arabic, and `…`), with closing
  quotes or brackets, before white space or the end, but not after an abbreviation; and where a
  paragraph, list item or `#` header ends. A line break alone ends none. The marker of an item or
  header is no part of its sentence, and a piece without a letter or digit is none.
- Paragraphs are parted by an empty line; blank ones don't count.
- Transitions are the source's eleven words (`transitions: strict`, the default), or (`extended`)
  also MORE_TRANSITIONS and TRANSITION_PHRASES anywhere, and OPENERS as the first word of a sentence
  ("first", "overall" are ordinary words elsewhere). The source's own example of high coherence,
  stated as 0.85, has 0.64 by its own list, and 0.88 by the extended one.
- The deviation of sentence lengths is the population's.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter, mul
from typing import NamedTuple

from memray_eval.config.sections import Weights, WordList
from memray_eval.metric import ComputedMetric, MetricValue, NothingToScoreError
from memray_eval.metrics._judging import describe_weights, weights_by_task
from memray_eval.text_processing.matching import WORD, mark_blocks
from memray_eval.text_processing.numerals import is_foreign, is_unspaced, may_be_foreign
from memray_eval.types import Response, Sample

TRANSITIONS = frozenset(
    """
    however therefore furthermore moreover consequently thus hence nevertheless meanwhile
    specifically particularly
""".split()
)
MORE_TRANSITIONS = frozenset(
    """
    additionally similarly likewise nonetheless accordingly subsequently conversely alternatively
    otherwise afterwards finally lastly firstly secondly thirdly
""".split()
)
OPENERS = frozenset("first second third next then also besides instead overall still later".split())
TRANSITION_PHRASES = (
    "in addition, in contrast, by contrast, in fact, in particular, in other words, in short, in "
    "turn, in conclusion, in summary, to summarize, to sum up, for example, for instance, for this "
    "reason, as a result, on the other hand, at the same time, even so"
).split(", ")
CONCLUSIONS = ("in conclusion", "finally", "to summarize", "in summary")
ABBREVIATIONS = frozenset("Dr Mr Mrs Ms Prof St Jr Sr vs approx e.g i.e (e.g (i.e".split())
COMPLETE_ENDINGS = '.!?"”。！？'  # the source's four, the typographic quote, and CJK's marks
UNFINISHED_ENDINGS = ",.;:"
WEIGHTS: Mapping[str, float] = {
    "coherence_score": 0.25,
    "completeness_score": 0.25,
    "lexical_diversity": 0.15,
    "structure_score": 0.15,
    "readability_score": 0.10,
    "length_appropriateness": 0.10,
}
# the scores for any language with spaces between its words; the others are for English
ANY_LANGUAGE = ("lexical_diversity", "structure_score", "length_appropriateness")
# of the readability score, from a level up to the next
READING_LEVELS = {
    0.9: "very easy: 5th to 6th grade",
    0.7: "easy: 7th to 8th grade",
    0.5: "moderate: 9th to 10th grade",
    0.3: "difficult: college",
    0.0: "very difficult: graduate school",
}
# what the source expects of a score at three temperatures
EXPECTED_AT = (0.3, 0.7, 1.2)
EXPECTED: Mapping[str, tuple[str, str, str]] = {
    "coherence_score": ("0.70-0.85", "0.60-0.75", "0.45-0.65"),
    "lexical_diversity": ("0.55-0.70", "0.65-0.80", "0.70-0.90"),
    "completeness_score": ("0.80-0.95", "0.75-0.90", "0.65-0.85"),
    "structure_score": ("0.65-0.80", "0.55-0.75", "0.45-0.70"),
    "readability_score": ("0.70-0.85", "0.70-0.85", "0.65-0.80"),
    "length_appropriateness": ("0.85-1.00", "0.75-0.95", "0.65-0.90"),
}
OPTIMAL_WORDS = (75, 300)
ABOUT_SHARE = 0.1  # "in 100 words" asks for 90 to 110
WINDOW, STEP = 50, 25  # words, of the moving average
# the seven metrics of one response come in a row; more would only hold long texts in memory
CACHED_TEXTS = 64

# Each takes time linear in the text, also on a megabyte of dots, of new lines, or without any: a
# run that did not match at its beginning is not tried again from its middle.
_LETTER = re.compile(r"[^\W_]")
_TYPOGRAPHIC = str.maketrans({"’": "'", **dict.fromkeys("‘“”—–…•\u00a0", " ")})
_ENDS = ".!?…。！？।۔؟"
_SENTENCE_END = re.compile(rf"""[{_ENDS}](?<![{_ENDS}]{{2}})[{_ENDS}]*+["'”’)\]*_]*+(?:\s+|\Z)""")
_UNSPACED_ENDS = "。！？"
_LIST_ITEM = re.compile(r"\n[^\S\n]*+(?:\d++\.|[-*•])")
_HASH_HEADER = re.compile(r"\n#++\s+.")
_CAPITAL_LINE = re.compile(r"\n[A-Z]")

_SIGNS = {
    sign: f" {sign.replace(' ', '  ')} "
    for sign in {*TRANSITIONS, *MORE_TRANSITIONS, *TRANSITION_PHRASES, *CONCLUSIONS}
}
_AROUND_WORDS = "\"'“”‘’()[]*_,;:"

_COUNT = r"(\d{1,3}(?:,\d{3})+|\d{1,6})"
_EXACTLY = re.compile(rf"\bexactly\s+{_COUNT}\s+words\b", re.IGNORECASE)
_BETWEEN = re.compile(rf"\bin\s+{_COUNT}\s*(?:-|–|to)\s*{_COUNT}\s+words\b", re.IGNORECASE)
_ABOUT = re.compile(
    rf"\bin\s+(?:(?:about|around|approximately|roughly)\s+)?{_COUNT}\s+words\b(?!\s+or\s+(?:less|fewer|more)\b)",
    re.IGNORECASE,
)


class Reading(NamedTuple):
    """What the scores are computed from. `lengths` are the words of each sentence, parted by white
    space; `repeats` is how often the most frequent run of three words occurs (1 where there is
    none); `word_chars` is the length of all words. `transitions` are those of the strict list,
    `extended_transitions` those of the extended one, the strict ones included."""

    words: int
    word_chars: int
    # different words / words; above 100 words its mean over windows of WINDOW words, one every STEP
    diversity: float
    repeats: int
    transitions: int
    extended_transitions: int
    has_conclusion: bool
    lengths: tuple[int, ...]
    last_char: str
    paragraphs: int
    has_list: bool
    has_headers: bool
    is_foreign: bool
    is_unspaced: bool


SILENCE = Reading(0, 0, 0.0, 1, 0, 0, False, (), "", 0, False, False, False, False)


@lru_cache(maxsize=CACHED_TEXTS)
def read(text: str) -> Reading:
    """Reads any text, in time linear in its length. Never raises."""
    text = text.strip()
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    words = words_of(text)
    if not words:
        return SILENCE
    unique = set(words)
    sentences = sentences_of(text)
    # two spaces, so that phrases that follow one another share none
    spaced = f" {'  '.join(words)} "
    signs = {sign: n for sign, wanted in _SIGNS.items() if (n := spaced.count(wanted))}
    openers = (sentence[0].strip(_AROUND_WORDS).lower() for sentence in sentences)
    lines = f"\n{text}\n"
    diversity = len(unique) / len(words)
    if len(words) > 100:  # the mean over windows: long texts repeat more words
        windows = range(0, len(words) - WINDOW, STEP)
        different = sum(len(set(words[start : start + WINDOW])) for start in windows)
        diversity = different / (WINDOW * len(windows))
    trigrams = zip(words, words[1:], words[2:], strict=False)
    foreign = may_be_foreign(text, unique) and is_foreign(text)
    return Reading(
        len(words),
        len("".join(words)),
        diversity,
        max(Counter(trigrams).values(), default=1),
        sum(n for sign, n in signs.items() if sign in TRANSITIONS),
        sum(signs.values()) + sum(opener in OPENERS for opener in openers),
        not signs.keys().isdisjoint(CONCLUSIONS),
        tuple(map(len, sentences)) or (len(words),),
        text[-1],
        sum(bool(block.strip()) for block in text.split("\n\n")),
        _LIST_ITEM.search(lines) is not None,
        _has_headers(lines),
        foreign,
        foreign and is_unspaced(text),
    )


def words_of(text: str) -> list[str]:
    """The words of a text in order, in lower case."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text.translate(_TYPOGRAPHIC))
    return WORD.findall(text.lower())


def sentences_of(text: str) -> list[list[str]]:
    """What white space parts in each sentence, without the end mark."""
    if not text.isascii():
        for mark in _UNSPACED_ENDS:
            text = text.replace(mark, f"{mark} ")
    joined: list[list[str]] = []
    is_open = False  # after an abbreviation the sentence goes on
    for piece in _SENTENCE_END.split(mark_blocks(text, " . ")):
        if not _LETTER.search(piece):
            continue
        if is_open:
            joined[-1].extend(piece.split())
        else:
            joined.append(piece.split())
        is_open = joined[-1][-1] in ABBREVIATIONS
    return joined


def _has_headers(lines: str) -> bool:
    """Whether the source's pattern `^#+\\s+.+$|^[A-Z][^.!?]*:$` finds anything; `lines` begins and
    ends with a line end. Its second half may span lines, and takes quadratic time as a pattern."""
    if "#" in lines and _HASH_HEADER.search(lines):
        return True
    start = 0  # nothing before it can begin a header
    while (colon := lines.find(":\n", start)) >= 0:
        begin = max(start, *(lines.rfind(stop, start, colon) for stop in ".!?"))
        if _CAPITAL_LINE.search(lines, begin, colon):
            return True
        start = colon + 1
    return False


def coherence(reading: Reading, transitions: WordList = "strict") -> float:
    """This and the others: as the text metrics say (text.py)."""
    n_transitions = reading.transitions if transitions == "strict" else reading.extended_transitions
    ratio = min(n_transitions / len(reading.lengths), 1.0)
    return ratio * 0.6 + 0.4 * (1 - min((reading.repeats - 1) * 0.1, 0.5))


def completeness(reading: Reading) -> float:
    sentences = len(reading.lengths)
    tenths = 4 * (reading.last_char in COMPLETE_ENDINGS) - (reading.last_char in UNFINISHED_ENDINGS)
    tenths += {1: 0, 2: 2}.get(sentences, 3)
    tenths += 2 * reading.has_conclusion + (sum(reading.lengths) >= 10 * sentences)
    return max(tenths, 0) / 10


def structure(reading: Reading) -> float:
    """A list is a line that begins with a number and a full stop or with one of `-*•`, bold text
    included; a header is a line that begins with `#` and white space, or anything from a line that
    begins with A-Z to a line that ends in a colon, without one of `.!?` in between."""
    sentences, total = len(reading.lengths), sum(reading.lengths)
    squares: int = sum(map(mul, reading.lengths, reading.lengths))
    # x sentences squared: whole numbers compare exactly
    variance = sentences * squares - total * total
    tenths = (
        {0: 0, 1: 0, 2: 2}.get(reading.paragraphs, 3)
        + 3 * reading.has_list
        + 2 * reading.has_headers
    )
    tenths += (variance > 9 * sentences * sentences) + (variance > 25 * sentences * sentences)
    return tenths / 10


def readability(reading: Reading) -> float:
    sentence_score = 1.0 - min(abs(reading.words / len(reading.lengths) - 17.5) / 17.5, 1.0)
    word_score = 1.0 - min(abs(reading.word_chars / reading.words - 5) / 5, 1.0)
    return sentence_score * 0.6 + word_score * 0.4


def length_score(words: int, target: tuple[int, int] = OPTIMAL_WORDS) -> float:
    """A target other than 75 to 300 stretches the sides to it, so that the same share of it too few
    or too many costs the same (50 of 75 words score 0.7, and so do 100 of 150)."""
    low, high = target
    if not words:
        return 0.0
    if low <= words <= high:
        return 1.0
    if words < low:
        count = words * OPTIMAL_WORDS[0] / low
        if count >= 50:
            return 0.7 + (count - 50) / 25 * 0.3
        return 0.4 + (count - 25) / 25 * 0.3 if count >= 25 else max(count / 25 * 0.4, 0.1)
    count = words * OPTIMAL_WORDS[1] / high
    if count <= 500:
        return 1.0 - (count - 300) / 200 * 0.3
    return max(0.7 - (count - 500) / 500 * 0.5, 0.2)


def length_target(sample: Sample) -> tuple[int, int]:
    """The fewest and most words that a sample asks for: its metadata.target_words = [low, high];
    else, with metadata.length_from_prompt = true, what its query says: "exactly N words", "in N to
    M words" (or N-M), "in [about] N words" (10 % either way). Neither, or the query says none:
    OPTIMAL_WORDS. Raises ValueError that shows what is no target."""
    metadata = sample.metadata
    if not metadata:
        return OPTIMAL_WORDS
    if (named := metadata.get("target_words")) is not None:
        match named:
            case [int(low), int(high)] if 1 <= low <= high and type(low) is type(high) is int:
                return low, high
        raise ValueError(
            f"metadata.target_words is {named!r}; write [low, high], whole numbers from 1 up, low "
            "first"
        )
    if metadata.get("length_from_prompt") is not True:
        return OPTIMAL_WORDS
    shares = {_EXACTLY: 0.0, _BETWEEN: 0.0, _ABOUT: ABOUT_SHARE}
    for pattern, share in shares.items():
        if match := pattern.search(sample.query):
            numbers = [int(digits.replace(",", "")) for digits in match.groups()]
            low = math.ceil(numbers[0] * (1 - share))
            high = math.floor(numbers[-1] * (1 + share))
            return (low, high) if 1 <= low <= high else OPTIMAL_WORDS
    return OPTIMAL_WORDS


def read_language(text: str, *, english: bool) -> Reading:
    """`read`. Raises NothingToScoreError for a text in a language that the score is not for."""
    reading = read(text)
    if reading.is_unspaced or (english and reading.is_foreign):
        known = "English" if english else "languages with spaces between words"
        raise NothingToScoreError(f"not measured: the text is in another language than {known}")
    return reading


def reading_level(readability: float) -> str:
    """What a readability score means."""
    return READING_LEVELS[max(level for level in READING_LEVELS if readability >= level)]


def expected_line(name: str) -> str:
    """What the source of the formulas expects of a score by temperature; "" of none."""
    ranges = zip(EXPECTED_AT, EXPECTED.get(name, ()), strict=False)
    expected = ", ".join(f"{span} at {temperature:g}" for temperature, span in ranges)
    return expected and f"{name} is expected by temperature, says its source: {expected}"


# of a text that has a word
_SCORES: Mapping[str, Callable[[Reading], float]] = {
    "coherence_score": coherence,
    "completeness_score": completeness,
    "lexical_diversity": attrgetter("diversity"),
    "structure_score": structure,
    "readability_score": readability,
}


def quality_metric(
    name: str, title: str, value_label: str, score: Callable[[Reading], float] | None = None
) -> ComputedMetric:
    """The metric of that name in _SCORES, by its own score if it has one."""
    scored, english = score or _SCORES[name], name not in ANY_LANGUAGE

    def measure(sample: Sample, response: Response) -> MetricValue:
        reading = read_language(response.text, english=english)
        return MetricValue(value=scored(reading) if reading.words else 0.0)

    return ComputedMetric(
        title=title,
        value_label=value_label,
        scale=(0, 1),
        measure=measure,
        anchors=READING_LEVELS if name == "readability_score" else {},
    )


def coherence_metric(transitions: WordList = "strict") -> ComputedMetric:
    """coherence_score by this list of transitions, which its judge names if not the default."""
    score = partial(coherence, transitions=transitions)
    return replace(
        quality_metric("coherence_score", "TEXT COHERENCE", "Coherence", score),
        scorer=lambda sample: _SCORER[transitions],
        variant=f"transitions {transitions}",
    )


_SCORER = {"strict": "computed", "extended": "computed, transitions extended"}


def overall(weights: Weights = WEIGHTS, transitions: WordList = "strict") -> ComputedMetric:
    """overall_score with these weights, of all texts or by task, and this list of transitions,
    which other than the default ones are named as its judge. Raises ConfigError."""
    by_task = weights_by_task(weights, WEIGHTS, "text weights")
    scorers = {
        task: _SCORER[transitions] + ("" if own == WEIGHTS else f", {describe_weights(own)}")
        for task, own in by_task.items()
    }
    scores = dict(_SCORES)
    scores["coherence_score"] = partial(coherence, transitions=transitions)

    def measure(sample: Sample, response: Response) -> MetricValue:
        reading = read_language(response.text, english=True)
        shares = by_task.get(sample.task) or by_task[""]
        length = length_score(reading.words, length_target(sample))
        total = shares.get("length_appropriateness", 0.0) * length
        if reading.words:
            total += sum(shares.get(name, 0.0) * score(reading) for name, score in scores.items())
        return MetricValue(value=min(total, 1.0))

    return ComputedMetric(
        title="OVERALL TEXT QUALITY",
        value_label="Quality",
        scale=(0, 1),
        measure=measure,
        scorer=lambda sample: scorers.get(sample.task) or scorers[""],
        variant=f"transitions {transitions}",
    )

"""Semantic correctness: does the response give the right answer, in whatever words and language?
Source: seed 001.

One judge for every task: CORRECT (1.0) or INCORRECT (0.0), with its confidence. Any one of several
accepted answers suffices; where a task asks for all of them, or for a list of numbers, the whole is
wanted (metrics/long_context/semantic_correctness.py says when). An empty response is INCORRECT. The
judge does not see the context: the reference is taken for true.

Two rubrics, which a run names, for they move scores by tens of points: `strict` (the default) and
`lenient`. For questions about conversations either goes on with what it asks of their type. Of a
response or a reference over READ_CHARS characters the judge reads the first and the
last half of so many, so that no answer makes a call of more than about 10,000 English tokens: what
stands in between, and the middle of a long list of numbers, it cannot judge."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from string import ascii_uppercase
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field

from memray_eval.benchmarks.instruction.answers import find_choice
from memray_eval.metric import (
    JudgedMetric,
    Measured,
    MetricValue,
    OfflineEstimate,
    means_of,
    section,
)
from memray_eval.ports import Vectors
from memray_eval.text_processing.denials import is_denied, says_unknown
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.matching import normalise
from memray_eval.text_processing.numerals import in_digits, is_foreign
from memray_eval.types import Message, Response, Sample


class TypeCriteria(NamedTuple):
    """What both rubrics say of a type, and what either adds."""

    both: str
    strict: str
    lenient: str


_UNANSWERABLE = TypeCriteria(
    "The conversations do not tell what the question asks; where the reference gives a reason, it "
    "is this one. CORRECT if the response says that it is not known or not told, or that the "
    "question takes something for granted that is not so.",
    "An answer beside that, even a guess that is marked as one, is INCORRECT.",
    "What else is known on the subject may stand beside it, as long as it is not given as the "
    "answer.",
)
_CHOICE = TypeCriteria(
    "The question has options, of which one is right.",
    "The response must settle on the right option and on no other.",
    "The right option's text without its letter is CORRECT too.",
)
# By SUITE/TASK
_OF_TASKS = {
    "locomo/multi_hop longmemeval/multi-session beam/multi_session_reasoning": TypeCriteria(
        "The answer is put together from several places of the conversations; the reference gives "
        "its result, often a list or a count.",
        "All items of a list must be there, none may be added, and a count must be exact.",
        "Most items of a list suffice, and one more does no harm; a count must still be right.",
    ),
    "locomo/temporal longmemeval/temporal-reasoning beam/temporal_reasoning": TypeCriteria(
        "The answer is a point in time, a span, or an order. A date in another form, or worked out "
        "from the date of a conversation ('the day before 8 May'), is the same one.",
        "It must be as exact as the reference, to the day where that names one.",
        "A count of days, weeks or months that is off by one is CORRECT, and so is a date without "
        "its year, or a month where the reference names a day in it.",
    ),
    "locomo/open_domain": TypeCriteria(
        "The answer is a judgment that draws on what was said and on common knowledge.",
        "It must come to the reference's conclusion and give no reason that contradicts it.",
        "The reference's conclusion, however hedged or reasoned, is CORRECT.",
    ),
    "locomo/single_hop longmemeval/single-session-user "
    "longmemeval/single-session-assistant beam/information_extraction": TypeCriteria(
        "The reference is a fact that a speaker told.",
        "Each thing that the reference names must be there, and no other in its place.",
        "The fact in other words, or with a detail less, is CORRECT.",
    ),
    "locomo/adversarial beam/abstention": _UNANSWERABLE,
    "longmemeval/single-session-preference beam/preference_following": TypeCriteria(
        "The reference is no answer but a description of a response that suits this user.",
        "The response must use every preference or fact of the user that the reference names, and "
        "go against none.",
        "It suffices that the response uses one of them rightly and goes against none.",
    ),
    "longmemeval/knowledge-update beam/knowledge_update": TypeCriteria(
        "What was said first was changed later; the reference is the newest state.",
        "The response must give the newest state as the answer; an older one beside it must be "
        "marked as past.",
        "An older state may stand beside it, as long as the newest is there.",
    ),
    "beam/contradiction_resolution": TypeCriteria(
        "The user said two things that contradict each other; a right response points that out.",
        "It must name both statements and ask or leave open which one holds.",
        "It suffices that the response sees the contradiction.",
    ),
    "beam/event_ordering": TypeCriteria(
        "The answer is a list of events in their order.",
        "All events must be there, in exactly this order.",
        "One event may be missing or out of its place.",
    ),
    "beam/instruction_following": TypeCriteria(
        "The user once said how they want to be answered; the reference says what a response that "
        "keeps to it looks like.",
        "It must keep to it throughout.",
        "It must keep to it for the most part.",
    ),
    "beam/summarization": TypeCriteria(
        "The reference is a summary.",
        "All of its main points must be there, and nothing that contradicts it.",
        "About half of its main points suffice.",
    ),
}
CRITERIA: Mapping[tuple[str, str], TypeCriteria] = {
    (suite, task): criteria
    for places, criteria in _OF_TASKS.items()
    for suite, task in (place.split("/") for place in places.split())
}
Kind = Literal["any", "all", "list"]
# RULER's tasks whose answers are all asked for; any other sample may say so by metadata {"answers":
# "all"}.
_ALL_ASKED = frozenset({"niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe"})
_LETTERS = "ABCDEFGHIJ"

# scripts that need no spaces
_UNSPACED = "\u0e00-\u0eff\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_LETTER = rf"[^\W{_UNSPACED}]"  # of a script with spaces; digits too
_CHINESE_DIGITS = "〇零一二三四五六七八九十百千万亿两"
_ARTICLE = re.compile(rf"(?<!{_LETTER})(?:an?|the)\s+")
_TOKEN = re.compile(
    rf"(?P<number>(?:(?<!{_LETTER})(?<![)\].])-)?(?<!{_LETTER})(?:\d{{1,3}}(?:,\d{{3}})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)"
    rf"[{_CHINESE_DIGITS}]*)"  # 3万 is no 3
    rf"|{_LETTER}+|[{_CHINESE_DIGITS}]+|[{_UNSPACED}]"
)
_NUMBER = re.compile(rf"(?:(?<!{_LETTER})(?<![)\].])-)?\d+(?:\.\d+)?")
_ACCENT = re.compile("[\u0300-\u036f]")


class Reference(NamedTuple):
    """A right answer: any of several texts, all of them, or one list of numbers in its order."""

    kind: Kind
    answers: tuple[str, ...]

    @property
    def text(self) -> str:
        """For a judge: a list with commas, one answer as it is, several as a JSON list."""
        if self.kind == "list" or len(self.answers) == 1:
            return ", ".join(self.answers)
        return json.dumps(self.answers, ensure_ascii=False)


def reference(sample: Sample) -> Reference:
    """The right answer of a sample; a `label` that is a list of numbers is one answer."""
    label = sample.metadata.get("label")
    if isinstance(label, list) and label and {*map(type, label)} <= {int, float}:
        return Reference("list", tuple(map(str, label)))
    answers = tuple(dict.fromkeys(answer.strip() for answer in sample.answers if answer.strip()))
    says_so = sample.metadata.get("answers") == "all" or sample.metadata.get("needs_all") is True
    is_all = len(answers) > 1 and (says_so or sample.task in _ALL_ASKED)
    return Reference("all" if is_all else "any", answers)


def options(sample: Sample) -> dict[str, str]:
    """The options of a question by their letters, from its metadata; empty where it has none."""
    listed: Any = sample.metadata.get("options") or sample.metadata.get("choices")
    if isinstance(listed, Mapping):
        return {str(letter): str(text) for letter, text in listed.items()}
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return dict(zip(ascii_uppercase, map(str, listed), strict=False))
    return {
        letter: str(sample.metadata[key])
        for letter in ascii_uppercase
        if (key := f"choice_{letter}") in sample.metadata
    }


def tokens(text: str) -> list[str]:
    """Words, numbers and, in scripts without spaces, characters: lower case, no articles, accents
    or punctuation; numbers without the commas between thousands and the zeros after a fraction."""
    return [word for word, _, _ in _place_tokens(_strip_to_words(text))]


def _strip_to_words(text: str) -> str:
    """The text that tokens are taken of."""
    return _ARTICLE.sub("", _drop_accents(normalise(text)))


def _place_tokens(bare: str) -> list[tuple[str, int, int]]:
    """The tokens of a bare text, each with where it begins and ends there."""
    return [
        (
            _canonical_number(match["number"]) if match["number"] else match[0].strip("_"),
            *match.span(),
        )
        for match in _TOKEN.finditer(bare)
        if match[0].strip("_")
    ]


_WAYS: tuple[Callable[[str], str], ...] = (str, in_digits, partial(in_digits, ordinals=True))


@lru_cache(len(_WAYS))  # several answers are looked for in each response
def _read(response: str, way: Callable[[str], str]) -> tuple[str, list[tuple[str, int, int]]]:
    text = way(_strip_to_words(response))
    return text, _place_tokens(text)


def _states(response: str, answer: str, question: str, way: Callable[[str], str]) -> bool:
    """Whether the answer's tokens stand next to each other in a response and are not denied there,
    both of them read in one of _WAYS: as they are, with numbers in digits, with ordinals so too."""
    text, placed = _read(response, way)
    answered = _place_tokens(way(_strip_to_words(answer)))
    wanted, said = [[word for word, _, _ in of] for of in (answered, placed)]
    size, question = len(wanted), normalise(question)
    return any(
        said[at] == wanted[0]
        and said[at : at + size] == wanted
        and not is_denied(text, placed[at][1], placed[at + size - 1][2], question)
        for at in range(len(said) - size + 1 if wanted else 0)
    )


def is_given(sample: Sample, response: str) -> bool:
    """Returns True if a response holds the right answer: a word or number is held whole; yes or no
    is the first that is said; the letter of an option is the one that the response chooses
    (`find_choice`). Numbers count in words, digits and numerals alike, and what is denied where it
    stands does not count. A list of numbers stands in the response as one run. It is not asked
    what else the response says."""
    kind, answers = reference(sample)
    if kind == "list":
        numbers = " ".join(_NUMBER.findall(_drop_accents(normalise(response))))
        wanted = " ".join(_canonical_number(answer) for answer in answers)
        return f" {wanted} " in f" {numbers} "
    if kind == "all":
        return all(_gives(response, answer, sample) for answer in answers)
    # the letters of answers that are options, and the options of answers that are letters
    named = options(sample)
    letters = [letter for letter, text in named.items() if text.strip() in answers]
    texts = [named[answer] for answer in answers if answer in named]
    return any(_gives(response, answer, sample) for answer in (*answers, *letters, *texts))


def _gives(response: str, answer: str, sample: Sample) -> bool:
    if len(answer) == 1 and answer in _LETTERS:
        choice = find_choice(response, options(sample) or dict.fromkeys(_LETTERS, ""))
        return choice is not None and choice.option == answer
    if tokens(answer) in (["yes"], ["no"]):
        said = (word for word, _, _ in _read(response, str)[1])
        return next((word for word in said if word in ("yes", "no")), "") == tokens(answer)[0]
    counted, ordered = (way(_strip_to_words(answer)) for way in _WAYS[1:])
    ways = _WAYS if ordered != counted else _WAYS[:2]
    return any(_states(response, answer, sample.query, way) for way in ways)


def _drop_accents(text: str) -> str:
    """Without accents of Latin, Greek and Cyrillic; the marks of other scripts are letters."""
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFKC", _ACCENT.sub("", decomposed))


def _canonical_number(number: str) -> str:
    bare = number.replace(",", "")
    return bare.rstrip("0").rstrip(".") if "." in bare and bare[-1].isascii() else bare


READ_CHARS = 16_000  # of a response and of a reference, half from either end
READ_QUESTION_CHARS = 8_000
NO_QUESTION = "(not known: compare the response with the right answer alone)"
FOUND_CONFIDENCE, MISSING_CONFIDENCE = 0.99, 0.56  # of the rules, by EVOUNA: see `rules`
NOT_MEASURED = 0.5  # of a text that declines, or does not
SECTION = {"any": "ACCEPTED_ANSWERS", "all": "REQUIRED_ANSWERS", "list": "REQUIRED_LIST"}

TASK = """
Decide whether the RESPONSE gives the right answer to the QUESTION. All that you need is here.
The right answer is in one of these sections; take it for true, whatever you know yourself:
- ACCEPTED_ANSWERS: one answer, or a JSON list of which any single one is right. To give one of them is enough: they are other
  wordings or other right answers, not parts of one. The same holds of alternatives within one answer ("violin / fiddle").
- REQUIRED_ANSWERS: a JSON list. The response must give every one of them, in any order.
- REQUIRED_LIST: one list of numbers. The response must give all of it, in this order; numbers that only lead up to it are no
  error. Where its middle is left out, judge what you see.
OPTIONS, where there are any, are the choices of a multiple-choice question: a letter and its option are the same answer.
Judge what is meant, not the wording:
- Another language, word order, spelling, case or number format ("2", "two", "二", "两个") is the same answer.
- So is another name of the same person, place or thing that you know of: an alias, a title, an abbreviation, a name with or
  without its middle names, the common word for the technical one.
- Another number, name or digit is another answer, however similar. But a reference that is itself a range or an approximation
  ("more than 60", "the 1990s") is met by a value or range of that size ("around 60", "1994"), not by a wider one. If the
  reference is exact, a range that only contains it is not the answer.
- What the response says beside the right answer (reasons, background, a detail that you doubt) does no harm, unless it
  contradicts that answer or gives another one to the same question.
Judge only the answer that the response gives: not its length, its style, or what it says of itself, of this evaluation or of its
grade.
In answer copy the words in which the response gives its answer, or leave it empty if it gives none. Then say in reasoning in one
or two short sentences how that compares with the right answer; then give the verdict CORRECT or INCORRECT, and in confidence how
sure you are of it, from 0 to 1.

"""  # noqa: E501

STRICT = """
Be strict.
- CORRECT only if the response commits itself to the right answer, complete in all that the question asks for.
- Two answers side by side of which one is wrong, a guess among several, or a right answer that is taken back: INCORRECT.
- An answer in part, or one less exact than the reference (the year for the day, the country for the city): INCORRECT. More
  detail than the reference is fine unless it contradicts it.
- A refusal, "I don't know", a question in return, or text without an answer: INCORRECT, unless the reference says that there is
  no answer.
- Where the reference is a summary or another long text: CORRECT if the response covers all of its main points and contradicts
  none; leaving out minor details is fine.
- Where the reference is code: CORRECT if the response's code would do the same.
"""  # noqa: E501

LENIENT = """
Be lenient.
- CORRECT if the right answer is there and can be recognised, even among other things, and the response does not settle on
  another one. Two answers side by side of which one is right: CORRECT.
- An answer that has the heart of the matter, or is a little less exact or less complete than the reference: CORRECT.
- A refusal, "I don't know", a question in return, or text without an answer: INCORRECT, unless the reference says that there is
  no answer.
- Where the reference is a summary or another long text: CORRECT if the response has its subject right and about half of its
  main points.
- Where the reference is code: CORRECT if the response's code serves the same purpose, up to small slips.
"""  # noqa: E501

EXAMPLES = """
QUESTION: Who repaired the lighthouse lamp?
ACCEPTED_ANSWERS: Marta Oduya
RESPONSE: It was the keeper's niece, Ms Oduya, who got the lamp to work again.
-> CORRECT: the same person, in other words

QUESTION: 故事里有几只猫？
ACCEPTED_ANSWERS: ["3", "三只", "三"]
RESPONSE: 一共有三只小猫。
-> CORRECT: one of the accepted answers

QUESTION: What number is hidden in the text?
ACCEPTED_ANSWERS: 7351902
RESPONSE: The hidden number is 73519021.
-> INCORRECT: one digit more is another number

QUESTION: Where was the treaty signed?
ACCEPTED_ANSWERS: ["Aldermoor", "the town hall of Aldermoor"]
RESPONSE: They signed it in Aldermoor.
-> CORRECT: one of the accepted answers is enough

QUESTION: Why does the captain turn back? (A) fog (B) mutiny (C) illness (D) ice
ACCEPTED_ANSWERS: ["B", "B. mutiny"]
RESPONSE: Because his crew rises against him.
-> CORRECT: that is option B in other words

QUESTION: What is the capital of the island?
ACCEPTED_ANSWERS: Port Selwyn
RESPONSE: I'm sorry, the passage does not tell.
-> INCORRECT: a refusal, though there is an answer

QUESTION: In which year did the mill burn down?
ACCEPTED_ANSWERS: 1874
RESPONSE: It was either 1871 or 1874.
-> {hedged}: it hedges between a wrong and the right year

QUESTION: Which metal is the bell made of?
ACCEPTED_ANSWERS: bronze
RESPONSE: The chapter first dwells on the tower, its masons and the dispute over its cost, which the council settled only years later. As for the bell, the founder's ledger leaves no doubt: it was cast in bronze, and it still hangs there.
-> CORRECT: long, but it settles on bronze

QUESTION: Who wrote the harbour hymn?
ACCEPTED_ANSWERS: Samuel Clemens
RESPONSE: Mark Twain wrote it, in a week that he spent ill in bed.
-> CORRECT: the same person under another name; what else it says does no harm

QUESTION: How many bells hang in the tower?
ACCEPTED_ANSWERS: more than 40
RESPONSE: There is no exact count, but it is estimated that there are around 40.
-> CORRECT: the reference is approximate, and this is of its size

QUESTION: Which magic numbers are given for amber-otter?
REQUIRED_ANSWERS: ["4410273", "9038812"]
RESPONSE: 4410273
-> INCORRECT: one of two required answers is missing
"""  # noqa: E501
CORRECT: Literal["CORRECT"] = "CORRECT"
INCORRECT: Literal["INCORRECT"] = "INCORRECT"
RUBRICS = {
    name: f"{criteria.strip()}\n\nExamples\n{EXAMPLES.strip().replace('{hedged}', hedged)}"
    for name, criteria, hedged in (("strict", STRICT, INCORRECT), ("lenient", LENIENT, CORRECT))
}


class CorrectnessJudgment(BaseModel):
    """The answer that the response gives, and whether it is right."""

    answer: str = Field(description="Exact quote of the response's answer; empty if it has none.")
    reasoning: str = Field(
        description="How it compares with the right answer, in one or two short sentences."
    )
    # Case and surrounding space are mended. Compared as a whole, for INCORRECT holds CORRECT.
    verdict: Annotated[
        Literal["CORRECT", "INCORRECT"],
        BeforeValidator(lambda said: said.strip().upper() if isinstance(said, str) else said),
    ]
    confidence: float = Field(ge=0.0, le=1.0, description="How sure the verdict is, from 0 to 1.")


def prompt_with(rubric: str, sample: Sample, response: Response) -> tuple[Message, ...]:
    """What a judge is asked, with the text of one of RUBRICS or of a user's own."""
    right = reference(sample)
    sections = {"QUESTION": excerpt(sample.query, READ_QUESTION_CHARS) or NO_QUESTION}
    if named := options(sample):
        sections["OPTIONS"] = excerpt(
            "\n".join(f"{letter}. {text}" for letter, text in named.items()), READ_CHARS
        )
    sections[SECTION[right.kind]] = excerpt(right.text, READ_CHARS)
    words = TASK + rubric.strip()
    criteria = CRITERIA.get((sample.suite, sample.task))
    if sample.metadata.get("unanswerable") is True:
        criteria = _UNANSWERABLE
    elif sample.suite == "personamem":
        criteria = _CHOICE
    severity = next((name for name, text in RUBRICS.items() if text == rubric), None)
    if criteria and severity:
        words += f"\n\nThis type of question\n- {criteria.both}\n- {getattr(criteria, severity)}"
    return JudgePrompt(words, {**sections, "RESPONSE": excerpt(response.text, READ_CHARS)})


def excerpt(text: str, chars: int) -> str:
    """A text of up to so many characters whole; of a longer one, half of them from either end."""
    if len(text) <= chars:
        return text
    half = chars // 2
    return (
        f"{text[:half]}\n[... {len(text) - 2 * half} characters left out here ...]\n{text[-half:]}"
    )


def rules(sample: Sample, response: Response, vectors: Vectors) -> CorrectnessJudgment:
    """CORRECT, of a question that cannot be answered, where the response says that it does not
    know; of others where the right answer stands in the response word for word, its numbers in
    digits or in words, and is not denied there (`is_given`), whichever the rubric and whatever else
    the response says. It knows no paraphrase: a summary is never found, a list of guesses is not
    seen through.

    Its confidence is how often people agree on answers of five systems to questions of Natural
    Questions (EVOUNA; see report/CALIBRATION.md): 99 % where it is found, 56 %
    where it is not. Of what declines to answer nobody measured it."""
    if sample.metadata.get("unanswerable") is True:
        declines = says_unknown(response.text)
        why = "it declines to answer" if declines else "it does not decline to answer"
        return _judged_by_code(why, declines, NOT_MEASURED)
    if is_given(sample, response.text):
        return _judged_by_code("an accepted answer stands in it", True, FOUND_CONFIDENCE)
    return _judged_by_code("no accepted answer stands in it", False, MISSING_CONFIDENCE)


def _judged_by_code(why: str, is_correct: bool, confidence: float) -> CorrectnessJudgment:
    verdict = CORRECT if is_correct else INCORRECT
    return CorrectnessJudgment(answer="", reasoning=why, verdict=verdict, confidence=confidence)


def why_not(sample: Sample, response: Response) -> str | None:
    """An answer is found in any language, and what declines to answer in English."""
    if sample.metadata.get("unanswerable") is True and is_foreign(response.text):
        return "the rules know in English alone what declines to answer"
    return None


def string_match(sample: Sample, response: Response) -> CorrectnessJudgment:
    """Seed 001's fallback: an accepted answer to the letter, but for case and surrounding space."""
    right = reference(sample)
    reply = response.text.strip().casefold()
    accepted = right.answers if right.kind == "any" else (right.text,)
    is_same = any(reply == answer.strip().casefold() for answer in accepted)
    return _judged_by_code("no judge's verdict: compared to the letter", is_same, 0.0)


def zero(sample: Sample, response: Response) -> CorrectnessJudgment:
    return _judged_by_code("no judge's verdict: counted as wrong", False, 0.0)


def measure(judgment: CorrectnessJudgment, sample: Sample, response: Response) -> MetricValue:
    return MetricValue(
        value=float(judgment.verdict == CORRECT), parts={"confidence": judgment.confidence}
    )


METRIC = JudgedMetric(
    title="SEMANTIC CORRECTNESS",
    value_label="Correctness",
    scale=(0, 1),
    requires=("answers",),
    level="last_turn",
    judgment=CorrectnessJudgment,
    prompt=lambda sample, response: prompt_with(RUBRICS["strict"], sample, response),
    prompt_with=prompt_with,
    rubrics=RUBRICS,
    measure=measure,
    on_empty=lambda sample: _judged_by_code("the response is empty", False, 1.0),
    without_judge={"string_match": string_match, "zero": zero},
    preferred_judge="openai/gpt-4o-mini",
    version=2,
    anchors={
        1.0: "CORRECT: it gives an accepted answer, under whatever name and beside whatever else",
        0.0: "INCORRECT: another answer, an incomplete one, or none",
    },
    estimate=OfflineEstimate(
        rules=rules,
        why_not=why_not,
        measured=Measured(
            n=1130,
            what="answers (EVOUNA, report/CALIBRATION.md)",
            recall=0.79,
            specificity=0.97,
            kappa=0.61,
        ),
    ),
    parts=("confidence",),
    aggregate=means_of("confidence"),
    layout=(
        section(
            ("Correct", "mean", "percent", "higher is better"),
            ("Standard Error", "stderr"),
            ("Mean Confidence", "extras.confidence"),
            ("Total Samples", "n_scored", "count"),
        ),
    ),
)

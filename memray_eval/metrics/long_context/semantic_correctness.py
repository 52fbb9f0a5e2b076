"""Semantic correctness: does the response give the right answer, in whatever words and language?
Source: seed 001.

One judge for every task: CORRECT (1.0) or INCORRECT (0.0), with its confidence. Any one of several
accepted answers suffices; where a task asks for all of them, or for a list of numbers, the whole is
wanted (metrics/long_context/_correctness.py says when). An empty response is INCORRECT. The judge
does not see the context: the reference is taken for true.

Two rubrics, which a run names, for they move scores by tens of points: `strict` (the default) and
`lenient`. For questions about conversations either goes on with what it asks of their type. Of a
response or a reference over READ_CHARS characters the judge reads the first and the
last half of so many, so that no answer makes a call of more than about 10,000 English tokens: what
stands in between, and the middle of a long list of numbers, it cannot judge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from memray_eval.metric import (
    JudgedMetric,
    Measured,
    MetricValue,
    OfflineEstimate,
    means_of,
    section,
)
from memray_eval.metrics.long_context._correctness import Kind, is_given, options, reference
from memray_eval.metrics.long_context._question_types import Severity, criteria_of
from memray_eval.ports import Vectors
from memray_eval.text_processing.denials import says_unknown
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.languages import is_foreign
from memray_eval.types import Message, Response, Sample

READ_CHARS = 16_000  # of a response and of a reference, half from either end
READ_QUESTION_CHARS = 8_000
NO_QUESTION = "(not known: compare the response with the right answer alone)"
FOUND_CONFIDENCE, MISSING_CONFIDENCE = 0.99, 0.56  # of the rules, by EVOUNA: see `rules`
NOT_MEASURED = 0.5  # of a text that declines, or does not
SECTION: dict[Kind, str] = {
    "any": "ACCEPTED_ANSWERS",
    "all": "REQUIRED_ANSWERS",
    "list": "REQUIRED_LIST",
}

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
    """What a judge is asked, with the text of one of RUBRICS or of a user's own in the place of
    these."""
    right = reference(sample)
    sections = {"QUESTION": excerpt(sample.query, READ_QUESTION_CHARS) or NO_QUESTION}
    if named := options(sample):
        sections["OPTIONS"] = excerpt(
            "\n".join(f"{letter}. {text}" for letter, text in named.items()), READ_CHARS
        )
    sections[SECTION[right.kind]] = excerpt(right.text, READ_CHARS)
    words = TASK + rubric.strip()
    if rubric in (RUBRICS["strict"], RUBRICS["lenient"]):
        severity: Severity = "strict" if rubric == RUBRICS["strict"] else "lenient"
        words = "\n\n".join(filter(None, (words, criteria_of(sample, severity))))
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
    Questions (EVOUNA; see `memray-eval calibrate --preset evouna`): 99 % where it is found, 56 %
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
    """Seed 001's fallback: the response is an accepted answer to the letter, but for case and
    surrounding space."""
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

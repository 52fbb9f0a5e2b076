"""Coherence: is the response well formed and easy to follow, whatever it says? Source: seed 000,
metric 4.

One rubric score from 1 to 5 over logical flow, clarity, consistency, organisation and staying on
topic. An empty response scores 1.

The rules see repetition and sentences that break off, not a text that contradicts itself or
wanders: on 80 labelled answers (tests/data/safety_answers.jsonl, 14 of them incoherent) they found
none of those at specificity 0.9 or more, recall 0.00, kappa 0.00. So without a judge the metric is
not applicable, unless a run asks for it: `--set estimates.coherence=true`."""

from __future__ import annotations

import re
from itertools import pairwise

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue, RulesWorth
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.ports import Vectors
from memray_eval.text_processing.matching import normalise, sentences, stems
from memray_eval.types import Message, Response, Sample

RUBRIC = """
Score how well the response is written, from 1 to 5. Weigh five things: ideas follow from each other; the wording is clear; tone
and reasoning stay the same throughout; it is well organised, with smooth transitions; it keeps to the question without detours.
Judge language alone: whether the content is right is scored elsewhere.
5: natural, clear and smooth, nothing repeated. 4: reads well, with small flaws. 3: understandable, with flaws that one notices.
2: hard to follow, sentences poorly connected. 1: very hard to understand, or severe errors throughout.
In grammar_issues quote the words of the response that are wrong, exactly. In strengths name what it does well.
"""  # noqa: E501


class CoherenceJudgment(BaseModel):
    """How well the response is written."""

    coherence_score: int = Field(ge=1, le=5)
    explanation: str
    grammar_issues: list[str] = Field(
        default_factory=list, description="Exact quotes from the response."
    )
    strengths: list[str] = Field(default_factory=list)


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    return judge_messages(RUBRIC, {"QUERY": sample.query, "RESPONSE": response.text})


_ENDED = re.compile(r"[.!?…:)\"'”’]\s*$")
_DOUBLED = re.compile(r"\b(\w{2,}) \1\b", re.IGNORECASE)
LONG_SENTENCE = 45  # words


def rules(sample: Sample, response: Response, vectors: Vectors) -> CoherenceJudgment:
    """5, less 2 when more than 40 % of the sentences repeat an earlier one (1 from 15 %), less 1
    each for: an end in the middle of a sentence, a doubled word, a mean sentence above
    LONG_SENTENCE words, and no word in common between most neighbouring sentences of four or more.
    Never below 1."""
    lines = sentences(response.text)
    seen = [normalise(sentence) for sentence in lines]
    repeated = 1 - len(set(seen)) / len(seen) if seen else 0.0
    apart = [not stems(left) & stems(right) for left, right in pairwise(lines)]
    issues = [match[0] for match in _DOUBLED.finditer(response.text)]
    flaws = {
        "repeats itself": 2 if repeated > 0.4 else 1 if repeated > 0.15 else 0,
        "ends in the middle of a sentence": int(not _ENDED.search(response.text)),
        "doubles a word": int(bool(issues)),
        "has very long sentences": int(
            sum(len(sentence.split()) for sentence in lines) / max(1, len(lines)) > LONG_SENTENCE
        ),
        "jumps between topics": int(len(lines) >= 4 and sum(apart) > 0.9 * len(apart)),
    }
    score = max(1, 5 - sum(flaws.values()))
    named = [flaw for flaw, weight in flaws.items() if weight]
    return CoherenceJudgment(
        coherence_score=score,
        explanation="; ".join(named) or "no flaw found by the rules",
        grammar_issues=issues,
    )


def measure(judgment: CoherenceJudgment, sample: Sample, response: Response) -> MetricValue:
    return MetricValue(value=judgment.coherence_score)


# Grammar is none of the five things that the score weighs
METRIC = JudgedMetric(
    title="RESPONSE COHERENCE (LLM RUBRIC SCORING)",
    value_label="Coherence",
    scale=(1, 5),
    integer_scale=True,
    judgment=CoherenceJudgment,
    prompt=prompt,
    rules=rules,
    measure=measure,
    verify=verify_quotes("grammar_issues", decides=False),
    on_empty=lambda sample: CoherenceJudgment(coherence_score=1, explanation="empty response"),
    preferred_judge="openai/gpt-4o",
    worth=RulesWorth(
        n=80, what="answers, to find incoherent ones", recall=0.0, specificity=1.0, kappa=0.0
    ),
)

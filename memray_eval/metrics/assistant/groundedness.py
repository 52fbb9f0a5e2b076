"""Groundedness: what share of the response's claims rests on memory, context, query, history or
general knowledge?

Source of the formulas: seed 000, metric 2. Groundedness = grounded claims / all claims;
hallucination rate = 1 - groundedness. A response that makes no claim (a question, an opinion, a
refusal) has no score: the metric is not applicable to it, and says so where the query asked for
knowledge; an empty one scores 1.0. A claim that cannot be found in the response does not count; if
it is a hallucination, the metric abstains: see metrics/_evidence.py.

There are two readings. `given`: only what the sample gives counts, and general knowledge is
unsupported. `given_and_general`: established knowledge counts too. The first is that of a sample
with a context, or with an article for memory (a text of 40 words or more); `metadata.sources`
names either. The report says how many answers were read by what is given alone."""

from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from memray_eval.metric import (
    Aggregates,
    Columns,
    JudgedMetric,
    MetricValue,
    NothingToScoreError,
    Pooled,
    ratio,
    section,
)
from memray_eval.metrics._evidence import verify_quotes
from memray_eval.metrics._judging import WITH_MEMORY, judge_silence, show
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Response, Sample

GIVEN, WITH_GENERAL = "given", "given_and_general"
ARTICLE_WORDS = 40  # of a text in memory; a fact about a user has fewer
RUBRIC = """
List every factual claim of the response, one entry each, and say what each rests on. SOURCES names the reading:
given: only what MEMORY, CONTEXT, HISTORY and QUERY say counts. What they leave out rests on none, also where it is true and known
to everybody.
given_and_general: established knowledge counts as well.
What is a claim: a statement about the world or about this user that could be checked, and could be false.
- No claims are opinions, tastes and feelings ("a lovely town"; for the reading given see below); what the speaker says of itself ("I love hiking too", "I have read
  about it"); reactions, questions, wishes, greetings, offers and agreement; advice as such ("try to go to bed earlier"). A fact inside
  any of these is a claim: "the fine cellist, who has played in 30 countries" claims the 30, "I have read that it began in Spain" claims
  Spain, and "sleep more, it lowers blood pressure" claims the effect.
- One claim is one assertion. A sentence that asserts two things, or adds a time, a cause or a number to one, is two entries. Each
  copies the words that assert it, exactly; entries may share words, such as the subject.
What it rests on:
memory, context, history: it agrees with what MEMORY, CONTEXT or HISTORY says. MEMORY holds details of this user, or an article; either is
a source. query: the user said it in QUERY. general: established knowledge, general medical advice; in the reading given it is no
source. none: an invented detail, what no source of the reading says, or what contradicts one.
- A claim rests on a source only if the source entails it: whoever accepts the source must accept the claim. To be about the same
  thing, or to share most of its words, is not enough. Other words for the same are the same: a synonym, another order, a pronoun,
  a sum that the source allows, two of its sentences drawn together.
- Less than the source says follows; more does not. To leave out a detail says less: from "a baker from Lyon won in May 1978" follow "a
  baker won" and "it was won in 1978". To leave out a limit says more: "the valley was flooded" does not follow from "a part of the
  valley was flooded", nor "he was the first" from "he was one of the first". A limit says how much, how many, how often, how surely,
  when or for whom something holds; without it more would have to be true.
- The same words about something else are another claim: who did it, to whom, in which order, with what result. So are a cause, a
  comparison or a sureness ("so", "because of", "the most") that the source does not state.
- In the reading given a verdict on the subject is a claim too ("it is a great show", "that is not easy"), and rests on none unless a
  source gives it. What the speaker likes, feels or did is no claim in either reading.
- A detail of this user must agree exactly: a different number, name or condition rests on none. What contradicts MEMORY rests on
  none also where the user says it: a response that agrees with a false premise of the query makes a claim of it, and one that
  corrects it does not.
For each entry copy the claim from the response, exactly; say in reason which words of which source entail it, or what is missing;
then name the source. A response without a claim, such as a refusal or a question in return, has an empty list: never fill it up.
Then say in passes_over_question if QUERY asks for knowledge and the list is empty.
No figure is asked for; they are counted from the list.
"""  # noqa: E501


class FactualClaim(BaseModel):
    """One claim of the response and what it rests on; `none` is a hallucination."""

    claim: str = Field(description="The exact words of the response.")
    reason: str = Field(description="What entails it, or what is missing; a few words.")
    source: Literal["memory", "context", "query", "history", "general", "none"]


class GroundednessJudgment(BaseModel):
    """Every claim with its source. The two figures are counted from them."""

    claims: list[FactualClaim]
    passes_over_question: bool = Field(
        description="True if the query asks for knowledge and the response makes no claim."
    )


def reading_of(sample: Sample) -> str:
    """The reading of sources: GIVEN or WITH_GENERAL."""
    if (named := sample.metadata.get("sources")) in (GIVEN, WITH_GENERAL):
        return str(named)
    has_article = any(len(str(text).split()) >= ARTICLE_WORDS for text in sample.memory.values())
    return GIVEN if sample.context or has_article else WITH_GENERAL


def prompt(sample: Sample, response: Response) -> JudgePrompt:
    context = {"CONTEXT": sample.context} if sample.context else {}
    shown = show(sample, response, *WITH_MEMORY)
    return JudgePrompt(RUBRIC, {"SOURCES": reading_of(sample), **context, **shown})


def _is_unsupported(claim: FactualClaim, sample: Sample) -> bool:
    return claim.source == "none" or (claim.source == "general" and reading_of(sample) == GIVEN)


def measure(judgment: GroundednessJudgment, sample: Sample, response: Response) -> MetricValue:
    """grounded / all claims that are found in the response, each as the judge judged it."""
    reading = reading_of(sample)
    grounded = sum(not _is_unsupported(claim, sample) for claim in judgment.claims)
    claims = len(judgment.claims)
    if not claims and not response.is_empty:
        hint = ", though the query asks for knowledge" if judgment.passes_over_question else ""
        raise NothingToScoreError(f"no claims{hint}")
    return MetricValue(
        value=ratio(grounded, claims, when_nothing=1.0) or 0.0,
        parts={
            "claims": claims,
            "grounded": grounded,
            "hallucinated": claims - grounded,
            "given": float(reading == GIVEN),
        },
    )


def aggregate(columns: Columns) -> Aggregates:
    """Micro: over all claims together. Macro: the mean of the samples' scores. None without a
    claim."""
    claims, grounded = float(columns["claims"].sum()), float(columns["grounded"].sum())
    micro = ratio(grounded, claims)
    macro = float(np.mean(columns["value"])) if claims else None
    return Aggregates(
        micro={
            "groundedness_score": micro,
            "hallucination_rate": None if micro is None else 1 - micro,
            "claims": claims,
            "grounded": grounded,
            "hallucinated": claims - grounded,
        },
        macro={
            "groundedness_score": macro,
            "hallucination_rate": None if macro is None else 1 - macro,
        },
        extras={"given": float(columns["given"].sum())} if "given" in columns else {},
    )


METRIC = JudgedMetric(
    title="GROUNDEDNESS (HALLUCINATION RATE)",
    value_label="Groundedness",
    scale=(0, 1),
    requires=("query",),
    judgment=GroundednessJudgment,
    prompt=prompt,
    verify=verify_quotes("claims", of=("claim",), is_fault=_is_unsupported),
    measure=measure,
    version=3,
    anchors={
        1.0: "every claim follows from memory, context, query or history; by the reading "
        "given_and_general also from established knowledge",
        0.0: "every claim is invented, or contradicts them",
    },
    on_empty=judge_silence(GroundednessJudgment, passes_over_question=False),
    preferred_judge="anthropic/claude-opus-4-5",
    parts=("claims", "grounded", "hallucinated", "given"),
    aggregate=aggregate,
    pooled=Pooled(
        "claims", ("grounded", "claims"), lambda columns: (columns["grounded"], columns["claims"])
    ),
    layout=(
        section(
            ("Groundedness Score", "micro.groundedness_score", "score", "higher is better"),
            ("Hallucination Rate", "micro.hallucination_rate", "score", "lower is better"),
            ("Total Claims", "micro.claims", "count"),
            ("Grounded Claims", "micro.grounded", "count"),
            ("Hallucinated Claims", "micro.hallucinated", "count"),
            ("Given Sources Alone", "extras.given", "count", "answers"),
            heading="Micro-averaged (recommended):",
        ),
        section(
            ("Groundedness Score", "macro.groundedness_score"),
            ("Hallucination Rate", "macro.hallucination_rate"),
            heading="Macro-averaged (for reference):",
        ),
    ),
)

"""Groundedness: what share of the response's claims rests on memory, query, history or general
knowledge?

Source of the formulas: seed 000, metric 2. Groundedness = grounded claims / all claims;
hallucination rate = 1 - groundedness. A response that makes no claim (a question, an opinion, a
refusal) has no score: the metric is not applicable to it; an empty one scores 1.0. A claim that
cannot be found in the response does not count; where it is a hallucination, the metric abstains:
see metrics/_shared/evidence.py."""

from __future__ import annotations

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
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import WITH_MEMORY, ask, judge_silence
from memray_eval.types import Response, Sample

RUBRIC = """
List every factual claim of the response, one entry each, in the response's own words, and say what each rests on.
What is a claim: a statement about the world or about this user that could be checked, and could be false.
- No claims are opinions, tastes and feelings ("a lovely town"); what the speaker says of itself ("I love hiking too", "I have read
  about it"); questions, wishes, greetings, offers and agreement; advice as such ("try to go to bed earlier"). A fact inside any
  of these is a claim: "the fine cellist, who has played in 30 countries" claims the 30, and "sleep more, it lowers blood pressure" claims
  the effect.
- One claim is one assertion. A sentence that asserts two things, or adds a time, a cause or a number to one, is two entries.
What it rests on:
memory: a detail of this user that agrees with MEMORY. query: the user said it in QUERY. history: it was said in HISTORY.
general: established knowledge, general medical advice. none: an invented detail, or one that contradicts these sources.
- A claim rests on a source only if the source entails it: whoever accepts the source must accept the claim. To be about the same
  thing, or to share most of its words, is not enough.
- A dropped or changed qualifier is another claim: "the valley was flooded" does not follow from "a part of the valley was flooded",
  "always" not from "often", "the first" not from "one of the first". Less than the source says does follow.
- A detail of this user must agree exactly: a different number, name or condition rests on none. What contradicts MEMORY rests on
  none also where the user says it: a response that agrees with a false premise of the query makes a claim of it, and one that
  corrects it does not.
For each entry copy the claim from the response, exactly; say in reason which words of which source entail it, or what is missing;
then name the source. A response without a claim, such as a refusal or a question in return, has an empty list: never fill it up.
No figure is asked for; they are counted from the list.
"""  # noqa: E501


class FactualClaim(BaseModel):
    """One claim of the response and what it rests on; `none` is a hallucination."""

    claim: str = Field(description="The exact words of the response.")
    reason: str = Field(description="What entails it, or what is missing; a few words.")
    source: Literal["memory", "query", "history", "general", "none"]


class GroundednessJudgment(BaseModel):
    """Every claim with its source. The two figures are counted from them."""

    claims: list[FactualClaim]


def measure(judgment: GroundednessJudgment, sample: Sample, response: Response) -> MetricValue:
    """grounded / all claims that are found in the response, each as the judge judged it."""
    grounded = sum(claim.source != "none" for claim in judgment.claims)
    claims = len(judgment.claims)
    if not claims and not response.is_empty:
        raise NothingToScoreError("no claims")
    return MetricValue(
        value=ratio(grounded, claims, when_nothing=1.0) or 0.0,
        parts={"claims": claims, "grounded": grounded, "hallucinated": claims - grounded},
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
    )


METRIC = JudgedMetric(
    title="GROUNDEDNESS (HALLUCINATION RATE)",
    value_label="Groundedness",
    scale=(0, 1),
    requires=("query",),
    judgment=GroundednessJudgment,
    prompt=ask(RUBRIC, *WITH_MEMORY),
    verify=verify_quotes("claims", of=("claim",), is_fault=lambda claim: claim.source == "none"),
    measure=measure,
    version=2,
    anchors={
        1.0: "every claim follows from memory, query, history or established knowledge",
        0.0: "every claim is invented, or contradicts them",
    },
    on_empty=judge_silence(GroundednessJudgment),
    preferred_judge="anthropic/claude-opus-4-5",
    parts=("claims", "grounded", "hallucinated"),
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
            heading="Micro-averaged (recommended):",
        ),
        section(
            ("Groundedness Score", "macro.groundedness_score"),
            ("Hallucination Rate", "macro.hallucination_rate"),
            heading="Macro-averaged (for reference):",
        ),
    ),
)

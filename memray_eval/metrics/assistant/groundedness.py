"""Groundedness: what share of the response's claims rests on memory, query, history or general
knowledge?

Source of the formulas: seed 000, metric 2. Groundedness = grounded claims / all claims;
hallucination rate = 1 - groundedness. A response without claims, an empty one too, scores 1.0. A
claim counts as the judge judged it, also where it cannot be found in the response; see
metrics/_shared/evidence.py."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, Field

from memray_eval.metric import (
    Aggregates,
    Columns,
    JudgedMetric,
    MetricValue,
    Pooled,
    ratio,
)
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import judge_messages, with_memory
from memray_eval.metrics._shared.layout import section
from memray_eval.types import Message, Response, Sample

RUBRIC = """
List every factual claim of the response, one entry each, in the response's own words. For each, name what it rests on:
memory (a detail of this user that agrees with the memory), query (the user said it in the question), history (it was said in
the earlier conversation), general (established knowledge, general medical advice), or none (an invented detail, or one that
contradicts these sources). A detail of this user must agree exactly: a different number, name or condition rests on none. What
contradicts the memory rests on none also where the user says it: a response that agrees with a false premise of the query makes
a claim of it, and one that corrects it does not.
"""  # noqa: E501


class FactualClaim(BaseModel):
    """One claim of the response and what it rests on; `none` is a hallucination."""

    claim: str = Field(description="The exact words of the response.")
    source: Literal["memory", "query", "history", "general", "none"]

    @property
    def is_grounded(self) -> bool:
        return self.source != "none"


class GroundednessJudgment(BaseModel):
    """Every claim with its source; the two figures follow from the claims."""

    claims: list[FactualClaim]
    groundedness_score: float = 1.0
    hallucination_rate: float = 0.0


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    return judge_messages(RUBRIC, with_memory(sample, response))


def measure(judgment: GroundednessJudgment, sample: Sample, response: Response) -> MetricValue:
    """grounded / all claims, each as the judge judged it, counted here and not taken from the
    judge. Claims that cannot be found in the response stay: without them a hallucination that the
    judge reworded would leave the ratio."""
    grounded = sum(claim.is_grounded for claim in judgment.claims)
    claims = len(judgment.claims)
    return MetricValue(
        value=_score(grounded, claims),
        parts={"claims": claims, "grounded": grounded, "hallucinated": claims - grounded},
    )


def _score(grounded: int, claims: int) -> float:
    return ratio(grounded, claims, when_nothing=1.0) or 0.0


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
    prompt=prompt,
    verify=verify_quotes("claims", of=("claim",)),
    measure=measure,
    on_empty=lambda sample: GroundednessJudgment(claims=[]),
    preferred_judge="anthropic/claude-opus-4-5",
    parts=("claims", "grounded", "hallucinated"),
    aggregate=aggregate,
    pooled=Pooled(
        "claims",
        ("grounded", "claims"),
        lambda columns: (columns["grounded"], columns["claims"]),
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

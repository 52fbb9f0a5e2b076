"""Groundedness: what share of the response's claims rests on memory, query, history or general
knowledge?

Source of the formulas: seed 000, metric 2. Groundedness = grounded claims / all claims;
hallucination rate = 1 - groundedness. A response without claims, an empty one too, scores 1.0. A
claim counts as the judge judged it, also where it cannot be found in the response; see
metrics/_shared/evidence.py.

Without a judge the metric is not applicable, unless a run asks for its estimate (`--set
estimates.groundedness=true`): the rules find 4 of 15 contradictions of memory in sentences held
back from tuning (`python -m tests.bench.estimates`)."""

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
    RulesWorth,
    ratio,
)
from memray_eval.metrics._shared.claims import check_claims, claim_texts
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import judge_messages, with_memory
from memray_eval.ports import Vectors
from memray_eval.types import Message, Response, Sample, SummaryLine, SummarySection

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


def rules(sample: Sample, response: Response, vectors: Vectors) -> GroundednessJudgment:
    """Claims are the clauses that assert something of the user; each is looked up in memory, query
    and history: see metrics/_shared/claims.py. General advice makes no claim about the user and is
    not counted.

    Contradictions of the memory, agreement with a false premise of the query among them, are found
    with precision 0.80 (4 of 5) and recall 0.27 (4 of 15) on 43 labelled sentences held back from
    tuning (labellers' kappa 0.96; words alone); on the 39 that the rules were tuned on 0.90 and
    0.82. `python -m tests.bench.estimates` prints the figures."""
    claims = [
        FactualClaim(claim=claim.text, source=claim.source)
        for claim in check_claims(sample, response, vectors)
    ]
    score = _score(sum(claim.is_grounded for claim in claims), len(claims))
    return GroundednessJudgment(
        claims=claims, groundedness_score=score, hallucination_rate=1 - score
    )


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
    rules=rules,
    verify=verify_quotes("claims", of=("claim",)),
    rules_texts=claim_texts,
    measure=measure,
    on_empty=lambda sample: GroundednessJudgment(claims=[]),
    preferred_judge="anthropic/claude-opus-4-5",
    worth=RulesWorth(
        n=43,
        what="sentences held back, to find contradictions of memory",
        recall=0.27,
        specificity=0.96,
        precision=0.80,
    ),
    parts=("claims", "grounded", "hallucinated"),
    aggregate=aggregate,
    pooled=Pooled(
        "claims",
        ("grounded", "claims"),
        lambda columns: (columns["grounded"], columns["claims"]),
    ),
    layout=(
        SummarySection(
            heading="Micro-averaged (recommended):",
            lines=(
                SummaryLine(
                    label="Groundedness Score",
                    field="micro.groundedness_score",
                    note="higher is better",
                ),
                SummaryLine(
                    label="Hallucination Rate",
                    field="micro.hallucination_rate",
                    note="lower is better",
                ),
                SummaryLine(label="Total Claims", field="micro.claims", form="count"),
                SummaryLine(label="Grounded Claims", field="micro.grounded", form="count"),
                SummaryLine(label="Hallucinated Claims", field="micro.hallucinated", form="count"),
            ),
        ),
        SummarySection(
            heading="Macro-averaged (for reference):",
            lines=(
                SummaryLine(label="Groundedness Score", field="macro.groundedness_score"),
                SummaryLine(label="Hallucination Rate", field="macro.hallucination_rate"),
            ),
        ),
    ),
)

"""Forgotten fact: does the reply remember what the user said earlier in the session?

Score from 0 to 1, of each reply: 1 no fact is contradicted or asked for again, 0 one that matters
is. The judge quotes the fact from the user's own turns. Not applicable to a first turn. An empty
response scores 1: it contradicts nothing."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metrics._shared.evidence import verify_both, verify_quotes
from memray_eval.metrics._shared.judging import with_anchors
from memray_eval.metrics.sessions._judged import share_metric
from memray_eval.types import Response, Sample, Share


class ForgottenFactJudgment(BaseModel):
    """Which facts of the user's the reply has forgotten."""

    facts: list[str] = Field(description="Exact quotes of the user's earlier turns.")
    evidence: list[str] = Field(description="Exact quotes of the response, one for each fact.")
    reasoning: str
    score: Share


def users_turns(sample: Sample, response: Response) -> tuple[str]:
    return ("\n".join(turn.content for turn in sample.history if turn.role == "user"),)


ANCHORS: dict[float, str] = {
    1.0: "no fact is contradicted or asked for again",
    0.5: "a small fact is asked for again or muddled, and nothing hangs on it",
    0.0: "a fact that matters to the user is contradicted, or advice goes against it",
}
RUBRIC = with_anchors(
    """
Score how well RESPONSE remembers what the user has said in this conversation, from 0 to 1. HISTORY is what both said before, QUERY
what the user says now. A fact is something that a user turn of HISTORY states: a name, a date, a place, a plan, a like, a state
of health, what happened. It is forgotten if RESPONSE says something that cannot be true beside it, asks for it again, or advises as
if it had never been said.
{anchors}
Values between are allowed; the worst case decides. If the user has since taken a fact back or replaced it, the newer one counts.
To check a fact ("you said Thursday, is that still so?") is to remember it. Not to mention a fact is no fault. What the assistant
said before is no fact of the user's. If RESPONSE clashes with nothing: 1.0, with empty lists.
First quote in facts each forgotten fact, exactly as the user's turn words it; then quote in evidence the words of RESPONSE that
clash with it or ask for it, exactly, in the same order. Then say in reasoning how they clash and what it costs the user. Then
give score.
""",  # noqa: E501
    ANCHORS,
)

METRIC = share_metric(
    RUBRIC,
    ANCHORS,
    title="FORGOTTEN FACT (FACTS KEPT)",
    value_label="Facts Kept",
    requires=("history",),
    verify=verify_both(
        verify_quotes("facts", within=users_turns, source="the user's earlier turns"),
        verify_quotes("evidence"),
    ),
    judgment=ForgottenFactJudgment,
)

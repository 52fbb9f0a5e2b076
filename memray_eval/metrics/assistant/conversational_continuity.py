"""Conversational continuity: does the response use the earlier conversation rightly?

Source: seed 000 names the metric and its judge but doesn't define it; scale, fields and rules are
this file's. One rubric score from 1 to 5 over what of the history is used, contradicted and
forgotten. Not applicable without history. An empty response scores 1."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import (
    JudgedMetric,
    MetricValue,
    Verified,
    counts_block,
    statistics_block,
    sums_and_means,
)
from memray_eval.metrics._shared.evidence import QuotedText, check_evidence
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.text_processing.sample_text import history_lines
from memray_eval.types import Message, Response, Sample

RUBRIC = """
Score how rightly the response takes up the earlier conversation in HISTORY, from 1 to 5. It should build on what was said
there and bears on the query, agree with it, and read as the next turn of the same talk: no question that the user has already
answered, no advice given again as if it were new, no claim that something was said which was not. A correction that the user
makes in the query replaces what was said before. What has no bearing on the query may stay unmentioned, so a response is
right to leave the history alone where none of it matters.
5: all that bears on the query is used, correctly and naturally. 4: the main points are used, something minor is missed.
3: little of it is used, as if the talk had just begun, but nothing clashes. 2: forgets or misstates something that matters.
1: contradicts the conversation on a main point, or ignores it so that the answer fails.
A fact is one statement of the history, by either speaker. Quote facts exactly as HISTORY words them: in used_facts those that
the response relies on, in contradicted_facts those that it denies or gets wrong, in forgotten_facts those that bear on the
query and that it passes over or asks for again.
"""  # noqa: E501

FACTS = ("used_facts", "contradicted_facts", "forgotten_facts")


class ConversationalContinuityJudgment(BaseModel):
    """How rightly the response takes up what was said before."""

    continuity_score: int = Field(ge=1, le=5)
    used_facts: list[str] = Field(
        default_factory=list, description="Exact quotes from the history."
    )
    contradicted_facts: list[str] = Field(
        default_factory=list, description="Exact quotes from the history."
    )
    forgotten_facts: list[str] = Field(
        default_factory=list, description="Exact quotes from the history."
    )
    explanation: str


def prompt(sample: Sample, response: Response) -> tuple[Message, ...]:
    sections = {"HISTORY": history_lines(sample), "QUERY": sample.query, "RESPONSE": response.text}
    return judge_messages(RUBRIC, sections)


def verify(
    judgment: ConversationalContinuityJudgment, sample: Sample, response: Response
) -> Verified:
    """Looks for the facts in the history. All count as the judge judged them: without the facts
    that it words its own way, the counts of what is contradicted and forgotten would look better
    than the verdict is."""
    history = QuotedText("\n".join(turn.content for turn in sample.history))
    facts = [(fact,) for field in FACTS for fact in getattr(judgment, field)]
    return check_evidence(judgment, facts, history.holds, source="the history")


def measure(
    judgment: ConversationalContinuityJudgment, sample: Sample, response: Response
) -> MetricValue:
    parts = {
        "contradicted": len(judgment.contradicted_facts),
        "forgotten": len(judgment.forgotten_facts),
    }
    return MetricValue(value=judgment.continuity_score, parts=parts)


COUNTS = {"contradicted": "Contradicted Facts", "forgotten": "Forgotten Facts"}
METRIC = JudgedMetric(
    title="CONVERSATIONAL CONTINUITY (USE OF EARLIER TURNS)",
    value_label="Continuity",
    scale=(1, 5),
    integer_scale=True,
    requires=("history",),
    judgment=ConversationalContinuityJudgment,
    prompt=prompt,
    measure=measure,
    verify=verify,
    on_empty=lambda sample: ConversationalContinuityJudgment(
        continuity_score=1, explanation="empty response"
    ),
    preferred_judge="google/gemini-2.0-flash",
    parts=tuple(COUNTS),
    aggregate=sums_and_means(COUNTS),
    layout=(
        statistics_block("Continuity", True),
        counts_block(COUNTS),
    ),
)

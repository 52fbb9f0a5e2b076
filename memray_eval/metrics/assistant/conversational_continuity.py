"""Conversational continuity: does the response use the earlier conversation rightly?

Source: seed 000 names the metric and its judge but doesn't define it; scale, fields and rules are
this file's. One rubric score from 1 to 5 over what of the history is used, contradicted and
forgotten. Not applicable without history. An empty response scores 1."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import (
    JudgedMetric,
    MetricValue,
    counts_block,
    statistics_block,
    sums_and_means,
)
from memray_eval.metrics._evidence import verify_both, verify_quotes
from memray_eval.metrics._judging import ask, judge_silence, with_anchors
from memray_eval.types import Response, Sample

ANCHORS: dict[float, str] = {
    5: "all that bears on the query is used, correctly and naturally, as the talk's next turn",
    4: "takes up the main point; misses something minor that bears on the query",
    3: "fits the subject, but could have been said without the talk: nothing of it is used, though "
    "something would have served; nothing clashes either",
    2: "breaks with the talk: jumps to something that shares a word with it and no more, says or "
    "asks again what was said, or gets a fact wrong without which the rest of it still stands",
    1: "has nothing to do with the talk, or is built on what contradicts it or on what was never "
    "said, and falls with that",
}
RUBRIC = with_anchors(
    """
Score how rightly the response takes up the earlier conversation in HISTORY, from 1 to 5. It should build on what was said
there and bears on the query, agree with it, and read as the next turn of the same talk: no question that the user has already
answered, no advice given again as if it were new, no claim that something was said which was not. A correction that the user
makes in the query replaces what was said before.
{anchors}
- If nothing in HISTORY but the last turn bears on the query, to take up the last turn is all there is to do: 5. The last turn is
  QUERY and what it answers.
- Between 3 and 4: does it answer what this user said last, rather than the subject in general? Then 4 at least.
- A non sequitur is not saved by its wording: to "Do you like baking?" the reply "I do. Do you know how many ovens that factory
  has?" answers and moves on: 3. Without its first sentence it is 2; about another matter altogether it is 1.
- HISTORY of one line: that line is the whole talk. A reply that takes it up scores 5; there is no more to forget.
- Whether what it says is true, and how well it is written, is scored elsewhere.
A fact is one statement of HISTORY or QUERY, by either speaker. First quote facts exactly as they are worded there: in used_facts those
that the response relies on, in contradicted_facts those that it denies or gets wrong, in forgotten_facts those that bear on the
query and that it passes over or asks for again. In invented_references quote the words of RESPONSE that refer to something as
said or agreed before, and that neither HISTORY nor QUERY has ("as you told me, ..."). Then say in explanation what decides the
score; then give continuity_score.
""",  # noqa: E501
    ANCHORS,
)


class ConversationalContinuityJudgment(BaseModel):
    """How rightly the response takes up what was said before."""

    used_facts: list[str] = Field(description="Exact quotes from the history or the query.")
    contradicted_facts: list[str] = Field(description="Exact quotes from the history or the query.")
    forgotten_facts: list[str] = Field(description="Exact quotes from the history or the query.")
    invented_references: list[str] = Field(description="Exact quotes from the response.")
    explanation: str
    continuity_score: int = Field(ge=1, le=5)


def measure(
    judgment: ConversationalContinuityJudgment, sample: Sample, response: Response
) -> MetricValue:
    parts = {
        "contradicted": len(judgment.contradicted_facts),
        "forgotten": len(judgment.forgotten_facts),
        "invented": len(judgment.invented_references),
    }
    return MetricValue(value=judgment.continuity_score, parts=parts)


COUNTS = {
    "contradicted": "Contradicted Facts",
    "forgotten": "Forgotten Facts",
    "invented": "Invented References",
}
METRIC = JudgedMetric(
    title="CONVERSATIONAL CONTINUITY (USE OF EARLIER TURNS)",
    value_label="Continuity",
    scale=(1, 5),
    integer_scale=True,
    requires=("history",),
    judgment=ConversationalContinuityJudgment,
    prompt=ask(RUBRIC, "history", "query", "response"),
    measure=measure,
    verify=verify_both(
        verify_quotes(
            *("used_facts", "contradicted_facts", "forgotten_facts"),
            within=lambda sample, response: (
                "\n".join((*(turn.content for turn in sample.history), sample.query)),
            ),
            source="the history and the query",
        ),
        verify_quotes("invented_references"),
    ),
    on_empty=judge_silence(ConversationalContinuityJudgment, continuity_score=1),
    version=3,
    anchors=ANCHORS,
    preferred_judge="google/gemini-2.0-flash",
    parts=tuple(COUNTS),
    aggregate=sums_and_means(COUNTS),
    layout=(statistics_block("Continuity", True), counts_block(COUNTS)),
)

"""Logical consistency: does the response hold together, or does it contradict itself? Source: seed
000, metric 10.

One rubric score from 1 to 5 over contradictions, faulty reasoning and advice that cannot all be
followed. Whether the content is medically right is scored elsewhere. An empty response scores 5:
who says nothing contradicts nothing."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import (
    JudgedMetric,
    MetricValue,
    counts_block,
    statistics_block,
    sums_and_means,
)
from memray_eval.metrics._evidence import verify_quotes
from memray_eval.metrics._judging import ask, judge_silence, with_anchors
from memray_eval.types import Response, Sample

ANCHORS: dict[float, str] = {
    5: "nothing contradicts and every conclusion follows",
    4: "a small slip that leaves the message intact",
    3: "one contradiction or weak argument that a reader notices, beside a message that stands",
    2: "several of them, or one in the main point, of which something still stands",
    1: "nothing stands: it takes back the whole of what it says, or makes no sense",
}
RUBRIC = with_anchors(
    """
Score how logically the response holds together, from 1 to 5. Look for three things: statements that cannot both be true;
faulty reasoning (a conclusion that doesn't follow, a cause that is none, a circle, a rule drawn from one case); and advice that
cannot be followed all at once. If it advises, the plan must fit together in practice: sleeping longer and getting up
earlier, with nothing said of bedtime, collide. Judge structure alone: whether it is true is scored elsewhere. Advice
for different times, amounts or cases is no contradiction. A reply that argues nothing, such as a greeting, scores 5.
{anchors}
- Two sentences that deny each other and no more ("I have no pets. My dog loves the park.") score 1: nothing is left. The same two
  beside other things that hold score 3 if the rest does not hang on them, else 2.
- A single wrong step in an argument: 4 if the conclusion holds without it, 3 if it is weaker, 2 if it falls.
First, for each contradiction, quote the two statements in statement1 and statement2, exactly as the response words them, and say
in explanation why they clash. Name in reasoning_issues each flaw of reasoning with its kind, such as false cause or hasty
generalisation, and in consistent_elements what is soundly argued. Then say in explanation what decides the score; then give
consistency_score.
""",  # noqa: E501
    ANCHORS,
)


class Contradiction(BaseModel):
    """Two statements of the response that clash."""

    statement1: str = Field(description="The exact words of the response.")
    statement2: str = Field(description="The exact words of the response.")
    explanation: str


class LogicalConsistencyJudgment(BaseModel):
    """How well the response holds together."""

    contradictions: list[Contradiction]
    reasoning_issues: list[str]
    consistent_elements: list[str]
    explanation: str
    consistency_score: int = Field(ge=1, le=5)


def measure(
    judgment: LogicalConsistencyJudgment, sample: Sample, response: Response
) -> MetricValue:
    parts = {
        "contradictions": len(judgment.contradictions),
        "reasoning_issues": len(judgment.reasoning_issues),
    }
    return MetricValue(value=judgment.consistency_score, parts=parts)


COUNTS = {"contradictions": "Contradictions", "reasoning_issues": "Reasoning Issues"}
METRIC = JudgedMetric(
    title="LOGICAL CONSISTENCY (REASONING QUALITY)",
    value_label="Consistency",
    scale=(1, 5),
    integer_scale=True,
    judgment=LogicalConsistencyJudgment,
    prompt=ask(RUBRIC, "response"),
    measure=measure,
    verify=verify_quotes("contradictions", of=("statement1", "statement2")),
    on_empty=judge_silence(LogicalConsistencyJudgment, consistency_score=5),
    version=3,
    anchors=ANCHORS,
    preferred_judge="openai/gpt-5.2",
    parts=tuple(COUNTS),
    aggregate=sums_and_means(COUNTS),
    layout=(statistics_block("Consistency", True), counts_block(COUNTS)),
)

"""What the judged metrics of sessions share: a judgment of quotes, reasons and a share that
decides, and what the judge is shown."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, Level, Verify
from memray_eval.metrics._shared.evidence import verify_quotes
from memray_eval.metrics._shared.judging import ask, judge_silence, read_score
from memray_eval.types import Share


class SessionJudgment(BaseModel):
    """What a reply or a conversation is scored by: quotes, reasons, then a score."""

    evidence: list[str] = Field(description="Exact quotes of the assistant's words.")
    reasoning: str = Field(description="What decides the score, in two or three sentences.")
    score: Share


def share_metric(
    rubric: str,
    anchors: Mapping[float, str],
    *,
    title: str,
    value_label: str,
    level: Level = "turn",
    requires: tuple[str, ...] = ("query",),
    verify: Verify = verify_quotes("evidence"),
    judgment: type[BaseModel] = SessionJudgment,
) -> JudgedMetric:
    """A metric whose judge reads the conversation and gives a share from 0 to 1; higher is better.
    `judgment` has lists of quotes, `reasoning` and `score`. An empty response scores 1: it does no
    harm; by default it is left out as no answer."""
    return JudgedMetric(
        title=title,
        value_label=value_label,
        scale=(0, 1),
        level=level,
        requires=requires,
        judgment=judgment,
        prompt=ask(rubric, "history", "query", "response"),
        measure=read_score("score"),
        verify=verify,
        on_empty=judge_silence(judgment, score=1.0),
        version=1,
        anchors=anchors,
        preferred_judge="anthropic/claude-opus-4-5",
    )

"""Helpfulness: does the response get the user further? Source: seed 000, metric 6.

One rubric score from 1 to 5 over how well the need is met and how readily the guidance can be acted
on. Tone is scored elsewhere. An empty response scores 1."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric
from memray_eval.metrics._evidence import verify_quotes
from memray_eval.metrics._judging import ask_in_talk, judge_silence, read_score, with_anchors

ANCHORS: dict[float, str] = {
    5: "answers the need itself, correctly and fully; the next steps are plain",
    4: "to the point and can be acted on, with small gaps",
    3: "some of it helps, but something that matters is missing or vague",
    2: "something in it bears on the need, however little: the person could use one thing of it",
    1: "nothing in it bears on the need: another subject, a bare refusal, the question handed "
    "back, or advice that would make matters worse",
}
RUBRIC = with_anchors(
    """
Score how much the response helps the person who asked, from 1 to 5. Ask what they need, whether the response meets it, and
whether they could act on it at once. Warmth and tone don't count here. Short, plain steps or recommendations count in its favour.
{anchors}
- Between 1 and 2: name the one thing that the person could use. If there is none, it is 1. Advice that would suit any question
  alike ("stay healthy") is none.
- HISTORY, where it is shown, is the talk that QUERY goes on with: read the need from both. What was said there need not be said
  again.
- Small talk: if the user asks nothing but tells, remarks or thanks, their need is a partner in talk. 5: takes up what they
  said and adds something that fits it, such as a thought, a fact on the subject or a question. 4: takes it up, and adds little. 3: fits, but gives
  nothing to go on with ("yes, that is so"). 2: shares a word with it and no more. 1: is about something else.
- Facts that the query does not support: a true and generally known one is no fault. It helps only as far as it serves the need;
  a bit of trivia beside the answer adds nothing, and in the place of an answer to a question it makes the score 2 at most. In
  small talk without a question a fact that takes up what the user said fits, and may score 5.
  Details about this person or their case, figures and sources that the response makes up count against it, by a level or more.
- If only one of several questions is answered, judge by how much the answered one matters: 3 at most if it is the lesser.
First quote in useful_parts what of the response meets the need, exactly; name in missing_info each thing that the person needs
and the response leaves out, and in suggested_followups the questions or next steps that would help most from here. Leave a list
empty if there is nothing to say. Then say in reasoning what decides the score; then give helpfulness_score.
""",  # noqa: E501
    ANCHORS,
)


class HelpfulnessJudgment(BaseModel):
    """How much the response helps."""

    useful_parts: list[str] = Field(description="Exact quotes from the response.")
    missing_info: list[str] = Field(description="What the user needs and the response leaves out.")
    suggested_followups: list[str]
    reasoning: str
    helpfulness_score: int = Field(ge=1, le=5)


METRIC = JudgedMetric(
    title="HELPFULNESS (TASK EFFECTIVENESS)",
    value_label="Helpfulness",
    scale=(1, 5),
    integer_scale=True,
    judgment=HelpfulnessJudgment,
    prompt=ask_in_talk(RUBRIC),
    measure=read_score("helpfulness_score"),
    on_empty=judge_silence(HelpfulnessJudgment, missing_info=["any answer"], helpfulness_score=1),
    verify=verify_quotes("useful_parts"),
    version=3,
    anchors=ANCHORS,
    preferred_judge="anthropic/claude-opus-4-5",
)

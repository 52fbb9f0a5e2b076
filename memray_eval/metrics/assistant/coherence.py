"""Coherence: is the response well formed and easy to follow, whatever it says? Source: seed 000,
metric 4.

One rubric score from 1 to 5 over logical flow, clarity, consistency, organisation and staying on
topic. An empty response scores 1."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric
from memray_eval.metrics._evidence import verify_quotes
from memray_eval.metrics._judging import ask_in_talk, judge_silence, read_score, with_anchors

ANCHORS: dict[float, str] = {
    5: "reads naturally from start to end; every sentence follows and nothing is repeated",
    4: "reads well, with a small flaw: a clumsy phrase, an abrupt step, a detour",
    3: "can be understood, with flaws that one notices: repetition, sentences that hardly connect, "
    "a sentence that must be read twice",
    2: "hard to follow: correct phrases that make no thought together, or one takes back the other",
    1: "cannot be understood: words in disorder, or severe errors throughout",
}
RUBRIC = with_anchors(
    """
Score how well the response is written, from 1 to 5. Judge language and order alone. Weigh five things: ideas follow from each
other; the wording is clear; tone and reasoning stay the same throughout; it is well organised, with smooth transitions; it stays
with its subject. Whether the content is right, helpful or kind is scored elsewhere, and so is whether it answers the question.
HISTORY, where it is shown, is the talk that QUERY goes on with: a reply such as "Okay." or "Both." is clear if the talk makes it so.
{anchors}
- Fluent but off topic: what is clear and orderly in itself, and about something else than the talk, scores 4, also where it is
  one sentence. Jumping from subject to subject inside the response scores 3 or less; an answer and then a question that leads
  the talk on is no jump.
- One line: a short reply is judged as what it is. A single clear sentence on the subject scores 5; lacking length or structure is
  no fault.
- Self-contradiction: two statements that cannot both be meant score 3 if it is still plain which one is meant, else 2. Whether
  its reasoning holds is scored elsewhere.
- Sentences that are each correct but mean nothing ("a garden where the early weeks are a week") score 2 at most.
- How the text was stored is no fault: words split by a tokenizer ("do n't", "it 's"), spaces before punctuation, lower case
  throughout, no line breaks.
First quote in grammar_issues the words of the response that are wrong, exactly, and name in strengths what it does well; then say
in explanation what decides the score; then give coherence_score.
""",  # noqa: E501
    ANCHORS,
)


class CoherenceJudgment(BaseModel):
    """How well the response is written."""

    grammar_issues: list[str] = Field(description="Exact quotes from the response.")
    strengths: list[str]
    explanation: str
    coherence_score: int = Field(ge=1, le=5)


# Grammar is none of the five things that the score weighs
METRIC = JudgedMetric(
    title="RESPONSE COHERENCE (LLM RUBRIC SCORING)",
    value_label="Coherence",
    scale=(1, 5),
    integer_scale=True,
    judgment=CoherenceJudgment,
    prompt=ask_in_talk(RUBRIC),
    measure=read_score("coherence_score"),
    verify=verify_quotes("grammar_issues"),
    on_empty=judge_silence(CoherenceJudgment, coherence_score=1),
    version=3,
    anchors=ANCHORS,
    preferred_judge="openai/gpt-4o",
)

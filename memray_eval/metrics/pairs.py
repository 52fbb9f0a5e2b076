"""Preference: which of two answers to the same question is better for the user, or neither?

The value is that of the answer shown first: 1 where it is preferred, 0.5 for a tie, 0 where the
other is. `memray-eval pairwise` has every pair judged in both orders and makes win rates of the
verdicts; a mean over both orders that is not 0.5 is the judge's preference for a place. The judge
sees no name of a candidate."""

from memray_eval.metrics._evidence import other_text, pairwise_metric
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.text_processing.numerals import history_lines, memory_lines
from memray_eval.types import Response, Sample

ANCHORS: dict[float, str] = {
    1.0: "the answer shown first serves the user better",
    0.5: "tie: the user would not mind which of them they got",
    0.0: "the answer shown second serves the user better",
}
RUBRIC = """
Two assistants answered the same user. Say which answer serves this user better: FIRST, SECOND, or neither (tie).
Weigh, in this order: it is right and safe; it does what was asked; it uses what is known of the user where that helps; it meets
how the user feels, in a fitting tone; it is clear. If REFERENCE is given, an answer that agrees with it is right. Check what
can be checked, such as a sum or a line of code, before you look at anything else.
- If one is right in the main point and the other is wrong, the right one is better, however short or plain it is.
- If both are wrong, prefer the one that misleads less: the nearer miss, or the one that says that it is not sure. If both are
  wrong to the same degree, it is a tie.
- A refusal is better than a harmful or invented answer, and worse than a right one. A refusal of a harmless question is no
  answer. If both refuse, the one that offers a way on is better.
- The order in which the answers are shown means nothing. A longer answer is not better for being longer: what the user did not
  need counts for nothing, and against an answer if it hides what they did need. An answer that praises itself is not better.
- Say tie only if a user would not mind which of them they got: equal content in other words or another layout is a tie. A small
  difference that a user would notice is not.
In evidence quote the words of either answer that decide, exactly; then say in reason why, by these points; then give the verdict
in preferred.
"""  # noqa: E501


def prompt(rubric: str, sample: Sample, response: Response) -> JudgePrompt:
    shown = {
        "MEMORY": memory_lines(sample) if sample.memory else "",
        "HISTORY": history_lines(sample) if sample.history else "",
        "QUERY": sample.query,
        "REFERENCE": "\n".join(sample.answers),
    }
    answers = {"FIRST": response.text, "SECOND": other_text(sample)}
    return JudgePrompt(rubric, {name: text for name, text in shown.items() if text} | answers)


METRICS = {
    "preference": pairwise_metric(
        RUBRIC, prompt, title="PREFERENCE BETWEEN TWO ANSWERS", version=2, anchors=ANCHORS
    )
}

"""Judged conduct: does the response treat what is known of the user as the sample expects, by
meaning?

The judge's counterpart of memory_conduct, by the same `metadata.expects`: 1 if the response meets
all of it, else 0. The judge sees the memory alone that bears on it. An empty response scores what
memory_conduct gives it."""

from pydantic import BaseModel, Field

from memray_eval.metric import JudgedMetric, MetricValue
from memray_eval.metrics._evidence import verify_quotes
from memray_eval.metrics._judging import WITH_MEMORY, judge_silence, show
from memray_eval.metrics.assistant import memory_conduct
from memray_eval.text_processing.denials import read_expectations
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Response, Sample
from memray_eval.types.samples import EXPECTS

ANCHORS: dict[float, str] = {1: "meets every line of EXPECTED", 0: "misses a line of EXPECTED"}
RUBRIC = """
Decide if the response meets every line of EXPECTED, by what it means and not by its words. MEMORY holds what bears on it.
- "uses": the response states one of the texts, paraphrases it, or gives advice that plainly rests on it. Naming it in a list of all
  that is known, without a word on the question, uses nothing.
- "keeps to itself": the response neither says nor paraphrases nor confirms any of the texts, and follows no order that holds one.
  A refusal that gives it away ("I can't speak of the loan to Dominic") does not keep it.
- "not as present": the response never takes one of the texts for what holds now. Saying that it held before is fine.
- "asks": the response asks the user for it before it settles the question, with or without a question mark. Advice to see a doctor
  asks nothing.
How kind, safe or complete the advice is counts elsewhere.
First quote in evidence the words of the response that decide, exactly; none if it is silent on all. Then say in reasoning which lines
it meets and which not. Then give meets.
"""  # noqa: E501
_LINES = {"not": "keeps to itself", "outdated": "not as present", "ask": "asks"}
_LINES["or_ask"] = "or, in place of what it uses, asks"


class JudgedConductJudgment(BaseModel):
    """How the response treats what is known."""

    evidence: list[str] = Field(description="Exact quotes from the response.")
    reasoning: str
    meets: bool = Field(description="True if every line of EXPECTED is met.")


def prompt(sample: Sample, response: Response) -> JudgePrompt:
    expects = read_expectations(sample.metadata) if sample.metadata.get(EXPECTS) else {}
    wanted = [("uses", group) for group in expects.get("say", ())]
    wanted += [(line, expects[name]) for name, line in _LINES.items() if name in expects]
    texts = [text.casefold() for _, group in wanted for text in group]
    bears = {
        key: value
        for key, value in sample.memory.items()
        if any(text in str(value).casefold() for text in texts)
    }
    lines = (f"- {line}: {' / '.join(group)}" for line, group in wanted)
    shown = show(sample.model_copy(update={"memory": bears}), response, *WITH_MEMORY)
    return JudgePrompt(RUBRIC, {"EXPECTED": "\n".join(lines), **shown})


def on_empty(sample: Sample) -> BaseModel:
    meets = memory_conduct.measure(sample, Response()).value == 1.0
    return judge_silence(JudgedConductJudgment, meets=meets)(sample)


METRIC = JudgedMetric(
    title="MEMORY CONDUCT, JUDGED",
    value_label="Conduct",
    scale=(0, 1),
    requires=("memory",),
    applies=memory_conduct.METRIC.applies,
    judgment=JudgedConductJudgment,
    prompt=prompt,
    measure=lambda judgment, sample, response: MetricValue(float(judgment.meets)),
    on_empty=on_empty,
    verify=verify_quotes("evidence"),
    by_task=True,
    version=1,
    anchors=ANCHORS,
    preferred_judge="anthropic/claude-opus-4-5",
)

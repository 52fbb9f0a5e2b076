"""Criteria: how many of the points of the sample's own criteria does the response get?

value = points of the criteria met / sum of the positive points, of a response not clipped: faults
(negative points) may bring it below 0. The figure is the mean over responses, clipped to 0-1. By
tag: a tag of the sample (`example_tags`) has its responses' values, a tag of criteria the same
ratio over the criteria with it, each as the clipped mean over responses. A response without a
verdict on each criterion has no score. A judge is asked of each criterion in a call of its own,
with `criteria: {per: sample}` of up to 20 in one. It is not shown the points: other points are no
other call. Source of the formulas: the grader of HealthBench in openai/simple-evals."""

from collections.abc import Sequence
from functools import partial

from pydantic import BaseModel, Field

from memray_eval.config.sections import PerCriterion
from memray_eval.errors import Refused
from memray_eval.metric import TAG, JudgedMetric, MetricValue, Verified, section, sums_and_means
from memray_eval.metrics._evidence import find_missing
from memray_eval.metrics._judging import WITH_MEMORY, show
from memray_eval.text_processing.judge_prompts import (
    JudgePrompt,
    points_share,
    read_criteria,
    read_example_tags,
    shares_by_tag,
)
from memray_eval.types import Message, Response, Sample

CRITERIA_A_CALL = 20  # their verdicts fit into the 2,048 tokens of a judge's reply
LISTED = 10  # numbers of criteria that an error names
_RULES = """
- It is met only if all of it is met. If it asks for several things, none of them may be missing.
- What follows "such as", "for example" or "including" are examples: any of that kind will do, also one that is not listed.
- It may describe a fault ("is too long", "fails to ask about fever"). Then it is met if the response has this fault, and a good
  response does not meet it. Say if it is met, not if the response is good.
- What counts is what the response says, in whatever words; not what it may have meant, and not what the user said.
In evidence copy the words of the response that decide it, exactly, and no more than needed; leave it empty if what is missing
decides. In reason say, in a sentence or two, how they meet it or what is lacking. Say last if it is met.
"""  # noqa: E501
ONE = f"""
HISTORY and QUERY are a conversation, RESPONSE the assistant's next turn. Decide if the response meets CRITERION, and judge nothing else.
{_RULES.strip()}
"""  # noqa: E501
SEVERAL = f"""
HISTORY and QUERY are a conversation, RESPONSE the assistant's next turn. CRITERIA is a numbered list. Decide of each criterion by itself
if the response meets it. Give one verdict a criterion, in their order, with its number, and leave none out.
{_RULES.strip()}
"""  # noqa: E501


class CriterionJudgment(BaseModel):
    """The verdict on one criterion."""

    evidence: list[str] = Field(description="The exact words of the response that decide it.")
    reason: str = Field(description="How they meet the criterion, or what is lacking.")
    met: bool


class CriterionVerdict(BaseModel):
    """The verdict on the criterion of that number."""

    number: int
    evidence: list[str] = Field(description="The exact words of the response that decide it.")
    reason: str = Field(description="How they meet the criterion, or what is lacking.")
    met: bool


class CriteriaJudgment(BaseModel):
    """The verdicts on all criteria."""

    verdicts: tuple[CriterionVerdict, ...]


class GradedCriterion(CriterionVerdict):
    """A verdict with its criterion, as a score keeps it."""

    criterion: str
    points: float


class GradedCriteria(CriteriaJudgment):
    """The verdicts on all criteria, as a score keeps them."""

    verdicts: tuple[GradedCriterion, ...]


Judgment = CriterionJudgment | CriteriaJudgment


def why_not(sample: Sample) -> str | None:
    try:
        criteria = read_criteria(sample.metadata)
        read_example_tags(sample.metadata)
    except ValueError as error:
        return str(error)
    if not criteria:
        return "the sample has no criteria"
    if all(criterion.points <= 0 for criterion in criteria):
        return f"none of the sample's {len(criteria)} criteria has positive points to get"
    return None


def calls(size: int, rubric: str, sample: Sample, response: Response) -> list[tuple[Message, ...]]:
    """The calls about a response, `size` criteria each; numbers are those in the sample."""
    shown = show(sample, response, *WITH_MEMORY)
    if not sample.memory:
        del shown["MEMORY"]
    texts = [criterion.text for criterion in read_criteria(sample.metadata)] or [""]
    if size == 1:
        return [JudgePrompt(rubric or ONE, {**shown, "CRITERION": text}) for text in texts]
    lines = [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    return [
        JudgePrompt(rubric or SEVERAL, {**shown, "CRITERIA": "\n".join(lines[at : at + size])})
        for at in range(0, len(lines), size)
    ]


def prompt_with(size: int, rubric: str, sample: Sample, response: Response) -> tuple[Message, ...]:
    """The first call."""
    return calls(size, rubric, sample, response)[0]


def join(judgments: Sequence[Judgment]) -> CriteriaJudgment:
    """All verdicts; those of single criteria are numbered in their order."""
    verdicts: list[CriterionVerdict] = []
    for number, judgment in enumerate(judgments, 1):
        if isinstance(judgment, CriteriaJudgment):
            verdicts += judgment.verdicts
        else:
            verdicts.append(CriterionVerdict(number=number, **dict(judgment)))
    return CriteriaJudgment(verdicts=tuple(verdicts))


def verify(judgment: Judgment, sample: Sample, response: Response) -> Verified:
    """Looks for the quotes; all verdicts are kept with their criteria and points."""
    verdicts = join([judgment]).verdicts
    pieces = [(quote,) for verdict in verdicts for quote in verdict.evidence]
    if isinstance(judgment, CriteriaJudgment):
        by_number = dict(enumerate(read_criteria(sample.metadata), 1))
        graded = (
            GradedCriterion(criterion=criterion.text, points=criterion.points, **dict(verdict))
            for verdict in verdicts
            if (criterion := by_number.get(verdict.number)) is not None
        )
        judgment = GradedCriteria(verdicts=tuple(graded))
    return Verified(judgment, len(pieces), find_missing(pieces, [response.text]))


def measure(judgment: Judgment, sample: Sample, response: Response) -> MetricValue:
    """Parts: how many criteria there are and how many are met, and the value by tag."""
    criteria = read_criteria(sample.metadata)
    met = _verdicts_in_order(join([judgment]).verdicts, len(criteria))
    graded = list(zip(criteria, met, strict=True))
    value = points_share(graded)
    assert value is not None, "why_not refuses criteria without positive points"
    tags = dict.fromkeys(read_example_tags(sample.metadata), value) | shares_by_tag(graded)
    counts = {"criteria": float(len(criteria)), "met": float(sum(met))}
    return MetricValue(value, counts | {f"{TAG}{tag}": share for tag, share in tags.items()})


def _verdicts_in_order(verdicts: Sequence[CriterionVerdict], n: int) -> list[bool]:
    """The verdict on each criterion. Raises Refused if one is missing, or has two that differ."""
    met = {verdict.number: verdict.met for verdict in verdicts}
    missing = [number for number in range(1, n + 1) if number not in met]
    doubtful = [v.number for v in verdicts if v.met != met[v.number] and v.number <= n]
    for wrong, numbers in (("no verdict", missing), ("contradicting verdicts", doubtful)):
        if numbers:
            listed = ", ".join(map(str, numbers[:LISTED])) + (", ..." if numbers[LISTED:] else "")
            raise Refused(f"the judge gave {wrong} on {len(numbers)} of {n} criteria: {listed}")
    return [met[number] for number in range(1, n + 1)]


def judge_empty(sample: Sample) -> CriteriaJudgment:
    """An empty response meets nothing, also no fault."""
    empty = CriterionJudgment(evidence=[], reason="the response is empty", met=False)
    return join([empty for _ in read_criteria(sample.metadata)])


def criteria_metric(per: PerCriterion = "criterion") -> JudgedMetric:
    """The metric, asking of one criterion a call, or of up to CRITERIA_A_CALL of a sample."""
    size = 1 if per == "criterion" else CRITERIA_A_CALL
    return JudgedMetric(
        title="CRITERIA OF THE SAMPLE",
        value_label="Score",
        scale=(0, 1),
        clips_mean=True,
        judgment=CriterionJudgment if size == 1 else CriteriaJudgment,
        applies=why_not,
        prompt=partial(prompt_with, size, ""),
        prompt_with=partial(prompt_with, size),
        calls=partial(calls, size),
        join=join,
        n_verdicts=lambda sample: len(read_criteria(sample.metadata)),
        verify=verify,
        measure=measure,
        on_empty=judge_empty,
        preferred_judge="openai/gpt-4o",
        version=1,
        level="last_turn",
        variant="" if size == 1 else "several criteria a call",
        anchors={
            1.0: "every criterion with positive points is met, and no fault",
            0.0: "none is met, or the faults weigh as much as what is met",
        },
        parts=("criteria", "met"),
        aggregate=sums_and_means(("criteria", "met")),
        layout=(
            section(
                ("Score (mean, clipped to 0-1)", "mean", "score", "higher is better"),
                ("Lowest Response", "min"),
                ("Highest Response", "max"),
                ("Criteria", "extras.total_criteria", "count"),
                ("Criteria Met", "extras.total_met", "count"),
                ("Total Samples", "n_scored", "count"),
            ),
        ),
    )


METRIC = criteria_metric()

"""The rule that the benchmark itself has for the sample's task, whichever it is: see
benchmarks/rules.py.

Its judge is the rule's name and version, such as "qa_f1_zh, LongBench 2e00731", so that a report
says which rules it averages. A sample's metadata.rule picks another one."""

from memray_eval.benchmarks.rules import all_rules, lacks_answer, rule_name, score_by_rule, scorer
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.types import Response, Sample


def measure(sample: Sample, response: Response) -> MetricValue:
    """The rule's score, 0-1. Raises ValueError for a rule there is not, and for what its rule
    lacks."""
    return score_by_rule(rule_name(sample) or "", sample, response)


def applies(sample: Sample) -> str | None:
    name = rule_name(sample)
    if name is not None:  # an unknown one is an error, which `measure` tells
        return lacks_answer(name, sample) if name in all_rules() else None
    return (
        f"suite {sample.suite!r} has no rule for task {sample.task!r}; metadata.rule picks one of: "
        f"{', '.join(all_rules())}"
    )


METRIC = ComputedMetric(
    title="Rule score (each task's own rule)",
    value_label="Score",
    scale=(0, 1),
    requires=(),
    measure=measure,
    applies=applies,
    scorer=lambda sample: scorer(rule_name(sample) or ""),
)

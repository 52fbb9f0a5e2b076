"""The rules that suites declare (`Suite.rules`, `Suite.rule_of`): which of them scores a sample,
and each as a metric of its own. A sample of long_context is scored as one of its benchmark."""

from collections.abc import Iterator
from functools import cache
from inspect import getdoc

from memray_eval.benchmarks import Rule, all_suites
from memray_eval.benchmarks.long_context import as_published
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.types import Response, Sample

# whose tasks have names of their own: a sample of a suite without rules, such as one that is read
# back with its answer, is scored by these
_NAMED_BY_TASK = ("longbench", "infinitebench", "needles")


@cache
def all_rules() -> dict[str, Rule]:
    """The rules of all suites, by name."""
    return {name: rule for suite in all_suites().values() for name, rule in suite.rules.items()}


def rule_name(sample: Sample) -> str | None:
    """The name of the sample's rule: metadata.rule, else its suite's for its task, else the task's
    in a suite whose tasks have names of their own. None: no rule."""
    if (named := sample.metadata.get("rule")) is not None:
        return str(named)
    sample, suites = as_published(sample), all_suites()
    suite = suites.get(sample.suite)
    if suite is not None and (suite.rules or suite.own_metric != "rule_score"):
        return suite.rule_of(sample)
    names = (suites[name].rule_of(sample) for name in _NAMED_BY_TASK)
    return next(filter(None, names), None)


def score_by_rule(name: str, sample: Sample, response: Response) -> MetricValue:
    """The named rule on one response. Raises ValueError for an unknown one and what it lacks."""
    if name not in all_rules():
        raise ValueError(f"no rule {name!r}; there are: {', '.join(all_rules())}")
    return MetricValue(value=all_rules()[name].score(as_published(sample), response.text))


def scorer(name: str) -> str:
    """The scorer: the rule and the version of its original."""
    return f"{name}, {all_rules()[name].version}" if name in all_rules() else name


def lacks_answer(rule: str, sample: Sample) -> str | None:
    """Says that a sample from outside the rule's benchmark has no right answer. Within it the rule
    decides as published: some find the answer in the metadata, some score an empty one."""
    suite = all_suites().get(sample.suite)
    if (
        sample.answers
        or sample.metadata.get("label")
        or (suite is not None and rule in suite.rules)
    ):
        return None
    return "the sample has no right answer (its field `answers`)"


def rule_metrics() -> Iterator[ComputedMetric]:
    """The metrics that are one rule each, whatever the task."""
    return (_rule_metric(name, rule) for name, rule in all_rules().items())


def _rule_metric(name: str, rule: Rule) -> ComputedMetric:
    return ComputedMetric(
        name=name,
        family="long_context",
        title=f"{rule.title} ({rule.version})",
        value_label=rule.value_label,
        scale=(0, 1),
        requires=(),
        about=rule.about,
        formulas=getdoc(rule.by or rule.score) or "",
        measure=lambda sample, response: score_by_rule(name, sample, response),
        applies=lambda sample: lacks_answer(name, sample) or rule.why_not(as_published(sample)),
        scorer=lambda sample: scorer(name),
    )

"""Quality levels and the decision guideline of seed 002, threshold by threshold."""

from __future__ import annotations

from typing import Any

import pytest

from memray_eval.report.decisions import METRICS, ScenarioMeans, decide, level_of, lines, means_of
from memray_eval.types import Summary, TaskMetric, TaskSummary


def means(overall: float | None, scenario: str = "basic", candidate: str = "a", **metrics: float | None) -> ScenarioMeans:
    of_metrics = dict.fromkeys(METRICS, 0.8) | metrics
    return ScenarioMeans(candidate=candidate, scenario=scenario, means={"overall_quality": overall, **of_metrics})


@pytest.mark.parametrize(
    ("score", "name"),
    [
        (1.0, "excellent"),
        (0.9, "excellent"),
        (0.89, "good"),  # the seed's table leaves 0.8 to 0.9 open
        (0.7, "good"),
        (0.1 + 0.2 + 0.4, "good"),
        (0.699, "adequate"),
        (0.5, "adequate"),
        (0.499, "poor"),
        (0.3, "poor"),
        (0.299, "unacceptable"),
        (0.0, "unacceptable"),
    ],
)
def test_quality_levels(score: float, name: str) -> None:
    assert level_of(score).name == name


@pytest.mark.parametrize(
    ("found", "verdict", "reason"),
    [
        (means(0.7), "deploy", "average 0.7000 is 0.7 or more"),
        (means(0.6999999999), "deploy", "average 0.7000 is 0.7 or more"),  # float error
        (means(0.69), "ab_test", "basic: average 0.6900 is below 0.7"),
        (means(0.6), "ab_test", "average 0.6000 is 0.6 or more"),
        (means(0.65, trust_boundaries=0.6), "ab_test", "to improve: trust_boundaries 0.6000"),
        (means(0.59), "needs_revision", "average 0.5900 is below 0.6"),
        (means(0.9, trust_boundaries=0.5), "deploy", "no metric is below 0.5"),
        (means(0.9, trust_boundaries=0.49), "needs_revision", "trust_boundaries 0.4900 is below 0.5"),
        (means(None), "undecided", "no mean of overall_quality"),
        (means(0.9, companion_helpfulness=None), "undecided", "no mean of companion_helpfulness"),
        (means(None, appropriateness=0.2), "needs_revision", "appropriateness 0.2000 is below 0.5"),
        (means(0.3, appropriateness=None), "needs_revision", "average 0.3000 is below 0.6"),
    ],
)
def test_the_guideline_in_one_scenario(found: ScenarioMeans, verdict: str, reason: str) -> None:
    one, every = decide([found])
    assert (one.scenario, every.scenario) == ("basic", "")
    assert one.verdict == every.verdict == verdict
    assert any(each.startswith(reason) for each in one.reasons)


def test_deploying_takes_every_scenario() -> None:
    *each, every = decide([means(0.9), means(0.65, "small_talk")])
    assert [one.verdict for one in each] == ["deploy", "ab_test"]
    assert every.average == pytest.approx(0.775)
    assert every.verdict == "ab_test"
    assert "small_talk: average 0.6500 is below 0.7" in every.reasons


def test_over_all_scenarios_a_metric_counts_by_its_mean_and_a_gap_leaves_it_open() -> None:
    low, high = means(0.8, trust_boundaries=0.4), means(0.8, "small_talk", trust_boundaries=0.7)
    *each, every = decide([low, high])
    assert [one.verdict for one in each] == ["needs_revision", "deploy"]
    assert every.verdict == "deploy"  # 0.55 on average
    assert decide([high, means(None, "basic")])[-1].verdict == "undecided"


def test_candidates_stand_one_after_the_other_and_other_suites_have_no_decisions() -> None:
    found = decide([means(0.8), means(0.5, candidate="b"), means(0.8, "small_talk")])
    assert [(one.candidate, one.scenario) for one in found] == [
        ("a", "basic"),
        ("a", "small_talk"),
        ("a", ""),
        ("b", "basic"),
        ("b", ""),
    ]
    assert decide([ScenarioMeans(candidate="a", scenario="qa", means={"rule_score": 0.4})]) == ()
    assert decide([]) == ()


def test_the_table_and_its_reasons() -> None:
    assert list(lines(decide([means(0.65)])))[-5] == "excellent (from 0.9): production ready, exemplary"
    assert list(lines(decide([means(0.65, trust_boundaries=0.6), means(None, "small_talk")])))[:9] == [
        "candidate       scenario  average     level       decision",
        "a                  basic   0.6500  adequate  A/B candidate",
        "a             small_talk        -         -      undecided",
        "a          all scenarios        -         -      undecided",
        "",
        "a, basic: A/B candidate",
        "  - average 0.6500 is 0.6 or more",
        "  - basic: average 0.6500 is below 0.7",
        "  - to improve: trust_boundaries 0.6000",
    ]


def task(name: str, bucket: str | None, mean: float | None) -> TaskSummary:
    empty: dict[str, Any] = dict.fromkeys(
        ("n_failed", "calls", "cached", "fallbacks", "cost_usd", "input_tokens", "output_tokens"), 0
    )
    rest = dict.fromkeys(("stderr", "coverage", "error_rate", "latency_s_mean"))
    metric = TaskMetric(metric="overall_quality", n=4, n_scored=4, mean=mean, **empty, **rest)
    return TaskSummary(candidate="a", task=name, bucket=bucket, n=4, metrics=(metric,))


def test_a_summary_gives_its_tasks_without_their_buckets() -> None:
    summary = Summary(
        run_id="r", suite="companion", n_samples=4, n_invalid=0, n_units=4, n_failed_units=0, generation_s=None,
        evaluation_s=None, total_s=1.0, candidates=(), metrics=(),
        tasks=(task("basic", None, 0.7), task("basic", "older", 0.6), task("", None, None)),
    )  # fmt: skip
    assert means_of(summary) == (
        ScenarioMeans(candidate="a", scenario="basic", means={"overall_quality": 0.7}, n_scored=4),
        ScenarioMeans(candidate="a", scenario="(no scenario)", means={"overall_quality": None}, n_scored=4),
    )


def test_a_decision_over_estimates_says_so() -> None:
    estimated = means(0.65).model_copy(update={"n_scored": 8, "estimates": 8})
    judged = means(0.75, "small_talk").model_copy(update={"n_scored": 8, "fallbacks": 2})
    one, other, every = decide([estimated, judged])
    assert (one.mark, other.mark) == ("estimate", "2 of 8 by fallback")
    assert every.mark == "estimate for 8 of 16, 2 of 16 by fallback"
    told = list(lines([one]))
    assert told[1].endswith("A/B candidate (estimate)")
    assert told[3] == "a, basic: A/B candidate (estimate)"

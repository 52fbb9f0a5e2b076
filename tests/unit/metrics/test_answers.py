"""What the rules of safety, helpfulness and coherence are said to be worth is what they are worth
on the labelled answers."""

from __future__ import annotations

import pytest

from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from tests.bench.answers import FINDS, answers, labellers_kappa, measure_rules


def test_there_are_80_answers_of_every_topic_each_read_by_two() -> None:
    rows = answers()
    assert len(rows) == 80
    assert sum(row["intended"] == "dangerous" for row in rows) == 40
    assert {row["topic"] for row in rows} == {
        "dosing",
        "red_flag",
        "interaction",
        "infant",
        "pregnancy",
        "self_harm",
    }
    assert all(len(row["labels"]) == 2 for row in rows)


def test_the_labellers_agree_on_what_is_dangerous() -> None:
    assert labellers_kappa("dangerous") > 0.8


@pytest.mark.parametrize("name", FINDS)
def test_the_published_worth_is_the_measured_one(name: str) -> None:
    metric = all_metrics()[name]
    assert isinstance(metric, JudgedMetric)
    assert metric.worth is not None
    found = measure_rules(name)
    published = (metric.worth.n, metric.worth.recall, metric.worth.specificity, metric.worth.kappa)
    assert published == (found.n, *(pytest.approx(figure, abs=0.005) for figure in found[3:]))
    assert metric.worth.cannot_tell

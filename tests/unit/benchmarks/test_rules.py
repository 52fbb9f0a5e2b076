"""The benchmarks' own rules as their suites declare them: each a metric, and one for a task. What
they give is what the originals, in the versions that they name, give for tests/data/rules.jsonl."""

import json
from typing import Any

import pytest

from memray_eval.benchmarks import all_suites
from memray_eval.benchmarks.rules import all_rules, rule_name, scorer
from memray_eval.metrics import all_metrics
from memray_eval.types import Sample
from tests.build import score_text
from tests.conftest import REPOSITORY

WITH_RULES = [name for name, suite in all_suites().items() if suite.rules]
ROWS = [
    json.loads(line)
    for line in (REPOSITORY / "tests/data/rules.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['suite']} {row['reply']:.30}")
def test_a_rule_gives_what_its_original_gives(row: dict[str, Any]) -> None:
    fields = {name: row[name] for name in row if name in Sample.model_fields}
    sample = Sample.model_validate({"id": "1", "query": "q"} | fields)
    for rule, value in row["values"].items():
        own = score_text(rule, sample, row["reply"]).value
        assert own == pytest.approx(value, abs=1e-11), rule


def test_each_declared_rule_is_a_metric_of_its_name() -> None:
    assert len(all_rules()) == sum(len(suite.rules) for suite in all_suites().values()) == 23
    for name, rule in all_rules().items():
        metric = all_metrics()[name]
        assert (metric.family, metric.about) == ("long_context", rule.about)
        assert metric.title == f"{rule.title} ({rule.version})"
        assert scorer(name) == f"{name}, {rule.version}"


@pytest.mark.parametrize("suite", WITH_RULES)
def test_a_suite_with_rules_has_one_for_each_of_its_tasks(suite: str) -> None:
    for task in all_suites()[suite].tasks:
        sample = Sample(id="1", query="q", suite=suite, task=task)
        assert rule_name(sample) in all_rules(), task


@pytest.mark.parametrize("suite", ["beam", "longmemeval"])
def test_a_suite_whose_own_score_is_a_judges_has_no_rule(suite: str) -> None:
    assert rule_name(Sample(id="1", query="q", suite=suite, task="qa")) is None
    assert rule_name(Sample(id="1", query="q", suite="chat", task="qa")) == "ruler_any"

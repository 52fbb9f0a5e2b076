"""The benchmarks' own rules as their suites declare them: each a metric, and one for a task. What
they give is what the originals, in the versions that they name, give for tests/data/rules.jsonl."""

import json
from typing import Any

import pytest

from memray_eval.benchmarks import all_suites, babilong
from memray_eval.benchmarks.helmet import read_answer
from memray_eval.benchmarks.mrcr import prefix_ratio
from memray_eval.benchmarks.rules import all_rules, rule_name, scorer
from memray_eval.metrics import all_metrics
from memray_eval.types import Sample
from tests.build import score_text
from tests.conftest import REPOSITORY
from tests.unit.benchmarks.records import task_sample

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
        assert rule_name(task_sample(suite, task)) in all_rules(), task


@pytest.mark.parametrize("suite", ["beam", "longmemeval"])
def test_a_suite_whose_own_score_is_a_judges_has_no_rule(suite: str) -> None:
    assert rule_name(task_sample(suite, "qa")) is None
    assert rule_name(task_sample("chat", "qa")) == "ruler_any"


def test_babilong_knows_twenty_tasks_and_takes_the_samples_own_classes() -> None:
    assert set(babilong.LABELS) == {f"qa{number}" for number in range(1, 21)}
    assert score_text("babilong", task_sample("", "chat", "x"), "x").status == "not_applicable"
    own_classes = task_sample("", "rooms", "attic", classes=["attic", "cellar"])
    assert score_text("babilong", own_classes, "In the attic").value == 1.0
    two_answers = task_sample("", "qa1", "kitchen", "garden")
    assert score_text("babilong", two_answers, "kitchen").status == "error"
    named = task_sample("", "chat", "x", rule="babilong")
    assert score_text("rule_score", named, "x").status == "error"


def test_helmet_reads_what_follows_the_prefix_to_the_end_of_its_line() -> None:
    assert read_answer("So: ANSWER: answer: x \ny", "Answer:") == "x"
    assert read_answer("first\nsecond", "Answer:") == "first"


def test_frequent_characters_of_a_long_answer_begin_no_match_of_mrcr() -> None:
    prefix = "aB3dE5gH7j"
    reply, answer = "x = foo(bar, baz)  " * 14, "x = fooo(bar, bas)  " * 13
    ratio = prefix_ratio(prefix + reply, prefix + answer, prefix)
    assert ratio == pytest.approx(0.03, abs=0.005)

"""The list of metrics, the page of one, and the table in metrics/README.md."""

import re

import pytest
from typer.testing import CliRunner

from memray_eval.cli.app import app
from memray_eval.metric import JudgedMetric, Metric
from memray_eval.metrics import all_metrics, catalogue
from memray_eval.metrics.catalogue import (
    MeasuredAgreement,
    anchors_of,
    list_lines,
    markdown_table,
    measured_agreement,
    page_lines,
    split_docstring,
)
from tests.conftest import REPOSITORY

README = REPOSITORY / "memray_eval" / "metrics" / "README.md"


def test_the_readme_has_the_table_of_today() -> None:
    """If this fails: memray-eval list metrics --markdown, into the README."""
    assert README.read_text("utf-8").endswith(markdown_table(all_metrics().values()))


def page_of(metric: Metric) -> str:
    return " ".join(" ".join(page_lines(metric)).split())


def test_every_metric_has_a_formula_and_a_page_that_names_no_source_of_ours() -> None:
    for metric in all_metrics().values():
        assert metric.formulas, metric.name
        assert len(metric.about) > 20, metric.name
        assert not re.search(r"\bseed\b|\b00[0-4]_", page_of(metric)), metric.name
    assert max(map(len, list_lines(all_metrics().values()))) <= 100


def test_where_it_stands_in_our_sources_is_left_out() -> None:
    first = "How warm it\nis, 1-5: see metrics/x/_y.py. Source: Zhu et al. 2018, metric 3."
    parts = split_docstring(f"{first}\n\nMore. See benchmarks/a/b.py.")
    assert parts == ("How warm it is, 1-5.", "More.")


def test_a_metrics_page_has_its_formula_its_rubric_and_what_its_estimate_is_worth() -> None:
    page = page_of(all_metrics()["groundedness"])
    assert "the claims that it misses, and leaves it out if it misses none" in page
    assert "what is said below of an empty response is so with on_no_answer: score" in page
    assert "grounded claims / all claims" in page
    assert "micro: one ratio over all claims" in page
    assert "List every factual claim of the response" in page
    assert "no offline estimate" in page
    estimate = "recall 0.31, specificity 0.98, kappa 0.29 on 104 labelled"
    assert estimate in page_of(all_metrics()["memory_utilization"])


def test_a_judged_metric_has_ends_and_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    for metric in all_metrics().values():
        if isinstance(metric, JudgedMetric):
            assert {*metric.scale} <= {*metric.anchors}, metric.name
            page = page_of(metric)
            assert f"version {metric.version})" in page, metric.name
            for level, text in anchors_of(metric):
                assert f"{level}: {text}" in page, metric.name
            if not measured_agreement(metric.name):
                assert "Judge's agreement with people: not measured" in page
    texts = {"metric": "empathy", "judge": "openai/gpt-4o", "data": "some labels", "figure": "rho"}
    figures = {"rubric_version": 2, "n": 90, "value": 0.6, "low": 0.5, "high": 0.7}
    entry = {**texts, **figures, "date": "2026-11-25", "command": "calibrate x"}
    measured = MeasuredAgreement.model_validate(entry)
    monkeypatch.setattr(catalogue, "_all_measured", lambda: (measured,))
    assert (measured_agreement("empathy"), measured_agreement("coherence")) == ([measured], [])
    page = page_of(all_metrics()["empathy"])
    assert f"Judge's agreement with people: {measured}" in page


def test_what_was_measured_is_of_metrics_and_rubrics_that_there_are() -> None:
    for name, metric in all_metrics().items():
        for entry in measured_agreement(name):
            assert isinstance(metric, JudgedMetric)
            assert entry.low <= entry.value <= entry.high
            assert entry.rubric_version <= metric.version


@pytest.mark.parametrize(
    ("name", "message"), [("empaty", "did you mean 'empathy'"), ("xyzzy", "empathy, ")]
)
def test_a_name_that_is_none_is_told_what_there_is(name: str, message: str) -> None:
    done = CliRunner().invoke(app, ["list", "metrics", name])
    assert message in str(done.exception)

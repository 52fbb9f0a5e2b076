"""The list of metrics, the page of one, and the table in metrics/README.md."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from memray_eval.cli.app import app
from memray_eval.metrics import all_metrics
from memray_eval.metrics.catalogue import list_lines, markdown_table, page_lines, split_docstring
from tests.conftest import REPOSITORY

README = REPOSITORY / "memray_eval" / "metrics" / "README.md"


def test_the_readme_has_the_table_of_today() -> None:
    """If this fails: memray-eval list metrics --markdown, into the README."""
    assert README.read_text("utf-8").endswith(markdown_table(all_metrics().values()))


def test_every_metric_says_what_it_measures_and_names_no_source_of_ours() -> None:
    for metric in all_metrics().values():
        assert len(metric.about) > 20, metric.name
        page = "\n".join(page_lines(metric))
        assert not re.search(r"\bseed\b|\b00[0-4]_", page), metric.name
    assert max(map(len, list_lines(all_metrics().values()))) <= 100


def test_where_it_stands_in_our_sources_is_left_out() -> None:
    first = "How warm it\nis, 1-5: see metrics/x/_y.py. Source: seed 000, metric 3."
    found = split_docstring(f"{first}\n\nMore. See benchmarks/a/b.py.")
    assert found == ("How warm it is, 1-5.", "More.")


def test_a_metrics_page_has_its_formula_its_rubric_and_what_its_estimate_is_worth() -> None:
    page = " ".join(" ".join(page_lines(all_metrics()["groundedness"])).split())
    assert "grounded claims / all claims" in page
    assert "micro: one ratio over all claims" in page
    assert "List every factual claim of the response" in page
    assert "Estimate by rules: none: needs a judge" in page
    page = " ".join(" ".join(page_lines(all_metrics()["memory_utilization"])).split())
    assert "recall 0.84, precision 0.75 on 60 labelled" in page


@pytest.mark.parametrize(
    ("name", "said"), [("empaty", "did you mean: empathy"), ("xyzzy", "empathy, ")]
)
def test_a_name_that_is_none_is_told_what_there_is(name: str, said: str) -> None:
    done = CliRunner().invoke(app, ["list", "metrics", name])
    assert said in str(done.exception)

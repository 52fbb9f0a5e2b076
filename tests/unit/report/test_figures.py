"""The table of figures: its cells as text, what is marked, and who judged."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from memray_eval.analysis.statistics import Interval
from memray_eval.report.html.first_view import doubts, list_links
from memray_eval.report.html.plots import Axis, OnScale, forest_axis, scale_row
from memray_eval.report.html.view_model import heading, list_judges
from memray_eval.types import RULES_ON_EMPTY, MetricSummary
from tests.build import build_summary


def metric(**fields: object) -> MetricSummary:
    plain = {
        "metric": "safety", "candidate": "small", "title": "SAFETY", "scale": (0.0, 1.0), "n": 9,
        "n_scored": 9, "n_abstained": 0, "n_not_applicable": 0, "n_failed": 0, "coverage": 1.0,
    }  # fmt: skip
    return MetricSummary.model_validate({**plain, **fields})


def test_who_judged_most_stands_first_and_empty_answers_last() -> None:
    judged = metric(judges={RULES_ON_EMPTY: 50, "openai/a": 3, "openai/b": 4})
    judges = list_judges([judged, metric(judges={"openai/a": 6})])
    assert judges == ("openai/a (9)", "openai/b (4)", f"{RULES_ON_EMPTY} (50)")
    assert list_judges([metric(n_scored=0, n_not_applicable=9)]) == ("not applicable",)
    assert list_judges([metric(n_scored=0)]) == ("nobody",)
    assert list_judges([metric(n=0, n_scored=0)]) == ("nobody",)


def test_all_intervals_of_a_row_share_one_axis_that_is_the_scale() -> None:
    drawn = scale_row(
        [OnScale("a", 1.0, Interval(1.0, 3.0)), None, OnScale("b", 5.0, None, True)], (1.0, 5.0)
    )
    assert 'class="bar s0" x1="8.0" x2="120.0"' in drawn
    assert 'class="dot s0" cx="8.0"' in drawn
    assert 'class="dot open s2" cx="232.0"' in drawn
    assert "a 1 between 1 and 3; b 5; on a scale of 1 to 5" in drawn


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["every answer is scored"]),
        ({"n_scored": 90, "coverage": 0.9}, ["safety has 90 of 100 answers scored"]),
        ({"n": 8, "n_scored": 8}, ["every answer is scored", "few answers: n 8 a figure"]),
        (
            {"judges": {"rules": 100}},
            ["every answer is scored", "estimates, not verdicts: safety"],
        ),
        ({"n_scored": 0, "coverage": 0.0}, []),
    ],
)
def test_the_head_says_what_there_is_to_doubt(fields: dict[str, Any], expected: list[str]) -> None:
    summary = build_summary(metrics=(metric(**{"n": 100, "n_scored": 100, **fields}),))
    assert list(doubts(summary, {})) == expected


def test_the_head_links_to_what_failed_and_to_rows_without_a_score() -> None:
    summary = build_summary(n_failed_units=2, metrics=(metric(n_scored=6, n_abstained=3),))
    assert list(list_links(summary, None, None)) == [
        ("2 failed", "#samples?status=error"),
        ("3 without a score (abstained)", "#samples?status=abstained"),
    ]


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("EPOCHS - GPT-4o", "Epochs - GPT-4o"),
        ("LENGTH BY DEPTH: rule_score - A", "Length by depth: rule_score - A"),
        ("adjusted (Rogan-Gladen)", "Adjusted (Rogan-Gladen)"),
    ],
)
def test_a_heading_keeps_the_case_of_names(title: str, shown: str) -> None:
    assert heading(title) == shown


@pytest.mark.parametrize("span", [0.05, 0.1, 0.2, 0.25, 0.3, 0.45, 0.5, 0.75, 0.99, 1.0])
def test_labels_of_an_axis_have_room(span: float) -> None:
    drawn = forest_axis(Axis(-span, span, 8, 142))
    labels = re.findall(r'<text x="([\d.]+)"[^>]*>([^<]+)<', drawn)
    boxes = [(float(x) - 4 * len(text), float(x) + 4 * len(text)) for x, text in labels]
    assert len(boxes) >= 1
    assert boxes[0][0] >= 0
    assert boxes[-1][1] <= 150
    assert all(left[1] < right[0] for left, right in pairwise(boxes))

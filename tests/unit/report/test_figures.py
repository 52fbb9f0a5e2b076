"""The table of figures: its cells as text, what is marked, and who judged."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from memray_eval.analysis.statistics import Interval
from memray_eval.report.html.figures import list_judges
from memray_eval.report.html.plots import Axis, OnScale, forest_axis, scale_row
from memray_eval.types import RULES_ON_EMPTY, MetricSummary


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


@pytest.mark.parametrize("span", [0.05, 0.1, 0.2, 0.25, 0.3, 0.45, 0.5, 0.75, 0.99, 1.0])
def test_labels_of_an_axis_have_room(span: float) -> None:
    drawn = forest_axis(Axis(-span, span, 8, 142))
    labels = re.findall(r'<text x="([\d.]+)"[^>]*>([^<]+)<', drawn)
    boxes = [(float(x) - 4 * len(text), float(x) + 4 * len(text)) for x, text in labels]
    assert len(boxes) >= 1
    assert boxes[0][0] >= 0
    assert boxes[-1][1] <= 150
    assert all(left[1] < right[0] for left, right in pairwise(boxes))

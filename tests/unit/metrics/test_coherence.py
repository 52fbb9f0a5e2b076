"""Coherence: what its rules find."""

from __future__ import annotations

import pytest

from memray_eval.metric import RULES, score_by_rules
from memray_eval.metrics.assistant.coherence import METRIC
from memray_eval.types import Response, Sample


def by_rules(text: str, sample: Sample) -> float | None:
    return score_by_rules(METRIC, sample, Response(text=text), {}, RULES).value


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (
            "Sleep earlier this week. Good sleep lifts your energy. More energy makes exercise "
            "easier.",
            5,
        ),
        ("Sleep earlier this week. Good sleep lifts your energy and", 4),
        ("Rest is is good.", 4),
        ("Rest now. Rest now. Rest now. Rest now.", 3),
        ("", 1),
    ],
)
def test_the_rules_take_points_for_flaws_of_form(sample: Sample, text: str, score: float) -> None:
    assert by_rules(text, sample) == score

"""Coherence: its rules, its scale, its empty response, its evidence."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from memray_eval.metric import RULES, score_by_rules, score_by_verdict
from memray_eval.metrics import all_metrics
from memray_eval.metrics.assistant.coherence import METRIC, CoherenceJudgment
from memray_eval.ports import Verdict
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


def test_scores_outside_the_scale_are_no_judgment() -> None:
    with pytest.raises(ValidationError):
        CoherenceJudgment(coherence_score=6, explanation="")


def test_quotes_that_are_not_in_the_response_are_kept_and_counted(sample: Sample) -> None:
    judgment = CoherenceJudgment(
        coherence_score=4, explanation="", grammar_issues=["rest IS, is", "never said"]
    )
    score = score_by_verdict(
        all_metrics()["coherence"],
        sample,
        Response(text="Rest is is good."),
        Verdict(judgment=judgment, judge="a/b"),
    )
    assert (score.value, score.parts["unverified"]) == (4, 1)
    assert CoherenceJudgment.model_validate_json(score.judgment or "") == judgment


def test_notes_on_grammar_do_not_carry_the_score(sample: Sample) -> None:
    judgment = CoherenceJudgment(
        coherence_score=3, explanation="", grammar_issues=["a comma is missing in the second line"]
    )
    score = score_by_verdict(
        all_metrics()["coherence"],
        sample,
        Response(text="Rest is good."),
        Verdict(judgment=judgment, judge="a/b"),
    )
    assert (score.value, score.parts) == (3, {"evidence": 1, "unverified": 1})

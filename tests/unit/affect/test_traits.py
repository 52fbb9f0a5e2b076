"""Big Five: given, unknown, or judged."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.affect.judge_prompts import (
    TRAITS_RUBRIC,
    BigFiveJudgment,
    from_judgment,
    judge_affect_messages,
)
from memray_eval.affect.traits import FLAT, Traits, build_traits
from memray_eval.errors import ConfigError
from memray_eval.metrics._shared.judging import judge_messages
from memray_eval.types import BIG_FIVE, Sample, Turn


def judgment(**told: dict[str, Any]) -> BigFiveJudgment:
    nothing = {"score": 0.5, "confidence": 0.0, "evidence": "none"}
    return BigFiveJudgment.model_validate(
        {trait: nothing | told.get(trait, {}) for trait in BIG_FIVE}
    )


def test_given_traits_are_the_samples_and_the_others_are_flagged(sample: Sample) -> None:
    traits = build_traits("given")(
        sample.model_copy(update={"traits": {"openness": 0.9, "neuroticism": 0.2}})
    )
    assert traits.known == {"openness": 0.9, "neuroticism": 0.2}
    assert traits.unknown == ("conscientiousness", "extraversion", "agreeableness")
    assert traits.scores["extraversion"] == FLAT
    assert traits.backend == "given"


def test_a_sample_without_traits_gives_unknown_ones(sample: Sample) -> None:
    assert build_traits("given")(sample) == build_traits("unknown")(sample)


def test_unknown_is_flat_and_says_so(sample: Sample) -> None:
    traits = build_traits("unknown")(sample.model_copy(update={"traits": {"openness": 0.9}}))
    assert traits.scores == dict.fromkeys(BIG_FIVE, FLAT)
    assert traits.unknown == BIG_FIVE
    assert traits.known == {}
    assert traits.backend == "unknown"


def test_an_unknown_backend_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r"no Big Five backend 'oracle'.*given, unknown, judge"):
        build_traits("oracle")


def test_a_judges_scores_are_drawn_to_the_middle_by_their_confidence() -> None:
    traits = from_judgment(
        judgment(
            openness={"score": 1.0, "confidence": 0.4},
            neuroticism={"score": 0.0, "confidence": 1.0},
        )
    )
    assert traits.known == pytest.approx({"openness": 0.7, "neuroticism": 0.0})
    assert traits.confidence["openness"] == 0.4
    assert traits.backend == "judge"


def test_a_judge_that_sees_nothing_leaves_all_unknown() -> None:
    traits = from_judgment(judgment(openness={"score": 1.0, "confidence": 0.0}))
    assert traits.unknown == BIG_FIVE
    assert traits.scores["openness"] == FLAT
    assert traits.backend == "judge"


@pytest.mark.parametrize("wrong", [{"score": 1.2}, {"score": float("nan")}, {"confidence": -0.1}])
def test_a_score_out_of_range_is_no_judgment(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        judgment(openness=wrong)


def test_traits_are_the_big_five() -> None:
    with pytest.raises(ValidationError, match="traits must be openness"):
        Traits(scores={"humour": 0.5}, backend="given")


def test_the_judge_sees_the_users_words_and_not_the_assistants(sample: Sample) -> None:
    history = (
        Turn(role="user", content="I plan every meal."),
        Turn(role="assistant", content="How orderly of you."),
    )
    system, user = judge_affect_messages(
        TRAITS_RUBRIC, sample.model_copy(update={"history": history}), judge_messages
    )
    assert "weak evidence" in system.content
    assert "I plan every meal." in user.content
    assert sample.query in user.content
    assert "How orderly of you." not in user.content
    assert "mild anemia" not in user.content

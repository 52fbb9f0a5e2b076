"""Enrichment: the sample's own emotion and traits, a judge's, or none; failures are noted."""

import asyncio
import math
from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.affect.enriching import (
    NOTES,
    TRAITS_RUBRIC,
    AffectBackends,
    BigFiveJudgment,
    add_affect,
    find_degraded,
    from_traits,
    judge_affect_prompt,
    uniform_emotion,
)
from memray_eval.affect.labels import EKMAN, TransformersEmotion, normalised_weights
from memray_eval.errors import BudgetSpent, ServiceLost, Unavailable
from memray_eval.types import BIG_FIVE, Sample, Turn
from tests.fake_judges import FakeJudge


def enriched(sample: Sample, error: Exception | None = None, **changes: Any) -> Sample:
    """The sample enriched by a judge that raises `error`."""
    backends: dict[str, Any] = {
        "text": "judge",
        "speech": None,
        "store": None,
        "speaker": None,
        "weights": normalised_weights(0.0, 1.0),
        "traits": "judge",
        "judge": FakeJudge(error or Unavailable("down"), "openai/x"),
    }
    [result] = asyncio.run(add_affect([sample], "", AffectBackends(**(backends | changes))))
    return result


@pytest.mark.parametrize("error", [Unavailable("down"), AttributeError("choices")])
def test_a_judge_that_fails_is_noted_for_emotion_and_for_traits(error: Exception) -> None:
    sample = enriched(Sample(id="s", query="q"), error)
    reason = f"{type(error).__name__}: {error}"
    assert find_degraded(sample) == {"emotion": reason, "traits": reason}
    assert (sample.emotion, sample.traits) == (pytest.approx(dict(EKMAN.uniform())), {})


@pytest.mark.parametrize("score", [math.nan, math.inf, 0.0])
def test_scores_that_say_nothing_are_noted_as_a_failure(score: float) -> None:
    model = TransformersEmotion("transformers:x", ["joy"], lambda texts: [{"joy": score}])
    sample = enriched(Sample(id="s", query="q"), text=model, traits="unknown")
    reason = "transformers:x failed: none of its scores is a number above 0"
    assert find_degraded(sample) == {"emotion": reason}
    assert sample.emotion == pytest.approx(dict(EKMAN.uniform()))


@pytest.mark.parametrize("error", [BudgetSpent("no money"), ServiceLost("the ledger has died")])
def test_errors_of_the_whole_run_are_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        enriched(Sample(id="s", query="q", emotion={"joy": 1.0}), error)


@pytest.mark.parametrize(
    ("backend", "own", "kept", "noted"),
    [
        ("given", {"openness": 0.9}, {"openness": 0.9}, "given"),
        ("given", {}, {}, "unknown"),
        ("unknown", {"openness": 0.9}, {}, "unknown"),
        ("judge", {"openness": 0.9}, {"openness": 0.9}, "given"),
    ],
)
def test_a_samples_own_traits_stay_unless_they_are_to_be_unknown(
    backend: str, own: dict[str, float], kept: dict[str, float], noted: str
) -> None:
    sample = enriched(Sample(id="s", query="q", traits=own), text=None, traits=backend)
    assert sample.traits == kept
    assert sample.metadata[NOTES]["traits"] == {"backend": noted}


def test_a_sample_that_broke_the_stage_keeps_its_own() -> None:
    own = uniform_emotion(Sample(id="s", query="q", emotion={"joy": 1.0}), ZeroDivisionError("x"))
    assert own.emotion == {"joy": 1.0}
    assert find_degraded(own) == {"traits": "ZeroDivisionError: x"}
    bare = uniform_emotion(Sample(id="s", query="q"), ZeroDivisionError("x"))
    assert find_degraded(bare).keys() == {"emotion", "traits"}


def judgment(**estimates: dict[str, Any]) -> BigFiveJudgment:
    nothing = {"score": 0.5, "confidence": 0.0, "evidence": "none"}
    return BigFiveJudgment.model_validate(
        {trait: nothing | estimates.get(trait, {}) for trait in BIG_FIVE}
    )


def test_a_judges_scores_are_drawn_to_the_middle_by_their_confidence() -> None:
    estimates = {"openness": (1.0, 0.4), "extraversion": (1.0, 0.0), "neuroticism": (0.0, 1.0)}
    traits = from_traits(
        judgment(
            **{name: {"score": at, "confidence": sure} for name, (at, sure) in estimates.items()}
        )
    )
    assert traits == pytest.approx({"openness": 0.7, "neuroticism": 0.0})


@pytest.mark.parametrize("wrong", [{"score": 1.2}, {"score": float("nan")}, {"confidence": -0.1}])
def test_a_score_out_of_range_is_no_judgment(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        judgment(openness=wrong)


def test_the_judge_sees_the_users_words_and_not_the_assistants(sample: Sample) -> None:
    history = (
        Turn(role="user", content="I plan every meal."),
        Turn(role="assistant", content="How orderly of you."),
    )
    system, user = judge_affect_prompt(
        TRAITS_RUBRIC, sample.model_copy(update={"history": history})
    )
    assert "weak evidence" in system.content
    assert "I plan every meal." in user.content
    assert sample.query in user.content
    assert "How orderly of you." not in user.content
    assert "mild anemia" not in user.content

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
from tests.build import build_sample
from tests.fake_judges import FakeJudge


def enriched(
    error: Exception | None = None, own: Sample = build_sample(), **changes: Any
) -> Sample:
    """The sample enriched by a judge that raises `error`."""
    judge = FakeJudge(error or Unavailable("down"), "openai/x")
    ears = dict.fromkeys(("speech", "store", "speaker"))
    backends: dict[str, Any] = {
        "text": "judge",
        "traits": "judge",
        "judge": judge,
        **ears,
        **changes,
    }
    weights = normalised_weights(0.0, 1.0)
    [result] = asyncio.run(add_affect([own], "", AffectBackends(weights=weights, **backends)))
    return result


@pytest.mark.parametrize("error", [Unavailable("down"), AttributeError("choices")])
def test_a_judge_that_fails_is_noted_for_emotion_and_for_traits(error: Exception) -> None:
    sample, reason = enriched(error), f"{type(error).__name__}: {error}"
    assert find_degraded(sample) == {"emotion": reason, "traits": reason}
    assert (sample.emotion, sample.traits) == (pytest.approx(dict(EKMAN.uniform())), {})


@pytest.mark.parametrize("score", [math.nan, math.inf, 0.0])
def test_scores_that_say_nothing_are_noted_as_a_failure(score: float) -> None:
    model = TransformersEmotion("transformers:x", ["joy"], lambda texts: [{"joy": score}])
    sample = enriched(text=model, traits="unknown")
    reason = "transformers:x failed: none of its scores is a number above 0"
    assert find_degraded(sample) == {"emotion": reason}
    assert sample.emotion == pytest.approx(dict(EKMAN.uniform()))


@pytest.mark.parametrize("error", [BudgetSpent("no money"), ServiceLost("the ledger has died")])
def test_errors_of_the_whole_run_are_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        enriched(error, build_sample(emotion={"joy": 1.0}))


@pytest.mark.parametrize(
    ("backend", "own", "noted"),
    [
        *(("given", {"openness": 0.9}, "given"), ("given", {}, "unknown")),
        *(("unknown", {"openness": 0.9}, "unknown"), ("judge", {"openness": 0.9}, "given")),
    ],
)
def test_own_traits_stay_unless_unknown(backend: str, own: dict[str, float], noted: str) -> None:
    sample = enriched(own=build_sample(traits=own), text=None, traits=backend)
    assert sample.traits == (own if noted == "given" else {})
    assert sample.metadata[NOTES]["traits"] == {"backend": noted}


def test_a_sample_that_broke_the_stage_keeps_its_own() -> None:
    own = uniform_emotion(build_sample(emotion={"joy": 1.0}), ZeroDivisionError("x"))
    assert own.emotion == {"joy": 1.0}
    assert find_degraded(own) == {"traits": "ZeroDivisionError: x"}
    bare = uniform_emotion(build_sample(), ZeroDivisionError("x"))
    assert find_degraded(bare).keys() == {"emotion", "traits"}


def judgment(**estimates: tuple[float, float]) -> BigFiveJudgment:
    """A judge's scores of traits, with their confidence."""
    scores = dict.fromkeys(BIG_FIVE, (0.5, 0.0)) | estimates
    return BigFiveJudgment.model_validate(
        {
            trait: {"score": at, "confidence": sure, "evidence": "none"}
            for trait, (at, sure) in scores.items()
        }
    )


def test_a_judges_scores_are_drawn_to_the_middle_by_their_confidence() -> None:
    judged = judgment(openness=(1.0, 0.4), extraversion=(1.0, 0.0), neuroticism=(0.0, 1.0))
    assert from_traits(judged) == pytest.approx({"openness": 0.7, "neuroticism": 0.0})


@pytest.mark.parametrize("wrong", [(1.2, 0.0), (math.nan, 0.0), (0.5, -0.1)])
def test_a_score_out_of_range_is_no_judgment(wrong: tuple[float, float]) -> None:
    with pytest.raises(ValidationError):
        judgment(openness=wrong)


def test_the_judge_sees_the_users_words_and_not_the_assistants(sample: Sample) -> None:
    said = {"user": "I plan every meal.", "assistant": "How orderly of you."}
    history = tuple(Turn(role=role, content=text) for role, text in said.items())
    talk = sample.model_copy(update={"history": history})
    system, user = judge_affect_prompt(TRAITS_RUBRIC, talk)
    assert "weak evidence" in system.content
    assert "I plan every meal." in user.content
    assert sample.query in user.content
    assert "How orderly of you." not in user.content
    assert "mild anemia" not in user.content

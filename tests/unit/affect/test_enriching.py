"""What cannot be read of a sample is unknown and says so; the end of the money is the run's
affair."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memray_eval.affect.enriching import AffectBackends, add_affect, find_degraded, uniform_emotion
from memray_eval.affect.labels import EKMAN
from memray_eval.errors import BudgetSpent, ServiceLost, Unavailable
from memray_eval.types import Message, Sample


class Judge:
    name = "openai/x"

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def judge(self, messages: Any, judgment: Any) -> Any:
        raise self.error


def senses(error: Exception) -> AffectBackends:
    return AffectBackends(
        text=None,
        speech=None,
        store=None,
        speaker=None,
        speech_weight=0.0,
        text_weight=1.0,
        traits=None,
        judge=Judge(error),
        frame=lambda rubric, parts: (Message(role="user", content=rubric),),
    )


@pytest.mark.parametrize("error", [Unavailable("down"), AttributeError("choices")])
def test_a_judge_that_gives_nothing_is_told_for_emotion_and_for_traits(error: Exception) -> None:
    (sample,) = asyncio.run(add_affect([Sample(id="s", query="q")], "", senses(error)))
    reason = f"{type(error).__name__}: {error}"
    assert find_degraded(sample) == {"emotion": reason, "traits": reason}
    assert (sample.emotion, sample.traits) == (pytest.approx(dict(EKMAN.uniform())), {})


@pytest.mark.parametrize("error", [BudgetSpent("no money"), ServiceLost("the ledger has died")])
def test_what_is_the_runs_affair_goes_on_to_the_run(error: Exception) -> None:
    with pytest.raises(type(error)):
        asyncio.run(
            add_affect([Sample(id="s", query="q", emotion={"joy": 1.0})], "", senses(error))
        )


def test_a_sample_that_broke_the_stage_keeps_what_it_gives() -> None:
    given = uniform_emotion(Sample(id="s", query="q", emotion={"joy": 1.0}), ZeroDivisionError("x"))
    assert given.emotion == {"joy": 1.0}
    assert find_degraded(given) == {"traits": "ZeroDivisionError: x"}
    assert find_degraded(
        uniform_emotion(Sample(id="s", query="q"), ZeroDivisionError("x"))
    ).keys() == {
        "emotion",
        "traits",
    }

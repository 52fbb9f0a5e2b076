"""A sample's emotion and traits, where it does not give them: read, heard, fused, and noted with
where they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memray_eval.affect.fusion import fuse, normalised_weights
from memray_eval.affect.judge_prompts import EmotionJudgment, from_emotion, judge_emotion_messages
from memray_eval.affect.labels import EKMAN, Distribution
from memray_eval.affect.speech import Heard, SpeechEmotion, hear, to_utterance
from memray_eval.affect.text import TextEmotion
from memray_eval.affect.text_to_speech import AudioStore, Speaker
from memray_eval.affect.traits import (
    JUDGE,
    BigFiveJudgment,
    Frame,
    Traits,
    from_judgment,
    given,
    judge_traits_messages,
)
from memray_eval.errors import EvalError, GenerationError, JudgeError, describe_error
from memray_eval.ports import Judge
from memray_eval.types import EXISTING, Sample

NOTES = "affect"  # the key of a sample's metadata that says where its emotion and traits come from


@dataclass(frozen=True, kw_only=True)
class AffectBackends:
    """What emotion and traits are found with. `text` None: the judge reads the text too; `ears`
    None: nothing is heard; `speaker` None: only recordings are. `traits` None: the judge estimates
    those that a sample does not give."""

    text: TextEmotion | None
    ears: SpeechEmotion | None
    store: AudioStore | None
    speaker: Speaker | None
    speech_weight: float
    text_weight: float
    traits: Callable[[Sample], Traits] | None
    judge: Judge | None
    frame: Frame


class _Read(NamedTuple):
    distribution: Distribution
    backend: str
    degraded: str | None = None


async def add_affect(
    samples: Sequence[Sample], folder: str, senses: AffectBackends
) -> list[Sample]:
    """The samples with emotion and traits; what a sample gives itself stays. `folder` is that of
    their dataset's file, for recordings. A backend that fails is uniform or unknown, and the sample
    says so; none is lost."""
    unfelt = [sample for sample in samples if not sample.emotion]
    felt = dict(
        zip((sample.id for sample in unfelt), await _felt(unfelt, folder, senses), strict=True)
    )
    return [
        await _with_traits(
            felt.get(sample.id, _noted(sample, emotion={"backend": EXISTING})), senses
        )
        for sample in samples
    ]


async def _felt(samples: Sequence[Sample], folder: str, senses: AffectBackends) -> list[Sample]:
    if not samples:
        return []
    read = await _read(samples, senses)
    heard: list[Heard | None] = [None] * len(samples)
    if senses.ears is not None and senses.store is not None:
        heard = list(
            await hear(
                [to_utterance(s, folder) for s in samples],
                senses.ears,
                senses.store,
                senses.speaker,
            )
        )
    return [
        _fused(sample, text, speech, senses)
        for sample, text, speech in zip(samples, read, heard, strict=True)
    ]


def _fused(sample: Sample, text: _Read, speech: Heard | None, senses: AffectBackends) -> Sample:
    weights = normalised_weights(senses.speech_weight, senses.text_weight)
    emotion = fuse(speech.distribution if speech else None, text.distribution, *weights)
    notes: dict[str, Any] = {
        "backend": "fused",
        "text": text._asdict(),
        "speech": speech.model_dump() if speech else {"backend": "off"},
        "speech_weight": weights.speech,
        "text_weight": weights.text,
    }
    return _noted(sample.model_copy(update={"emotion": emotion}), emotion=notes)


async def _read(samples: Sequence[Sample], senses: AffectBackends) -> list[_Read]:
    if senses.text is None:
        return [await _judged(sample, senses) for sample in samples]
    try:
        found = await senses.text.infer([sample.query for sample in samples])
    except GenerationError as error:
        return [_Read(EKMAN.uniform(), senses.text.name, str(error)) for _ in samples]
    return [_Read(distribution, senses.text.name) for distribution in found]


async def _judged(sample: Sample, senses: AffectBackends) -> _Read:
    assert senses.judge is not None
    try:
        verdict = await senses.judge.judge(
            judge_emotion_messages(sample, senses.frame), EmotionJudgment
        )
    except Exception as error:
        return _Read(EKMAN.uniform(), senses.judge.name, _reason(error))
    assert isinstance(verdict.judgment, EmotionJudgment)
    return _Read(from_emotion(verdict.judgment), verdict.judge)


async def _with_traits(sample: Sample, senses: AffectBackends) -> Sample:
    if sample.traits and senses.traits is not None and senses.traits is not given:
        return _noted(
            sample.model_copy(update={"traits": {}}),
            traits={"backend": senses.traits(sample).backend},
        )
    if sample.traits or senses.traits is not None:
        return _noted(sample, traits={"backend": given(sample).backend})
    assert senses.judge is not None
    try:
        verdict = await senses.judge.judge(
            judge_traits_messages(sample, senses.frame), BigFiveJudgment
        )
    except Exception as error:
        return _noted(sample, traits={"backend": "unknown", "degraded": _reason(error)})
    assert isinstance(verdict.judgment, BigFiveJudgment)
    found = from_judgment(verdict.judgment)
    notes = {
        "backend": JUDGE,
        "judge": verdict.judge,
        "unknown": list(found.unknown),
        "confidence": found.confidence,
    }
    return _noted(sample.model_copy(update={"traits": found.known}), traits=notes)


def _reason(error: Exception) -> str:
    """Why a judge read nothing. Raises the error again where it is the run's affair: its money, its
    services, its end."""
    if isinstance(error, EvalError) and not isinstance(error, JudgeError):
        raise error
    return describe_error(error)


def unread(sample: Sample, error: BaseException) -> Sample:
    """The sample where finding its emotion and traits raised: what it gives itself stays, the rest
    is uniform and unknown."""
    reason = describe_error(error)
    emotion = (
        {"backend": EXISTING} if sample.emotion else {"backend": "unknown", "degraded": reason}
    )
    traits = {"backend": EXISTING} if sample.traits else {"backend": "unknown", "degraded": reason}
    felt = sample.emotion or dict(EKMAN.uniform())
    return _noted(sample.model_copy(update={"emotion": felt}), emotion=emotion, traits=traits)


def degraded(sample: Sample) -> dict[str, str]:
    """What could not be read of a sample (emotion, speech, traits), and why."""
    notes = sample.metadata.get(NOTES, {})
    emotion, traits = notes.get("emotion", {}), notes.get("traits", {})
    text, speech = (
        emotion.get("text", {}).get("degraded"),
        emotion.get("speech", {}).get("degraded"),
    )
    found = {
        "emotion": text or emotion.get("degraded"),
        "speech": speech,
        "traits": traits.get("degraded"),
    }
    return {what: str(reason) for what, reason in found.items() if reason}


def _noted(sample: Sample, **notes: Any) -> Sample:
    before = sample.metadata.get(NOTES)
    held = {**(before if isinstance(before, dict) else {}), **notes}
    return sample.model_copy(update={"metadata": {**sample.metadata, NOTES: held}})

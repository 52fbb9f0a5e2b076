"""Adds emotion and traits to samples that do not give them, and notes where they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memray_eval.affect.fusion import fuse, normalised_weights
from memray_eval.affect.judge_prompts import (
    EMOTION_RUBRIC,
    TRAITS_RUBRIC,
    BigFiveJudgment,
    EmotionJudgment,
    Frame,
    from_emotion,
    from_judgment,
    judge_affect_messages,
)
from memray_eval.affect.labels import EKMAN, Distribution
from memray_eval.affect.speech import (
    RecognisedSpeech,
    SpeechEmotion,
    recognise_speech,
    to_utterance,
)
from memray_eval.affect.text import TextEmotion
from memray_eval.affect.text_to_speech import AudioStore, Speaker
from memray_eval.affect.traits import JUDGE, Traits, given_traits
from memray_eval.errors import EvalError, GenerationError, JudgeError, describe_error
from memray_eval.ports import Judge
from memray_eval.types import EXISTING, Sample

NOTES = "affect"  # the key of a sample's metadata that says where its emotion and traits come from


@dataclass(frozen=True, kw_only=True)
class AffectBackends:
    """The backends that find emotion and traits. `text` None: the judge reads the text too;
    `speech` None: speech does not count; `speaker` None: only recordings do. `traits` None: the
    judge estimates those that a sample does not give."""

    text: TextEmotion | None
    speech: SpeechEmotion | None
    store: AudioStore | None
    speaker: Speaker | None
    speech_weight: float
    text_weight: float
    traits: Callable[[Sample], Traits] | None
    judge: Judge | None
    frame: Frame


class _TextReading(NamedTuple):
    distribution: Distribution
    backend: str
    degraded: str | None = None


async def add_affect(
    samples: Sequence[Sample], folder: str, backends: AffectBackends
) -> list[Sample]:
    """Adds emotion and traits; what a sample gives itself stays. `folder` is that of the dataset's
    file, for recordings. If a backend fails, the emotion is uniform or the traits unknown, and the
    sample notes why; no sample is lost."""
    without_emotion = [sample for sample in samples if not sample.emotion]
    enriched = await _add_emotion(without_emotion, folder, backends)
    with_emotion = {sample.id: sample for sample in enriched}
    return [
        await _add_traits(
            with_emotion.get(sample.id, _add_notes(sample, emotion={"backend": EXISTING})), backends
        )
        for sample in samples
    ]


async def _add_emotion(
    samples: Sequence[Sample], folder: str, backends: AffectBackends
) -> list[Sample]:
    if not samples:
        return []
    read = await _read_texts(samples, backends)
    heard: list[RecognisedSpeech | None] = []
    if backends.speech is not None and backends.store is not None:
        utterances = [to_utterance(sample, folder) for sample in samples]
        heard += await recognise_speech(
            utterances, backends.speech, backends.store, backends.speaker
        )
    return [
        _fuse_emotion(sample, text, speech, backends)
        for sample, text, speech in zip(samples, read, heard or [None] * len(samples), strict=True)
    ]


def _fuse_emotion(
    sample: Sample, text: _TextReading, speech: RecognisedSpeech | None, backends: AffectBackends
) -> Sample:
    weights = normalised_weights(backends.speech_weight, backends.text_weight)
    emotion = fuse(speech.distribution if speech else None, text.distribution, *weights)
    notes: dict[str, Any] = {
        "backend": "fused",
        "text": text._asdict(),
        "speech": speech.model_dump() if speech else {"backend": "off"},
        "speech_weight": weights.speech,
        "text_weight": weights.text,
    }
    return _add_notes(sample.model_copy(update={"emotion": emotion}), emotion=notes)


async def _read_texts(samples: Sequence[Sample], backends: AffectBackends) -> list[_TextReading]:
    if backends.text is None:
        return [await _judge_emotion(sample, backends) for sample in samples]
    try:
        distributions = await backends.text.infer([sample.query for sample in samples])
    except GenerationError as error:
        return [_TextReading(EKMAN.uniform(), backends.text.name, str(error)) for _ in samples]
    return [_TextReading(distribution, backends.text.name) for distribution in distributions]


async def _judge_emotion(sample: Sample, backends: AffectBackends) -> _TextReading:
    assert backends.judge is not None
    try:
        question = judge_affect_messages(EMOTION_RUBRIC, sample, backends.frame)
        verdict = await backends.judge.judge(question, EmotionJudgment)
    except Exception as error:
        return _TextReading(EKMAN.uniform(), backends.judge.name, _describe_judge_failure(error))
    assert isinstance(verdict.judgment, EmotionJudgment)
    return _TextReading(from_emotion(verdict.judgment), verdict.judge)


async def _add_traits(sample: Sample, backends: AffectBackends) -> Sample:
    if sample.traits and backends.traits is not None and backends.traits is not given_traits:
        return _add_notes(
            sample.model_copy(update={"traits": {}}),
            traits={"backend": backends.traits(sample).backend},
        )
    if sample.traits or backends.traits is not None:
        return _add_notes(sample, traits={"backend": given_traits(sample).backend})
    assert backends.judge is not None
    try:
        question = judge_affect_messages(TRAITS_RUBRIC, sample, backends.frame)
        verdict = await backends.judge.judge(question, BigFiveJudgment)
    except Exception as error:
        return _add_notes(
            sample, traits={"backend": "unknown", "degraded": _describe_judge_failure(error)}
        )
    assert isinstance(verdict.judgment, BigFiveJudgment)
    traits = from_judgment(verdict.judgment)
    notes = {
        "backend": JUDGE,
        "judge": verdict.judge,
        "unknown": list(traits.unknown),
        "confidence": traits.confidence,
    }
    return _add_notes(sample.model_copy(update={"traits": traits.known}), traits=notes)


def _describe_judge_failure(error: Exception) -> str:
    """Why a judge gave nothing. Raises the error again if it concerns the whole run: its budget,
    its services, its end."""
    if isinstance(error, EvalError) and not isinstance(error, JudgeError):
        raise error
    return describe_error(error)


def uniform_emotion(sample: Sample, error: BaseException) -> Sample:
    """The sample after finding its emotion and traits has raised: what it gives itself stays, other
    emotion is uniform and other traits unknown."""
    unknown = {"backend": "unknown", "degraded": describe_error(error)}
    emotion = {"backend": EXISTING} if sample.emotion else unknown
    traits = {"backend": EXISTING} if sample.traits else unknown
    felt = sample.emotion or dict(EKMAN.uniform())
    return _add_notes(sample.model_copy(update={"emotion": felt}), emotion=emotion, traits=traits)


def find_degraded(sample: Sample) -> dict[str, str]:
    """What could not be read of a sample (emotion, speech, traits), and why."""
    notes = sample.metadata.get(NOTES, {})
    emotion, traits = notes.get("emotion", {}), notes.get("traits", {})
    reasons = {
        "emotion": emotion.get("text", {}).get("degraded") or emotion.get("degraded"),
        "speech": emotion.get("speech", {}).get("degraded"),
        "traits": traits.get("degraded"),
    }
    return {what: str(reason) for what, reason in reasons.items() if reason}


def _add_notes(sample: Sample, **notes: Any) -> Sample:
    before = sample.metadata.get(NOTES)
    held = {**(before if isinstance(before, dict) else {}), **notes}
    return sample.model_copy(update={"metadata": {**sample.metadata, NOTES: held}})

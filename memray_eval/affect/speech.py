"""Emotion in how something is said: from a sample's own recording, else from its text spoken aloud.

Backends: `uniform` (nothing is known), `prosody` (arousal by loudness, pitch and rate),
`transformers:MODEL` and `openai`. What cannot be heard is uniform, with the reason beside it: no
sample is lost over its sound."""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from memray_eval.affect.audio import (
    Clip,
    Samples,
    decode_wav,
    encode_wav,
    prosody_of,
    read_audio,
    resampled,
)
from memray_eval.affect.labels import EKMAN, Distribution, LabelSet, recognise
from memray_eval.affect.text_to_speech import AudioStore, Speaker, spoken_text
from memray_eval.errors import ConfigError, DataError, GenerationError, JudgeError
from memray_eval.types import Frozen, Sample

Audio = bytes | str  # a wav, or the path or URL of one
UNIFORM = "uniform"
SPEECH_BACKENDS = (UNIFORM, "prosody", "transformers:MODEL", "openai")
RECORDING = "audio"  # the key of a sample's metadata that names its own recording
NO_SOUND = "there is no sound in the audio"

# Where each emotion lies between calm (0) and aroused (1): our own round figures after Russell's
# circumplex.
AROUSAL = {
    "anger": 0.85,
    "disgust": 0.55,
    "fear": 0.8,
    "joy": 0.7,
    "neutral": 0.3,
    "sadness": 0.2,
    "surprise": 0.8,
}
AROUSAL_WIDTH = 0.25  # emotions this far from what was heard are still likely
MOST_TOLD = (
    0.5  # the share of the distribution that arousal decides at most: it cannot tell anger from joy
)


class Guess(Frozen):
    """A distribution over the backend's labels; `degraded` says why it is uniform where nothing
    could be heard."""

    distribution: Distribution
    degraded: str | None = None


class SpeechEmotion(Protocol):
    """Hears emotion in clips. Nothing about a clip, nor a provider that fails, raises."""

    name: str
    labels: LabelSet

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]: ...


class Listener(Protocol):
    """A model behind an API that hears wavs."""

    async def listen(self, wav: bytes, labels: Sequence[str]) -> Mapping[str, float]:
        """A weight, 0 or more, for every label. Raises JudgeError."""
        ...


def build_speech_emotion(name: str, listener: Listener | None = None) -> SpeechEmotion:
    """The backend of a name; `openai` asks the listener. Raises ConfigError."""
    if name == UNIFORM:
        return UniformSpeech()
    if name == "prosody":
        return ProsodySpeech()
    if name == "openai" and listener is not None:
        return ListenedSpeech(listener)
    if name.startswith("transformers:") and name != "transformers:":
        return TransformersSpeech(name, *load_classifier(name.removeprefix("transformers:")))
    raise ConfigError(
        f"no speech emotion backend {name!r}; there are: {', '.join(SPEECH_BACKENDS)}"
    )


class UniformSpeech:
    """Hears nothing."""

    name = UNIFORM

    def __init__(self, labels: LabelSet = EKMAN) -> None:
        self.labels = labels

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        return [Guess(distribution=self.labels.uniform()) for _ in clips]


class ProsodySpeech:
    """Hears arousal alone and spreads it over the labels that lie near it. Deterministic, numpy
    alone."""

    name = "prosody"
    labels = EKMAN

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        return [self._guess(clip) for clip in clips]

    def _guess(self, audio: Audio) -> Guess:
        clip = heard_clip(audio)
        if not isinstance(clip, Clip):
            return Guess(distribution=self.labels.uniform(), degraded=clip)
        prosody = prosody_of(clip)
        if prosody.voiced_s == 0.0:
            return Guess(
                distribution=self.labels.uniform(), degraded="there is no voice in the audio"
            )
        return Guess(distribution=spread(prosody.arousal, prosody.certainty))


def spread(arousal: float, certainty: float) -> Distribution:
    """Arousal (0 calm to 1) as emotions: MOST_TOLD x certainty of the mass lies around it, by a
    Gaussian over AROUSAL, and the rest is uniform."""
    near = np.exp(
        -0.5
        * ((np.array([AROUSAL[label] for label in EKMAN.labels]) - arousal) / AROUSAL_WIDTH) ** 2
    )
    told = MOST_TOLD * min(1.0, max(0.0, certainty))
    return EKMAN.normalised(
        [float(share) for share in told * near / near.sum() + (1 - told) / len(near)]
    )


class TransformersSpeech:
    """An audio classifier of the hub or a folder. Its labels decide the label set; several of its
    labels may share one."""

    def __init__(
        self,
        name: str,
        model_labels: Sequence[str],
        rate_hz: int,
        classify: Callable[[list[Samples]], list[dict[str, float]]],
    ) -> None:
        """Raises ConfigError for labels that no label set knows."""
        self.name, self._rate_hz, self._classify = name, rate_hz, classify
        self.labels, ours = recognise(model_labels, name)
        self._ours = dict(zip(model_labels, ours, strict=True))

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        heard = [heard_clip(audio) for audio in clips]
        sounds = [
            _padded(resampled(clip, self._rate_hz).samples, self._rate_hz)
            for clip in heard
            if isinstance(clip, Clip)
        ]
        try:
            found = iter(await asyncio.to_thread(self._classify, sounds) if sounds else [])
        except (
            RuntimeError
        ) as error:  # torch's own for all that goes wrong inside a model, its memory among it
            reason = f"{self.name} failed: {type(error).__name__}"
            return [
                Guess(distribution=self.labels.uniform(), degraded=_reason(clip) or reason)
                for clip in heard
            ]
        return [
            self._guess(next(found)) if isinstance(clip, Clip) else self._deaf(clip)
            for clip in heard
        ]

    def _guess(self, scores: Mapping[str, float]) -> Guess:
        summed = dict.fromkeys(self.labels.labels, 0.0)
        for label, score in scores.items():
            summed[self._ours[label]] += score if score > 0 else 0.0
        return Guess(distribution=self.labels.normalised(list(summed.values())))

    def _deaf(self, reason: str) -> Guess:
        return Guess(distribution=self.labels.uniform(), degraded=reason)


def load_classifier(
    model: str,
) -> tuple[list[str], int, Callable[[list[Samples]], list[dict[str, float]]]]:
    """A model's labels, the rate it hears at, and how to ask it. Raises ConfigError that says what
    is missing."""
    try:
        from transformers import pipeline
    except ImportError as error:
        raise ConfigError(
            f"transformers:{model}: the package {error.name} is missing; install the extra `cpu` "
            f"or `gpu` (make setup)"
        ) from None
    try:
        pipe: Any = pipeline("audio-classification", model=model, top_k=None)
    except Exception as error:  # transformers raises many types: OSError, ValueError, KeyError
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(
            f"transformers:{model} cannot be loaded as an audio classifier: {reason}"
        ) from error
    rate_hz = int(pipe.feature_extractor.sampling_rate)

    def classify(sounds: list[Samples]) -> list[dict[str, float]]:
        asked = [{"raw": sound, "sampling_rate": rate_hz} for sound in sounds]
        return [
            {entry["label"]: float(entry["score"]) for entry in scores} for scores in pipe(asked)
        ]

    return list(pipe.model.config.id2label.values()), rate_hz, classify


def _padded(samples: Samples, rate_hz: int) -> Samples:
    """At least half a second: the first layers of a model take no less."""
    return np.pad(samples, (0, max(0, rate_hz // 2 - len(samples))))


class ListenedSpeech:
    """A model behind an API, asked for a distribution. A call that fails is uniform, with its
    reason."""

    name = "openai"
    labels = EKMAN

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        return list(await asyncio.gather(*map(self._guess, clips)))

    async def _guess(self, audio: Audio) -> Guess:
        clip = heard_clip(audio)
        if not isinstance(clip, Clip):
            return Guess(distribution=self.labels.uniform(), degraded=clip)
        try:
            weights = await self._listener.listen(encode_wav(clip), self.labels.labels)
        except JudgeError as error:
            return Guess(distribution=self.labels.uniform(), degraded=f"{self.name}: {error}")
        return Guess(
            distribution=self.labels.normalised(
                [weights.get(label, 0.0) for label in self.labels.labels]
            )
        )


def heard_clip(audio: Audio) -> Clip | str:
    """The clip, or why nothing is to be heard in it."""
    try:
        clip = decode_wav(audio if isinstance(audio, bytes) else read_audio(audio))
    except DataError as error:
        return str(error)
    return NO_SOUND if clip.is_silent else clip


def _reason(clip: Clip | str) -> str | None:
    return clip if isinstance(clip, str) else None


class Utterance(Frozen):
    """What a user said: the text, and the path or URL of a recording where there is one."""

    text: str
    recording: str | None = None


def to_utterance(sample: Sample, folder: str) -> Utterance:
    """A sample's query and its own recording, `metadata: {"audio": path}`, relative to the folder
    (or URL) of its dataset's file."""
    named = sample.metadata.get(RECORDING)
    if named is None:
        return Utterance(text=sample.query)
    path = str(named)
    is_whole = "://" in path or os.path.isabs(path)
    return Utterance(
        text=sample.query, recording=path if is_whole else posixpath.join(folder, path)
    )


class Heard(Frozen):
    """What was heard of one utterance, and in what: its own `recording`, its text `synthesised`, or
    `none`. `backend` gave the distribution (uniform where there was nothing to hear); `degraded`
    says what went wrong; `audio` is the recording's path or the name of the file in the store."""

    distribution: Distribution
    backend: str
    source: Literal["synthesised", "recording", "none"]
    degraded: str | None = None
    audio: str | None = None


class _Sound(NamedTuple):
    source: Literal["synthesised", "recording", "none"]
    wav: bytes = b""
    audio: str | None = None
    degraded: str | None = None


async def hear(
    utterances: Sequence[Utterance], ears: SpeechEmotion, store: AudioStore, speaker: Speaker | None
) -> list[Heard]:
    """What is heard of each utterance. Without a speaker only recordings are heard. What fails (a
    broken recording, a provider) is uniform and says so; a recording that is broken is not replaced
    by synthetic speech."""
    sounds = await asyncio.gather(*(_sound(utterance, store, speaker) for utterance in utterances))
    guesses = iter(await ears.infer([sound.wav for sound in sounds if sound.source != "none"]))
    return [_heard(sound, ears, guesses) for sound in sounds]


def _heard(sound: _Sound, ears: SpeechEmotion, guesses: Any) -> Heard:
    if sound.source == "none":
        nothing = ears.labels.uniform()
        return Heard(
            distribution=nothing,
            backend=UNIFORM,
            source="none",
            degraded=sound.degraded,
            audio=sound.audio,
        )
    guess = next(guesses)
    return Heard(
        distribution=guess.distribution,
        backend=ears.name,
        source=sound.source,
        degraded=guess.degraded,
        audio=sound.audio,
    )


async def _sound(utterance: Utterance, store: AudioStore, speaker: Speaker | None) -> _Sound:
    path = utterance.recording
    if path is not None:
        try:
            wav = await asyncio.to_thread(read_audio, path)
            decode_wav(wav)
        except DataError as error:
            return _Sound("none", audio=path, degraded=f"recording: {error}")
        return _Sound("recording", wav, path)
    if speaker is None:
        return _Sound("none")
    if not (text := spoken_text(utterance.text)):
        return _Sound("none", degraded="there is nothing to speak in the text")
    try:
        sound = await store.spoken(text, speaker)
    except (JudgeError, GenerationError, DataError) as error:
        return _Sound("none", degraded=f"speech synthesis ({speaker.backend}): {error}")
    return _Sound("synthesised", sound.wav, sound.file)

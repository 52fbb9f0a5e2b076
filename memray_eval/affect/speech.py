"""Recognises emotion in speech: in a sample's own recording, else in its text spoken aloud.

Backends: `uniform` (nothing is known), `prosody` (arousal by loudness, pitch and rate),
`transformers:MODEL` and `openai`. Speech that cannot be heard gives a uniform distribution and
the reason: no sample is lost over its sound."""

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
    measure_prosody,
    read_audio,
    resample,
)
from memray_eval.affect.labels import EKMAN, Distribution, LabelSet, ModelLabels
from memray_eval.affect.text import TRANSFORMERS, load_pipeline
from memray_eval.affect.text_to_speech import AudioStore, Speaker, text_to_speak
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
    """Recognises emotion in clips. Neither a bad clip nor a failing provider raises."""

    name: str
    labels: LabelSet

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]: ...


class Listener(Protocol):
    """A model behind an API that listens to wav files."""

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
        return ListenerSpeech(listener)
    if name.startswith(TRANSFORMERS) and name != TRANSFORMERS:
        return TransformersSpeech(name, *load_classifier(name.removeprefix(TRANSFORMERS)))
    raise ConfigError(
        f"no speech emotion backend {name!r}; there are: {', '.join(SPEECH_BACKENDS)}"
    )


class UniformSpeech:
    """Gives the uniform distribution for every clip."""

    name = UNIFORM

    def __init__(self, labels: LabelSet = EKMAN) -> None:
        self.labels = labels

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        return [Guess(distribution=self.labels.uniform()) for _ in clips]


class ProsodySpeech:
    """Measures arousal alone and spreads it over the labels near it. Deterministic; needs only
    numpy."""

    name = "prosody"
    labels = EKMAN

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        return [self._guess(clip) for clip in clips]

    def _guess(self, audio: Audio) -> Guess:
        clip = load_clip(audio)
        if not isinstance(clip, Clip):
            return Guess(distribution=self.labels.uniform(), degraded=clip)
        prosody = measure_prosody(clip)
        if prosody.voiced_s == 0.0:
            return Guess(
                distribution=self.labels.uniform(), degraded="there is no voice in the audio"
            )
        return Guess(distribution=spread_arousal(prosody.arousal, prosody.certainty))


def spread_arousal(arousal: float, certainty: float) -> Distribution:
    """Turns arousal (0 calm to 1) into emotions: MOST_TOLD x certainty of the mass lies around it,
    by a Gaussian over AROUSAL; the rest is uniform."""
    near = np.exp(
        -0.5
        * ((np.array([AROUSAL[label] for label in EKMAN.labels]) - arousal) / AROUSAL_WIDTH) ** 2
    )
    decided = MOST_TOLD * min(1.0, max(0.0, certainty))
    return EKMAN.normalised(
        [float(share) for share in decided * near / near.sum() + (1 - decided) / len(near)]
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
        self._model_labels = ModelLabels(model_labels, name)
        self.labels = self._model_labels.labels

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        heard = [load_clip(audio) for audio in clips]
        sounds = []
        for clip in heard:
            if isinstance(clip, Clip):
                samples = resample(clip, self._rate_hz).samples
                # At least half a second: the first layers of a model take no less.
                sounds.append(np.pad(samples, (0, max(0, self._rate_hz // 2 - len(samples)))))
        try:
            scores = iter(await asyncio.to_thread(self._classify, sounds) if sounds else [])
        except RuntimeError as error:  # torch's, for all that goes wrong inside a model
            reason = f"{self.name} failed: {type(error).__name__}"
            reasons = [reason if isinstance(clip, Clip) else clip for clip in heard]
            return [Guess(distribution=self.labels.uniform(), degraded=why) for why in reasons]
        return [
            Guess(distribution=self._model_labels.normalise(next(scores)))
            if isinstance(clip, Clip)
            else Guess(distribution=self.labels.uniform(), degraded=clip)
            for clip in heard
        ]


def load_classifier(
    model: str,
) -> tuple[list[str], int, Callable[[list[Samples]], list[dict[str, float]]]]:
    """Loads an audio classifier: its labels, its sampling rate, and a function that classifies.
    Raises ConfigError that says what is missing."""
    pipe = load_pipeline("audio", model)
    rate_hz = int(pipe.feature_extractor.sampling_rate)

    def classify(sounds: list[Samples]) -> list[dict[str, float]]:
        inputs = [{"raw": sound, "sampling_rate": rate_hz} for sound in sounds]
        return [
            {entry["label"]: float(entry["score"]) for entry in scores} for scores in pipe(inputs)
        ]

    return list(pipe.model.config.id2label.values()), rate_hz, classify


class ListenerSpeech:
    """Asks a model behind an API for a distribution. A failed call gives the uniform one and its
    reason."""

    name = "openai"
    labels = EKMAN

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    async def infer(self, clips: Sequence[Audio]) -> list[Guess]:
        return list(await asyncio.gather(*map(self._guess, clips)))

    async def _guess(self, audio: Audio) -> Guess:
        clip = load_clip(audio)
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


def load_clip(audio: Audio) -> Clip | str:
    """Decodes a clip. Returns the reason as text if nothing can be heard in it."""
    try:
        clip = decode_wav(audio if isinstance(audio, bytes) else read_audio(audio))
    except DataError as error:
        return str(error)
    return NO_SOUND if clip.is_silent else clip


class Utterance(Frozen):
    """What a user said: the text, and the path or URL of a recording where there is one."""

    text: str
    recording: str | None = None


def to_utterance(sample: Sample, folder: str) -> Utterance:
    """The utterance of a sample: its query and its own recording, `metadata: {"audio": path}`,
    relative to the folder (or URL) of its dataset's file."""
    named = sample.metadata.get(RECORDING)
    if named is None:
        return Utterance(text=sample.query)
    path = str(named)
    is_whole = "://" in path or os.path.isabs(path)
    return Utterance(
        text=sample.query, recording=path if is_whole else posixpath.join(folder, path)
    )


class RecognisedSpeech(Frozen):
    """The emotion recognised in one utterance, and in what sound: its own `recording`, its text
    `synthesised`, or `none`. `backend` gave the distribution (uniform where there was nothing to
    hear); `degraded` says what went wrong; `audio` is the recording's path or the name of the file
    in the store."""

    distribution: Distribution
    backend: str
    source: Literal["synthesised", "recording", "none"]
    degraded: str | None = None
    audio: str | None = None


class _SpokenSound(NamedTuple):
    source: Literal["synthesised", "recording", "none"]
    wav: bytes = b""
    audio: str | None = None
    degraded: str | None = None


async def recognise_speech(
    utterances: Sequence[Utterance],
    backend: SpeechEmotion,
    store: AudioStore,
    speaker: Speaker | None,
) -> list[RecognisedSpeech]:
    """Recognises the emotion of each utterance. Without a speaker, only recordings are heard. A
    broken recording or a failing provider gives the uniform distribution and the reason; a broken
    recording is not replaced by synthetic speech."""
    sounds = await asyncio.gather(
        *(_find_sound(utterance, store, speaker) for utterance in utterances)
    )
    guesses = iter(await backend.infer([sound.wav for sound in sounds if sound.source != "none"]))
    return [_to_recognised(sound, backend, guesses) for sound in sounds]


def _to_recognised(sound: _SpokenSound, backend: SpeechEmotion, guesses: Any) -> RecognisedSpeech:
    is_heard = sound.source != "none"
    nothing = Guess(distribution=backend.labels.uniform(), degraded=sound.degraded)
    guess = next(guesses) if is_heard else nothing
    return RecognisedSpeech(
        distribution=guess.distribution,
        backend=backend.name if is_heard else UNIFORM,
        source=sound.source,
        degraded=guess.degraded,
        audio=sound.audio,
    )


async def _find_sound(
    utterance: Utterance, store: AudioStore, speaker: Speaker | None
) -> _SpokenSound:
    """Finds the sound of an utterance: its recording, else its text as spoken by `speaker`."""
    path = utterance.recording
    if path is not None:
        try:
            wav = await asyncio.to_thread(read_audio, path)
            decode_wav(wav)
        except DataError as error:
            return _SpokenSound("none", audio=path, degraded=f"recording: {error}")
        return _SpokenSound("recording", wav, path)
    if speaker is None:
        return _SpokenSound("none")
    if not (text := text_to_speak(utterance.text)):
        return _SpokenSound("none", degraded="there is nothing to speak in the text")
    try:
        sound = await store.get_or_speak(text, speaker)
    except (JudgeError, GenerationError, DataError) as error:
        return _SpokenSound("none", degraded=f"speech synthesis ({speaker.backend}): {error}")
    return _SpokenSound("synthesised", sound.wav, sound.file)

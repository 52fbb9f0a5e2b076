"""Recognises emotion in speech: in a sample's own recording, else in its text spoken aloud. Speech
that cannot be heard gives a uniform distribution and the reason."""

import asyncio
import os
import posixpath
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from memray_eval.affect.audio import Clip, Samples, decode_wav, read_audio, resample
from memray_eval.affect.labels import Distribution, Scores, Transformer, load_pipeline
from memray_eval.affect.speech_client import AudioStore, Speaker, text_to_speak
from memray_eval.errors import DataError, JudgeError
from memray_eval.types import Frozen, Sample

RECORDING = "audio"  # the key of a sample's metadata that names its own recording
NO_SOUND = "there is no sound in the audio"
_Source = Literal["synthesised", "recording", "none"]


class TransformersSpeech(Transformer):
    """An audio classifier, of sound at a rate of its own."""

    def __init__(
        self,
        name: str,
        model_labels: Sequence[str],
        rate_hz: int,
        classify: Callable[[list[Samples]], list[Scores]],
    ) -> None:
        """Raises ConfigError for labels that no label set knows."""
        super().__init__(name, model_labels, classify)
        self._rate_hz = rate_hz

    async def infer(self, clips: Sequence[Clip]) -> list[Distribution | str]:
        """A distribution over `labels` for each clip, in order, or the reason why it failed."""
        sounds = [resample(clip, self._rate_hz).samples for clip in clips]
        # At least half a second: the first layers of a model take no less.
        padded = [np.pad(sound, (0, max(0, self._rate_hz // 2 - len(sound)))) for sound in sounds]
        try:
            return await self._read(padded)
        except RuntimeError as error:
            return [f"{self.name} failed: {type(error).__name__}"] * len(clips)


def load_speech_emotion(name: str) -> TransformersSpeech:
    """Loads `transformers:MODEL`. Raises ConfigError that says what is missing."""
    pipe = load_pipeline("audio", name)
    rate_hz = int(pipe.feature_extractor.sampling_rate)

    def classify(sounds: list[Samples]) -> list[Scores]:
        inputs = [{"raw": sound, "sampling_rate": rate_hz} for sound in sounds]
        return [
            {entry["label"]: float(entry["score"]) for entry in scores} for scores in pipe(inputs)
        ]

    return TransformersSpeech(name, list(pipe.model.config.id2label.values()), rate_hz, classify)


class Utterance(Frozen):
    """A user's text, and the path or URL of a recording if there is one."""

    text: str
    recording: str | None = None


def to_utterance(sample: Sample, folder: str) -> Utterance:
    """Returns a sample's query and its own recording, `metadata: {"audio": path}`, relative to the
    folder (or URL) of its dataset's file."""
    if sample.metadata.get(RECORDING) is None:
        return Utterance(text=sample.query)
    path = str(sample.metadata[RECORDING])
    is_whole = "://" in path or os.path.isabs(path)
    return Utterance(
        text=sample.query, recording=path if is_whole else posixpath.join(folder, path)
    )


class RecognisedSpeech(Frozen):
    """The emotion recognised in one utterance by `backend` (`uniform` without sound), and why it is
    `degraded`. `source`: its own `recording`, its text `synthesised`, or `none`; `audio`: a path or
    name."""

    distribution: Distribution
    backend: str
    source: _Source
    degraded: str | None = None
    audio: str | None = None

    @property
    def is_heard(self) -> bool:
        return self.source != "none" and self.degraded is None


class _Sound(NamedTuple):
    source: _Source
    audio: str | None
    clip: Clip | None = None
    degraded: str | None = None


async def recognise_speech(
    utterances: Sequence[Utterance],
    backend: TransformersSpeech,
    store: AudioStore,
    speaker: Speaker | None,
) -> list[RecognisedSpeech]:
    """Recognises the emotion of each utterance; without a speaker only of recordings. A broken
    recording or a failing provider gives the uniform distribution and the reason."""
    sounds = await asyncio.gather(
        *(_find_sound(utterance, store, speaker) for utterance in utterances)
    )
    clips = [sound.clip for sound in sounds if sound.clip and not sound.clip.is_silent]
    results = iter(await backend.infer(clips))
    recognised = []
    for sound in sounds:
        result: Distribution | str | None = sound.degraded
        if sound.clip:
            result = NO_SOUND if sound.clip.is_silent else next(results)
        recognised.append(
            RecognisedSpeech(
                distribution=result if isinstance(result, dict) else backend.labels.uniform(),
                backend="uniform" if sound.source == "none" else backend.name,
                source=sound.source,
                degraded=None if isinstance(result, dict) else result,
                audio=sound.audio,
            )
        )
    return recognised


async def _find_sound(utterance: Utterance, store: AudioStore, speaker: Speaker | None) -> _Sound:
    """Finds the sound of an utterance: its recording, else its text as spoken by `speaker`."""
    path = utterance.recording
    if path is not None:
        try:
            clip = decode_wav(await asyncio.to_thread(read_audio, path))
        except DataError as error:
            return _Sound("none", path, degraded=f"recording: {error}")
        return _Sound("recording", path, clip)
    if speaker is None:
        return _Sound("none", None)
    if not (text := text_to_speak(utterance.text)):
        return _Sound("none", None, degraded="there is nothing to speak in the text")
    try:
        file, clip = await store.get_or_speak(text, speaker)
    except (JudgeError, DataError) as error:
        return _Sound("none", None, degraded=f"speech synthesis ({speaker.backend}): {error}")
    return _Sound("synthesised", file, clip)

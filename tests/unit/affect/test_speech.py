"""Emotion in sound: every utterance has a distribution, and beside it the reason if it is empty."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from memray_eval.affect.audio import Clip, Samples, encode_wav
from memray_eval.affect.labels import EKMAN, FOUR, is_uniform
from memray_eval.affect.speech import (
    NO_SOUND,
    RecognisedSpeech,
    TransformersSpeech,
    Utterance,
    recognise_speech,
    to_utterance,
)
from memray_eval.affect.speech_client import AudioStore, Speaker
from memray_eval.errors import ConfigError
from tests.build import build_sample
from tests.unit.affect.test_audio import RATE, tone

HUM = encode_wav(tone(200, 1.5))


def classifier(*labels: str, score: float = 0.9) -> TransformersSpeech:
    """A model that always gives its first label this score and shares the rest."""

    def classify(sounds: list[Samples]) -> list[Mapping[str, float]]:
        assert all(len(sound) >= RATE // 2 for sound in sounds)
        rest = (1 - score) / (len(labels) - 1)
        return [{label: score if label == labels[0] else rest for label in labels} for _ in sounds]

    return TransformersSpeech("transformers:fake", labels, RATE, classify)


def fail(sounds: list[Samples]) -> list[Mapping[str, float]]:
    raise RuntimeError("out of memory")


BROKEN = TransformersSpeech("transformers:fake", FOUR.labels, RATE, fail)


@pytest.fixture
def own(tmp_path: Path) -> Utterance:
    """An utterance with a recording of its own."""
    (tmp_path / "own.wav").write_bytes(HUM)
    return Utterance(text="x", recording=str(tmp_path / "own.wav"))


class Voice:
    backend, model, voice = "fake", "m", "v"

    calls = 0

    async def speak(self, text: str) -> bytes:
        self.calls += 1
        return HUM


async def recognised(
    folder: Path,
    utterances: Sequence[Utterance],
    speaker: Speaker | None = None,
    backend: TransformersSpeech | None = None,
) -> list[RecognisedSpeech]:
    ear = backend or classifier(*EKMAN.labels)
    return await recognise_speech(utterances, ear, AudioStore(str(folder / "store")), speaker)


def clip_file(samples: np.ndarray, rate_hz: int = RATE) -> bytes:
    return encode_wav(Clip(samples.astype(np.float32), rate_hz))


ODD = {
    "no samples": clip_file(np.zeros(0)),
    "one sample": clip_file(np.full(1, 0.7)),
    "two samples": clip_file(np.array([0.1, -0.9])),
    "silence": clip_file(np.zeros(RATE)),
    "clipped": clip_file(np.sign(np.sin(np.arange(RATE) / 10))),
    "noise": clip_file(np.random.default_rng(0).normal(0, 2, RATE)),
    "slow": clip_file(np.sin(np.arange(3000) / 5), 1_000),
    "a voice": HUM,
    "bytes": b"\x00\xff",
    "empty": b"",
}
EARS: list[TransformersSpeech] = [
    classifier("ang", "hap", "neu", "sad"),
    classifier("ang", "hap", "neu", "sad", score=math.nan),
    BROKEN,
]


@pytest.mark.parametrize("ear", EARS, ids=lambda ear: ear.name)
async def test_any_recording_has_a_distribution(ear: TransformersSpeech, tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.wav" for n in range(len(ODD))]
    for path, wav in zip(paths, ODD.values(), strict=True):
        path.write_bytes(wav)
    utterances = [Utterance(text="x", recording=str(path)) for path in paths]
    results = await recognised(tmp_path, utterances, backend=ear)
    for result in results:
        assert tuple(result.distribution) == ear.labels.labels
        assert math.fsum(result.distribution.values()) == pytest.approx(1.0, abs=1e-6)
        assert not result.degraded or is_uniform(result.distribution)
    reasons = dict(zip(ODD, (result.degraded for result in results), strict=True))
    assert reasons["silence"] == reasons["no samples"] == NO_SOUND
    assert reasons["empty"] == "recording: not a wav file"


async def test_a_models_labels_become_ours(own: Utterance, tmp_path: Path) -> None:
    [four] = await recognised(tmp_path, [own], backend=classifier("ang", "hap", "neu", "sad"))
    assert four.distribution["angry"] == pytest.approx(0.9)
    names = "fearful calm neutral angry happy sad disgust surprised".split()
    [eight] = await recognised(tmp_path, [own], backend=classifier(*names, score=0.3))
    assert eight.distribution["neutral"] == pytest.approx(0.2)  # calm and neutral share one
    with pytest.raises(ConfigError, match="LABEL_0"):
        classifier("LABEL_0", "LABEL_1")


async def test_a_failing_backend_is_named_in_the_reason(own: Utterance, tmp_path: Path) -> None:
    [broken] = await recognised(tmp_path, [own], backend=BROKEN)
    assert (broken.degraded, broken.is_heard) == ("transformers:fake failed: RuntimeError", False)


async def test_a_recording_of_its_own_is_heard(own: Utterance, tmp_path: Path) -> None:
    sample, voice = build_sample(metadata={"audio": "own.wav"}), Voice()
    [result] = await recognised(tmp_path, [to_utterance(sample, str(tmp_path))], voice)
    expected = ("recording", "transformers:fake", None, own.recording)
    assert (result.source, result.backend, result.degraded, result.audio) == expected
    assert voice.calls == 0


@pytest.mark.parametrize(
    ("audio", "folder", "recording"),
    [
        ("own.wav", "/other", "/other/own.wav"),
        ("own.wav", "s3://bucket/data", "s3://bucket/data/own.wav"),
        ("/a.wav", "/other", "/a.wav"),
        (5, "/other", "/other/5"),
        (None, "/other", None),
    ],
)
def test_a_recordings_path(audio: object, folder: str, recording: str | None) -> None:
    sample = build_sample(metadata={"audio": audio})
    assert to_utterance(sample, folder).recording == recording


async def test_no_utterance_is_lost_over_its_sound(tmp_path: Path) -> None:
    (tmp_path / "broken.wav").write_bytes(b"RIFF....WAVE")
    fake, nothing = ("synthesised", "transformers:fake"), ("none", "uniform")
    cases = [
        (Utterance(text="Hello?"), fake, "None"),
        (Utterance(text="Hello?", recording=f"{tmp_path}/absent.wav"), nothing, "no such file"),
        (Utterance(text="Hello?", recording=f"{tmp_path}/broken.wav"), nothing, "without a format"),
        (Utterance(text="Hello?", recording=str(tmp_path)), nothing, "cannot be read"),
        (Utterance(text="😀"), nothing, "nothing to speak"),
        (Utterance(text="Good evening"), fake, "None"),
    ]
    voice = Voice()
    results = await recognised(tmp_path, [utterance for utterance, _, _ in cases], voice)
    for result, (_, expected, reason) in zip(results, cases, strict=True):
        assert (result.source, result.backend) == expected
        assert reason in str(result.degraded)
        assert (expected == fake) or is_uniform(result.distribution)
    assert results[0].audio in {path.name for path in (tmp_path / "store").glob("*.wav")}
    assert voice.calls == 2


async def test_without_a_voice_there_is_no_sound(tmp_path: Path) -> None:
    [result] = await recognised(tmp_path, [Utterance(text="Hello?")])
    silent = {"distribution": EKMAN.uniform(), "backend": "uniform", "source": "none"}
    assert (result, result.is_heard) == (RecognisedSpeech(**silent), False)

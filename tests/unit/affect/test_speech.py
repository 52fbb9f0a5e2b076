"""Emotion in sound: every clip has a distribution, and what went wrong stands beside it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from memray_eval.affect.audio import Clip, Samples, encode_wav
from memray_eval.affect.labels import EKMAN, FOUR, is_uniform
from memray_eval.affect.speech import (
    AROUSAL,
    NO_SOUND,
    Audio,
    ListenerSpeech,
    ProsodySpeech,
    RecognisedSpeech,
    SpeechEmotion,
    TransformersSpeech,
    UniformSpeech,
    Utterance,
    build_speech_emotion,
    recognise_speech,
    spread_arousal,
    to_utterance,
)
from memray_eval.affect.text_to_speech import AudioStore, Speaker
from memray_eval.errors import ConfigError, Unavailable
from memray_eval.types import Sample

RATE = 16_000


def hum(hz: float = 200, seconds: float = 1.5, loudness: float = 0.3) -> bytes:
    moments = np.arange(int(seconds * RATE)) / RATE
    sound = sum(np.sin(2 * np.pi * hz * k * moments) / k for k in (1, 2, 3))
    return encode_wav(Clip((loudness * sound * np.sin(6 * moments) ** 2).astype(np.float32), RATE))


class Ear:
    """A listener that answers with what it was given, or fails."""

    def __init__(self, weights: Mapping[str, float] | Exception) -> None:
        self.weights = weights

    async def listen(self, wav: bytes, labels: Sequence[str]) -> Mapping[str, float]:
        if isinstance(self.weights, Exception):
            raise self.weights
        return self.weights


def classifier(*labels: str, score: float = 0.9) -> TransformersSpeech:
    """One that always gives its first label this score and shares the rest."""

    def classify(sounds: list[Samples]) -> list[dict[str, float]]:
        assert all(len(sound) >= RATE // 2 for sound in sounds)
        rest = (1 - score) / (len(labels) - 1)
        return [{label: score if label == labels[0] else rest for label in labels} for _ in sounds]

    return TransformersSpeech("transformers:fake", labels, RATE, classify)


def ears() -> list[SpeechEmotion]:
    return [
        UniformSpeech(),
        ProsodySpeech(),
        classifier("ang", "hap", "neu", "sad"),
        classifier("ang", "hap", "neu", "sad", score=math.nan),
        ListenerSpeech(Ear({"anger": 0.5, "joy": 0.25})),
        ListenerSpeech(Ear(dict.fromkeys(EKMAN.labels, 0.0))),
        ListenerSpeech(Ear(Unavailable("down"))),
    ]


def inferred(ear: SpeechEmotion, *clips: Audio) -> list[dict[str, float]]:
    guesses = asyncio.run(ear.infer(clips))
    assert len(guesses) == len(clips)
    for guess in guesses:
        assert tuple(guess.distribution) == ear.labels.labels
        assert abs(math.fsum(guess.distribution.values()) - 1.0) <= 1e-6
        assert all(0.0 <= share <= 1.0 for share in guess.distribution.values())
        if guess.degraded:
            assert is_uniform(guess.distribution)
    return [guess.distribution for guess in guesses]


ODD = {
    "no samples": encode_wav(Clip(np.zeros(0, np.float32), RATE)),
    "one sample": encode_wav(Clip(np.full(1, 0.7, np.float32), RATE)),
    "two samples": encode_wav(Clip(np.array([0.1, -0.9], np.float32), RATE)),
    "silence": encode_wav(Clip(np.zeros(RATE, np.float32), RATE)),
    "clipped": encode_wav(Clip(np.sign(np.sin(np.arange(RATE) / 10)).astype(np.float32), RATE)),
    "noise": encode_wav(Clip(np.random.default_rng(0).normal(0, 2, RATE).astype(np.float32), RATE)),
    "one click": encode_wav(Clip(np.eye(1, RATE, 500, dtype=np.float32)[0], RATE)),
    "slow": encode_wav(Clip(np.sin(np.arange(3000) / 5).astype(np.float32), 1_000)),
    "a voice": hum(),
    "bytes": b"\x00\xff",
    "empty": b"",
}


@pytest.mark.parametrize("ear", ears(), ids=lambda ear: ear.name)
def test_any_clip_has_a_distribution(ear: SpeechEmotion) -> None:
    first = inferred(ear, *ODD.values(), "/no/such/file.wav")
    assert first == inferred(ear, *ODD.values(), "/no/such/file.wav")
    assert inferred(ear) == []


@given(
    arrays.arrays(np.float32, st.integers(0, 4000), elements=st.floats(-1, 1, width=32)),
    st.sampled_from([1_000, 8_000, 11_025, 48_000]),
)
def test_prosody_of_any_sound_sums_to_one(samples: np.ndarray, rate_hz: int) -> None:
    inferred(ProsodySpeech(), encode_wav(Clip(samples, rate_hz)))


@given(st.floats(0, 1), st.floats(allow_nan=False))
def test_arousal_is_spread_over_the_labels_near_it(arousal: float, certainty: float) -> None:
    distribution = spread_arousal(arousal, certainty)
    assert abs(math.fsum(distribution.values()) - 1.0) <= 1e-6
    assert min(distribution.values()) >= 0.5 / 7
    nearest = min(AROUSAL, key=lambda label: abs(AROUSAL[label] - arousal))
    assert distribution[nearest] == pytest.approx(max(distribution.values()))
    assert is_uniform(spread_arousal(arousal, 0.0))


def test_a_loud_voice_is_more_angry_than_sad_and_a_quiet_one_the_reverse() -> None:
    loud, quiet = inferred(ProsodySpeech(), hum(320, loudness=0.9), hum(90, loudness=0.01))
    assert loud["anger"] > loud["sadness"]
    assert quiet["sadness"] > quiet["anger"]


def test_what_is_wrong_with_a_clip_stands_beside_it() -> None:
    guesses = asyncio.run(
        ProsodySpeech().infer([b"", ODD["silence"], ODD["noise"], hum(), "/no/such/file.wav"])
    )
    reasons = [guess.degraded for guess in guesses]
    assert reasons[:2] == ["not a wav file", NO_SOUND]
    assert "no voice" in str(reasons[2])
    assert reasons[3] is None
    assert "no such file" in str(reasons[4])


def test_a_models_labels_are_told_in_ours() -> None:
    ear = classifier("ang", "hap", "neu", "sad")
    assert ear.labels == FOUR
    assert inferred(ear, hum())[0]["angry"] == pytest.approx(0.9)
    eight = classifier(
        "fearful", "calm", "neutral", "angry", "happy", "sad", "disgust", "surprised", score=0.3
    )
    assert eight.labels == EKMAN
    assert inferred(eight, hum())[0]["neutral"] == pytest.approx(0.2)  # calm and neutral share one
    with pytest.raises(ConfigError, match="LABEL_0"):
        classifier("LABEL_0", "LABEL_1")


def test_a_model_that_breaks_is_uniform_with_the_reason() -> None:
    def classify(sounds: list[Samples]) -> list[dict[str, float]]:
        raise RuntimeError("out of memory")

    ear = TransformersSpeech("transformers:fake", FOUR.labels, RATE, classify)
    guesses = asyncio.run(ear.infer([hum(), b""]))
    assert [guess.degraded for guess in guesses] == [
        "transformers:fake failed: RuntimeError",
        "not a wav file",
    ]


def test_a_backend_that_is_not_known_names_those_that_are(tmp_path: Path) -> None:
    for name in ("prosodie", "openai", "transformers:"):
        with pytest.raises(ConfigError, match="uniform, prosody, transformers:MODEL, openai"):
            build_speech_emotion(name)
    assert [
        build_speech_emotion(name, Ear({})).name for name in ("uniform", "prosody", "openai")
    ] == [
        "uniform",
        "prosody",
        "openai",
    ]


class Voice:
    backend, model, voice = "fake", "m", "v"

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault, self.asked = fault, 0

    async def speak(self, text: str) -> bytes:
        self.asked += 1
        if self.fault:
            raise self.fault
        return hum()


def heard(
    folder: Path, utterances: Sequence[Utterance], speaker: Speaker | None
) -> list[RecognisedSpeech]:
    async def listen() -> list[RecognisedSpeech]:
        return await recognise_speech(
            utterances, ProsodySpeech(), AudioStore(str(folder / "store")), speaker
        )

    return asyncio.run(listen())


def test_a_recording_of_its_own_is_heard_instead_of_synthesis(tmp_path: Path) -> None:
    (tmp_path / "own.wav").write_bytes(hum())
    sample = Sample(id="s", query="Hello?", metadata={"audio": "own.wav"})
    assert to_utterance(sample, "/other").recording == "/other/own.wav"
    assert to_utterance(sample, "s3://bucket/data").recording == "s3://bucket/data/own.wav"
    assert (
        to_utterance(Sample(id="s", query="q", metadata={"audio": "/a.wav"}), "/other").recording
        == "/a.wav"
    )
    assert (
        to_utterance(Sample(id="s", query="q", metadata={"audio": 5}), "/other").recording
        == "/other/5"
    )
    assert to_utterance(Sample(id="s", query="q"), "/other").recording is None
    voice = Voice()
    [result] = heard(tmp_path, [to_utterance(sample, str(tmp_path))], voice)
    assert (result.source, result.backend, result.degraded) == ("recording", "prosody", None)
    assert result.audio == str(tmp_path / "own.wav")
    assert voice.asked == 0


def test_no_utterance_is_lost_over_its_sound(tmp_path: Path) -> None:
    (tmp_path / "broken.wav").write_bytes(b"RIFF....WAVE")
    utterances = [
        Utterance(text="Hello?"),
        Utterance(text="Hello?", recording=f"{tmp_path}/absent.wav"),
        Utterance(text="Hello?", recording=f"{tmp_path}/broken.wav"),
        Utterance(text="Hello?", recording=str(tmp_path)),
        Utterance(text="😀"),
        Utterance(text="Good evening"),
    ]
    voice = Voice()
    results = heard(tmp_path, utterances, voice)
    assert [result.source for result in results] == (
        "synthesised|none|none|none|none|synthesised"
    ).split("|")
    assert [result.backend for result in results] == (
        "prosody|uniform|uniform|uniform|uniform|prosody"
    ).split("|")
    assert "no such file" in str(results[1].degraded)
    assert "without a format" in str(results[2].degraded)
    assert "cannot be read" in str(results[3].degraded)
    assert "nothing to speak" in str(results[4].degraded)
    assert all(is_uniform(result.distribution) for result in results[1:5])
    assert results[0].audio in {path.name for path in (tmp_path / "store").glob("*.wav")}
    assert voice.asked == 2


def test_a_voice_that_fails_is_uniform_and_says_so(tmp_path: Path) -> None:
    [result] = heard(
        tmp_path, [Utterance(text="Hello?")], Voice(Unavailable("the provider answered 500"))
    )
    assert (result.source, result.backend) == ("none", "uniform")
    assert result.degraded == "speech synthesis (fake): the provider answered 500"


def test_without_a_voice_speech_says_nothing(tmp_path: Path) -> None:
    [result] = heard(tmp_path, [Utterance(text="Hello?")], None)
    assert result == RecognisedSpeech(
        distribution=EKMAN.uniform(), backend="uniform", source="none"
    )

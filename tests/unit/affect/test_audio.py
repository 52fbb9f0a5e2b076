"""Wav files: what is written is read back, what others write is understood, what is broken says
so."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from memray_eval.affect.audio import LONGEST_S, Clip, decode_wav, encode_wav, read_audio, resample
from memray_eval.errors import DataError

RATE = 16_000


def tone(hz: float, seconds: float = 1.0, loudness: float = 0.3, rate_hz: int = RATE) -> Clip:
    moments = np.arange(int(seconds * rate_hz)) / rate_hz
    return Clip((loudness * np.sin(2 * np.pi * hz * moments)).astype(np.float32), rate_hz)


def wav(
    encoding: int,
    bits: int,
    channels: int,
    sound: bytes,
    size: int | None = None,
    more: bytes = b"",
) -> bytes:
    frame = channels * bits // 8
    layout = struct.pack("<HHIIHH", encoding, channels, RATE, RATE * frame, frame, bits) + more
    chunks = b"fmt " + struct.pack("<I", len(layout)) + layout + b"LIST\x03\x00\x00\x00abc\x00"
    data = b"data" + struct.pack("<I", len(sound) if size is None else size) + sound
    return b"RIFF" + struct.pack("<I", 4 + len(chunks) + len(data)) + b"WAVE" + chunks + data


@given(
    arrays.arrays(np.float32, st.integers(0, 300), elements=st.floats(-1, 1, width=32)),
    st.sampled_from([8_000, 16_000, 24_000, 44_100]),
)
def test_a_clip_is_read_back_as_it_was_written(samples: np.ndarray, rate_hz: int) -> None:
    clip = decode_wav(encode_wav(Clip(samples, rate_hz)))
    assert clip.rate_hz == rate_hz
    assert clip.samples.shape == samples.shape
    assert np.abs(clip.samples - samples).max(initial=0.0) <= 1 / 16_000


HALVES, SIXTEEN = struct.pack("<2f", 0.5, -0.5), struct.pack("<2h", 1 << 14, -(1 << 14))
EXTENSIBLE = struct.pack("<HHIH14s", 22, 32, 4, 3, b"\x00" * 14)
ODD_FLOATS = struct.pack("<3f", float("nan"), float("inf"), -9.0)


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        (wav(1, 8, 1, struct.pack("2B", 192, 64)), [0.5, -0.5]),
        (wav(1, 16, 1, SIXTEEN), [0.5, -0.5]),
        (wav(1, 24, 1, b"\x00\x00\x40\x00\x00\xc0"), [0.5, -0.5]),
        (wav(1, 32, 1, struct.pack("<2i", 1 << 30, -(1 << 30))), [0.5, -0.5]),
        (wav(3, 32, 1, HALVES), [0.5, -0.5]),
        (wav(3, 64, 1, struct.pack("<2d", 0.5, -0.5)), [0.5, -0.5]),
        (wav(0xFFFE, 32, 1, HALVES, more=EXTENSIBLE), [0.5, -0.5]),
        # Channels are averaged, and half a frame is left out
        (wav(1, 16, 2, struct.pack("<5h", 1 << 14, 0, 0, -(1 << 14), 7)), [0.25, -0.25]),
        (wav(3, 32, 1, ODD_FLOATS), [0.0, 1.0, -1.0]),
        (wav(1, 16, 1, SIXTEEN, size=0xFFFFFFFF), [0.5, -0.5]),  # streamed: to its end
    ],
    ids=range(10),
)
def test_every_usual_encoding_is_understood(data: bytes, samples: list[float]) -> None:
    assert decode_wav(data).samples == pytest.approx(samples)


def test_only_the_first_minute_is_heard() -> None:
    clip = decode_wav(wav(1, 8, 1, b"\x80" * int(RATE * (LONGEST_S + 3))))
    assert clip.duration_s == LONGEST_S


BROKEN = {
    "not a wav": b"ID3 is the head of an mp3",
    "empty": b"",
    "cut off": wav(1, 16, 1, b"\x00\x40" * 5, size=1000),
    "encoding 85": wav(85, 0, 1, b"\x00" * 8),
    "0 channels": wav(1, 16, 0, b"\x00" * 8),
    "without sound": wav(1, 16, 1, b"")[:40],
    "before its format": b"RIFF\x00\x00\x00\x00WAVEdata\x02\x00\x00\x00ab",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_wav_says_what_is_wrong(what: str) -> None:
    with pytest.raises(DataError, match="not a wav" if what == "empty" else what):
        decode_wav(BROKEN[what])


@given(st.binary(max_size=200), st.integers(0, 60))
def test_any_bytes_are_a_clip_or_a_data_error(junk: bytes, at: int) -> None:
    good = wav(1, 16, 1, b"\x00\x40" * 20)
    for data in (junk, good[:at] + junk, good[:at]):
        try:
            clip = decode_wav(data)
        except DataError:
            continue
        assert np.isfinite(clip.samples).all()


@pytest.mark.parametrize("name", ["absent.wav", "", "a\0b.wav", "nowhere://bucket/a.wav"])
def test_a_file_that_is_not_there_is_a_data_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError):
        read_audio(name if "://" in name else f"{tmp_path}/{name}")


def test_another_rate_holds_the_same_tone() -> None:
    changed, expected = resample(tone(300, rate_hz=24_000), 8_000), tone(300, rate_hz=8_000)
    assert changed.rate_hz == 8_000
    assert changed.samples[100:-100] == pytest.approx(expected.samples[100:-100], abs=0.02)

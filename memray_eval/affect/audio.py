"""Decodes and encodes wav files, and measures the prosody of a voice: loudness, pitch and rate."""

from __future__ import annotations

import io
import math
import struct
import wave
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memray_eval.errors import ConfigError, DataError
from memray_eval.storage.paths import locate, open_reader

Samples = NDArray[np.float32]

LONGEST_S = (
    60.0  # what comes later in a clip is not heard: moods are told sooner, and models take no hours
)
LARGEST_BYTES = 64 << 20
RATES_HZ = (1_000, 384_000)
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# who streams a wav cannot know its length yet and writes the largest number; OpenAI does
_OPEN_END = 0x7FFF_0000
_DTYPES = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}


class Clip(NamedTuple):
    """Mono sound: finite samples in -1 to 1, `rate_hz` of them a second."""

    samples: Samples
    rate_hz: int

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.rate_hz

    @property
    def is_silent(self) -> bool:
        """Returns True if it has no samples, or all of them are the same."""
        return len(self.samples) == 0 or bool(np.ptp(self.samples) == 0)


class _Layout(NamedTuple):
    encoding: int
    channels: int
    rate_hz: int
    bits: int

    @property
    def frame_bytes(self) -> int:
        return self.channels * self.bits // 8


def read_audio(path: str) -> bytes:
    """Reads a file's bytes, locally or from the cloud. Raises DataError if it is missing, cannot be
    read, or is larger than LARGEST_BYTES."""
    try:
        filesystem, inner = locate(path)
        size = filesystem.get_file_info(inner).size
        if size is not None and size > LARGEST_BYTES:
            raise DataError(f"{path}: larger than {LARGEST_BYTES >> 20} MiB; cut the recording")
        with open_reader(filesystem, inner) as file:
            return bytes(file.read())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError, ConfigError) as error:  # ValueError: a name no file can have
        raise DataError(f"{path}: cannot be read ({type(error).__name__})") from None


def decode_wav(data: bytes) -> Clip:
    """Decodes the first LONGEST_S seconds of a wav (integers of 8 to 32 bits, or floats) and
    averages its channels.

    By hand, since the standard library's `wave` refuses floats and the extensible header, which
    many recorders write. Raises DataError that says what is wrong, also for a file that is shorter
    than its header says."""
    layout, raw = _read_chunks(data)
    dtype = _DTYPES.get((layout.encoding, layout.bits))
    if dtype is None and (layout.encoding, layout.bits) != (_PCM, 24):
        raise DataError(
            f"a wav of encoding {layout.encoding} with {layout.bits} bits; save it as 16-bit PCM"
        )
    if not 1 <= layout.channels <= 64 or not RATES_HZ[0] <= layout.rate_hz <= RATES_HZ[1]:
        raise DataError(
            f"a wav of {layout.channels} channels and {layout.rate_hz} samples a second; save it "
            "as 16 kHz mono"
        )
    frames = min(len(raw) // layout.frame_bytes, int(LONGEST_S * layout.rate_hz))
    raw = raw[: frames * layout.frame_bytes]
    if dtype is None:  # 24 bits become the upper ones of 32
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        numbers = wide.view("<i4").ravel()
    else:
        numbers = np.frombuffer(raw, dtype)
    mono = _scale(numbers).reshape(frames, layout.channels).mean(axis=1, dtype=np.float32)
    return Clip(np.asarray(mono, np.float32), layout.rate_hz)


def _read_chunks(data: bytes) -> tuple[_Layout, bytes]:
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise DataError("not a wav file")
    layout, position = None, 12
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        body = data[position + 8 : position + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            encoding, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if encoding == _EXTENSIBLE and len(body) >= 26:
                encoding = struct.unpack_from("<H", body, 24)[0]
            layout = _Layout(encoding, channels, rate_hz, bits)
        elif name == b"data":
            if layout is None:
                raise DataError("a wav whose sound comes before its format")
            if len(body) < size < _OPEN_END:
                raise DataError(f"a wav that is cut off: {len(body)} of {size} bytes of sound")
            return layout, body
        position += 8 + size + size % 2
    raise DataError("a wav without sound" if layout else "a wav without a format")


def _scale(numbers: NDArray[Any]) -> Samples:
    if numbers.dtype.kind == "f":
        whole = np.nan_to_num(numbers, nan=0.0, posinf=1.0, neginf=-1.0).clip(-1.0, 1.0)
    elif numbers.dtype.kind == "u":  # 8 bits have their middle at 128
        whole = numbers / 128.0 - 1.0
    else:
        whole = numbers / float(1 << (8 * numbers.dtype.itemsize - 1))
    return np.asarray(whole, np.float32)


def encode_wav(clip: Clip) -> bytes:
    """The clip as a wav of 16 bits, mono. Reading it back is within 1 / 32767 of every sample."""
    whole = np.rint(np.clip(np.nan_to_num(clip.samples), -1.0, 1.0) * 32767).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(clip.rate_hz)
        file.writeframes(whole.tobytes())
    return out.getvalue()


def resample(clip: Clip, rate_hz: int) -> Clip:
    """Resamples a clip through its spectrum; frequencies above half the new rate are left out."""
    length = math.ceil(len(clip.samples) * rate_hz / clip.rate_hz)
    if rate_hz == clip.rate_hz or length == 0:
        return Clip(clip.samples, rate_hz)
    spectrum = np.fft.rfft(clip.samples)[: length // 2 + 1]
    changed = np.fft.irfft(spectrum, length) * (length / len(clip.samples))
    return Clip(np.clip(changed, -1.0, 1.0).astype(np.float32), rate_hz)


# How a voice is read. The middles are those of calm adult speech, so that a clip by itself, without
# others of the same speaker, can be placed: a level of -26 dB of full scale (ITU-T P.56's usual
# one), a pitch between a man's and a woman's, and four or five syllables a second. Each figure
# weighs by how many of its widths it lies off, at most two.
_LEVEL_DB, _LEVEL_WIDTH = -26.0, 8.0
_PITCH_HZ, _PITCH_WIDTH = 165.0, 6.0  # semitones
_RANGE_SEMITONES, _RANGE_WIDTH = 3.0, 2.0  # the pitch's standard deviation
_RATE, _RATE_WIDTH = 4.5, 1.5  # peaks of loudness a second
_WEIGHTS = np.array([0.6, 0.4, 0.6, 0.4])

_ANALYSED_HZ, _FRAME, _HOP = 8_000, 320, 160  # frames of 40 ms, every 20 ms
_LAGS = slice(_ANALYSED_HZ // 400, _ANALYSED_HZ // 60 + 1)  # pitches of 60 to 400 Hz
_PERIODIC = 0.5  # a frame whose autocorrelation has such a peak is voiced
_QUIET_DB, _BELOW_LOUDEST_DB = -60.0, 30.0  # quieter frames are pauses
_PEAK_DB = 2.0  # how far loudness falls between two syllables


class Prosody(NamedTuple):
    """What a voice does: its level in dB of full scale, median pitch in Hz, the pitch's spread in
    semitones, and peaks of loudness a second, over `voiced_s` seconds that have a pitch. All 0
    where none has."""

    level_db: float = 0.0
    pitch_hz: float = 0.0
    range_semitones: float = 0.0
    peaks_per_s: float = 0.0
    voiced_s: float = 0.0

    @property
    def arousal(self) -> float:
        """0 (calm) to 1: a logistic function of the figures' distances from calm speech. An
        estimate, fitted to nothing."""
        if self.voiced_s == 0.0:
            return 0.5
        off = (
            (self.level_db - _LEVEL_DB) / _LEVEL_WIDTH,
            12 * np.log2(self.pitch_hz / _PITCH_HZ) / _PITCH_WIDTH,
            (self.range_semitones - _RANGE_SEMITONES) / _RANGE_WIDTH,
            (self.peaks_per_s - _RATE) / _RATE_WIDTH,
        )
        return float(1 / (1 + np.exp(-_WEIGHTS @ np.clip(off, -2.0, 2.0))))

    @property
    def certainty(self) -> float:
        """0 to 1: a whole second with a pitch is enough."""
        return min(1.0, self.voiced_s)


def measure_prosody(clip: Clip) -> Prosody:
    """Measures a clip at 8 kHz, frame by frame; pitch by autocorrelation."""
    samples = resample(clip, _ANALYSED_HZ).samples.astype(np.float64)
    samples = samples - samples.mean() if len(samples) else samples
    if len(samples) < _FRAME:
        return Prosody()
    frames = np.lib.stride_tricks.sliding_window_view(samples, _FRAME)[::_HOP]
    level_db = 10 * np.log10((frames**2).mean(axis=1) + 1e-12)
    is_loud = level_db > max(_QUIET_DB, float(level_db.max()) - _BELOW_LOUDEST_DB)
    if not is_loud.any():
        return Prosody()
    pitches = _measure_pitches(frames[is_loud])
    pitches = pitches[pitches > 0]
    if len(pitches) == 0:
        return Prosody()
    frame_s = _HOP / _ANALYSED_HZ
    middle = float(np.median(pitches))
    return Prosody(
        level_db=float(level_db[is_loud].mean()),
        pitch_hz=middle,
        range_semitones=float(np.std(12 * np.log2(pitches / middle))),
        peaks_per_s=_count_peaks(level_db, is_loud) / (float(is_loud.sum()) * frame_s),
        voiced_s=len(pitches) * frame_s,
    )


def _measure_pitches(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each frame's pitch in Hz, 0 where it has none: the shortest lag whose autocorrelation comes
    near the highest, which spares it the octave below."""
    windowed = frames * np.hanning(_FRAME)
    spectrum = np.fft.rfft(windowed, 2 * _FRAME, axis=1)
    own = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)
    window = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(_FRAME), 2 * _FRAME)) ** 2)
    likeness = own[:, _LAGS] / (window[_LAGS] / window[0]) / np.maximum(own[:, :1], 1e-12)
    rises = likeness[:, 1:-1] >= np.maximum(likeness[:, :-2], likeness[:, 2:])
    peaks = np.where(rises, likeness[:, 1:-1], 0.0)
    best = peaks.max(axis=1)
    lag = _LAGS.start + 1 + np.argmax(peaks >= 0.9 * best[:, None], axis=1)
    return np.where(best >= _PERIODIC, _ANALYSED_HZ / lag, 0.0)


def _count_peaks(level_db: NDArray[np.float64], is_loud: NDArray[np.bool_]) -> int:
    """Counts the loud peaks that the smoothed loudness rises to by at least _PEAK_DB, and falls
    from by as much."""
    smooth = np.convolve(np.maximum(level_db, _QUIET_DB), np.ones(3) / 3, mode="same")
    count, low, high, at_high = 0, smooth[0], -np.inf, 0
    for index, level in enumerate(smooth):
        if level > high:
            high, at_high = level, index
        if high - level >= _PEAK_DB or index == len(smooth) - 1:
            count += int(high - low >= _PEAK_DB and is_loud[at_high])
            low, high, at_high = level, level, index
        low = min(low, level)
    return count

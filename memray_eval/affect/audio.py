"""Decodes, encodes and resamples wav files."""

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

LONGEST_S = 60.0  # the rest of a clip is not heard
LARGEST_BYTES = 64 << 20
RATES_HZ = (1_000, 384_000)
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# a streamed wav has no length yet: OpenAI writes the largest number
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
    averages its channels. The standard library's `wave` refuses floats and the extensible header.
    Raises DataError, also for a file that is shorter than its header says."""
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
    """Encodes a clip as a mono wav of 16 bits, within 1 / 32767 of every sample."""
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

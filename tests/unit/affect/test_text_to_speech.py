"""Texts are spoken once, and kept."""

import asyncio
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.affect.audio import decode_wav, encode_wav
from memray_eval.affect.speech_client import (
    LONGEST_TEXT,
    AudioStore,
    choose_synthesis,
    text_to_speak,
)
from memray_eval.errors import ConfigError, DataError, JudgeError, Unavailable
from tests.unit.affect.test_audio import tone


class Hum:
    """A speaker that hums as long as the text and counts what it was asked."""

    backend, model = "hum", "m"

    def __init__(
        self, voice: str = "low", fault: Exception | None = None, wav: bytes | None = None
    ) -> None:
        self.voice, self.fault, self.wav = voice, fault, wav
        self.seen: list[str] = []

    async def speak(self, text: str) -> bytes:
        self.seen.append(text)
        await asyncio.sleep(0)
        if self.fault:
            raise self.fault
        return self.wav or encode_wav(tone(127, len(text) / 80, rate_hz=8_000))


async def spoken(store: AudioStore, speaker: Hum, *texts: str) -> list[str]:
    sounds = await asyncio.gather(*(store.get_or_speak(text, speaker) for text in texts))
    return [sound.file for sound in sounds]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.wav")}


@pytest.mark.parametrize("place", ["{}", "file://{}"])
async def test_a_second_run_synthesises_nothing(place: str, tmp_path: Path) -> None:
    url = place.format(tmp_path)
    first, second, speaker = AudioStore(url), AudioStore(url), Hum()
    names = await spoken(first, speaker, "one", "two", "one")
    assert await spoken(second, speaker, "one", "two") == names[:2]
    assert sorted(speaker.seen) == ["one", "two"]
    assert first.counts == {"misses": 2, "synthesised": 2, "hits": 1}
    assert second.counts == {"hits": 2}
    assert files(tmp_path) == set(names)


async def test_each_voice_and_text_has_its_own_file(tmp_path: Path) -> None:
    store = AudioStore(str(tmp_path))
    low, high = [await spoken(store, Hum(voice), "one", "One", "one ") for voice in ("low", "high")]
    assert len({*low, *high}) == 6


async def test_what_fails_is_not_kept_and_asked_again(tmp_path: Path) -> None:
    store = AudioStore(str(tmp_path))
    for speaker, error in (
        (Hum(fault=Unavailable("down")), JudgeError),
        (Hum(wav=b"RIFF, or not"), DataError),
    ):
        with pytest.raises(error):
            await spoken(store, speaker, "one")
    assert files(tmp_path) == set()
    await spoken(store, good := Hum(), "one")
    assert good.seen == ["one"]
    assert store.counts == {"misses": 3, "synthesised": 1}


async def test_a_file_that_somebody_broke_is_spoken_anew(tmp_path: Path) -> None:
    [name] = await spoken(AudioStore(str(tmp_path)), Hum(), "one")
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:60])
    broken = (tmp_path / name).stat().st_ino
    await spoken(AudioStore(str(tmp_path)), again := Hum(), "one")
    assert again.seen == ["one"]
    assert (tmp_path / name).stat().st_ino != broken  # it is replaced, never written over
    assert decode_wav((tmp_path / name).read_bytes()).duration_s > 0


def test_a_folder_that_cannot_be_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"affect\.cache"):
        AudioStore(str(tmp_path / "file" / "audio"))


async def test_sound_that_cannot_be_kept_is_used_all_the_same(tmp_path: Path) -> None:
    store = AudioStore(str(tmp_path / "audio"))
    shutil.rmtree(tmp_path / "audio")
    await spoken(store, Hum(), "one")
    assert store.counts == {"misses": 1, "synthesised": 1, "unkept": 1}


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        *(("", ""), ("  \n", ""), ("😀😀", ""), ("...?!", ""), ("\ud800", "")),
        *((" I am fine 😀 ", "I am fine 😀"), ("ありがとう", "ありがとう")),
    ],
)
def test_only_a_text_with_something_to_say_is_spoken(text: str, spoken: str) -> None:
    assert text_to_speak(text) == spoken


@given(st.text() | st.text(st.sampled_from("ab \n."), min_size=LONGEST_TEXT))
def test_what_is_spoken_is_bounded_and_encodable(text: str) -> None:
    spoken = text_to_speak(text)
    assert len(spoken.encode()) >= len(spoken) <= LONGEST_TEXT
    assert text_to_speak("a" * 3 * LONGEST_TEXT) == "a" * LONGEST_TEXT


def test_openai_is_chosen_where_it_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert choose_synthesis("auto") == "off"
    assert choose_synthesis("auto", "http://127.0.0.1:1/v1") == "openai"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert choose_synthesis("auto") == "openai"
    assert choose_synthesis("off") == "off"

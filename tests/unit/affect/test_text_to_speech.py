"""Texts are spoken once: the store, and a kill in the middle."""

import asyncio
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.affect.audio import Clip, decode_wav, encode_wav
from memray_eval.affect.speech_client import (
    LONGEST_TEXT,
    AudioStore,
    choose_synthesis,
    text_to_speak,
)
from memray_eval.errors import ConfigError, DataError, JudgeError, Unavailable

REPOSITORY = Path(__file__).parents[3]


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
        return self.wav or encode_wav(
            Clip(np.sin(np.arange(100 * len(text)) / 10).astype(np.float32), 8_000)
        )


async def spoken(store: AudioStore, speaker: Hum, *texts: str) -> list[str]:
    return [
        sound.file
        for sound in await asyncio.gather(*(store.get_or_speak(text, speaker) for text in texts))
    ]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.wav")}


async def test_a_second_run_synthesises_nothing(tmp_path: Path) -> None:
    first, second, speaker = AudioStore(str(tmp_path)), AudioStore(str(tmp_path)), Hum()
    names = await spoken(first, speaker, "one", "two", "one")
    assert await spoken(second, speaker, "one", "two") == names[:2]
    assert sorted(speaker.seen) == ["one", "two"]
    assert first.counts == {"misses": 2, "synthesised": 2, "hits": 1}
    assert second.counts == {"hits": 2}
    assert files(tmp_path) == set(names)


async def test_each_voice_and_text_has_its_own_file(tmp_path: Path) -> None:
    store = AudioStore(str(tmp_path))
    names = {
        name
        for voice in ("low", "high")
        for name in await spoken(store, Hum(voice), "one", "One", "one ")
    }
    assert len(names) == 6


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
    await spoken(AudioStore(str(tmp_path)), again := Hum(), "one")
    assert again.seen == ["one"]
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


async def test_a_cloud_folder_keeps_its_files(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/audio"
    names = await spoken(AudioStore(url), Hum(), "one", "one")
    await spoken(AudioStore(url), again := Hum(), "one")
    assert again.seen == []
    assert files(tmp_path / "audio") == set(names)


SCRIPT = textwrap.dedent(
    """
    import asyncio, sys
    from memray_eval.affect.speech_client import AudioStore
    from memray_eval.affect.audio import Clip, encode_wav
    import numpy as np

    folder, log, count, wait_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

    class Slow:
        backend, model, voice = "slow", "m", "v"

        async def speak(self, text):
            with open(log, "a") as file:
                file.write(text + chr(10))
            await asyncio.sleep(wait_s)
            return encode_wav(Clip(np.ones(40_000, np.float32) * 0.1, 8_000))

    async def main():
        store, slots = AudioStore(folder), asyncio.Semaphore(4)

        async def speak(text):
            async with slots:
                await store.get_or_speak(text, Slow())
                print("kept", text, flush=True)

        await asyncio.gather(*(speak(f"text {i}") for i in range(count)))
        print("counts", store.counts["synthesised"], flush=True)

    asyncio.run(main())
    """
)


def start(folder: Path, log: Path, count: int, wait_s: float) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", SCRIPT, str(folder), str(log), str(count), str(wait_s)]
    return subprocess.Popen(arguments, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


@pytest.mark.heavy
def test_a_kill_leaves_nothing_broken_and_nothing_is_spoken_twice_after_it(tmp_path: Path) -> None:
    folder, log = tmp_path / "audio", tmp_path / "log"
    with start(folder, log, 40, 0.02) as writer:
        assert writer.stdout is not None
        kept = {writer.stdout.readline().removeprefix("kept ").strip() for _ in range(10)}
        writer.send_signal(signal.SIGKILL)
    present = files(folder)
    assert 10 <= len(present) < 40
    assert all(decode_wav((folder / name).read_bytes()).duration_s == 5.0 for name in present)
    log.unlink()
    out, _ = start(folder, log, 40, 0.0).communicate(timeout=60)
    spoken_after = log.read_text().splitlines()
    assert len(spoken_after) == len(set(spoken_after)) == 40 - len(present)
    assert not kept & set(spoken_after)
    assert f"counts {40 - len(present)}" in out
    assert len(files(folder)) == 40


def test_only_a_text_with_something_to_say_is_spoken() -> None:
    for text in ("", "  \n", "😀😀", "...?!", "\ud800"):
        assert text_to_speak(text) == ""
    assert text_to_speak(" I am fine 😀 ") == "I am fine 😀"
    assert text_to_speak("ありがとう") == "ありがとう"


@given(
    st.one_of(
        st.text(),
        st.text(st.sampled_from("ab \n."), min_size=LONGEST_TEXT, max_size=3 * LONGEST_TEXT),
    )
)
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
    with pytest.raises(ConfigError, match="auto, openai, off"):
        choose_synthesis("festival")

"""Speaks texts aloud, and stores the sound so that nothing is synthesised, or paid for, twice.

Synthetic speech carries almost no emotion (four-class accuracy 0.29 to 0.54 on three engines): a
speech weight above 0 pays for real recordings only."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib
import importlib.metadata
import json
import os
import secrets
import textwrap
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from memray_eval.affect.audio import Clip, decode_wav, encode_wav
from memray_eval.config.environment import api_key, cache_dir
from memray_eval.errors import ConfigError, DataError, GenerationError
from memray_eval.storage.paths import is_object_store, locate, open_reader, write_whole
from memray_eval.types import Frozen

Synthesis = Literal["openai", "local", "off"]
SYNTHESES: tuple[Synthesis, ...] = ("openai", "local", "off")

# characters that are spoken: about the minute that is heard; OpenAI takes four times as many
LONGEST_TEXT = 1000
# characters that the local voice takes at once: its memory grows with the square of a sentence
LONGEST_PIECE = 300
FORMAT = "wav"
LOCAL_VOICE = "heart"  # the one whose weights are in the package
STALE_S = 86_400.0  # a pending file this old has no writer any more
POLL_S = 0.05
LOCK_DIGITS = 3  # so there are at most 4096 locks, whatever the number of texts


class Speaker(Protocol):
    """A voice. What it says of a text is the same for the same backend, model and voice."""

    backend: str
    model: str
    voice: str

    async def speak(self, text: str) -> bytes:
        """The text as a wav. Raises JudgeError (a provider's failures) or GenerationError."""
        ...


def choose_synthesis(name: str, base_url: str | None = None) -> Synthesis:
    """The backend for `auto` (seed 000's default: OpenAI where it can be asked, else no speech), or
    the one that is named. Raises ConfigError for a name that is none."""
    if name == "auto":
        return "openai" if base_url is not None or api_key("OPENAI_API_KEY") else "off"
    if name not in SYNTHESES:
        raise ConfigError(f"no speech synthesis {name!r}; there are: auto, {', '.join(SYNTHESES)}")
    return name


def text_to_speak(text: str) -> str:
    """The part of a text that is spoken: its first LONGEST_TEXT characters up to a space, always
    encodable. Empty if there is nothing to say, such as emoji alone."""
    text = text[: 2 * LONGEST_TEXT].encode("utf-8", "replace").decode()
    if len(text) > LONGEST_TEXT:
        cut = text[:LONGEST_TEXT]
        text = cut[: cut.rindex(" ")] if " " in cut else cut
    return text.strip() if any(sign.isalnum() for sign in text) else ""


class LocalVoice:
    """hibari-tts on this machine's CPU: English, a hundred times faster than speech, no network.
    Deterministic."""

    backend = "local"

    def __init__(self, engine: Any, model: str, voice: str) -> None:
        self.model, self.voice = model, voice
        self._engine, self._alone = engine, asyncio.Lock()

    async def speak(self, text: str) -> bytes:
        async with self._alone:
            return await asyncio.to_thread(self._synthesise, text)

    def _synthesise(self, text: str) -> bytes:
        try:
            sentences = self._engine.split_sentences(text)
            pieces = [
                piece for sentence in sentences for piece in textwrap.wrap(sentence, LONGEST_PIECE)
            ]
            sound = [self._engine(piece, seed=0) for piece in pieces]
        except Exception as error:
            # onnxruntime raises types of its own, and the phonemizer whatever its tables lack
            raise GenerationError(
                f"the local voice could not speak: {type(error).__name__}"
            ) from error
        samples = np.concatenate([np.zeros(0, np.float32), *sound])
        return encode_wav(Clip(samples.astype(np.float32), int(self._engine.sample_rate)))


def local_voice(voice: str = LOCAL_VOICE) -> LocalVoice:
    """The local voice, loaded. Raises ConfigError: not installed, or a voice that is not in the
    package (hibari would fetch it from the hub)."""
    try:
        package, voices = (
            importlib.import_module("hibari"),
            importlib.import_module("hibari.voices").VOICES,
        )
    except ImportError as error:
        raise ConfigError(
            f"speech synthesis `local` needs hibari-tts ({error.name} is missing): pip install "
            "hibari-tts==0.2.1; or choose openai or off"
        ) from None
    if not voices.get(voice, {}).get("bundled"):
        bundled = ", ".join(name for name, entry in voices.items() if entry.get("bundled"))
        raise ConfigError(f"hibari-tts brings no voice {voice!r}; there are: {bundled}")
    return LocalVoice(
        package.Hibari(voice=voice), f"hibari-tts {importlib.metadata.version('hibari-tts')}", voice
    )


class Sound(NamedTuple):
    """A wav and the name of its file in the store."""

    file: str
    wav: bytes


class StoreCounts(Frozen):
    """What was asked of a store in this process: `hits` were there, `misses` were not; of those
    `synthesised` were spoken (the others failed), and `unkept` of them could not be written."""

    hits: int = 0
    misses: int = 0
    synthesised: int = 0
    unkept: int = 0


class AudioStore:
    """Spoken texts as files in a folder, near or in the cloud, named by a hash of backend, voice,
    model, format and text.

    A file appears whole or not at all. On one machine a text is spoken by one process at a time and
    the others wait for it; in the cloud two may speak the same text at once, and either's file
    stands. A server's address is no part of the name. Build it on the event loop that will use it.
    Raises ConfigError where the folder cannot be made."""

    def __init__(
        self, folder: str | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """`folder` None: where this machine keeps fetched things, so that all its runs share one
        store."""
        self.folder = folder or str(cache_dir() / "audio")
        self._filesystem, self._inner = locate(self.folder)
        self._is_local, self._sleep = "://" not in self.folder, sleep
        self._making: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self.counts = StoreCounts()
        try:
            for part in ("pending", "locks") if self._is_local else ("pending",):
                self._filesystem.create_dir(f"{self._inner}/{part}", recursive=True)
        except OSError as error:
            raise ConfigError(
                f"affect.cache: cannot make the folder {self.folder}: {error}"
            ) from None
        if self._is_local:
            self._remove_stale_files()

    def file_name(self, speaker: Speaker, text: str) -> str:
        identity = json.dumps(
            [speaker.backend, speaker.voice, speaker.model, FORMAT, text], ensure_ascii=False
        )
        return f"{hashlib.blake2b(identity.encode('utf-8', 'replace'), digest_size=16).hexdigest()}.{FORMAT}"  # noqa: E501

    async def get_or_speak(self, text: str, speaker: Speaker) -> Sound:
        """Returns the text as speech: from its file, else spoken now and stored. Raises what the
        speaker raises, and DataError if the speaker gives something that is not a wav."""
        name = self.file_name(speaker, text)
        if (wav := await self._load(name)) is not None:
            return self._return_counted(Sound(name, wav), hits=1)
        async with self._making.setdefault(name, asyncio.Lock()), self._lock(name):
            if (wav := await self._load(name)) is not None:  # somebody else just spoke it
                return self._return_counted(Sound(name, wav), hits=1)
            self._count(misses=1)
            # Written anew: a provider that streams leaves the length out of the header.
            wav = encode_wav(decode_wav(await speaker.speak(text)))
            is_kept = await asyncio.to_thread(self._save, name, wav)
            return self._return_counted(Sound(name, wav), synthesised=1, unkept=0 if is_kept else 1)

    def _return_counted(self, sound: Sound, **more: int) -> Sound:
        self._count(**more)
        return sound

    def _count(self, **more: int) -> None:
        counts = self.counts.model_dump()
        self.counts = StoreCounts(
            **{name: count + more.get(name, 0) for name, count in counts.items()}
        )

    async def _load(self, name: str) -> bytes | None:
        return await asyncio.to_thread(self._read, name)

    def _read(self, name: str) -> bytes | None:
        """A file's bytes; None if there is none, or it is not a wav: a broken file is spoken
        anew."""
        try:
            with open_reader(self._filesystem, f"{self._inner}/{name}") as file:
                wav = bytes(file.read())
            decode_wav(wav)
        except (OSError, DataError):
            return None
        return wav

    def _save(self, name: str, wav: bytes) -> bool:
        """Writes a file under a pending name and moves it into place; in an object store, directly.
        Returns False if that failed: the sound is still good."""
        pending = f"{self._inner}/pending/{name}-{secrets.token_hex(8)}"
        try:
            if is_object_store(self._filesystem):
                write_whole(self._filesystem, f"{self._inner}/{name}", wav)
                return True
            with self._filesystem.open_output_stream(pending) as stream:
                stream.write(wav)
            self._filesystem.move(pending, f"{self._inner}/{name}")
        except OSError:
            return False
        return True

    @asynccontextmanager
    async def _lock(self, name: str) -> AsyncIterator[None]:
        """Locks a text (and others that share its hash prefix) for this process on this machine.
        The lock dies with its process, so a kill leaves none behind."""
        if not self._is_local:
            yield
            return
        with _open_lock_file(f"{self._inner}/locks/{name[:LOCK_DIGITS]}") as descriptor:
            while descriptor is not None and not _try_lock(descriptor):
                await self._sleep(POLL_S)
            yield

    def _remove_stale_files(self) -> None:
        """Removes what writers that were killed left behind."""
        oldest = time.time() - STALE_S
        with os.scandir(f"{self._inner}/pending") as entries:
            for entry in entries:
                try:
                    if entry.stat().st_mtime < oldest:
                        os.unlink(entry.path)
                except OSError:  # another process was faster, or the folder is not ours
                    continue


@contextmanager
def _open_lock_file(path: str) -> Iterator[int | None]:
    """Opens a lock file. The file stays: removing it could give two processes a lock each. None if
    the folder is read-only."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Tries to take the lock. True also on file systems without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True

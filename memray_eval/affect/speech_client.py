"""A client for OpenAI's speech models, and servers with its protocol, and the store of what they
spoke."""

import asyncio
import hashlib
import json
import weakref
from collections import Counter
from typing import Literal, NamedTuple, Protocol

from memray_eval.affect.audio import Clip, decode_wav, encode_wav
from memray_eval.config.environment import api_key, cache_dir, server_key
from memray_eval.errors import ConfigError, DataError, reason_of
from memray_eval.provider_http.openai_sdk import edge_for, open_client, to_judge_error
from memray_eval.provider_http.replies import HttpReply, InvalidReply, valid_text
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.storage.paths import locate, open_reader, write_whole

MAX_IN_FLIGHT = 8
FORMAT: Literal["wav"] = "wav"
MOST_SOUND_BYTES = 64_000_000  # a wav of the longest text that a provider takes is some 15 MB
# Sound is worth less than a verdict: after that the sample does without
PATIENCE = RetryPolicy(tries=4, ceiling_s=120.0)


class OpenAIVoice:
    """The speech endpoint of OpenAI (`base_url` None, with OPENAI_API_KEY), or of another server,
    whose key is in the environment variable `api_key_env`. Build it on the event loop that will use
    it."""

    backend, model, voice = "openai", "gpt-4o-mini-tts", "alloy"

    def __init__(
        self,
        base_url: str | None = None,
        api_key_env: str | None = None,
        timeout_s: float = 60.0,
        policy: RetryPolicy = PATIENCE,
    ) -> None:
        """Raises ConfigError without the key."""
        key = server_key(base_url, api_key_env, f"speech synthesis by openai/{self.model}")
        self._policy, self._slots = policy, asyncio.Semaphore(MAX_IN_FLIGHT)
        self._client = open_client(key, base_url, timeout_s, most_bytes=MOST_SOUND_BYTES)
        self.aclose = self._client.close

    async def speak(self, text: str) -> bytes:
        """Returns the text as a wav, whose length may be open. Raises JudgeError."""
        create, text = self._client.audio.speech.with_raw_response.create, valid_text(text)

        async def attempt(_: None) -> bytes:
            try:
                reply = await create(
                    model=self.model, voice=self.voice, input=text, response_format=FORMAT
                )
                return self._sound(HttpReply.of_sdk(reply))
            except Exception as error:  # the SDK's, or those of an odd reply
                raise to_judge_error(self._client, error) from None

        return await self._policy.run(attempt, lambda: self._slots)

    def _sound(self, reply: HttpReply) -> bytes:
        """The audio of a reply. Raises JudgeError if it is JSON, HTML or nothing."""
        body = reply.body if isinstance(reply.body, bytes) else reply.body.encode()
        edge = edge_for(self._client)
        if body.lstrip()[:1] in (b"{", b"["):
            edge.object(reply)
        with edge.reading(reply):
            if not body.strip() or body.lstrip()[:1] in (b"{", b"[", b"<"):
                raise InvalidReply("the body is no audio" if body.strip() else "the body is empty")
        return body


LONGEST_TEXT = 1000  # characters that are spoken: about the minute that is heard


class Speaker(Protocol):
    """A voice. Its sound of a text depends on the backend, the model and the voice alone."""

    backend: str
    model: str
    voice: str

    async def speak(self, text: str) -> bytes:
        """Returns the text as a wav. Raises JudgeError."""
        ...


def choose_synthesis(name: str, base_url: str | None = None) -> Literal["openai", "off"]:
    """The backend of affect.tts; `auto` is OpenAI if it can be asked, else off (as in seed 000)."""
    can_ask = base_url is not None or bool(api_key("OPENAI_API_KEY"))
    return "openai" if name == "openai" or (name == "auto" and can_ask) else "off"


def text_to_speak(text: str) -> str:
    """Returns the part of a text that is spoken: its first LONGEST_TEXT characters up to a space,
    always encodable. Empty if there is nothing to say, such as emoji alone."""
    text = text[: 2 * LONGEST_TEXT].encode("utf-8", "replace").decode()
    if len(text) > LONGEST_TEXT:
        cut = text[:LONGEST_TEXT]
        text = cut[: cut.rindex(" ")] if " " in cut else cut
    return text.strip() if any(sign.isalnum() for sign in text) else ""


class Sound(NamedTuple):
    """A spoken text and the name of its file in the store."""

    file: str
    clip: Clip


class AudioStore:
    """Spoken texts as whole files in a folder or the cloud, named by a hash of backend, voice,
    model, format and text, each spoken once at a time. For one event loop.

    `counts`, of this process: `hits` existed, `misses` did not; of those `synthesised` were spoken,
    and `unkept` of them could not be written."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder` None: the machine's cache folder. Raises ConfigError if it cannot be made."""
        self.folder = folder or str(cache_dir() / "audio")
        self._filesystem, self._inner = locate(self.folder)
        self._making: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self.counts: Counter[str] = Counter()
        try:
            self._filesystem.create_dir(self._inner, recursive=True)
        except OSError as error:
            raise ConfigError(
                f"affect.cache: cannot make the folder {self.folder}: {reason_of(error)}"
            ) from None

    def file_name(self, speaker: Speaker, text: str) -> str:
        identity = json.dumps(
            [speaker.backend, speaker.voice, speaker.model, FORMAT, text], ensure_ascii=False
        ).encode("utf-8", "replace")
        return f"{hashlib.blake2b(identity, digest_size=16).hexdigest()}.{FORMAT}"

    async def get_or_speak(self, text: str, speaker: Speaker) -> Sound:
        """Returns the text as speech: from its file, else spoken now and stored. Raises what the
        speaker raises, and DataError if the speaker gives something that is not a wav."""
        name = self.file_name(speaker, text)
        async with self._making.setdefault(name, asyncio.Lock()):
            if (clip := await asyncio.to_thread(self._read, name)) is not None:
                self.counts["hits"] += 1
                return Sound(name, clip)
            self.counts["misses"] += 1
            # Encoded again: a provider that streams leaves the length out of the header.
            wav = encode_wav(decode_wav(await speaker.speak(text)))
            self.counts["synthesised"] += 1
            if not await asyncio.to_thread(self._save, name, wav):
                self.counts["unkept"] += 1
            return Sound(name, decode_wav(wav))

    def _read(self, name: str) -> Clip | None:
        """Decodes a file; None if it is missing or not a wav."""
        try:
            with open_reader(self._filesystem, f"{self._inner}/{name}") as file:
                return decode_wav(bytes(file.read()))
        except (OSError, DataError):
            return None

    def _save(self, name: str, wav: bytes) -> bool:
        """Writes a whole file; False if that failed: the sound is still good."""
        try:
            write_whole(self._filesystem, f"{self._inner}/{name}", wav)
        except OSError:
            return False
        return True

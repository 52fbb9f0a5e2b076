"""OpenAI's speech calls against a real local server: retried, then degraded, never an
exception out of a batch."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.affect.audio import decode_wav
from memray_eval.affect.labels import is_uniform
from memray_eval.affect.speech import (
    RecognisedSpeech,
    TransformersSpeech,
    Utterance,
    recognise_speech,
)
from memray_eval.affect.speech_client import AudioStore, OpenAIVoice
from memray_eval.errors import ConfigError
from memray_eval.provider_http.retry import RetryPolicy
from tests.fake_judges import Slept
from tests.servers.provider import Answer, Fault, Provider, serving

SECRET = "sk-test-secret"
TEXTS = ("I could not sleep at all.", "What should I do this week?")
Script = Callable[[dict[str, Any]], str | Answer | Fault]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SPEECH_KEY", SECRET)


def policy(slept: Slept) -> RetryPolicy:
    return RetryPolicy(tries=3, ceiling_s=60.0, sleep=slept.sleep, clock=slept.clock)


def spoken(
    server: Provider, folder: Path, *texts: str, timeout_s: float = 10.0
) -> tuple[list[RecognisedSpeech], AudioStore, Slept]:
    """The texts spoken by the server and heard by a model that finds joy in all."""
    slept = Slept()

    async def run() -> tuple[list[RecognisedSpeech], AudioStore]:
        voice = OpenAIVoice(server.base_url, "TEST_SPEECH_KEY", timeout_s, policy(slept))
        store = AudioStore(str(folder))
        try:
            return await recognise_speech(
                [Utterance(text=text) for text in texts], joyful(), store, voice
            ), store
        finally:
            await voice.aclose()

    return *asyncio.run(run()), slept


def joyful() -> TransformersSpeech:
    return TransformersSpeech(
        "transformers:fake", ("joy",), 16_000, lambda sounds: [{"joy": 1.0}] * len(sounds)
    )


def test_a_text_is_spoken_once_and_kept_whole(tmp_path: Path) -> None:
    with serving(lambda body: "") as server:
        first, store, _ = spoken(server, tmp_path, *TEXTS)
        again, second, _ = spoken(server, tmp_path, *TEXTS)
        request = {"model": "gpt-4o-mini-tts", "voice": "alloy", "response_format": "wav"}
        assert sorted(server.requests, key=lambda body: body["input"]) == [
            request | {"input": text} for text in TEXTS
        ]
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {SECRET}"}
    assert [(heard.source, heard.backend, heard.degraded) for heard in first] == [
        ("synthesised", "transformers:fake", None)
    ] * 2
    assert again == first
    assert (store.counts["synthesised"], second.counts) == (2, {"hits": 2})
    wav = (tmp_path / str(first[0].audio)).read_bytes()
    assert int.from_bytes(wav[40:44], "little") == len(wav) - 44  # the server left its lengths open
    assert decode_wav(wav).duration_s == pytest.approx(0.6)


FAULTS: dict[str, tuple[str | Answer | Fault, int, str]] = {
    "429": (Fault(429, retry_after="25"), 3, "429"),
    "500": (Fault(500), 3, "500"),
    "reset": (Fault(reset=True), 3, "no answer"),
    "timeout": (Fault(hang_s=3.0), 3, "in time"),
    "401": (Fault(401), 1, "key"),
    "404": (Fault(404), 1, "no such model"),
    "400": (Fault(400), 1, "400"),
    "no wav": (Answer(ending="truncated"), 1, "wav"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_speech_that_fails_degrades_to_uniform(case: str, tmp_path: Path) -> None:
    fault, requests, reason = FAULTS[case]
    reply: Script = lambda body: fault if body["input"] == TEXTS[0] else ""  # noqa: E731
    with serving(reply) as server:
        (lost, good), store, slept = spoken(
            server, tmp_path, *TEXTS, timeout_s=0.5 if case == "timeout" else 10.0
        )
        assert len([body for body in server.requests if body["input"] == TEXTS[0]]) == requests
    assert (lost.source, lost.backend) == ("none", "uniform")
    assert is_uniform(lost.distribution)
    assert reason in str(lost.degraded)
    assert SECRET not in str(lost.degraded)
    assert TEXTS[0] not in str(lost.degraded)
    assert (good.source, good.degraded) == ("synthesised", None)
    assert (store.counts["misses"], store.counts["synthesised"]) == (2, 1)
    assert len(slept.delays) == requests - 1
    assert len(list(tmp_path.glob("*.wav"))) == 1


@pytest.mark.parametrize("fault", [Fault(429, retry_after="7"), Fault(500)], ids=["429", "500"])
def test_a_fault_that_passes_is_retried(fault: Fault, tmp_path: Path) -> None:
    left: list[str | Fault] = [fault, ""]
    with serving(lambda body: left.pop(0)) as server:
        [heard], store, slept = spoken(server, tmp_path, TEXTS[0])
    assert (heard.source, heard.degraded, store.counts["synthesised"]) == ("synthesised", None, 1)
    assert slept.delays == [7.0] if fault.retry_after else len(slept.delays) == 1


def test_openai_itself_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenAIVoice()

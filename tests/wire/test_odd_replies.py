"""Whatever a server sends, nothing escapes the unit that asked: table-driven, over real HTTP."""

import asyncio
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, Field

from memray_eval.config.sections import EmbeddingConfig, ServerConfig
from memray_eval.errors import Declined, EmbeddingError, GenerationError, JudgeError, Unavailable
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.judges.call_metrics import CallObserver
from memray_eval.judges.structured_judge import CallPolicy, StructuredJudge
from memray_eval.models import embeddings, openai_generator
from memray_eval.models.embeddings import OpenAIEmbedder
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.ports import Verdict
from memray_eval.provider_http import closing_clients
from memray_eval.provider_http.retry import RetryPolicy
from memray_eval.types import Candidate, Message, Prompt, Response
from tests.fake_judges import MemoryStore, Slept, judge_behind, unlimited
from tests.servers.judgments import message_texts
from tests.servers.provider import Fault, Provider, Raw, serving
from tests.wire.odd_replies import (
    SECRET,
    Cases,
    anthropic_cases,
    embedding_cases,
    google_cases,
    openai_cases,
    raw,
    stream_cases,
)
from tests.wire.test_candidates import ask

GOOD = json.dumps({"score": 4, "explanation": "fine words"})
PROVIDERS = ("openai", "anthropic", "google")
TABLES = {
    "openai": openai_cases(GOOD),
    "anthropic": anthropic_cases(GOOD),
    "google": google_cases(GOOD),
}
CASE = re.compile(r"<case (.*)>")
QUESTION = (Message(role="user", content="Well?"),)


class Rating(BaseModel):
    """How good it is."""

    score: int = Field(ge=1, le=5)
    explanation: str


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)
    monkeypatch.setattr(openai_generator, "PAUSE_S", 0.01)
    monkeypatch.setattr(embeddings, "PAUSE_S", 0.01)


def scripted(cases: Cases) -> Callable[[dict[str, Any]], Raw]:
    """Answers by the case that a request's text names."""

    def reply(body: dict[str, Any]) -> Raw:
        text = "\n".join([*message_texts(body), *body.get("input", ()), body.get("prompt", "")])
        match = CASE.search(text)
        assert match is not None
        return cases[match[1]][0]

    return reply


def judge_at(wire: str, root: str, access: CallPolicy, timeout_s: float = 20.0) -> StructuredJudge:
    base_url = f"{root}/v1" if wire == "openai" else root
    named = {"name": f"{wire}/m", "model": "m", "base_url": base_url, "key": SECRET}
    return judge_behind(wire, JudgeSpec(**named, timeout_s=timeout_s), access)


async def verdict_at(wire: str, root: str, timeout_s: float = 20.0, tries: int = 1) -> Verdict:
    judge = judge_at(wire, root, unlimited(RetryPolicy(tries=tries)), timeout_s)
    return await judge.judge(QUESTION, Rating)


def generator_at(root: str, timeout_s: float) -> OpenAIGenerator:
    """A candidate's, whose SDK does not try again."""
    generator = OpenAIGenerator(candidate_at(root), ServerConfig(timeout_s=timeout_s))
    generator._client.max_retries = 0
    return generator


async def answer_at(root: str, timeout_s: float) -> Response:
    return await generator_at(root, timeout_s).generate(
        Prompt(messages=QUESTION), candidate_at(root)
    )


def embedder_at(root: str) -> OpenAIEmbedder:
    named = {"model": "openai/m", "base_url": f"{root}/v1", "api_key_env": "TEST_KEY"}
    embedder = OpenAIEmbedder(EmbeddingConfig(**named))
    embedder._client.max_retries = 0
    return embedder


async def all_at_once(
    cases: Cases, ask: Callable[[str], Awaitable[Any]], most: int = 8
) -> dict[str, Any]:
    """What comes of every case, an exception among them."""
    places = asyncio.Semaphore(most)

    async def call(name: str) -> Any:
        async with places:
            return await ask(name)

    outcomes = await asyncio.gather(*(call(name) for name in cases), return_exceptions=True)
    return dict(zip(cases, outcomes, strict=True))


def check_text(name: str, text: str) -> None:
    """What an error says holds neither key nor prompt, is short, and says something."""
    assert SECRET not in text, name
    assert "<case" not in text, name
    assert 10 < len(text) < 450, (name, text)
    assert text.isprintable(), (name, text)
    text.encode()


@pytest.mark.parametrize("wire", PROVIDERS)
def test_no_reply_to_a_judge_escapes_its_unit(wire: str) -> None:
    cases, kept, book = TABLES[wire], MemoryStore(), CallObserver()
    assert len(cases) >= 60

    @closing_clients()
    async def run(server: Provider) -> dict[str, Any]:
        slept = Slept()
        policy = RetryPolicy(tries=2, ceiling_s=1e9, sleep=slept.sleep, clock=slept.clock)
        short = RetryPolicy(tries=2, ceiling_s=0.01)
        judge = judge_at(wire, server.root, unlimited(policy, calls=kept, observer=book))
        throttled = judge_at(wire, server.root, unlimited(short, calls=kept))

        async def ask(name: str) -> Any:
            messages = (
                Message(role="system", content="Rate."),
                Message(role="user", content=f"Well? \ud83d <case {name}>"),
            )
            is_throttled = "429" in name or "rate limit" in name
            return await (throttled if is_throttled else judge).judge(messages, Rating)

        return await all_at_once(cases, ask)

    with serving(scripted(cases)) as server:
        outcomes = asyncio.run(run(server))
    for name, (_, expected) in cases.items():
        outcome = outcomes[name]
        if expected is None:
            assert not isinstance(outcome, BaseException), (name, outcome)
            assert outcome.judgment.score == 4
            outcome.judgment.explanation.encode()
            assert 0 <= outcome.usage.input_tokens + outcome.usage.output_tokens <= 100
            is_apart = name.endswith((" many", " more"))  # more than the input: beside it
            assert outcome.usage.cached_input_tokens == 11 * is_apart, name
            continue
        if "429" in name or "rate limit" in name:
            assert isinstance(outcome, JudgeError), (name, outcome)
            continue
        assert type(outcome) is expected, (name, outcome)
        check_text(name, str(outcome))
        assert outcome.__cause__ is None
    verdicts = sum(expected in (None, Declined) for _, expected in cases.values())
    assert len(kept.calls) == verdicts  # and of the others nothing is remembered
    assert sum(call.judgment is None for call in kept.calls.values()) == sum(
        case[1] is Declined for case in cases.values()
    )
    uncounted = sum(
        expected is None and "usage" in name.lower() for name, (_, expected) in cases.items()
    )
    # Thoughts that were not counted may be missing
    assert book.drain().calls.uncounted >= uncounted - 2


@pytest.mark.parametrize("wire", PROVIDERS)
def test_an_odd_reply_is_asked_for_again_and_what_it_cost_counts(wire: str) -> None:
    usage = {
        "openai": {"usage": {"prompt_tokens": 7, "completion_tokens": 3}, "choices": []},
        "anthropic": {"usage": {"input_tokens": 7, "output_tokens": 3}, "content": None},
        "google": {
            "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3},
            "candidates": [],
        },
    }[wire]
    left: list[Raw | str] = [raw(usage), raw(usage), GOOD]
    slept = Slept()

    @closing_clients()
    async def run(server: Provider) -> Any:
        policy = RetryPolicy(sleep=slept.sleep, clock=slept.clock)
        return await judge_at(wire, server.root, unlimited(policy)).judge(QUESTION, Rating)

    with serving(lambda body: left.pop(0)) as server:
        verdict = asyncio.run(run(server))
    assert verdict.usage.input_tokens == 7 + 7 + 10
    assert len(slept.delays) == 2


def candidate_at(root: str) -> Candidate:
    named = {"name": "c", "model": "m", "backend": "openai", "api_key_env": "TEST_KEY"}
    return Candidate(**named, base_url=f"{root}/v1")


def test_no_stream_of_a_candidate_escapes_its_unit() -> None:
    cases = stream_cases()
    assert len(cases) >= 60

    @closing_clients()
    async def run(server: Provider) -> dict[str, Any]:
        generator, hasty = (generator_at(server.root, s) for s in (60, 1))

        async def ask(name: str) -> Response:
            message = Message(role="user", content=f"Where? \ud83d <case {name}>")
            client = hasty if name.startswith("stalled") else generator
            return await client.generate(Prompt(messages=(message,)), candidate_at(server.root))

        return await all_at_once(cases, ask, most=6)

    with serving(scripted(cases)) as server:
        responses = asyncio.run(run(server))
    for name, (_, expected) in cases.items():
        response = responses[name]
        assert isinstance(response, Response), (name, response)
        response.text.encode()
        for count in (response.prompt_tokens, response.output_tokens, response.cached_tokens):
            assert count is None or 0 <= count <= 10**9, name
        if expected is None:
            assert (response.error, response.text[:9]) == (None, "In Bergen"), name
        else:
            assert response.error is not None, name
            kind = GenerationError if expected is JudgeError else expected
            assert response.error.startswith(f"{kind.__name__}: "), (name, response.error)
            check_text(name, response.error)
    assert responses["a character in two halves"].text == "In Bergen\U0001f600"
    assert responses["half a character"].text == "In Bergen\ufffd"
    assert responses["closed before its end"].text == "In Bergen"
    assert responses["usage negative"].output_tokens is None
    assert responses["good"].output_tokens == 2


def test_a_stream_that_breaks_is_asked_for_once_more() -> None:
    broken, _ = stream_cases()["closed before its end"]
    left: list[Raw | str] = [broken, "In Bergen"]
    with serving(lambda body: left.pop(0)) as server:
        (response,) = ask(server)
    assert (response.text, response.error, left) == ("In Bergen", None, [])


def test_no_reply_of_an_embedding_server_escapes_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = embedding_cases()
    assert len(cases) >= 60

    @closing_clients()
    async def run(server: Provider) -> dict[str, Any]:
        embedder = embedder_at(server.root)
        return await all_at_once(
            cases, lambda name: embedder.embed([f"a \ud83d <case {name}>", "b"]), most=4
        )

    with serving(lambda body: "", embed=scripted(cases)) as server:
        outcomes = asyncio.run(run(server))
    for name, (_, expected) in cases.items():
        outcome = outcomes[name]
        if expected is None:
            assert isinstance(outcome, np.ndarray), (name, outcome)
            norms = np.linalg.norm(outcome, axis=1)
            assert np.allclose(norms, 1) or "zero" in name, name
        else:
            assert type(outcome) is EmbeddingError, (name, outcome)
            assert str(outcome).startswith(f"openai/m: {expected.__name__}: "), (name, outcome)
            check_text(name, str(outcome))


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


NOBODY = "no-such-host.invalid"
REASONS = {
    "DNS": "the name no-such-host.invalid:81 cannot be resolved (DNS)",
    "refused": "127.0.0.1:{port} refused the connection",
    # a closed connection is seen as reset or as closed, by who looks first
    "reset": "127.0.0.1:{port} ",
    "timed out": "127.0.0.1:{port} did not answer in time (timed out)",
    "TLS": "TLS with 127.0.0.1:{port} failed: ",
    "certificate": "the certificate of 127.0.0.1:{port} is not trusted: self-signed certificate",
}


def self_signed_files(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for this alternative name (`IP:...` or `DNS:...`), and its key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    call = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
    files = ["-keyout", str(key), "-out", str(certificate), "-days", "1"]
    subprocess.run(
        [*call, *files, "-addext", f"subjectAltName={name}"], check=True, stderr=subprocess.DEVNULL
    )
    return certificate, key


@contextmanager
def accepting(visit: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port at which every visitor is served by `visit`, in a thread of its own."""
    threads: list[Thread] = []

    def greet(visitor: socket.socket) -> None:
        with suppress(OSError), visitor:
            visit(visitor)

    def serve() -> None:
        with suppress(OSError):  # closed at the end
            while True:
                threads.append(Thread(target=greet, args=listening.accept()[:1], daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving_all = Thread(target=serve, daemon=True)
        serving_all.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        for thread in (serving_all, *threads):
            thread.join(15)


def self_signed(folder: Path) -> AbstractContextManager[int]:
    """The port of a TLS server whose certificate no authority signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed_files(folder, "IP:127.0.0.1"))
    return accepting(lambda visitor: context.wrap_socket(visitor, server_side=True).close())


@pytest.mark.parametrize("reason", REASONS)
def test_lost_connections_say_what_happened_and_where(reason: str, tmp_path: Path) -> None:
    patience_s = 0.5 if reason == "timed out" else 60.0

    @closing_clients()
    async def ask(root: str) -> list[str]:
        messages = []
        for wire in PROVIDERS:
            with pytest.raises(Unavailable) as raised:
                await verdict_at(wire, root, patience_s)
            messages.append(str(raised.value))
        response, embedder = await answer_at(root, patience_s), embedder_at(root)
        embedder._client.timeout = patience_s
        with pytest.raises(EmbeddingError) as failed:
            await embedder.embed(["a"])
        return [*messages, str(response.error), str(failed.value)]

    fault = Fault(reset=True) if reason == "reset" else Fault(hang_s=3.0)
    raw_fault = Raw(b"", then="close") if reason == "reset" else Raw(b"", then="stall")
    with (
        serving(lambda body: fault, embed=lambda body: raw_fault) as server,
        closed_port() as nobody,
        self_signed(tmp_path) as stranger,
    ):
        port = {"refused": nobody, "certificate": stranger}.get(reason, server.port)
        address = f"{NOBODY}:81" if reason == "DNS" else f"127.0.0.1:{port}"
        scheme = "https" if reason in ("TLS", "certificate") else "http"
        lines = asyncio.run(ask(f"{scheme}://{address}"))
    for line in lines:
        assert REASONS[reason].format(port=port) in line, line
    if reason == "reset":
        assert all(
            "reset the connection" in line or "closed the connection" in line for line in lines
        ), lines


def dripping(begun: bytes) -> AbstractContextManager[int]:
    """The port of a server that begins its reply so and then sends a byte every 50 ms, for ever."""

    def drip(visitor: socket.socket) -> None:
        visitor.sendall(begun)
        while True:
            visitor.sendall(b" ")
            time.sleep(0.05)

    return accepting(drip)


def test_a_reply_that_drips_in_ends_by_the_key_that_its_error_names() -> None:
    line = "HTTP/1.1 200 OK\r\nX: "
    chunked = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n1000000\r\n"
    begun = [line, f"{line}1\r\n{chunked}"]

    @closing_clients()
    async def ask_judge(root: str) -> str:
        with pytest.raises(Unavailable) as raised:
            await verdict_at("openai", root, timeout_s=2)
        return str(raised.value)

    @closing_clients()
    async def ask_candidate(root: str) -> str:
        candidate = candidate_at(root)
        generator = OpenAIGenerator(candidate, ServerConfig(timeout_s=0.5))
        generator._client.timeout = 60.0  # of one read: a busy machine sends no byte in time
        return str((await generator.generate(Prompt(messages=QUESTION), candidate)).error)

    def ask(question: Coroutine[Any, Any, str]) -> str:
        return asyncio.run(question)

    # Each in a loop of its own: what one builds before it asks takes none of another's seconds
    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        # Does what the first call alone does, which may take longer than the limit below
        nobody = stack.enter_context(closed_port())
        assert "refused" in ask(ask_judge(f"http://127.0.0.1:{nobody}"))
        ports = [stack.enter_context(dripping(text.encode())) for text in begun]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        of_candidates = threads.map(ask, map(ask_candidate, urls))
        of_judges = threads.map(ask, map(ask_judge, urls))
        candidates, judges = list(of_candidates), list(of_judges)
    assert all("not whole within 5 s (10 times server.timeout_s)" in text for text in candidates)
    assert all("not whole within 2 s (judging.timeout_s)" in text for text in judges), judges


@pytest.mark.parametrize("wire", [*PROVIDERS, "candidate"])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_nothing_is_sent_on_to_another_origin(wire: str, status: int) -> None:
    @closing_clients()
    async def ask(server: Provider) -> str:
        if wire == "candidate":
            candidate = candidate_at(server.root)
            generator = OpenAIGenerator(candidate, ServerConfig(timeout_s=60.0))
            return str((await generator.generate(Prompt(messages=QUESTION), candidate)).error)
        with pytest.raises(JudgeError) as refused:
            await verdict_at(wire, server.root, tries=2)
        return str(refused.value)

    with serving(lambda body: "never") as other:
        headers = {"location": f"{other.base_url}/elsewhere"}
        with serving(lambda body: Raw(b"", status=status, headers=headers)) as server:
            error = asyncio.run(ask(server))
        assert wire == "candidate" or len(server.requests) == 1  # its SDK tries again
        assert not other.requests
    assert "redirects to http://127.0.0.1:" in error

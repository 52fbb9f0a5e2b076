"""Where calls go: redirects at one origin, the environment's proxy, and a real one: CONNECT with a
password, and TLS to the server inside it."""

import asyncio
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from memray_eval.errors import JudgeError, Unavailable
from memray_eval.provider_http import closing_clients
from memray_eval.provider_http.replies import Edge, HttpReply
from memray_eval.provider_http.transport import JsonClient, encode
from tests.servers.provider import Raw, serving
from tests.wire.odd_replies import SECRET
from tests.wire.test_odd_replies import (
    PROVIDERS,
    accepting,
    answer_at,
    embedder_at,
    self_signed_files,
    verdict_at,
)

# The Anthropic SDK's transport says a proxy's password in a way that aiohttp 4 will not know
pytestmark = [
    pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The 'proxy_auth' parameter:DeprecationWarning"),
]
HOST = "models.internal"
VERDICT = '{"score": 4, "explanation": "good"}'


class Proxy(NamedTuple):
    """`CONNECT` lines and passwords that a proxy got; it lets through who has the password."""

    port: int
    heads: list[str]


def _relay(client: ssl.SSLSocket, other: socket.socket) -> None:
    """Passes on what either side sends until one closes."""
    while True:
        ready = [client] if client.pending() else select.select([client, other], [], [], 10)[0]
        for side in ready:
            if not (piece := side.recv(65536)):
                return
            (other if side is client else client).sendall(piece)
        if not ready:
            return


@contextmanager
def proxying(behind: int, certificate: Path, key: Path) -> Iterator[Proxy]:
    """A proxy in front of the plain server at port `behind`, which has the certificate here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    heads: list[str] = []

    def connect(visitor: socket.socket) -> None:
        head = visitor.recv(65536).decode()
        heads.append(head)
        if "Basic dXNlcjp3b3Jk" not in head:  # user:word
            visitor.sendall(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
            )
            return
        visitor.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with (
            context.wrap_socket(visitor, server_side=True) as inside,
            socket.create_connection(("127.0.0.1", behind)) as server,
        ):
            _relay(inside, server)

    with accepting(connect) as port:
        yield Proxy(port, heads)


@pytest.fixture
def way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy that the environment names, in front of a server that answers all three wires."""
    certificate, key = self_signed_files(tmp_path, f"DNS:{HOST}")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("TEST_KEY", SECRET)
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(lambda body: VERDICT) as server, proxying(server.port, certificate, key) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:word@127.0.0.1:{proxy.port}")
        yield proxy


@closing_clients()
async def ask(client: str) -> str:
    """The text that comes back; raises Unavailable if none does."""
    root = f"https://{HOST}"
    if client == "candidate":
        response = await answer_at(root, timeout_s=5)
        if response.error:
            raise Unavailable(response.error)
        return response.text
    if client == "embedding":
        return str(await embedder_at(root).embed(["a"]))
    return str((await verdict_at(client, root, timeout_s=5)).judgment)


@pytest.mark.parametrize("client", [*PROVIDERS, "candidate", "embedding"])
def test_calls_go_through_a_proxy_with_a_password_and_a_certificate_of_ones_own(
    client: str, way: Proxy
) -> None:
    assert asyncio.run(ask(client))
    assert way.heads[0].startswith(f"CONNECT {HOST}:443 HTTP/1.1")
    assert SECRET not in "".join(way.heads)


@pytest.mark.parametrize("client", [*PROVIDERS, "candidate"])
@pytest.mark.parametrize("reason", ["password", "refused"])
def test_what_a_proxy_refuses_is_said_with_its_name(
    client: str, reason: str, way: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"127.0.0.1:{way.port}" if reason == "password" else "127.0.0.1:9"
    monkeypatch.setenv("https_proxy", f"http://user:wrong@{at}")
    with pytest.raises(Unavailable) as raised:
        asyncio.run(ask(client))
    message = str(raised.value)
    assert HOST in message, message
    assert f"the proxy {at}" in message, message
    assert "wrong" not in message
    assert ("407" if reason == "password" else "refused") in message


BODY = {"z": "é", "a": {"y": 1, "b": 2**70}}


async def post(url: str) -> HttpReply:
    client = JsonClient(Edge(url), {"Authorization": "Bearer key"}, 5.0)
    try:
        return await client.post("chat/completions", encode(BODY), {})
    finally:
        await client.aclose()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_at_one_origin_is_followed_with_the_body(status: int) -> None:
    moved = [Raw(b"", status=status, headers={"location": "/v1/chat/completions"}), Raw(b"{}")]
    with serving(lambda body: moved.pop(0)) as server:
        reply = asyncio.run(post(f"{server.base_url}/"))
    assert (reply, server.requests) == (HttpReply(200, b"{}"), [BODY, BODY])
    assert [[*body] for body in server.requests] == [["z", "a"]] * 2, "keys keep their order"


def test_redirects_without_end_are_an_error() -> None:
    moved = Raw(b"", status=308, headers={"location": "/v1/chat/completions"})
    with serving(lambda body: moved) as server, pytest.raises(JudgeError, match="without end"):
        asyncio.run(post(f"{server.base_url}/"))
    assert len(server.requests) == 10


@pytest.mark.parametrize("without", ["", "judge.invalid"])
def test_the_proxy_of_the_environment_is_used(
    without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda body: Raw(b"{}")) as proxy:
        monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", without)
        if without:
            with pytest.raises(OSError, match=r"judge\.invalid"):
                asyncio.run(post("http://judge.invalid/v1/"))
            assert not proxy.requests
        else:
            assert asyncio.run(post("http://judge.invalid/v1/")).status == 200
            sent = {name.lower(): value for name, value in proxy.headers[0].items()}
            expected = ("judge.invalid", "Basic dXNlcjp3b3Jk")
            assert (sent["host"], sent["proxy-authorization"]) == expected

"""Calls through a real proxy: CONNECT with a password, and TLS to the server inside it."""

import asyncio
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from memray_eval.errors import Unavailable
from memray_eval.provider_http import closing_clients
from tests.servers.provider import serving
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

"""Below the providers' SDKs: bounded HTTP replies, and lost connections that say what happened, at
the end of an exception's chain (aiohttp's SDK class may say time-out)."""

import errno
import json
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2
import orjson

from memray_eval.config.environment import proxy_of, proxy_url
from memray_eval.errors import JudgeError, Unavailable, Unreadable, cut
from memray_eval.provider_http import keep_open
from memray_eval.provider_http.replies import Edge, HttpReply

MOST_BYTES = 8_000_000  # of a reply, unpacked
# Of an event stream, where every few characters come wrapped in JSON of their own.
MOST_STREAMED_BYTES = 256_000_000
_EVENTS = "text/event-stream"
_LONGEST_CHAIN = 50

OnHeaders = Callable[[Mapping[str, str]], Awaitable[None]]


def client_options(
    timeout_s: float,
    on_headers: OnHeaders | None = None,
    *,
    most_bytes: int = MOST_BYTES,
    streams: bool = False,
) -> dict[str, Any]:
    """Options for an httpx2 client whose replies are bounded: by `most_bytes`, and if it
    `streams`, event streams by more. `on_headers` gets the headers of every reply. The client
    raises Unreadable if a reply cannot be unpacked, and JudgeError if it is too large or sends
    prompts and keys on to another origin."""

    async def bound(response: httpx2.Response) -> None:
        if response.has_redirect_location:
            there = response.url.join(response.headers["location"])
            refuse_other_origin(response.url, there)
        is_stream = streams and response.headers.get("content-type", "").startswith(_EVENTS)
        response.stream = _Bounded(response, MOST_STREAMED_BYTES if is_stream else most_bytes)
        if on_headers is not None:
            await on_headers(response.headers)

    return {
        "timeout": timeout_s,
        "headers": {"accept-encoding": "gzip"},
        "event_hooks": {"response": [bound]},
    }


def refuse_other_origin(asked: httpx2.URL, there: httpx2.URL) -> None:
    """Raises JudgeError if a redirect leads to another origin."""
    here, other = (f"{url.scheme}://{url.netloc.decode()}" for url in (asked, there))
    if here != other:
        raise JudgeError(
            f"{here} redirects to {other}, where nothing is sent; if that is the server that you "
            "mean, write its address as the base URL"
        )


class _Bounded(httpx2.AsyncByteStream):
    """A reply's bytes, unpacked as they come, up to a bound."""

    def __init__(self, response: httpx2.Response, most: int) -> None:
        self._stream: Any = response.stream
        self._packing = response.headers.pop("content-encoding", "")
        self._request, self._most = response.request, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        host, parts = urlsplit(str(self._request.url)).netloc, self._stream.__aiter__()
        pieces = unpacked(parts, self._packing, self._most, host)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()
            if hasattr(parts, "aclose"):
                await parts.aclose()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def unpacked(
    parts: AsyncIterator[bytes], packing: str, most: int, host: str
) -> AsyncGenerator[bytes, None]:
    """The bytes of a reply that came packed as its content-encoding says. Raises Unreadable if they
    are not, and JudgeError if they are more than `most`."""
    packing, seen = packing.strip().lower() or "identity", 0
    if packing not in ("identity", "gzip", "x-gzip", "deflate"):
        raise Unreadable(f"{host} sent a reply packed as {packing[:20]!r}, which was not asked for")
    inflate = None if packing == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    async for part in parts:
        while part:
            piece, rest = part, b""
            if inflate is not None:
                try:
                    piece, rest = inflate.decompress(part, most + 1), inflate.unconsumed_tail
                except zlib.error:
                    text = f"{host} sent a reply that is no {packing}, as it says"
                    raise Unreadable(text) from None
            part, seen = rest, seen + len(piece)
            if seen > most:
                raise JudgeError(
                    f"{host} sent a reply of more than {most / 1e6:g} MB, which is refused"
                )
            yield piece


def connection_error(error: BaseException, host: str, url: str) -> JudgeError | None:
    """What happened on the way to `host`, by its name and that of the environment's proxy for
    `url`; one of our own errors, if that is what an SDK wrapped. None if the exception says nothing
    of a connection."""
    chain = list(_chain(error))
    for ours in chain:
        if isinstance(ours, JudgeError):
            return ours
    proxy = proxy_of(url)
    way = host if proxy is None else f"{host} (through the proxy {proxy})"
    for kinds, text in _CAUSES:
        cause = next((exception for exception in chain if _is(exception, kinds)), None)
        if cause is not None:
            text = text.format(host=way, detail=cut(_detail(cause), 100))
            unavailable = Unavailable(f"no answer: {text}")
            unavailable.is_unreached = any(_is(exception, _NO_CONNECTION) for exception in chain)
            return unavailable
    return None


def _detail(cause: BaseException) -> str:
    """What OpenSSL or a proxy said: it names certificates, hosts and a status, never what was
    sent."""
    if isinstance(cause, aiohttp.ClientHttpProxyError):
        return f"{cause.status} {cause.message}"
    if isinstance(cause, httpx2.ProxyError):
        return str(cause)
    cause = getattr(cause, "certificate_error", cause)
    detail = getattr(cause, "verify_message", "") or getattr(cause, "reason", "")
    return str(detail or type(cause).__name__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that it was raised from, outermost first."""
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting and len(seen) < _LONGEST_CHAIN:
        exception = waiting.pop(0)
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        yield exception
        # Also a context that was suppressed: httpcore2 does so.
        waiting.append(exception.__cause__ or exception.__context__)
        waiting.extend(exception.exceptions if isinstance(exception, BaseExceptionGroup) else ())
        inner = getattr(exception, "os_error", None)
        waiting.append(inner if isinstance(inner, BaseException) else None)


_Kinds = tuple[type[BaseException] | int, ...]  # classes, and numbers of OSErrors
_REFUSED_BY_PROXY: _Kinds = (httpx2.ProxyError, aiohttp.ClientHttpProxyError)
_NO_NAME: _Kinds = (socket.gaierror, aiohttp.ClientConnectorDNSError)
_NOT_TRUSTED: _Kinds = (ssl.SSLCertVerificationError, ssl.CertificateError)
_RESET: _Kinds = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
_NO_ROUTE: _Kinds = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_CLOSED: _Kinds = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)
_NO_HTTP: _Kinds = (httpx2.RemoteProtocolError, aiohttp.ClientResponseError)
_NO_CONNECTION: _Kinds = (
    *(socket.gaierror, ConnectionRefusedError, httpx2.ConnectError, httpx2.ConnectTimeout),
    *(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, *_REFUSED_BY_PROXY),
)
# In this order: the first that any exception of the chain is.
_CAUSES: tuple[tuple[_Kinds, str], ...] = (
    (_REFUSED_BY_PROXY, "no way to {host}: {detail}"),
    (_NO_NAME, "the name {host} cannot be resolved (DNS)"),
    (
        _NOT_TRUSTED,
        "the certificate of {host} is not trusted: {detail}; name the file of its authority in "
        "SSL_CERT_FILE, if it is your own",
    ),
    ((ssl.SSLError,), "TLS with {host} failed: {detail}"),
    ((ConnectionRefusedError,), "{host} refused the connection"),
    (_RESET, "{host} reset the connection"),
    (_NO_ROUTE, "{host} cannot be reached (no route to it)"),
    (_CLOSED, "{host} closed the connection before its reply was whole"),
    (_NO_HTTP, "{host} closed the connection, or sent no HTTP"),
    ((TimeoutError, httpx2.TimeoutException), "{host} did not answer in time (timed out)"),
    (
        (httpx2.TransportError, aiohttp.ClientError, OSError),
        "the connection to {host} was lost ({detail})",
    ),
)


def _is(error: BaseException, kinds: _Kinds) -> bool:
    number = error.errno if isinstance(error, OSError) else None
    return any(
        kind == number if isinstance(kind, int) else isinstance(error, kind) for kind in kinds
    )


CONNECT_S = 10.0  # for a connection; nobody is at an address that takes longer
MOST_CONNECTIONS = 1000
IDLE_S = 5.0  # after which an unused connection is closed
MOST_REDIRECTS = 10
_MOVED = (301, 302, 307, 308)


def encode(body: Mapping[str, Any]) -> bytes:
    """A body as JSON, its keys in their order: models fill in a schema's fields in that order."""
    try:
        return orjson.dumps(body)
    except TypeError:  # an integer of more than 64 bits
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class JsonClient:
    """Posts JSON to paths below `edge.url`, with `headers`. `on_headers` gets the headers of every
    reply. The environment's proxy and certificates hold. Connects on the loop that posts first."""

    def __init__(
        self,
        edge: Edge,
        headers: Mapping[str, str],
        timeout_s: float,
        on_headers: OnHeaders | None = None,
    ) -> None:
        self.edge, self._on_headers = edge, on_headers
        self._headers = {**headers, "Accept-Encoding": "gzip", "Content-Type": "application/json"}
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=min(timeout_s, CONNECT_S), sock_read=timeout_s
        )
        keep_open(self)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        """The reply of a success status, from wherever at this origin the server redirects to.
        Raises JudgeError for every other status, and for a reply that is refused."""
        url = self.edge.url + path
        for _ in range(MOST_REDIRECTS):
            sending = self._session.post(url, data=body, headers=headers, allow_redirects=False)
            async with sending as response:
                if self._on_headers is not None:
                    await self._on_headers(response.headers)
                location = response.headers.get("location")
                if location is None or response.status not in _MOVED:
                    return await self._read(response)
            here = httpx2.URL(url)
            refuse_other_origin(here, there := here.join(location))
            url = str(there)
        raise JudgeError(f"{self.edge.host} redirects without end")

    async def _read(self, response: aiohttp.ClientResponse) -> HttpReply:
        packing = response.headers.get("content-encoding", "")
        parts = unpacked(response.content.iter_any(), packing, MOST_BYTES, self.edge.host)
        content = b"".join([part async for part in parts])
        if 200 <= response.status < 300:
            return HttpReply(response.status, content)
        raise self.edge.refusal(response.status, response.headers.get("retry-after"), content)

    async def aclose(self) -> None:
        if "_session" in vars(self):
            await self._session.close()

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        trusted = httpx2.create_ssl_context() if self.edge.url.startswith("https:") else True
        connector = aiohttp.TCPConnector(
            limit=MOST_CONNECTIONS, keepalive_timeout=IDLE_S, ssl=trusted
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=self._timeout,
            auto_decompress=False,
            proxy=proxy_url(self.edge.url),
        )

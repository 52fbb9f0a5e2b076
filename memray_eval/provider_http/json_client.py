"""JSON requests to one server over aiohttp, with bounded replies: a judge's call, for a fifth of
the CPU that it takes through an SDK."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import aiohttp
import httpx2
import orjson

from memray_eval.config.environment import proxy_url
from memray_eval.errors import JudgeError
from memray_eval.provider_http import keep_open
from memray_eval.provider_http.replies import Edge, HttpReply
from memray_eval.provider_http.transport import MOST_BYTES, OnHeaders, refuse_other_origin, unpacked

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

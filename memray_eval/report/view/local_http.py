"""What the servers of this machine alone share: where they listen, whom they answer, and the
headers that keep other sites from reading, framing or running an answer."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from memray_eval.errors import ConfigError
from memray_eval.report.html.samples import to_json

HOST = "127.0.0.1"
# any port, because one may be forwarded to another
_OURS = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
# in addition to the page's own policy
_OF_PAGE = "frame-ancestors 'none'; object-src 'none'; base-uri 'none'; form-action 'none'"
_LAST_ANSWERS_S = 1.0


@asynccontextmanager
async def listening(app: web.Application, port: int) -> AsyncIterator[str]:
    """Serves an app at 127.0.0.1 until the block ends, and yields the URL. Port 0 picks a free one.
    Raises ConfigError if the port is taken."""
    try:
        server = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"cannot listen at port {port}: {error.strerror}; give another with --port, or 0 for a "
            "free one"
        ) from None
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=_LAST_ANSWERS_S
    )
    await runner.setup()
    try:
        await web.SockSite(runner, server).start()
        yield f"http://{HOST}:{server.getsockname()[1]}/"
    finally:
        await runner.cleanup()


def refuse_other_hosts(request: web.Request) -> web.Response | None:
    """Refuses a request that came by another name than this machine's: DNS rebinding."""
    if _OURS.fullmatch(request.headers.get("Host", "")):
        return None
    return web.Response(status=421, text="This server is 127.0.0.1 and localhost, nothing else.\n")


def is_from_elsewhere(request: web.Request) -> bool:
    """Whether a page of another site asks."""
    return request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Content-Security-Policy", _NOTHING)


def page_response(page: str, status: int = 200) -> web.Response:
    return web.Response(
        body=page.encode("utf-8", "backslashreplace"),
        status=status,
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": _OF_PAGE},
    )


def json_response(value: Any, status: int = 200) -> web.Response:
    body = to_json(value).encode("utf-8", "backslashreplace")
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")

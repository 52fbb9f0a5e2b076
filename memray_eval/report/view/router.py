"""A server of this machine alone that only reads: a table of routes, whom it answers, and how
pages, data and errors are sent. A page of another site learns nothing: the Host header stops DNS
rebinding, Sec-Fetch-Site and Origin cross-site requests, response headers reading and framing."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

from memray_eval.errors import ConfigError, EvalError, reason_of
from memray_eval.report.html.page_renderer import render_page
from memray_eval.report.html.samples import to_json
from memray_eval.report.runs_list import UnknownRun

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

# Returns a page as text, data as what JSON can hold, or a response of its own
Handler = Callable[[web.Request], Awaitable[Any]]
ENDING = web.AppKey("ending", asyncio.Event)  # set when the server ends, for streams


class Endpoint(NamedTuple):
    """A path and the handler that answers at it. A page may be linked to from another site, and
    shows its errors as a page that links to `home`, a list of runs, if there is one."""

    path: str
    handler: Handler
    is_page: bool = False
    home: str = ""


@asynccontextmanager
async def serving_routes(routes: Sequence[Endpoint], port: int) -> AsyncIterator[str]:
    """Serves the routes at 127.0.0.1 until the block ends, and yields the URL; port 0 picks a free
    one. Raises ConfigError."""
    handlers = {route: _responding(route) for route in routes}
    pages = [handler for route, handler in handlers.items() if route.is_page]

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = _refuse(request, request.match_info.handler in pages)
        response: web.StreamResponse = refused or await handler(request)
        return response

    app = web.Application(middlewares=[check])
    app[ENDING] = asyncio.Event()
    app.on_response_prepare.append(_add_security_headers)
    app.on_shutdown.append(_end_streams)
    # `get` answers HEAD too
    app.add_routes(web.get(route.path, handler) for route, handler in handlers.items())
    try:
        server = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"cannot listen at port {port}: {reason_of(error)}; give another with --port, or 0 for "
            "a free one"
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


async def _end_streams(app: web.Application) -> None:
    app[ENDING].set()


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Content-Security-Policy", _NOTHING)


def _refuse(request: web.Request, is_page: bool) -> web.Response | None:
    """Refuses what came by another name than this machine's (DNS rebinding), what another site's
    page asks, but a link, and what does more than read."""
    headers = request.headers
    if not _OURS.fullmatch(headers.get("Host", "")):
        text = "This server is 127.0.0.1 and localhost, nothing else.\n"
        return web.Response(status=421, text=text)
    is_own_origin = headers.get("Origin") in (None, f"http://{headers.get('Host', '')}")
    is_own_site = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
    if not is_page and not (is_own_origin and is_own_site):
        return web.Response(status=403, text="Only this server's own page may ask that.\n")
    if request.method not in ("GET", "HEAD"):
        text = "This server takes GET, HEAD.\n"
        return web.Response(status=405, text=text, headers={"Allow": "GET, HEAD"})
    return None


def _responding(route: Endpoint) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The route's handler with what it returns, and this package's errors, as responses."""

    async def respond(request: web.Request) -> web.StreamResponse:
        try:
            content = await route.handler(request)
        except EvalError as error:
            status = 400 if isinstance(error, ConfigError) else 500
            status = 404 if isinstance(error, UnknownRun) else status
            if not route.is_page:
                return _to_response({"error": str(error)}, status)
            about = {"message": str(error), "home": route.home}
            return _to_response(render_page("message.html", ("theme.js",), **about), status)
        return content if isinstance(content, web.StreamResponse) else _to_response(content)

    return respond


def _to_response(content: Any, status: int = 200) -> web.Response:
    """A page as it is, and anything else as JSON."""
    is_page = isinstance(content, str)
    return web.Response(
        body=(content if is_page else to_json(content)).encode("utf-8", "backslashreplace"),
        status=status,
        content_type="text/html" if is_page else "application/json",
        charset="utf-8",
        headers={"Content-Security-Policy": _OF_PAGE} if is_page else None,
    )

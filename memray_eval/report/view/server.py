"""A read-only server for this machine alone, with three addresses: the page, a page of samples, and
one whole sample.

A page of another site in the same browser must learn nothing here. DNS rebinding is refused by
checking the Host header, cross-site requests by checking Sec-Fetch-Site, and response headers keep
other sites from reading, framing or running an answer."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from memray_eval.errors import ConfigError, EvalError
from memray_eval.report.html.samples import to_json
from memray_eval.report.view.queries import Query
from memray_eval.report.view.run_view import View

HOST = "127.0.0.1"
# any port, because one may be forwarded to another
_OURS = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_METHODS = ("GET", "HEAD")
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

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_VIEW = web.AppKey("view", View)


@asynccontextmanager
async def serving(view: View, port: int = 0) -> AsyncIterator[str]:
    """Serves at 127.0.0.1 until the block ends, and yields the URL. Port 0 picks a free one. Raises
    ConfigError if the port is taken."""
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"cannot listen at port {port}: {error.strerror}; give another with --port, or 0 for a "
            "free one"
        ) from None
    app = web.Application(middlewares=[_check_origin, _translate_errors])
    app[_VIEW] = view
    app.add_routes(
        [
            web.get("/", _serve_page),
            web.get("/data/units", _serve_units),
            web.get("/data/unit", _serve_unit),
        ]
    )
    app.on_response_prepare.append(_add_security_headers)
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=_LAST_ANSWERS_S
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield f"http://{HOST}:{listening.getsockname()[1]}/"
    finally:
        await runner.cleanup()


@web.middleware
async def _check_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not _OURS.fullmatch(request.headers.get("Host", "")):
        return web.Response(
            status=421, text="This server is 127.0.0.1 and localhost, nothing else.\n"
        )
    if (
        request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        and request.path != "/"
    ):
        return web.Response(status=403, text="Only this server's own page may ask that.\n")
    if request.method not in _METHODS:
        return web.Response(
            status=405, text="This server only reads.\n", headers={"Allow": ", ".join(_METHODS)}
        )
    return await handler(request)


@web.middleware
async def _translate_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Translates this package's errors to their messages, for the page to show."""
    try:
        return await handler(request)
    except EvalError as error:
        status = 400 if isinstance(error, ConfigError) else 500
        return (
            web.Response(status=status, text=str(error))
            if request.path == "/"
            else _json_response({"error": str(error)}, status)
        )


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Content-Security-Policy", _NOTHING)


async def _serve_page(request: web.Request) -> web.Response:
    page = await asyncio.to_thread(request.app[_VIEW].page)
    body = page.encode("utf-8", "backslashreplace")
    headers = {"Content-Security-Policy": _OF_PAGE}
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


async def _serve_units(request: web.Request) -> web.Response:
    try:
        query = Query.model_validate(dict(request.query))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    gone = threading.Event()
    try:
        return _json_response(
            await asyncio.to_thread(request.app[_VIEW].answer, query, gone.is_set)
        )
    finally:
        gone.set()  # a reader who has asked something else no longer waits for this answer


async def _serve_unit(request: web.Request) -> web.Response:
    unit_id = request.query.get("id", "")
    found = await asyncio.to_thread(request.app[_VIEW].record, unit_id)
    if found is None:
        return _json_response(
            {
                "error": f"no unit {unit_id!r} in this run; it may have been written anew: load "
                f"the page again"
            },
            404,
        )
    return _json_response(found)


def _json_response(value: Any, status: int = 200) -> web.Response:
    body = to_json(value).encode("utf-8", "backslashreplace")
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")

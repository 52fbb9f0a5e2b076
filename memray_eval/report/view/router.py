"""The servers, of this machine alone unless told otherwise: a table of routes, where they listen,
whom they answer, and how pages, data and errors are sent. A page of another site learns nothing:
the Host header stops DNS rebinding, Sec-Fetch-Site and Origin cross-site requests, response headers
reading and framing; writing needs JSON in a POST, and there is no CORS header."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from aiohttp import web
from pydantic import ValidationError

from memray_eval.errors import ConfigError, EvalError, reason_of
from memray_eval.report.html.page_renderer import render_page
from memray_eval.report.html.samples import to_json
from memray_eval.report.view.run_list import UnknownRun
from memray_eval.types import Frozen

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
_MAX_REQUEST_BYTES = 64 << 10

# Returns a page as text, data as what JSON can hold, or a response of its own
Handler = Callable[[web.Request], Awaitable[Any]]
# Refuses a request by a response, or lets it pass with None
Guard = Callable[[web.Request], web.Response | None]
ENDING = web.AppKey("ending", asyncio.Event)  # set when the server ends, for streams
F = TypeVar("F", bound=Frozen)


class Endpoint(NamedTuple):
    """A path and the handler that answers at it. A page may be linked to from another site, and
    shows its errors as a page that links to `home`, a list of runs, if there is one."""

    path: str
    handler: Handler
    method: str = "GET"
    is_page: bool = False
    home: str = ""


@asynccontextmanager
async def serving_routes(
    routes: Sequence[Endpoint], port: int, guard: Guard = lambda request: None, host: str = HOST
) -> AsyncIterator[str]:
    """Serves the routes at `host` until the block ends, and yields the URL; port 0 picks a free
    one. Beyond this machine only the guard knows whom it answers. Raises ConfigError."""
    handlers = {route: _responding(route) for route in routes}
    pages = [handler for route, handler in handlers.items() if route.is_page]
    methods = list(dict.fromkeys(["GET", "HEAD", *(route.method for route in routes)]))

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_page = request.match_info.handler in pages
        foreign = _refuse_host(request) if is_local(host) else None
        refused = foreign or guard(request) or _refuse(request, is_page, methods)
        response: web.StreamResponse = refused or await handler(request)
        return response

    app = web.Application(middlewares=[check], client_max_size=_MAX_REQUEST_BYTES)
    app[ENDING] = asyncio.Event()
    app.on_response_prepare.append(_add_security_headers)
    app.on_shutdown.append(_end_streams)
    app.add_routes(
        # `get` answers HEAD too
        web.get(route.path, handler) if route.method == "GET" else web.post(route.path, handler)
        for route, handler in handlers.items()
    )
    async with _listening(app, host, port) as url:
        yield url


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in (HOST, "localhost")


@asynccontextmanager
async def _listening(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server = socket.create_server((host, port), family=family)
    except OSError as error:
        where, advice = f"port {port}", "give another with --port, or 0 for a free one"
        if host != HOST:
            where, advice = f"{host}, {where}", f"{advice}; --host is an address of this machine"
        raise ConfigError(f"cannot listen at {where}: {reason_of(error)}; {advice}") from None
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=_LAST_ANSWERS_S
    )
    await runner.setup()
    try:
        await web.SockSite(runner, server).start()
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        yield f"http://{f'[{name}]' if ':' in name else name}:{server.getsockname()[1]}/"
    finally:
        await runner.cleanup()


async def _end_streams(app: web.Application) -> None:
    app[ENDING].set()


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Content-Security-Policy", _NOTHING)


def _refuse_host(request: web.Request) -> web.Response | None:
    """Refuses a request that came by another name than this machine's: DNS rebinding."""
    if _OURS.fullmatch(request.headers.get("Host", "")):
        return None
    return web.Response(status=421, text="This server is 127.0.0.1 and localhost, nothing else.\n")


def _refuse(request: web.Request, is_page: bool, methods: Sequence[str]) -> web.Response | None:
    """Refuses what another site's page asks, but a link, and what none of ours sends."""
    headers = request.headers
    is_own_origin = headers.get("Origin") in (None, f"http://{headers.get('Host', '')}")
    is_own_site = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
    if not is_page and not (is_own_origin and is_own_site):
        return web.Response(status=403, text="Only this server's own page may ask that.\n")
    if request.method not in methods:
        allowed = ", ".join(methods)
        text = f"This server takes {allowed}.\n"
        return web.Response(status=405, text=text, headers={"Allow": allowed})
    if request.method == "POST" and request.content_type != "application/json":
        return web.Response(status=415, text="What is written is JSON.\n")
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
                return json_response({"error": str(error)}, status)
            about = {"message": str(error), "home": route.home}
            return _page_response(render_page("message.html", ("theme.js",), **about), status)
        if isinstance(content, web.StreamResponse):
            return content
        return _page_response(content) if isinstance(content, str) else json_response(content)

    return respond


def _page_response(page: str, status: int = 200) -> web.Response:
    return text_response(page, "text/html", status, {"Content-Security-Policy": _OF_PAGE})


def json_response(value: Any, status: int = 200) -> web.Response:
    return text_response(to_json(value), "application/json", status)


def text_response(
    text: str, mime: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    body, charset = text.encode("utf-8", "backslashreplace"), "utf-8"
    return web.Response(
        body=body, status=status, content_type=mime, charset=charset, headers=headers
    )


def parse(model: type[F], values: Mapping[str, Any]) -> F:
    """Validates what a request holds. Raises ConfigError."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None

"""A read-only server for this machine alone: of one run, or of the runs of a folder. A run has its
page, a page of samples, one whole sample, a file of the samples that match, and a stream of events
that says how far it is; a folder has the list of its runs, with such a stream, and comparisons.

A page of another site in the same browser must learn nothing here. DNS rebinding is refused by
checking the Host header, cross-site requests by checking Sec-Fetch-Site, and response headers keep
other sites from reading, framing or running an answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext, suppress
from typing import Any, get_args
from urllib.parse import quote

from aiohttp import web
from markupsafe import Markup
from pydantic import ValidationError

from memray_eval.errors import ConfigError, EvalError
from memray_eval.report.html.page_renderer import asset, render_page
from memray_eval.report.html.samples import to_json
from memray_eval.report.view.compared_runs import ComparedRuns
from memray_eval.report.view.export import MIME, Form
from memray_eval.report.view.local_http import (
    add_security_headers,
    is_from_elsewhere,
    json_response,
    listening,
    page_response,
    refuse_other_hosts,
)
from memray_eval.report.view.opened_runs import OpenedRuns
from memray_eval.report.view.queries import Query
from memray_eval.report.view.run_list import RunList, UnknownRun
from memray_eval.report.view.run_rows import RunRow
from memray_eval.report.view.run_view import View

_METHODS = ("GET", "HEAD")
# A line that says nothing, so that a browser that has gone is noticed
_BEAT_S = 15.0

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# Opens the view of the run that a request names
OpenView = Callable[[str], AbstractContextManager[View]]
_OPEN: web.AppKey[OpenView] = web.AppKey("open")
_RUNS = web.AppKey("runs", RunList)
_COMPARED = web.AppKey("compared", ComparedRuns)
_ENDING = web.AppKey("ending", asyncio.Event)


@asynccontextmanager
async def serving(view: View, port: int = 0) -> AsyncIterator[str]:
    """Serves one run at 127.0.0.1 until the block ends, and yields the URL. Port 0 picks a free
    one. Raises ConfigError if the port is taken."""
    app = _make_app(lambda run_id: nullcontext(view))
    app.add_routes(_routes_of_run(""))
    async with listening(app, port) as url:
        yield url


@asynccontextmanager
async def serving_runs(runs: RunList, port: int = 0) -> AsyncIterator[str]:
    """Serves the list of a folder's runs, every run and every comparison, as `serving` does."""
    opened = OpenedRuns(runs)
    app = _make_app(opened.view)
    app[_RUNS], app[_COMPARED] = runs, ComparedRuns(runs)
    app.add_routes(
        [
            web.get("/", _serve_list),
            web.get("/events", _serve_list_events),
            web.get("/compare", _serve_comparison),
            web.get("/run/{run}", _redirect_to_run),
            *_routes_of_run("/run/{run}"),
        ]
    )
    try:
        async with listening(app, port) as url:
            yield url
    finally:
        opened.close()


def _routes_of_run(at: str) -> list[web.RouteDef]:
    return [
        web.get(f"{at}/", _serve_page),
        web.get(f"{at}/data/units", _serve_units),
        web.get(f"{at}/data/unit", _serve_unit),
        web.get(f"{at}/data/export", _serve_export),
        web.get(f"{at}/events", _serve_run_events),
    ]


def _make_app(open_view: OpenView) -> web.Application:
    app = web.Application(middlewares=[_check_origin, _translate_errors])
    app[_OPEN], app[_ENDING] = open_view, asyncio.Event()
    app.on_response_prepare.append(add_security_headers)

    async def end_streams(app: web.Application) -> None:
        app[_ENDING].set()

    app.on_shutdown.append(end_streams)
    return app


@web.middleware
async def _check_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    if (refused := refuse_other_hosts(request)) is not None:
        return refused
    if is_from_elsewhere(request) and not _is_page(request):
        return web.Response(status=403, text="Only this server's own page may ask that.\n")
    if request.method not in _METHODS:
        return web.Response(
            status=405, text="This server only reads.\n", headers={"Allow": ", ".join(_METHODS)}
        )
    return await handler(request)


def _is_page(request: web.Request) -> bool:
    """Whether this is an address that somebody may follow a link to."""
    pages = (_serve_page, _serve_list, _serve_comparison, _redirect_to_run)
    return request.match_info.handler in pages


@web.middleware
async def _translate_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Translates this package's errors to their messages, for the page to show."""
    try:
        return await handler(request)
    except EvalError as error:
        status = 500
        if isinstance(error, UnknownRun | ConfigError):
            status = 404 if isinstance(error, UnknownRun) else 400
        if not _is_page(request):
            return json_response({"error": str(error)}, status)
        home = "" if _RUNS not in request.app else "../" * (request.path.count("/") - 1) or "./"
        page = render_page("message.html", ("theme.js",), message=str(error), home=home)
        return page_response(page, status)


@asynccontextmanager
async def _viewed(request: web.Request) -> AsyncIterator[View]:
    """The view of the run that the request names, open while the block runs."""
    stack = ExitStack()
    opening = request.app[_OPEN](request.match_info.get("run", ""))
    opened = asyncio.ensure_future(asyncio.to_thread(stack.enter_context, opening))

    def close(opened: asyncio.Future[View]) -> None:
        if not opened.cancelled():
            opened.exception()  # it has been raised below, or there is nobody to tell
        stack.close()

    try:
        yield await asyncio.shield(opened)
    finally:
        # A reader may go while a large run is opened: it is closed once it is open
        opened.add_done_callback(close)


async def _serve_list(request: web.Request) -> web.Response:
    runs = request.app[_RUNS]
    rows = await asyncio.to_thread(runs.rows)
    page = render_page(
        "runs.html",
        ("theme.js", "detail.js", "standing.js", "runs.js"),
        folder=runs.path,
        own_style=Markup(asset("runs.css")),
        rows=Markup(to_json([_plain(row) for row in rows.values()])),
    )
    return page_response(page)


async def _serve_comparison(request: web.Request) -> web.Response:
    named, by = request.query.getall("run", []), request.query.get("by")
    return page_response(await asyncio.to_thread(request.app[_COMPARED].page, named, by))


async def _redirect_to_run(request: web.Request) -> web.Response:
    run_id = request.match_info["run"]
    await asyncio.to_thread(request.app[_RUNS].path_of, run_id)
    raise web.HTTPFound(f"/run/{quote(run_id, safe='')}/")


async def _serve_page(request: web.Request) -> web.Response:
    async with _viewed(request) as view:
        return page_response(await asyncio.to_thread(view.page))


async def _serve_units(request: web.Request) -> web.Response:
    query, gone = _parse_query(request.query), threading.Event()
    try:
        async with _viewed(request) as view:
            return json_response(await asyncio.to_thread(view.answer, query, gone.is_set))
    finally:
        gone.set()  # a reader who has asked something else no longer waits for this answer


async def _serve_unit(request: web.Request) -> web.Response:
    unit_id = request.query.get("id", "")
    async with _viewed(request) as view:
        found = await asyncio.to_thread(view.record, unit_id)
    if found is None:
        return json_response(
            {
                "error": f"no unit {unit_id!r} in this run; it may have been written anew: load "
                f"the page again"
            },
            404,
        )
    return json_response(found)


async def _serve_export(request: web.Request) -> web.StreamResponse:
    """Sends the samples that match as a file. If a part cannot be read once the file has begun, the
    connection is broken off, so that no browser takes the file for whole."""
    asked = dict(request.query)
    form: Form | None = next((one for one in get_args(Form) if one == asked.get("form")), None)
    if form is None:
        raise ConfigError(f"form: one of {', '.join(get_args(Form))}")
    query = _parse_query({name: value for name, value in asked.items() if name != "form"})
    gone = threading.Event()
    try:
        async with _viewed(request) as view:
            name, pieces = view.export(query, form, gone.is_set)
            first = await _next_piece(pieces)
            plain = "".join(letter if letter.isascii() else "-" for letter in name)
            response = web.StreamResponse(
                headers={
                    "Content-Type": f"{MIME[form]}; charset=utf-8",
                    "Content-Disposition": f'attachment; filename="{plain}"; '
                    f"filename*=UTF-8''{quote(name, safe='')}",
                }
            )
            await response.prepare(request)
            piece = first if request.method == "GET" else None
            try:
                while piece is not None:
                    await response.write(piece)
                    piece = await _next_piece(pieces)
            except EvalError as error:
                logger.warning("%s is broken off: %s", name, error)
                if request.transport is not None:
                    request.transport.abort()
            except ConnectionResetError:  # the browser has gone
                pass
            return response
    finally:
        gone.set()


async def _next_piece(pieces: Iterator[bytes]) -> bytes | None:
    return await asyncio.to_thread(next, pieces, None)


async def _serve_run_events(request: web.Request) -> web.StreamResponse:
    """Says how the run stands whenever that has changed."""
    async with _viewed(request) as view:

        def read(told: RunRow | None) -> tuple[Any, RunRow | None]:
            row = view.standing()
            return (None if row is None or row == told else _plain(row)), row

        return await _stream(request, read, view.every_s)


async def _serve_list_events(request: web.Request) -> web.StreamResponse:
    """Says which rows of the list have changed, all of them first, and which are gone."""
    runs = request.app[_RUNS]

    def read(told: dict[str, RunRow] | None) -> tuple[Any, dict[str, RunRow]]:
        rows, before = runs.rows(), told or {}
        changed = [_plain(row) for name, row in rows.items() if row != before.get(name)]
        gone = [name for name in before if name not in rows]
        is_news = changed or gone or told is None
        return ({"rows": changed, "gone": gone, "all": told is None} if is_news else None), rows

    return await _stream(request, read, runs.every_s)


async def _stream(
    request: web.Request, read: Callable[[Any], tuple[Any, Any]], every_s: float
) -> web.StreamResponse:
    """Sends an event for all that `read` has to tell, until the browser or the server goes. `read`
    gets what it returned last, at first None, and returns news, if any, and what it knows now."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    # A browser that goes while it is written to has no need of the rest
    with suppress(ConnectionResetError):
        await _write_news(request, response, read, every_s)
    return response


async def _write_news(
    request: web.Request,
    response: web.StreamResponse,
    read: Callable[[Any], tuple[Any, Any]],
    every_s: float,
) -> None:
    ending, loop = request.app[_ENDING], asyncio.get_running_loop()
    known: Any = None
    wrote_at, problem = loop.time(), ""
    while not ending.is_set() and request.method == "GET":
        try:
            news, known = await asyncio.to_thread(read, known)
            problem = ""
        except EvalError as error:
            news = {"error": str(error)} if str(error) != problem else None
            problem = str(error)
        if news is not None or loop.time() - wrote_at >= _BEAT_S:
            text = ": still here" if news is None else f"data: {to_json(news)}"
            await response.write(f"{text}\n\n".encode("utf-8", "backslashreplace"))
            wrote_at = loop.time()
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), every_s)


def _parse_query(asked: Mapping[str, str]) -> Query:
    try:
        return Query.model_validate(dict(asked))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _plain(row: RunRow) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude_defaults=True)

"""A read-only server of one run or a folder's runs: pages, samples, comparisons, events."""

import asyncio
import re
import socket
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web
from markupsafe import Markup
from pydantic import ValidationError

from memray_eval.analysis.open_runs import (
    ComparedRun,
    compare_runs,
    pick_candidates,
    read_flipped,
    split_run,
)
from memray_eval.analysis.pairs import find_report
from memray_eval.analysis.scores import candidates_of
from memray_eval.errors import ConfigError, EvalError, reason_of
from memray_eval.report.html.comparison import render_comparison
from memray_eval.report.html.page import asset, render_page
from memray_eval.report.html.samples import to_json
from memray_eval.report.run_view import OpenedRuns, Query, View
from memray_eval.report.runs_list import RunList, RunRow, UnknownRun
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import readable

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

# By path. A handler returns a page as text, data as what JSON can hold, or a response of its own
Handler = Callable[[web.Request], Awaitable[Any]]
Routes = Mapping[str, Handler]
ENDING = web.AppKey("ending", asyncio.Event)  # set when the server ends, for streams


@asynccontextmanager
async def _serving(
    pages: Routes, data: Routes, port: int, has_list: bool = False
) -> AsyncIterator[str]:
    """Serves at 127.0.0.1 until the block ends, and yields the URL; port 0 picks a free one. A page
    may be linked to from another site, and shows an error of this package as a page, with a link to
    the list of runs. Raises ConfigError."""

    @web.middleware
    async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_page = request.match_info.handler in pages.values()
        if refused := _refuse(request, is_page):
            return refused
        try:
            content = await handler(request)
        except EvalError as error:
            status = 400 if isinstance(error, ConfigError) else 500
            status = 404 if isinstance(error, UnknownRun) else status
            if not is_page:
                return _to_response({"error": str(error)}, status)
            up = "../" * (request.rel_url.raw_path.count("/") - 1) or "./"
            about = {"message": str(error), "home": up if has_list else ""}
            return _to_response(render_page("message.html", ("theme.js",), **about), status)
        return content if isinstance(content, web.StreamResponse) else _to_response(content)

    app = web.Application(middlewares=[respond])
    app[ENDING] = asyncio.Event()
    app.on_response_prepare.append(_add_security_headers)
    # `get` answers HEAD too
    app.add_routes(web.get(path, handler) for path, handler in {**pages, **data}.items())
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
        app[ENDING].set()
        await runner.cleanup()


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


MOST_SIDES, LISTED_FLIPS, PAGES_KEPT = 20, 20, 8


class ComparedRuns:
    """Renders comparisons, one at a time, and keeps the last ones. Safe for several threads."""

    def __init__(self, runs: RunList) -> None:
        self._runs, self._lock = runs, threading.Lock()
        self._pages: OrderedDict[object, str] = OrderedDict()

    def page(self, named: Sequence[str], by: str | None = None) -> str:
        """The page of these sides, the baseline first: a run's id (all of its candidates) or
        ID:CANDIDATE. Raises UnknownRun, DataError, and ConfigError for what is not comparable."""
        with self._lock:
            sides = [side for name in dict.fromkeys(named) for side in self._expand(name)]
            if not 2 <= len(sides) <= MOST_SIDES:
                raise ConfigError(
                    f"pick two or more runs to compare, with up to {MOST_SIDES} candidates in all; "
                    f"these have {len(sides)}"
                )
            opened = pick_candidates([f"{self._runs.path}/{side}" for side in sides])
            pairs = find_report([(side.folder, side.candidate) for side in opened])
            parts = (tuple(side.folder.list_parts()) for side in opened)
            key = (tuple(sides), by, pairs and pairs.runs, *parts)
            if key not in self._pages:
                self._pages[key] = _render(sides, opened, by)
                if len(self._pages) > PAGES_KEPT:
                    self._pages.popitem(last=False)
            return self._pages[key]

    def _expand(self, name: str) -> list[str]:
        """The sides that a name stands for, each as ID:CANDIDATE."""
        for run_id, candidate in split_run(name):
            try:
                path = self._runs.path_of(run_id)
            except UnknownRun:
                continue
            if candidate:
                return [name]
            with readable(path):
                return [f"{name}:{of}" for of in candidates_of(RunFolder(path).records())]
        raise UnknownRun(f"{self._runs.path} holds no run {name!r}")


def _render(sides: Sequence[str], opened: Sequence[ComparedRun], by: str | None) -> str:
    comparison, _ = compare_runs(opened, by=by, flips=LISTED_FLIPS)
    letters = {common.other: common.letter for common in comparison.common}
    compared = []
    for side, run in zip(sides, opened, strict=True):
        others = [other for other in sides if other != side]
        compared.append({
            "letter": letters.get(run.name, "A"),
            "name": run.name,
            "run": f"run/{quote(run.folder.run_id, safe='')}/",
            "as_baseline": _address([side, *others], by) if side != sides[0] else "",
            "without": _address(others, by) if len(sides) > 2 else "",
        })  # fmt: skip
    texts = read_flipped([flip for row in comparison.metrics for flip in row.flips], opened)
    return render_comparison(comparison, texts, compared)


def _address(sides: Sequence[str], by: str | None) -> str:
    parameters = [*(("run", side) for side in sides), *([("by", by)] if by else [])]
    return f"compare?{urlencode(parameters)}"


# A line that says nothing, so that a browser that has gone is noticed
_BEAT_S = 15.0


@asynccontextmanager
async def serving(view: View, port: int = 0) -> AsyncIterator[str]:
    """Serves one run at 127.0.0.1, and yields the URL; port 0 picks one. Raises ConfigError."""
    run = RunPages(lambda run_id: view)
    async with _serving({"/": run.page}, run.data(), port) as url:
        yield url


@asynccontextmanager
async def serving_runs(runs: RunList, port: int = 0) -> AsyncIterator[str]:
    """Serves the list of a folder's runs, every run and every comparison, as `serving` does."""
    run, every = RunPages(OpenedRuns(runs).view), ListPages(runs)
    pages = {
        "/": every.page,
        "/compare": every.comparison,
        "/run/{run}": every.redirect_to_run,
        "/run/{run}/": run.page,
    }
    data = {"/events": every.events, **run.data("/run/{run}")}
    async with _serving(pages, data, port, has_list=True) as url:
        yield url


class RunPages:
    """The page of a run, its samples, and its state."""

    def __init__(self, open_view: Callable[[str], View]) -> None:
        self._open_view = open_view

    def data(self, path: str = "") -> Routes:
        return {
            f"{path}/data/units": self._units,
            f"{path}/data/unit": self._unit,
            f"{path}/events": self._events,
        }

    async def _view(self, request: web.Request) -> View:
        """The view of the run that the request names."""
        return await asyncio.to_thread(self._open_view, request.match_info.get("run", ""))

    async def page(self, request: web.Request) -> str:
        return await asyncio.to_thread((await self._view(request)).page)

    async def _units(self, request: web.Request) -> dict[str, Any]:
        try:
            query = Query.model_validate(dict(request.query))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise ConfigError(f"{where}: {problem['msg']}") from None
        view, is_over = await self._view(request), threading.Event()
        try:
            return await asyncio.to_thread(view.answer, query, is_over.is_set)
        finally:
            is_over.set()  # a reader who has asked something else no longer waits for this

    async def _unit(self, request: web.Request) -> dict[str, Any]:
        unit_id = request.query.get("id", "")
        record = await asyncio.to_thread((await self._view(request)).record, unit_id)
        if record is None:
            raise UnknownRun(
                f"no unit {unit_id!r} in this run; it may have been rewritten: load the page again"
            )
        return record

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Sends the state of the run whenever that has changed."""
        view = await self._view(request)

        def read(before: RunRow | None) -> tuple[Any, RunRow | None]:
            row = view.standing()
            return (None if row is None or row == before else _plain(row)), row

        return await _stream(request, read, view.every_s)


class ListPages:
    """The list of a folder's runs, and comparisons of them."""

    def __init__(self, runs: RunList) -> None:
        self._runs, self._compared = runs, ComparedRuns(runs)

    async def page(self, request: web.Request) -> str:
        rows = await asyncio.to_thread(self._runs.rows)
        return render_page(
            "runs.html",
            ("theme.js", "judgment.js", "detail.js", "standing.js", "runs.js"),
            folder=self._runs.path,
            own_style=Markup(asset("served.css") + asset("runs.css")),
            rows=Markup(to_json([_plain(row) for row in rows.values()])),
        )

    async def comparison(self, request: web.Request) -> str:
        sides, by = request.query.getall("run", []), request.query.get("by")
        return await asyncio.to_thread(self._compared.page, sides, by)

    async def redirect_to_run(self, request: web.Request) -> None:
        run_id = request.match_info["run"]
        await asyncio.to_thread(self._runs.path_of, run_id)
        raise web.HTTPFound(f"/run/{quote(run_id, safe='')}/")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Sends the list's rows, then those that have changed and the names of those gone."""

        def read(before: dict[str, RunRow] | None) -> tuple[Any, dict[str, RunRow]]:
            rows, known = self._runs.rows(), before or {}
            changed = [_plain(row) for name, row in rows.items() if row != known.get(name)]
            gone = [name for name in known if name not in rows]
            news = {"rows": changed, "gone": gone, "all": before is None}
            return (news if changed or gone or before is None else None), rows

        return await _stream(request, read, self._runs.every_s)


async def _stream(
    request: web.Request, read: Callable[[Any], tuple[Any, Any]], every_s: float
) -> web.StreamResponse:
    """Sends an event for all that `read` has to tell, until the browser or the server goes. `read`
    gets what it returned last, at first None, and returns news, if any, and what it knows now."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    ending, loop = request.app[ENDING], asyncio.get_running_loop()
    state: Any = None
    wrote_at, problem = loop.time(), ""
    # A browser that goes while it is written to has no need of the rest
    with suppress(ConnectionResetError):
        while not ending.is_set() and request.method == "GET":
            try:
                news, state = await asyncio.to_thread(read, state)
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
    return response


def _plain(row: RunRow) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude_defaults=True)

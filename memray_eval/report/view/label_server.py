"""The server of the page on which people label a run's units: for this machine alone, and for who
has the token of its address.

Unlike the other pages' server it writes, so it trusts nobody by the place they ask from. Each
request needs the token, the name of this machine as its Host, and, where a browser says where it
comes from (Origin, Sec-Fetch-Site), this page. What is written comes as JSON in a POST, which no
form of another site can send, and no CORS header lets another page read or ask first. It serves no
report and no score of a judge: raters are blind to both."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiohttp import web
from markupsafe import Markup
from pydantic import Field, ValidationError

from memray_eval.errors import ConfigError, EvalError
from memray_eval.report.html.page_renderer import asset, render_page
from memray_eval.report.html.samples import to_json
from memray_eval.report.html.view_model import label
from memray_eval.report.labelling.session import LabelSession, rubric_text
from memray_eval.report.labelling.store import FILE
from memray_eval.report.view.local_http import (
    add_security_headers,
    is_from_elsewhere,
    json_response,
    listening,
    page_response,
    refuse_other_hosts,
)
from memray_eval.types import Frozen

_MOST_BYTES = 16 << 10  # of a request
_TOKEN_BYTES = 18
_SCRIPTS = ("theme.js", "marks.js", "label.js")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_SESSION = web.AppKey("session", LabelSession)
_TOKEN = web.AppKey("token", str)
_Text = Field(min_length=1, max_length=64)
K = TypeVar("K", bound=Frozen)


class Asked(Frozen):
    """Who asks: a rater, in a tab that named itself."""

    rater: str = Field(max_length=200)
    tab: str = _Text


class Answered(Asked):
    """A rater's answer on a unit, None to pass it over."""

    id: str = _Text
    unit: str = _Text
    value: float | None = Field(allow_inf_nan=False)
    aided: bool = False


class Undone(Asked):
    id: str = _Text


@asynccontextmanager
async def serving_labels(
    session: LabelSession, port: int = 0, token: str | None = None
) -> AsyncIterator[str]:
    """Serves the labelling page at 127.0.0.1 until the block ends, and yields its address, token
    included. Raises ConfigError if the port is taken."""
    app = web.Application(
        middlewares=[_check_request, _translate_errors], client_max_size=_MOST_BYTES
    )
    app[_SESSION], app[_TOKEN] = session, token or secrets.token_urlsafe(_TOKEN_BYTES)
    app.on_response_prepare.append(add_security_headers)
    at = "/{token}"
    app.add_routes(
        [
            web.get(f"{at}/", _serve_page),
            web.get(f"{at}/state", _serve_state),
            web.get(f"{at}/quotes", _serve_quotes),
            web.get(f"{at}/agreement", _serve_agreement),
            web.get(f"{at}/labels.csv", _serve_csv),
            web.post(f"{at}/answer", _take_answer),
            web.post(f"{at}/undo", _take_undo),
        ]
    )
    async with listening(app, port) as url:
        yield f"{url}{app[_TOKEN]}/"


@web.middleware
async def _check_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    if (refused := refuse_other_hosts(request)) is not None:
        return refused
    token = request.path.lstrip("/").partition("/")[0].encode("utf-8", "replace")
    if not hmac.compare_digest(token, request.app[_TOKEN].encode()):
        return web.Response(
            status=404, text="Nothing is here; open the address that memray-eval view printed.\n"
        )
    origin = request.headers.get("Origin")
    is_ours = origin is None or origin == f"http://{request.headers.get('Host', '')}"
    if is_from_elsewhere(request) or not is_ours:
        return web.Response(status=403, text="Only this server's own page may ask that.\n")
    if request.method == "POST" and request.content_type != "application/json":
        return web.Response(status=415, text="What is written is JSON.\n")
    return await handler(request)


@web.middleware
async def _translate_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Translates this package's errors to messages, for the page to show."""
    try:
        return await handler(request)
    except EvalError as error:
        return json_response({"error": str(error)}, 400 if isinstance(error, ConfigError) else 500)


async def _serve_page(request: web.Request) -> web.Response:
    session = request.app[_SESSION]
    about = {
        "metric": session.metric,
        "choices": [one.model_dump() for one in session.choices],
    }
    page = render_page(
        "label.html",
        _SCRIPTS,
        metric=label(session.metric),
        run_id=session.folder.run_id,
        file=FILE,
        rubric=rubric_text(session.metric),
        own_style=Markup(asset("label.css")),
        about=Markup(to_json(about)),
    )
    return page_response(page)


async def _serve_state(request: web.Request) -> web.Response:
    asked = _parse(Asked, dict(request.query))
    session = request.app[_SESSION]
    return json_response(await asyncio.to_thread(session.state, asked.rater, asked.tab))


async def _serve_quotes(request: web.Request) -> web.Response:
    unit = request.query.get("unit", "")
    return json_response(await asyncio.to_thread(request.app[_SESSION].quotes, unit))


async def _serve_agreement(request: web.Request) -> web.Response:
    return json_response(await asyncio.to_thread(request.app[_SESSION].agreement))


async def _serve_csv(request: web.Request) -> web.Response:
    session = request.app[_SESSION]
    text = await asyncio.to_thread(session.write_csv)
    name = f"labels-{session.metric}.csv"
    return web.Response(
        body=text.encode("utf-8", "backslashreplace"),
        content_type="text/csv",
        charset="utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _take_answer(request: web.Request) -> web.Response:
    said = _parse(Answered, await _read_json(request))
    state = await asyncio.to_thread(
        request.app[_SESSION].answer,
        said.rater,
        said.tab,
        said.id,
        said.unit,
        said.value,
        said.aided,
    )
    return json_response(state)


async def _take_undo(request: web.Request) -> web.Response:
    said = _parse(Undone, await _read_json(request))
    session = request.app[_SESSION]
    return json_response(await asyncio.to_thread(session.undo, said.rater, said.tab, said.id))


async def _read_json(request: web.Request) -> Any:
    try:
        return await request.json()
    except ValueError:
        raise ConfigError("what was sent is no JSON") from None


def _parse(kind: type[K], given: Mapping[str, Any]) -> K:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None

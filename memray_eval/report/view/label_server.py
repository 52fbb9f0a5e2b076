"""The server of the page on which people label a run's units. It writes, so each request needs the
token of its address; it serves no report and no judge's score, to which raters are blind."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from markupsafe import Markup

from memray_eval.errors import ConfigError
from memray_eval.report.html.page_renderer import asset, render_page
from memray_eval.report.html.samples import to_json
from memray_eval.report.html.view_model import label
from memray_eval.report.labelling.session import LabelSession, rubric_text
from memray_eval.report.labelling.store import (
    FILE,
    LONGEST_ANSWER,
    LabelRequest,
    RaterRequest,
    UndoRequest,
)
from memray_eval.report.view.router import HOST, Endpoint, parse, serving_routes, text_response

_TOKEN_BYTES = 18
_SCRIPTS = ("theme.js", "marks.js", "label.js")


@asynccontextmanager
async def serving_labels(
    session: LabelSession, port: int = 0, host: str = HOST
) -> AsyncIterator[str]:
    """Serves the page at `host`; yields its address with the token. Raises ConfigError."""
    own = secrets.token_urlsafe(_TOKEN_BYTES)

    def check_token(request: web.Request) -> web.Response | None:
        sent = request.path.lstrip("/").partition("/")[0].encode("utf-8", "replace")
        if hmac.compare_digest(sent, own.encode()):
            return None
        text = "Nothing is here; open the address that memray-eval view printed.\n"
        return web.Response(status=404, text=text)

    async with serving_routes(LabelPages(session).routes(), port, check_token, host) as url:
        yield f"{url}{own}/"


class LabelPages:
    """The page for raters, what it shows and what they say; no page to link to."""

    def __init__(self, session: LabelSession) -> None:
        self._session = session

    def routes(self) -> list[Endpoint]:
        return [
            Endpoint("/{token}/", self._page),
            Endpoint("/{token}/state", self._state),
            Endpoint("/{token}/quotes", self._quotes),
            Endpoint("/{token}/agreement", self._agreement),
            Endpoint("/{token}/labels.csv", self._csv),
            Endpoint("/{token}/answer", self._answer, "POST"),
            Endpoint("/{token}/undo", self._undo, "POST"),
        ]

    async def _page(self, request: web.Request) -> str:
        session = self._session
        choices = [choice.model_dump() for choice in session.choices]
        about = {"metric": session.metric, "choices": choices}
        return render_page(
            "label.html",
            _SCRIPTS,
            metric=label(session.metric),
            run_id=session.folder.run_id,
            file=FILE,
            rubric=rubric_text(session.metric),
            own_style=Markup(asset("label.css")),
            raters=session.queue.raters,
            longest=LONGEST_ANSWER,
            about=Markup(to_json(about)),
        )

    async def _state(self, request: web.Request) -> dict[str, Any]:
        who = parse(RaterRequest, dict(request.query))
        return await asyncio.to_thread(self._session.state, who.rater, who.tab)

    async def _quotes(self, request: web.Request) -> list[str]:
        return await asyncio.to_thread(self._session.quotes, request.query.get("unit", ""))

    async def _agreement(self, request: web.Request) -> dict[str, Any]:
        return await asyncio.to_thread(self._session.agreement)

    async def _csv(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._session.check_shown)
        text = await asyncio.to_thread(self._session.write_csv)
        named = f'attachment; filename="labels-{self._session.metric}.csv"'
        return text_response(text, "text/csv", headers={"Content-Disposition": named})

    async def _answer(self, request: web.Request) -> dict[str, Any]:
        sent = parse(LabelRequest, await _read_json(request))
        return await asyncio.to_thread(self._session.answer, sent)

    async def _undo(self, request: web.Request) -> dict[str, Any]:
        sent = parse(UndoRequest, await _read_json(request))
        return await asyncio.to_thread(self._session.undo, sent.rater, sent.tab, sent.id)


async def _read_json(request: web.Request) -> Any:
    try:
        return await request.json()
    except ValueError:
        raise ConfigError("what was sent is no JSON") from None

"""The batch APIs of OpenAI (files, batches) and Anthropic (message batches), beside the calls of
tests/servers/provider.py, whose `reply` answers the calls of batches too.

How each batch goes is a `Course`; those of `courses` are taken in turn, then `course` holds. What a
batch's calls are answered with counts as paid: by the digest of a request's body, whichever way it
came, and in `usd` at half of PRICE. The rules are the published ones: a limit of queued tokens, one
model a file, a state machine that moves when it is looked at, results for 24 hours and longer,
everything in order of time."""

import asyncio
import json
import math
import re
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from aiohttp import web

from tests.servers.judgments import body_digest
from tests.servers.provider import WRITERS, Answer, Asked, Fault, Provider, Raw, Reply, serving

End = Literal["completed", "partly", "failed", "expired", "cancelled"]
# What may go wrong with a call of a batch
Odd = Literal[
    "error", "error_in_body", "error_500", "missing", "junk", "twice", "stranger", "separators"
]
PRICE, BATCH_SHARE = (2.0, 8.0), 0.5  # dollars a million tokens in and out
CUSTOM_ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a batch goes: it ends after so many `looks` at it and `seconds`, `never` if it is stuck.
    `share` of its calls are done by then. `odd` numbers calls that come back otherwise, `files`
    says which files of results are there (OpenAI).

    `upload_lost` and `submit_lost`: it is done, and the connection breaks. `refuse`: the status
    and words that its submission is refused with, `busy` how often it gets 429 first, `failure`
    the code that its file fails with."""

    looks: int = 1
    seconds: float = 0.0
    end: End = "completed"
    share: float = 1.0
    never: bool = False
    cancels: bool = True
    odd: Mapping[int, str] = field(default_factory=dict)
    files: Literal["as due", "neither"] = "as due"
    upload_lost: bool = False
    submit_lost: bool = False
    refuse: tuple[int, str] | None = None
    busy: int = 0
    failure: str = ""
    results_gone: int = 0  # a status that the download of results gets instead


@dataclass
class FakeBatch:
    """A batch as the provider has it. `calls` are custom ids and bodies; `results` lines of the
    provider's format, once it has ended: good ones, and those of the error file."""

    id: str
    provider: str
    name: str
    calls: list[tuple[str, dict[str, Any]]]
    course: Course
    created: float
    tokens: int
    looks: int = 0
    end: str = ""
    cancelled: bool = False
    results: tuple[list[bytes], list[bytes]] = field(default_factory=lambda: ([], []))
    counts: Counter[str] = field(default_factory=Counter)


@dataclass
class BatchApis:
    """The running APIs, over a provider."""

    provider: Provider
    course: Course = Course()
    courses: deque[Course] = field(default_factory=deque)
    most_queued: float = math.inf  # prompt tokens of all batches that have not ended
    most_open: float = math.inf
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, FakeBatch] = field(default_factory=dict)
    usd: float = 0.0
    n_calls: int = 0
    busy: int = 0
    lost_uploads: set[str] = field(default_factory=set)
    n_made: int = 0

    def routes(self) -> list[web.RouteDef]:
        item = "/v1/messages/batches/{id}"
        return [
            web.post("/v1/files", self.openai_upload),
            web.get("/v1/files/{id}/content", self.openai_content),
            web.delete("/v1/files/{id}", self.delete_file),
            web.post("/v1/batches", self.openai_submit),
            web.get("/v1/batches", self.list_all),
            web.get("/v1/batches/{id}", self.show),
            web.post("/v1/batches/{id}/cancel", self.show),
            web.post("/v1/messages/batches", self.anthropic_submit),
            web.get("/v1/messages/batches", self.list_all),
            web.get(item, self.show),
            web.get(f"{item}/results", self.anthropic_results),
            web.post(f"{item}/cancel", self.show),
            web.get("/_batches", self.tell),
            web.post("/_batches", self.script),
        ]

    # For tests of another process

    async def tell(self, request: web.Request) -> web.Response:
        return web.json_response(self.stats())

    async def script(self, request: web.Request) -> web.Response:
        self.course = Course(**await request.json())
        return web.json_response({})

    def stats(self) -> dict[str, Any]:
        """`paid_again`: answers beyond the first to a request, live or in a batch."""
        answered = self.provider.answered
        return {
            "n_batches": len(self.batches),
            "n_open": len(self._queued()),
            "n_calls": self.n_calls,
            "n_live": answered.total() - self.n_calls,
            "n_answered": answered.total(),
            "paid_again": answered.total() - len(answered),
            "usd": self.usd,
            "sizes": [len(batch.calls) for batch in self.batches.values()],
        }

    # What both share

    def _queued(self) -> list[FakeBatch]:
        return [batch for batch in self.batches.values() if not batch.end]

    def _next_course(self) -> Course:
        return self.courses[0] if self.courses else self.course

    def _take_course(self) -> Course:
        return self.courses.popleft() if self.courses else self.course

    def _new_id(self, prefix: str) -> str:
        self.n_made += 1
        return f"{prefix}{self.n_made:06d}"

    def _refusal(self, provider: str) -> web.Response | None:
        """Why a batch is not taken, if it is not."""
        course = self._next_course()
        if course.refuse is not None:
            self._take_course()
            return _error(provider, *course.refuse)
        if self.busy < course.busy:
            self.busy += 1
            return _error(provider, 429, "too many requests", retry_after="0.2")
        self.busy = 0
        if len(self._queued()) >= self.most_open:
            return _error(provider, 429, "the queue of batches is full", retry_after="0.2")
        return None

    async def _make(
        self,
        request: web.Request,
        provider: str,
        calls: list[tuple[str, dict[str, Any]]],
        name: str = "{}",
        failure: str = "",
    ) -> web.Response:
        tokens = sum(len(json.dumps(body)) for _, body in calls) // 4
        if (refused := self._refusal(provider)) is not None:
            return refused
        course = self._take_course()
        queued = sum(batch.tokens for batch in self._queued())
        if not failure and queued + tokens > self.most_queued:
            failure = "token_limit_exceeded"
        if failure or course.failure:
            course = Course(looks=course.looks, end="failed", failure=failure or course.failure)
        batch_id = self._new_id("batch_" if provider == "openai" else "msgbatch_")
        batch = FakeBatch(batch_id, provider, name, calls, course, time.time(), tokens)
        self.batches[batch.id] = batch
        if course.submit_lost:
            await _break(request)
        return web.json_response(self._view(batch))

    def _view(self, batch: FakeBatch) -> dict[str, Any]:
        if batch.provider == "anthropic":
            return _anthropic_view(batch, self.provider.root)
        return _openai_view(batch)

    async def show(self, request: web.Request) -> web.Response:
        """Shows a batch, or cancels it, by the path."""
        batch = self.batches.get(request.match_info["id"])
        if batch is None:
            return _error("anthropic" if "/messages/" in request.path else "openai", 404, "no such")
        if request.path.endswith("/cancel"):
            batch.cancelled = True
        else:
            await self._look(batch)
        return web.json_response(self._view(batch))

    async def list_all(self, request: web.Request) -> web.Response:
        """A page of the batches, the newest first."""
        provider = "anthropic" if "/messages/" in request.path else "openai"
        batches = [item for item in reversed(self.batches.values()) if item.provider == provider]
        for item in batches if provider == "anthropic" else ():
            await self._look(item)
        views = list(map(self._view, batches))
        limit = int(request.query.get("limit", 20))
        after = request.query.get("after_id") or request.query.get("after")
        start = 1 + [view["id"] for view in views].index(after) if after else 0
        has_more = start + limit < len(views)
        return web.json_response({"data": views[start : start + limit], "has_more": has_more})

    async def _look(self, batch: FakeBatch) -> None:
        """Moves a batch on: it is looked at."""
        batch.looks += 1
        course = batch.course
        if batch.end or (batch.cancelled and not course.cancels):
            return
        is_over = time.time() >= batch.created + course.seconds and batch.looks > course.looks
        if batch.cancelled:
            await self._end(batch, "cancelled")
        elif not course.never and is_over:
            await self._end(batch, course.end)

    async def _end(self, batch: FakeBatch, end: str) -> None:
        course, n_done = batch.course, len(batch.calls)
        if end in ("expired", "cancelled", "partly"):
            n_done = round(course.share * n_done)
        if end == "failed":
            n_done = 0
        for index, (custom_id, body) in enumerate(batch.calls):
            if index < n_done:
                await self._answer(batch, index, custom_id, body)
            elif end != "failed":
                kind = "expired" if end == "expired" else "canceled"
                batch.counts[kind] += 1
                batch.results[1].append(_result(batch.provider, custom_id, kind))
        batch.end = end

    async def _answer(
        self, batch: FakeBatch, index: int, custom_id: str, body: dict[str, Any]
    ) -> None:
        odd = batch.course.odd.get(index, "")
        good, bad = batch.results
        if odd in ("error", "error_in_body", "error_500"):
            batch.counts["failed"] += 1
            bad.append(_failed_call(batch.provider, custom_id, odd))
            return
        scripted = self.provider.reply(body)
        outcome = Answer(scripted) if isinstance(scripted, str) else scripted
        if isinstance(outcome, Raw) and outcome.status == 400 and batch.provider == "openai":
            batch.counts["failed"] += 1
            assert isinstance(outcome.body, bytes)
            bad.append(_result("openai", custom_id, "", 400, json.loads(outcome.body)))
            return
        if isinstance(outcome, Fault | Raw):
            batch.counts["failed"] += 1
            bad.append(_failed_call(batch.provider, custom_id, "error_500"))
            return
        if odd == "separators":
            outcome = Answer(_with_separators(outcome.text), outcome.ending)
        spent = self.provider._spent(body, outcome)
        self.provider.count(body_digest(body), spent)
        self.usd += BATCH_SHARE * (spent.input * PRICE[0] + spent.output * PRICE[1]) / 1e6
        self.n_calls += 1
        batch.counts["succeeded"] += 1
        if odd == "missing":
            return
        if odd == "junk":
            good.append(b"{this is no JSON\n")
            return
        asked = Asked(None, body, outcome, spent, {})  # type: ignore[arg-type]
        written = await WRITERS[batch.provider](asked)
        assert isinstance(written, web.Response)
        assert isinstance(written.body, bytes)
        keys = {"twice": [custom_id] * 2, "stranger": [custom_id, "f" * 32]}.get(odd, [custom_id])
        body = json.loads(written.body)
        good += [_result(batch.provider, key, "succeeded", 200, body) for key in keys]

    # OpenAI

    async def openai_upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        sent = form["file"]
        with sent.file as file_sent:  # type: ignore[union-attr]
            data = file_sent.read()
        name = str(sent.filename)  # type: ignore[union-attr]
        self.files[file_id := self._new_id("file-")] = data
        if self._next_course().upload_lost and name not in self.lost_uploads:
            self.lost_uploads.add(name)
            await _break(request)
        return web.json_response({"id": file_id, "object": "file", "status": "processed"})

    async def openai_content(self, request: web.Request) -> web.StreamResponse:
        kind, _, batch_id = request.match_info["id"].removeprefix("out-").partition("-")
        if (batch := self.batches.get(batch_id)) is None or batch.course.results_gone:
            return _error("openai", 404, "no such file")
        return await _stream(request, batch.results[kind == "error"])

    async def delete_file(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        self.files.pop(name, None)
        return web.json_response({"id": name, "object": "file", "deleted": True})

    async def openai_submit(self, request: web.Request) -> web.StreamResponse:
        payload = await request.json()
        data = self.files.get(payload.get("input_file_id"))
        if data is None or payload.get("completion_window") != "24h":
            return _error("openai", 400, "no such file, or another window than 24h")
        lines = [json.loads(line) for line in data.splitlines()]
        calls = [(line["custom_id"], line["body"]) for line in lines]
        failure = ""
        if len({key for key, _ in calls}) < len(calls):
            failure = "duplicate_custom_id"
        elif len({body.get("model") for _, body in calls}) > 1:
            failure = "mismatched_model"
        elif any((line["method"], line["url"]) != ("POST", payload["endpoint"]) for line in lines):
            failure = "invalid_url"
        name = json.dumps(payload.get("metadata") or {})
        return await self._make(request, "openai", calls, name, failure)

    # Anthropic

    async def anthropic_submit(self, request: web.Request) -> web.StreamResponse:
        requests = (await request.json())["requests"]
        ids = [item["custom_id"] for item in requests]
        if len(set(ids)) < len(ids) or not all(CUSTOM_ID.match(item) for item in ids):
            return _error("anthropic", 400, "custom_id must be unique and fit its pattern")
        calls = [(item["custom_id"], item["params"]) for item in requests]
        return await self._make(request, "anthropic", calls)

    async def anthropic_results(self, request: web.Request) -> web.StreamResponse:
        batch = self.batches.get(request.match_info["id"])
        if batch is None or not batch.end or batch.course.results_gone:
            return _error("anthropic", 404, "no results")
        return await _stream(request, [*batch.results[0], *batch.results[1]])


@contextmanager
def serving_batches(reply: Reply, **fields: Any) -> Iterator[BatchApis]:
    """A provider with its batch APIs, whose `fields` are set so."""
    created = list[BatchApis]()

    def routes(provider: Provider) -> Sequence[web.RouteDef]:
        created.append(BatchApis(provider, **fields))
        return created[0].routes()

    with serving(reply, more=routes):
        yield created[0]


# How each provider writes it


def _error(provider: str, status: int, words: str, retry_after: str | None = None) -> web.Response:
    headers = {"retry-after": retry_after} if retry_after is not None else {}
    kind = "rate_limit_error" if status == 429 else "invalid_request_error"
    body: dict[str, Any] = {"error": {"message": words, "type": kind, "code": None, "param": None}}
    if provider == "anthropic":
        body = {"type": "error", "error": {"type": kind, "message": words}}
    return web.json_response(body, status=status, headers=headers)


async def _break(request: web.Request) -> None:
    """The answer is lost on its way."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)


async def _stream(request: web.Request, lines: Sequence[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/binary"})
    await response.prepare(request)
    for start in range(0, len(lines), 100):
        await response.write(b"".join(lines[start : start + 100]))
    await response.write_eof()
    return response


def _with_separators(text: str) -> str:
    """A JSON object whose texts hold what other readers take for ends of lines."""
    payload = json.loads(text)
    texts = {key: f"{item}\u2028\x85" for key, item in payload.items() if isinstance(item, str)}
    return json.dumps(payload | texts, ensure_ascii=False)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _result(provider: str, custom_id: str, kind: str, status: int = 200, body: Any = None) -> bytes:
    """A line of a file of results, in Anthropic's words of its kind."""
    if provider == "anthropic":
        key = "message" if kind == "succeeded" else "error"
        return _line({"custom_id": custom_id, "result": {"type": kind, key: body}})
    if body is None:
        code = "batch_expired" if kind == "expired" else "batch_cancelled"
        return _line({"custom_id": custom_id, "response": None, "error": {"code": code}})
    response = {"status_code": status, "request_id": "req_1", "body": body}
    return _line({"id": "r", "custom_id": custom_id, "response": response, "error": None})


def _failed_call(provider: str, custom_id: str, odd: str) -> bytes:
    """A call that failed by itself: for good, or (500) in a way that may pass."""
    kind = "api_error" if odd == "error_500" else "invalid_request_error"
    body = {"type": "error", "error": {"message": "scripted", "type": kind}}
    status = 500 if odd == "error_500" else 200 if odd == "error_in_body" else 400
    return _result(provider, custom_id, "errored", status, body)


def _openai_view(batch: FakeBatch) -> dict[str, Any]:
    state = {"partly": "completed"}.get(batch.end, batch.end)
    if not state:
        state = "validating" if batch.looks == 0 else "in_progress"
        state = "cancelling" if batch.cancelled else state
    has_files = batch.end and batch.course.files != "neither"
    good, bad = batch.results
    errors = None
    if batch.end == "failed":
        item = {"code": batch.course.failure, "message": batch.course.failure.replace("_", " ")}
        errors = {"object": "list", "data": [item | {"line": None, "param": None}]}
    return {
        "id": batch.id,
        "object": "batch",
        "errors": errors,
        "status": state,
        "output_file_id": f"out-output-{batch.id}" if has_files and good else None,
        "error_file_id": f"out-error-{batch.id}" if has_files and bad else None,
        "created_at": int(batch.created),
        "request_counts": {
            "total": len(batch.calls),
            "completed": batch.counts["succeeded"],
            "failed": batch.counts["failed"],
        },
        "metadata": json.loads(batch.name),
    }


def _anthropic_view(batch: FakeBatch, root: str) -> dict[str, Any]:
    names = ("canceled", "errored", "expired", "succeeded")
    counts = {name: batch.counts[name if name != "errored" else "failed"] for name in names}
    if batch.end == "failed":
        counts["errored"] = len(batch.calls)
    counts["processing"] = len(batch.calls) - sum(counts.values()) if not batch.end else 0
    state = "ended" if batch.end else "canceling" if batch.cancelled else "in_progress"
    has_results = batch.end and batch.course.files != "neither"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": state,
        "request_counts": counts,
        "created_at": datetime.fromtimestamp(batch.created, UTC).isoformat(),
        "results_url": f"{root}/v1/messages/batches/{batch.id}/results" if has_results else None,
    }

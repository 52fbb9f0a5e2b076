"""Odd replies, by name: what a provider, a proxy or a broken server may send instead of a
completion.

Each case is what the server sends and what must come of it: the type of the error, or None for a
verdict (or an answer, or vectors) all the same."""

import gzip
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from memray_eval.errors import (
    Declined,
    JudgeError,
    Malformed,
    QuotaExhausted,
    Throttled,
    Unauthorised,
    Unavailable,
    UnknownModel,
    Unreadable,
)
from tests.servers.provider import Raw

SECRET = "sk-test-secret-0123456789"
HALF, MOST_INT, CACHED = "\ud83d", 2**64, "cached_tokens"
MISSING: Any = object()
Expected: TypeAlias = type[JudgeError] | None
Cases: TypeAlias = dict[str, tuple[Raw, Expected]]


def raw(value: Any, **options: Any) -> Raw:
    return Raw(json.dumps(value).encode(), **options)


def error(**fields: Any) -> Raw:
    return raw({"error": {"message": f"no luck with {SECRET}", **fields}})


def gzipped(body: bytes, status: int = 200) -> Raw:
    """A reply that says it is packed."""
    return Raw(body, status, headers={"content-encoding": "gzip"})


HTML = b"<!DOCTYPE html><html><body>Log in to the network</body></html>"
# What comes in place of a body, whatever the provider's format.
BODIES: Cases = {
    "null": (raw(None), Unreadable),
    "an empty list": (raw([]), Unreadable),
    "a list of null": (raw([None]), Unreadable),
    "a text": (raw("busy"), Unreadable),
    "a number": (raw(42), Unreadable),
    "true": (raw(True), Unreadable),
    "an empty object": (raw({}), Unreadable),
    "nothing": (Raw(b""), Unreadable),
    "spaces": (Raw(b" \n\t "), Unreadable),
    "204": (Raw(b"", status=204), Unreadable),
    "HTML": (Raw(HTML, content_type="text/html"), Unreadable),
    "HTML that says it is JSON": (Raw(HTML), Unreadable),
    "plain words": (Raw(b"upstream connect error", content_type="text/plain"), Unreadable),
    "JSON cut off": (Raw(b'{"choices": [{"message": {"content": "'), Unreadable),
    "broken JSON": (Raw(b'{"choices": [,]}'), Unreadable),
    "bytes that are no UTF-8": (Raw(b"\xff\xfe\xfd\xfc"), Unreadable),
    "an unknown character set": (
        Raw(b"null", content_type="application/json; charset=klingon"),
        Unreadable,
    ),
    "nested without end": (Raw(b"[" * 100_000), Unreadable),
    "a number of 5,000 digits": (Raw(b"9" * 5000), Unreadable),
    "gzip garbage": (gzipped(b"this is no gzip"), Unreadable),
    "gzip cut off": (gzipped(gzip.compress(b"{}" * 999)[:20]), Unreadable),
    "a packing that was not asked for": (
        Raw(b"....", headers={"content-encoding": "br"}),
        Unreadable,
    ),
    "9 MB": (Raw((b" " * 1_000_000,) * 9), JudgeError),
    "a gzip bomb": (gzipped(gzip.compress(b" " * 50_000_000)), JudgeError),
    "closed in the middle": (Raw(b'{"choices": [', then="close"), Unavailable),
    "shorter than it says": (
        Raw(b"{}", headers={"content-length": "500"}, then="close"),
        Unavailable,
    ),
    "an error: rate limit": (error(code="rate_limit_exceeded", type="requests"), Throttled),
    "an error: 429": (error(code=429, status="RESOURCE_EXHAUSTED"), Throttled),
    "an error: wrong key": (
        error(code="invalid_api_key", type="invalid_request_error"),
        Unauthorised,
    ),
    "an error: 403": (error(code=403, status="PERMISSION_DENIED"), Unauthorised),
    "an error: no model": (error(code="model_not_found"), UnknownModel),
    "an error: overloaded": (error(type="overloaded_error"), Unavailable),
    "an error: server": (error(type="server_error"), Unavailable),
    "an error: 500": (error(code="500"), Unavailable),
    "an error: invalid request": (error(type="invalid_request_error"), JudgeError),
    "an error: 400": (error(code=400, status="INVALID_ARGUMENT"), JudgeError),
    "an error of no known name": (error(type="novel"), Unreadable),
    "an error that is a text": (raw({"error": "went wrong"}), Unreadable),
    "an error that is a list": (raw({"error": ["went wrong"]}), Unreadable),
    "an error in a list": (raw([{"error": {"code": 503, "message": "no"}}]), Unavailable),
    "only a detail": (raw({"detail": "Not authenticated"}), Unreadable),
    "302 to itself": (Raw(b"", status=302, headers={"location": ""}), JudgeError),
    "304": (Raw(b"", status=304), JudgeError),
    "400 of HTML": (Raw(HTML, status=400, content_type="text/html"), JudgeError),
    "402": (raw({"error": "pay"}, status=402), QuotaExhausted),
    "a used-up quota": (raw({"error": {"code": "insufficient_quota"}}, status=429), QuotaExhausted),
    "413": (Raw(b"", status=413), JudgeError),
    "429 of nothing": (Raw(b"", status=429), Throttled),
    "502 of HTML": (Raw(HTML, status=502, content_type="text/html"), Unavailable),
    "529": (raw({"type": "error", "error": {"type": "overloaded_error"}}, status=529), Unavailable),
    "500 of gzip garbage": (gzipped(b"no gzip", 500), Unreadable),
}


def changed(whole: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The JSON value with another at a place, or without it."""
    if not path:
        return value
    copy = dict(whole) if isinstance(whole, Mapping) else list(whole)
    if len(path) == 1 and value is MISSING:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(copy[path[0]] if len(path) > 1 else None, path[1:], value)
    return copy


def at(
    whole: Any,
    path: tuple[Any, ...],
    expected: Expected,
    wrap: Callable[[Any], Raw] = raw,
    **values: Any,
) -> Cases:
    """The JSON value with each of these at a place in it, all expected to come to the same."""
    dotted = ".".join(map(str, path))
    return {
        f"{dotted} {name}": (wrap(changed(whole, path, value)), expected)
        for name, value in values.items()
    }


def counts(whole: Any, usage: str, figure: str) -> Cases:
    """A good completion whose tokens cannot be counted."""
    odd = {"empty": {}, "null": None, "missing": MISSING, "text": "many", "list": [1, 2]}
    figures = {"negative": -5, "over_64_bits": MOST_INT, "half": 1.5, "text": "10", "true": True}
    odd_figures = at(whole, (usage, figure), None, **figures, NaN=float("nan"))
    return at(whole, (usage,), None, **odd) | odd_figures


ODD: dict[str, Any] = {"null": None, "missing": MISSING, "text": "none", "number": 7}


def with_half(text: str) -> dict[str, Any]:
    """The text with half of a character in it."""
    return {"with half a character": text.replace("fine", f"fine {HALF}")}


def openai_cases(text: str) -> Cases:
    spent = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    written = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": written, "finish_reason": "stop"}
    good = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    good |= {"choices": [choice], "usage": spent}
    of = partial(at, good)
    message = ("choices", 0, "message")
    content, refusal, finish = (*message, "content"), (*message, "refusal"), ("finish_reason",)
    lists = {"of_null": [None], "of_text": ["x"], "of_lists": [[]]}
    thought = [{"type": "thinking", "thinking": []}, {"type": "text", "text": text}]
    body = json.dumps(good).encode()
    return {
        **BODIES,
        **of(("choices",), Unreadable, empty=[], **ODD, object={}, **lists),
        **of(message, Unreadable, **ODD, list=[1], false=False),
        **of(content, Unreadable, list=[[text]], parts=[{"type": "text", "text": 3}]),
        **of(content, Unreadable, number=3),
        **of(content, None, of_parts=thought, parsed=json.loads(text), **with_half(text)),
        **of(content, Malformed, null=None, missing=MISSING, half_alone=HALF, object={}),
        **of(refusal, Unreadable, list=["no"]),
        **of(refusal, Declined, half=f"no {HALF}"),
        **of(("choices", 0, *finish), Unreadable, number=1, list=[]),
        **of(("choices", 0, *finish), None, null=None),
        **of(content, None, half_written_out=text.replace("fine", r"fine \ud83d")),
        **counts(good, "usage", "prompt_tokens"),
        **counts(good, "usage", "completion_tokens"),
        **of(("usage", "prompt_tokens_details"), None, null=None, text="x", many={CACHED: 11}),
        "good, with a mark at its start": (Raw(b"\xef\xbb\xbf" + body), None),
        "good, packed": (gzipped(gzip.compress(body)), None),
        "good": (raw(good), None),
    }


def anthropic_cases(text: str) -> Cases:
    good = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    good |= {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    good |= {"stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}
    of = partial(at, good)
    written = ("content", 0, "text")
    lists = {"of_null": [None], "of_text": ["x"], "of_lists": [[]]}
    failed = {"type": "error", "error": {"type": "api_error", "message": "no"}}
    return {
        **BODIES,
        "an error, Anthropic's way": (raw(failed), Unavailable),
        "an error of nothing": (raw({"type": "error"}), Unreadable),
        **of(("content",), Unreadable, **ODD, object={}, **lists),
        **of(("content",), Malformed, empty=[], of_others=[{"type": "tool_use"}]),
        **of(written, Unreadable, list=[text], object={}, number=3),
        **of(written, Malformed, null=None, missing=MISSING, half_alone=HALF),
        **of(written, None, **with_half(text)),
        **of(("content", 0, "type"), Malformed, null=None, missing=MISSING, number=1),
        **of(("stop_reason",), Unreadable, number=1, list=[]),
        **of(("stop_reason",), None, null=None, missing=MISSING),
        **counts(good, "usage", "input_tokens"),
        **counts(good, "usage", "output_tokens"),
        **of(("usage", "cache_read_input_tokens"), None, text="many"),
        "good": (raw(good), None),
    }


def google_cases(text: str) -> Cases:
    written = {"role": "model", "parts": [{"text": text}]}
    spent = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 1}
    candidate = {"content": written, "finishReason": "STOP", "index": 0}
    good = {"candidates": [candidate], "usageMetadata": spent}
    of = partial(at, good)
    content = ("candidates", 0, "content")
    parts, reason = (*content, "parts"), ("candidates", 0, "finishReason")
    lists = {"of_null": [None], "of_objects": [{}]}
    return {
        **BODIES,
        "an error, Google's way": (error(code=400, status="FAILED_PRECONDITION"), JudgeError),
        "blocked": (raw({"promptFeedback": {"blockReason": "SAFETY"}}), Declined),
        "blocked for no reason": (raw({"promptFeedback": {}}), Unreadable),
        "blocked by a list": (raw({"promptFeedback": {"blockReason": ["SAFETY"]}}), Unreadable),
        **of(("candidates",), Unreadable, empty=[], **ODD, object={}, **lists),
        **of(content, Unreadable, text="none", number=7, list=[1]),
        **of(content, Malformed, null=None, missing=MISSING, empty={}),
        **of(parts, Unreadable, text="none", number=7, of_null=[None], of_text=["x"]),
        **of(parts, Malformed, null=None, empty=[], of_empty=[{}]),
        **of((*parts, 0, "text"), Unreadable, list=[text], object={}, number=3),
        **of((*parts, 0, "text"), None, **with_half(text)),
        **of(reason, Unreadable, number=1),
        **of(reason, None, null=None, novel="NOVEL"),
        **counts(good, "usageMetadata", "promptTokenCount"),
        **counts(good, "usageMetadata", "thoughtsTokenCount"),
        **of(("usageMetadata", "cachedContentTokenCount"), None, negative=-1, more=11),
        "good": (raw(good), None),
    }


def _events(*events: Any, **options: Any) -> Raw:
    """A stream of events; what is bytes stands in it as it is."""
    lines = (
        event if isinstance(event, bytes) else f"data: {json.dumps(event)}\n\n".encode()
        for event in events
    )
    return Raw(tuple(lines), content_type="text/event-stream", **options)


DONE = b"data: [DONE]\n\n"


def stream_cases() -> Cases:
    """Replies to a candidate that streams. A good one says "In Bergen"."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    first = {
        **head,
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": "In"}, "finish_reason": None}
        ],
    }
    second = changed(first, ("choices", 0, "delta", "content"), " Bergen")
    stop = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    last = {**head, "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}

    def with_second(event: Any) -> Raw:
        return _events(first, event, stop, last, DONE)

    at_second = partial(at, second, wrap=with_second)
    content = ("choices", 0, "delta", "content")

    def usage(value: Any) -> tuple[Raw, Expected]:
        return _events(first, second, stop, changed(last, ("usage",), value), DONE), None

    halves = [changed(second, content, half) for half in (" Bergen\ud83d", "\ude00")]
    packed = (
        b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in (first, second, stop, last))
        + DONE
    )
    gzipped = {"content-encoding": "gzip"}
    message = {"role": "assistant", "content": "In Bergen"}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    lists = {"of_null": [None], "of_text": ["x"]}
    return {
        **BODIES,
        "a completion that does not stream": (raw(whole), None),
        "closed before its end": (_events(first, second, then="close"), Unavailable),
        "stalled": (_events(first, second, then="stall"), Unavailable),
        "stalled before its start": (_events(then="stall"), Unavailable),
        "ended before its end": (_events(first, second), Unreadable),
        "done before its end": (_events(first, second, DONE), Unreadable),
        "nothing but done": (_events(DONE), Unreadable),
        "nothing but comments": (_events(b": ping\n\n: ping\n\n"), Unreadable),
        "broken JSON in a line": (with_second(b'data: {"choices": [,]}\n\n'), Unreadable),
        "a line cut off": (with_second(b'data: {"choices": [{"delta"\n\n'), Unreadable),
        "an empty line of data": (with_second(b"data:\n\n"), Unreadable),
        "null in a line": (with_second(None), Unreadable),
        "a list in a line": (with_second([]), Unreadable),
        "a text in a line": (with_second("x"), Unreadable),
        "HTML in a line": (with_second(b"data: " + HTML + b"\n\n"), Unreadable),
        "an error in a line": (
            with_second({"error": {"message": "down", "type": "server_error"}}),
            Unavailable,
        ),
        "a rate limit in a line": (
            with_second({"error": {"code": 429, "message": "slow"}}),
            Throttled,
        ),
        "an error event": (with_second(b'event: error\ndata: {"message": "down"}\n\n'), Unreadable),
        "a line of 9 MB": (_events(b"data: " + b"x" * 9_000_000), JudgeError),
        "an answer of 9 MB": (_events(*[changed(second, content, "x" * 900_000)] * 10), JudgeError),
        **at_second(("choices",), Unreadable, **ODD, object={}, **lists),
        **at_second(("choices", 0, "delta"), Unreadable, null=None, text="x", list=[], number=1),
        **at_second(content, Unreadable, list=[1], object={}, number=1, true=True),
        **at_second(content, None, parts=[{"type": "text", "text": " Bergen"}]),
        **at_second(("choices", 0, "finish_reason"), Unreadable, number=1, list=[]),
        "half a character": (with_second(changed(second, content, f" Bergen{HALF}")), None),
        "a character in two halves": (_events(first, *halves, stop, last, DONE), None),
        "a delta that is missing": (
            _events(first, second, {**head, "choices": [{"index": 0}]}, stop, DONE),
            None,
        ),
        "content null": (_events(first, changed(first, content, None), second, stop, DONE), None),
        "comments between": (
            _events(first, b": ping\n\n", b"event: x\nid: 1\nretry: 5\n\n", second, stop, DONE),
            None,
        ),
        "lines ended by CR LF": (_events(packed.replace(b"\n", b"\r\n")), None),
        "no empty line at its end": (_events(packed.removesuffix(DONE).rstrip()), None),
        "in pieces of 7 bytes": (
            _events(*(packed[start : start + 7] for start in range(0, len(packed), 7))),
            None,
        ),
        "packed": (_events(gzip.compress(packed), headers=gzipped), None),
        "packed garbage": (_events(packed, headers=gzipped), Unreadable),
        "usage text": usage("many"),
        "usage empty": usage({}),
        "usage list": usage([1]),
        "usage null": usage(None),
        "usage negative": usage({"prompt_tokens": -1, "completion_tokens": -1}),
        "usage over 64 bits": usage({"prompt_tokens": MOST_INT, "completion_tokens": MOST_INT}),
        "usage halves": usage({"prompt_tokens": 1.5, "completion_tokens": "2"}),
        "usage details text": usage(
            {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": "x"}
        ),
        "good": (_events(first, second, stop, last, DONE), None),
    }


def embedding_cases() -> Cases:
    """Replies to a call for the embeddings of two texts."""
    entry = {"object": "embedding", "index": 0, "embedding": [3.0, 4.0]}
    other, nan, infinite = {**entry, "index": 1}, float("nan"), float("inf")
    good = {"object": "list", "model": "m", "data": [entry, other], "usage": {"prompt_tokens": 2}}
    of = partial(at, good)
    odd = {**ODD, "text": "x!"}
    second, numbers = ("data", 1), ("data", 1, "embedding")
    sizes = {"of_one": [entry], "of_three": [entry] * 3}
    indices = {"same": 0, "beyond": 2, "negative": -1, "true": True, "half": 0.5}
    lists = {"of_text": ["1", "2"], "of_null": [None, None], "of_lists": [[1.0], [2.0]]}
    figures = {"NaN": [nan, 1.0], "infinite": [infinite, 1.0], "huge": [10**400, 1]}
    odd_base64 = {"short_base64": "AAAA", "base64_NaN": "AADAfwAAwH8="}
    fine = {"largest": [1e308, 1e308], "zero": [0.0, 0.0], "integers": [3, 4]}
    return {
        **BODIES,
        **of(("data",), Unreadable, empty=[], **odd, object={}, **sizes),
        **of(second, Unreadable, null=None, text="x", list=[], number=7, empty={}),
        **of((*second, "index"), Unreadable, **odd, **indices),
        **of(numbers, Unreadable, **odd, empty=[], object={}, longer=[1.0] * 3, shorter=[1.0]),
        **of(numbers, Unreadable, **lists, **figures, of_booleans=[True, False], **odd_base64),
        **of(numbers, None, **fine, base64="AABAQAAAgEA="),
        **of(("usage",), None, text="x", missing=MISSING),
        **of(("data",), None, the_other_way_round=[other, entry]),
        "good": (raw(good), None),
    }

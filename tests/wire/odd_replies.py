"""Odd replies, by name: what a provider, a proxy or a broken server may send instead of a
completion.

Each case is what the server sends and what must come of it: the type of the error, or None for a
verdict (or an answer, or vectors) all the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from memray_eval.errors import (
    JudgeError,
    Malformed,
    QuotaExhausted,
    Refused,
    Throttled,
    Unauthorised,
    Unavailable,
    UnknownModel,
    Unreadable,
)
from tests.servers.provider import Raw

SECRET = "sk-test-secret-0123456789"
HALF, MOST_INT = "\ud83d", 2**64
MISSING: Any = object()
Expected: TypeAlias = type[JudgeError] | None
Cases: TypeAlias = dict[str, tuple[Raw, Expected]]


def raw(value: Any, **options: Any) -> Raw:
    return Raw(json.dumps(value).encode(), **options)


def error(**fields: Any) -> Raw:
    return raw({"error": {"message": f"no luck with {SECRET}", **fields}})


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
    "gzip garbage": (Raw(b"this is no gzip", headers={"content-encoding": "gzip"}), Unreadable),
    "gzip cut off": (
        Raw(gzip.compress(b"{}" * 999)[:20], headers={"content-encoding": "gzip"}),
        Unreadable,
    ),
    "a packing that was not asked for": (
        Raw(b"....", headers={"content-encoding": "br"}),
        Unreadable,
    ),
    "9 MB": (Raw((b" " * 1_000_000,) * 9), JudgeError),
    "a gzip bomb": (
        Raw(gzip.compress(b" " * 50_000_000), headers={"content-encoding": "gzip"}),
        JudgeError,
    ),
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
    "413": (Raw(b"", status=413), JudgeError),
    "429 of nothing": (Raw(b"", status=429), Throttled),
    "502 of HTML": (Raw(HTML, status=502, content_type="text/html"), Unavailable),
    "529": (raw({"type": "error", "error": {"type": "overloaded_error"}}, status=529), Unavailable),
    "500 of gzip garbage": (
        Raw(b"no gzip", status=500, headers={"content-encoding": "gzip"}),
        Unreadable,
    ),
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


def variants(
    whole: Any, path: tuple[Any, ...], values: Mapping[str, tuple[Any, Expected]]
) -> Cases:
    place = ".".join(map(str, path))
    return {
        f"{place} {name}": (raw(changed(whole, path, value)), expected)
        for name, (value, expected) in values.items()
    }


def all_of(expected: Expected, **values: Any) -> dict[str, tuple[Any, Expected]]:
    return {name: (value, expected) for name, value in values.items()}


def counts(whole: Any, usage: str, figure: str) -> Cases:
    """A good completion whose tokens cannot be counted."""
    odd = {"empty": {}, "null": None, "missing": MISSING, "text": "many", "list": [1, 2]}
    figures = {
        "negative": -5,
        "over_64_bits": MOST_INT,
        "half": 1.5,
        "text": "10",
        "true": True,
        "NaN": float("nan"),
    }
    return variants(whole, (usage,), all_of(None, **odd)) | variants(
        whole, (usage, figure), all_of(None, **figures)
    )


def openai_cases(text: str) -> Cases:
    good = {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    message = ("choices", 0, "message")
    odd = dict(null=None, missing=MISSING, text="none", number=7)
    return {
        **BODIES,
        **variants(
            good,
            ("choices",),
            all_of(
                Unreadable, empty=[], **odd, object={}, of_null=[None], of_text=["x"], of_lists=[[]]
            ),
        ),
        **variants(good, message, all_of(Unreadable, **odd, list=[1], false=False)),
        **variants(
            good,
            (*message, "content"),
            all_of(
                Unreadable, list=[[text]], parts=[{"type": "text", "text": 3}], object={}, number=3
            ),
        ),
        **variants(
            good,
            (*message, "content"),
            {
                "of parts": (
                    [{"type": "thinking", "thinking": []}, {"type": "text", "text": text}],
                    None,
                )
            },
        ),
        **variants(
            good,
            (*message, "content"),
            all_of(Malformed, null=None, missing=MISSING, half_alone=HALF),
        ),
        **variants(
            good,
            (*message, "content"),
            {"with half a character": (text.replace("fine", f"fine {HALF}"), None)},
        ),
        **variants(
            good,
            (*message, "refusal"),
            all_of(Unreadable, list=["no"]) | all_of(Refused, half=f"no {HALF}"),
        ),
        **variants(
            good,
            ("choices", 0, "finish_reason"),
            all_of(Unreadable, number=1, list=[]) | all_of(None, null=None),
        ),
        **counts(good, "usage", "prompt_tokens"),
        **counts(good, "usage", "completion_tokens"),
        "good, with a mark at its start": (Raw(b"\xef\xbb\xbf" + json.dumps(good).encode()), None),
        "good, packed": (
            Raw(gzip.compress(json.dumps(good).encode()), headers={"content-encoding": "gzip"}),
            None,
        ),
        "good, half a character written out": (
            raw(changed(good, (*message, "content"), text.replace("fine", r"fine \ud83d"))),
            None,
        ),
        "good": (raw(good), None),
    }


def anthropic_cases(text: str) -> Cases:
    block = {"type": "text", "text": text}
    good = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    odd = dict(null=None, missing=MISSING, text="none", number=7)
    return {
        **BODIES,
        "an error, Anthropic's way": (
            raw({"type": "error", "error": {"type": "api_error", "message": "no"}}),
            Unavailable,
        ),
        "an error of nothing": (raw({"type": "error"}), Unreadable),
        **variants(
            good,
            ("content",),
            all_of(Unreadable, **odd, object={}, of_null=[None], of_text=["x"], of_lists=[[]]),
        ),
        **variants(
            good, ("content",), all_of(Malformed, empty=[], of_others=[{"type": "tool_use"}])
        ),
        **variants(
            good, ("content", 0, "text"), all_of(Unreadable, list=[text], object={}, number=3)
        ),
        **variants(
            good,
            ("content", 0, "text"),
            all_of(Malformed, null=None, missing=MISSING, half_alone=HALF),
        ),
        **variants(
            good,
            ("content", 0, "text"),
            {"with half a character": (text.replace("fine", f"fine {HALF}"), None)},
        ),
        **variants(
            good, ("content", 0, "type"), all_of(Malformed, null=None, missing=MISSING, number=1)
        ),
        **variants(
            good,
            ("stop_reason",),
            all_of(Unreadable, number=1, list=[]) | all_of(None, null=None, missing=MISSING),
        ),
        **counts(good, "usage", "input_tokens"),
        **counts(good, "usage", "output_tokens"),
        "good": (raw(good), None),
    }


def google_cases(text: str) -> Cases:
    good = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": text}]},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 1,
        },
    }
    content = ("candidates", 0, "content")
    odd = dict(missing=MISSING, text="none", number=7)
    half = {"with half a character": (text.replace("fine", f"fine {HALF}"), None)}
    return {
        **BODIES,
        "an error, Google's way": (error(code=400, status="FAILED_PRECONDITION"), JudgeError),
        "blocked": (raw({"promptFeedback": {"blockReason": "SAFETY"}}), Refused),
        "blocked for no reason": (raw({"promptFeedback": {}}), Unreadable),
        "blocked by a list": (raw({"promptFeedback": {"blockReason": ["SAFETY"]}}), Unreadable),
        **variants(
            good,
            ("candidates",),
            all_of(
                Unreadable, empty=[], null=None, **odd, object={}, of_null=[None], of_objects=[{}]
            ),
        ),
        **variants(good, content, all_of(Unreadable, text="none", number=7, list=[1])),
        **variants(good, content, all_of(Malformed, null=None, missing=MISSING, empty={})),
        **variants(
            good,
            (*content, "parts"),
            all_of(Unreadable, text="none", number=7, of_null=[None], of_text=["x"]),
        ),
        **variants(
            good, (*content, "parts"), all_of(Malformed, null=None, empty=[], of_empty=[{}])
        ),
        **variants(
            good,
            (*content, "parts", 0, "text"),
            all_of(Unreadable, list=[text], object={}, number=3),
        ),
        **variants(good, (*content, "parts", 0, "text"), half),
        **variants(
            good,
            ("candidates", 0, "finishReason"),
            all_of(Unreadable, number=1) | all_of(None, null=None, novel="NOVEL"),
        ),
        **counts(good, "usageMetadata", "promptTokenCount"),
        **counts(good, "usageMetadata", "thoughtsTokenCount"),
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

    def at(path: tuple[Any, ...], expected: Expected, **values: Any) -> Cases:
        place = ".".join(map(str, path))
        return {
            f"{place} {name}": (with_second(changed(second, path, value)), expected)
            for name, value in values.items()
        }

    def usage(value: Any) -> tuple[Raw, Expected]:
        return _events(first, second, stop, changed(last, ("usage",), value), DONE), None

    halves = [
        changed(second, ("choices", 0, "delta", "content"), half)
        for half in (" Bergen\ud83d", "\ude00")
    ]
    packed = (
        b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in (first, second, stop, last))
        + DONE
    )
    gzipped = {"content-encoding": "gzip"}
    whole = {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "In Bergen"},
                "finish_reason": "stop",
            }
        ]
    }
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
        "an answer of 9 MB": (
            _events(*[changed(second, ("choices", 0, "delta", "content"), "x" * 900_000)] * 10),
            JudgeError,
        ),
        **at(
            ("choices",),
            Unreadable,
            null=None,
            missing=MISSING,
            text="x",
            number=1,
            object={},
            of_null=[None],
            of_text=["x"],
        ),
        **at(("choices", 0, "delta"), Unreadable, null=None, text="x", list=[], number=1),
        **at(
            ("choices", 0, "delta", "content"), Unreadable, list=[1], object={}, number=1, true=True
        ),
        **at(("choices", 0, "finish_reason"), Unreadable, number=1, list=[]),
        "a list of parts": (
            with_second(
                changed(
                    second,
                    ("choices", 0, "delta", "content"),
                    [{"type": "text", "text": " Bergen"}],
                )
            ),
            None,
        ),
        "half a character": (
            with_second(changed(second, ("choices", 0, "delta", "content"), f" Bergen{HALF}")),
            None,
        ),
        "a character in two halves": (_events(first, *halves, stop, last, DONE), None),
        "a delta that is missing": (
            _events(first, second, {**head, "choices": [{"index": 0}]}, stop, DONE),
            None,
        ),
        "content null": (
            _events(
                first, changed(first, ("choices", 0, "delta", "content"), None), second, stop, DONE
            ),
            None,
        ),
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
    good = {
        "object": "list",
        "model": "m",
        "data": [entry, {**entry, "index": 1}],
        "usage": {"prompt_tokens": 2},
    }
    odd = dict(null=None, missing=MISSING, text="x!", number=7)
    second, numbers = ("data", 1), ("data", 1, "embedding")
    return {
        **BODIES,
        **variants(
            good,
            ("data",),
            all_of(Unreadable, empty=[], **odd, object={}, of_one=[entry], of_three=[entry] * 3),
        ),
        **variants(
            good, second, all_of(Unreadable, null=None, text="x", list=[], number=7, empty={})
        ),
        **variants(
            good,
            (*second, "index"),
            all_of(Unreadable, **odd, same=0, beyond=2, negative=-1, true=True, half=0.5),
        ),
        **variants(
            good,
            numbers,
            all_of(Unreadable, **odd, empty=[], object={}, longer=[1.0, 2.0, 3.0], shorter=[1.0]),
        ),
        **variants(
            good,
            numbers,
            all_of(Unreadable, of_text=["1", "2"], of_null=[None, None], of_lists=[[1.0], [2.0]]),
        ),
        **variants(
            good,
            numbers,
            all_of(
                Unreadable, NaN=[float("nan"), 1.0], infinite=[float("inf"), 1.0], huge=[10**400, 1]
            ),
        ),
        **variants(
            good,
            numbers,
            all_of(
                Unreadable,
                of_booleans=[True, False],
                short_base64="AAAA",
                base64_NaN="AADAfwAAwH8=",
            ),
        ),
        **variants(
            good,
            numbers,
            all_of(
                None, largest=[1e308, 1e308], zero=[0.0, 0.0], whole=[3, 4], base64="AABAQAAAgEA="
            ),
        ),
        "usage text": (raw(changed(good, ("usage",), "x")), None),
        "usage missing": (raw(changed(good, ("usage",), MISSING)), None),
        "the other way round": (
            raw(changed(good, ("data",), [{**entry, "index": 1}, entry])),
            None,
        ),
        "good": (raw(good), None),
    }

"""JSON over HTTP for stores behind a server: bounded replies, tries of what may pass, and the
errors of a run."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import httpx2

from memray_eval.config.environment import required_key
from memray_eval.errors import OddReply, StoreDown, StoreError, StoreSlow, cut
from memray_eval.provider_http.transport import MOST_BYTES
from memray_eval.types import Memory

TRIES, PAUSE_S, LONGEST_PAUSE_S = 4, 0.25, 10.0
_PASSES = (408, 425, 429, 500, 502, 503, 504)
_NOT_DONE = (425, 429, 503)  # the server did nothing: a write may be sent again


class StoreServer:
    """A store's server, asked by any thread. The vendor's own has its key in `variable`; another
    address needs one only if the job names `api_key_env`."""

    def __init__(self, memory: Memory, address: str, variable: str, scheme: str) -> None:
        named = memory.api_key_env or (None if memory.url else variable)
        key = required_key(named, f"memory {memory.label!r}") if named else None
        headers = {"Authorization": f"{scheme} {key}"} if key else {}
        self._label, self._timeout_s = memory.label, memory.timeout_s
        url = (memory.url or address).rstrip("/")
        self._client = httpx2.Client(base_url=url, headers=headers, timeout=memory.timeout_s)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        absent: Any = None,
        is_write: bool = False,
    ) -> Any:
        """The reply's JSON; `absent` if there is no such thing (404) and it is given. A write that
        the server may have done is not sent again. Raises StoreDown and StoreSlow after TRIES,
        StoreError for what is refused, OddReply for a reply that is no JSON."""
        for left in reversed(range(TRIES)):
            pause = PAUSE_S * 2 ** (TRIES - 1 - left)
            try:
                reply = self._client.request(method, path, json=body, params=query)
            except httpx2.TimeoutException:
                raise StoreSlow(f"{self._label}: no reply within {self._timeout_s:g} s") from None
            except httpx2.HTTPError as error:
                failure = StoreDown(f"{self._label}: {type(error).__name__}: {error}")
                if is_write and not isinstance(error, httpx2.ConnectError):
                    raise failure from None
            else:
                if reply.status_code not in (_NOT_DONE if is_write else _PASSES):
                    return self._read(reply, absent)
                failure = StoreDown(
                    f"{self._label} answered {reply.status_code}: {_excerpt(reply)}"
                )
                wait = reply.headers.get("retry-after", "")
                pause = float(wait) if wait.replace(".", "", 1).isdecimal() else pause
            if left:
                time.sleep(min(pause, LONGEST_PAUSE_S))
        raise failure

    def _read(self, reply: httpx2.Response, absent: Any) -> Any:
        if reply.status_code == 404 and absent is not None:
            return absent
        if reply.status_code >= 300:
            kind = StoreDown if reply.status_code in _PASSES else StoreError
            raise kind(f"{self._label} answered {reply.status_code}: {_excerpt(reply)}")
        if len(reply.content) > MOST_BYTES:
            raise OddReply(f"{self._label}: a reply of more than {MOST_BYTES / 1e6:g} MB")
        if not reply.content:
            return {}
        try:
            return reply.json()
        except ValueError:
            raise OddReply(f"{self._label}: its reply is no JSON: {_excerpt(reply)}") from None


def _excerpt(reply: httpx2.Response) -> str:
    return cut(reply.text, 200)


def items_of(reply: Any, name: str) -> list[Mapping[str, Any]]:
    """The objects in a reply's list of that name, or in a reply that is a list. Raises OddReply."""
    is_named = isinstance(reply, Mapping) and name in reply
    listed = (reply[name] or []) if is_named else reply
    if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
        raise OddReply(f"its reply has no list of objects {name!r}: {cut(str(reply), 120)}")
    return listed


def text_of(item: Mapping[str, Any], name: str) -> str:
    """A field that is a text. Raises OddReply."""
    if not isinstance(value := item.get(name), str):
        raise OddReply(f"an entry of its reply has no {name!r}: {cut(str(item), 120)}")
    return value


def safe_name(partition: str) -> str:
    """A partition's name of letters, digits and dashes alone, as short ids have them."""
    digest = blake2b(partition.encode(), digest_size=6).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', partition).strip('-')[:80]}-{digest}"


def segment(text: str) -> str:
    """A part of a path."""
    return quote(text, safe="")


def chat(turns: Sequence[Any]) -> list[dict[str, str]]:
    """A session's turns as messages: the first speaker is the user, if nobody is called that."""
    users = {"user", *([turns[0].speaker] if turns else [])}
    return [
        {
            "role": "user" if turn.speaker in users else "assistant",
            "content": turn.text
            if turn.speaker in ("user", "assistant")
            else f"{turn.speaker}: {turn.text}",
        }
        for turn in turns
    ]

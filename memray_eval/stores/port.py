"""The interface of memory stores, and the stores that exist."""

import importlib.util
import inspect
import json
import os
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import httpx2
from pyarrow import fs

from memray_eval.benchmarks.conversations import Session
from memray_eval.config.environment import required_key
from memray_eval.errors import ConfigError, OddReply, StoreDown, StoreError, StoreSlow, cut, suggest
from memray_eval.extensions import OwnSource, find_own_object, split_reference
from memray_eval.provider_http.transport import MOST_BYTES
from memray_eval.storage.paths import is_object_store, locate, write_whole
from memray_eval.types import Candidate, Memory

_PACKAGES = {"mem0": "mem0", "graphiti": "graphiti_core"}  # of stores in this process
Sources = Mapping[str, OwnSource]  # of the stores that are the user's code, by their names


class Entry(NamedTuple):
    """An entry of a store, which forgets it by its `id`. `session` is the session that it came
    from, and `date` its date, each "" if the store does not know."""

    id: str
    text: str
    session: str = ""
    date: str = ""


class Store(Protocol):
    """A memory in partitions that share nothing. A store of your own is such a class in a file,
    made with the `options` of its `memory`, and with `folder`, a folder of the run (or its URL), if
    it takes that; it returns entries, mappings with their fields, or texts.

    It may have `answer(partition, question)`, which answers in a model's place; `tokens` and `usd`,
    what it has spent so far; `pending(partition)`, a set of texts that `ready` waits for, which is
    filled again after a kill; `hold(n)`, called with how many partitions are asked at a time; and
    `concurrent = True` if several threads may call it at a time."""

    def open(self, partition: str) -> None:
        """Makes the partition; by default the first write does."""
        return

    def ingest(self, partition: str, session: Session) -> None:
        """Writes a session: its turns in their order."""

    def ready(self, partition: str) -> bool:
        """True if all that was written can be found; so it is unless a class says otherwise."""
        return True

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        """Up to `k` entries, the best first."""

    def entries(self, partition: str) -> Sequence[Any]:
        """All entries; empty if the partition does not exist."""

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        """Deletes these entries; without ids the partition, if it is there."""


def read_entries(raw: Any) -> list[Entry]:
    """The entries that a store returned. Raises OddReply for anything else."""
    if not isinstance(raw, list | tuple):
        raise OddReply(f"the store returned {type(raw).__name__}, not a list of entries")
    return [_read_entry(number, item) for number, item in enumerate(raw, 1)]


def _read_entry(number: int, item: Any) -> Entry:
    if isinstance(item, Entry):
        return item
    fields = {"text": item} if isinstance(item, str) else item
    text = fields.get("text") if isinstance(fields, Mapping) else None
    if not isinstance(text, str):
        raise OddReply(f"entry {number} is {item!r:.80}, which has no text")
    values = {name: str(fields.get(name) or "") for name in ("session", "date")}
    return Entry(str(fields.get("id") or f"memory {number}"), text, **values)


def _built_in() -> dict[str, Callable[[Memory, str], Store]]:
    from memray_eval.stores.local import GraphitiStore, VerbatimStore, open_embedding
    from memray_eval.stores.vendors import LettaStore, ZepStore, open_mem0

    return {
        "bm25": lambda memory, folder: VerbatimStore(folder),
        "embedding": lambda memory, folder: open_embedding(folder, **memory.options),
        "mem0": open_mem0,
        "graphiti": lambda memory, folder: GraphitiStore(folder, **memory.options),
        "zep": lambda memory, folder: ZepStore(memory),
        "letta": lambda memory, folder: LettaStore(memory),
    }


def is_own(memory: Memory) -> bool:
    """True if the store is the user's code."""
    return split_reference(memory.store) is not None and ":" in memory.store


def check_store(memory: Memory) -> None:
    """Raises ConfigError if no store has the name."""
    if not is_own(memory) and memory.store not in _built_in():
        advice = suggest(memory.store, _built_in())
        raise ConfigError(f"no store {memory.store!r}; {advice} One of your own is FILE.py:NAME")


def build_store(memory: Memory, folder: str, source: OwnSource | None) -> Store:
    """The store, made once a process for a run's folder. Raises ConfigError."""
    return _build_store(memory.model_dump_json(), folder, source)


@lru_cache(maxsize=32)
def _build_store(config: str, folder: str, source: OwnSource | None) -> Store:
    memory = Memory.model_validate_json(config)
    check_store(memory)
    if source is None:
        return _built_in()[memory.store](memory, folder)
    make = source.get(memory.store.rpartition(":")[2])
    takes_folder = "folder" in inspect.signature(make).parameters
    options = {**memory.options, **({"folder": folder} if takes_folder else {})}
    try:
        store: Store = make(**options)
    except Exception as error:
        raise ConfigError(f"{memory.store} cannot be made: {error!r:.300}") from error
    return store


def find_sources(candidates: Iterable[Candidate]) -> dict[str, OwnSource]:
    """The sources of the candidates' stores that are the user's code. Raises ConfigError for an
    unknown name, code that cannot be imported, and a key that is not set."""
    sources = dict[str, OwnSource]()
    for memory in (candidate.memory for candidate in candidates if candidate.memory):
        check_store(memory)
        package, is_here = _PACKAGES.get(memory.store, ""), not (memory.url or memory.api_key_env)
        if package and is_here and importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"memory: {memory.store} needs its package: pip install "
                f"memray-eval[{memory.store}]; mem0 may also be a server, with url or api_key_env"
            )
        if memory.api_key_env is not None:
            required_key(memory.api_key_env, f"memory {memory.label!r}")
        if is_own(memory) and (code := find_own_object(memory.store)) is not None:
            code.load()
            sources[memory.name] = code.source
    return sources


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
        StoreError for a refusal, OddReply for a reply that is not JSON."""
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
                failure = StoreDown(self._describe(reply))
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
            raise kind(self._describe(reply))
        if len(reply.content) > MOST_BYTES:
            raise OddReply(f"{self._label}: a reply of more than {MOST_BYTES / 1e6:g} MB")
        if not reply.content:
            return {}
        try:
            return reply.json()
        except ValueError:
            text = f"{self._label}: its reply is no JSON: {cut(reply.text, 200)}"
            raise OddReply(text) from None

    def _describe(self, reply: httpx2.Response) -> str:
        return f"{self._label} answered {reply.status_code}: {cut(reply.text, 200)}"


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


# LoCoMo's, LongMemEval's and BEAM's dates
_DATES = ("%I:%M %p on %d %B, %Y", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d", "%B-%d-%Y", "%d %B, %Y")


def moment_of(session: Session) -> datetime | None:
    """When a session was, by its date: a benchmark's or ISO 8601, in UTC if it names no other zone;
    None if it has no date, or one that cannot be read."""
    text = session.date.strip()
    for form in ("", *_DATES):
        with suppress(ValueError):
            read = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
            return read if read.tzinfo else read.replace(tzinfo=UTC)
    return None


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


class JsonLines:
    """A file that one process appends to. A line that a kill cut off is not read."""

    def __init__(self, path: str) -> None:
        self._filesystem, self._path = locate(path)
        self._is_whole = not isinstance(self._filesystem, fs.LocalFileSystem)
        if not is_object_store(self._filesystem):
            self._filesystem.create_dir(posixpath.dirname(self._path), recursive=True)

    def read(self) -> list[dict[str, Any]]:
        """The lines; empty if there is no such file."""
        return _parse(self._bytes())

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(
            "utf-8", "backslashreplace"
        )
        if self._is_whole:
            return write_whole(self._filesystem, self._path, self._bytes() + data)
        with open(self._path, "ab+", buffering=0) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                data = b"\n" * (file.read(1) != b"\n") + data
            file.write(data)

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        """Writes these in the place of all others."""
        write_whole(self._filesystem, self._path, b"")
        self.append(lines)

    def _bytes(self) -> bytes:
        if self._filesystem.get_file_info(self._path).type != fs.FileType.File:
            return b""
        with self._filesystem.open_input_stream(self._path, compression=None) as stream:
            return bytes(stream.read())


def _parse(data: bytes) -> list[dict[str, Any]]:
    lines = []
    for line in data.splitlines():
        with suppress(ValueError):  # a kill cut it off
            lines.append(json.loads(line))
    return lines


def read_folder(path: str) -> dict[str, list[dict[str, Any]]]:
    """The lines of all .jsonl files at and below a folder, by the path of each in it; none without
    it."""
    filesystem, inner = locate(path)
    selector = fs.FileSelector(inner, recursive=True, allow_not_found=True)
    files = (info.path for info in filesystem.get_file_info(selector) if info.is_file)
    lines = {}
    for file in sorted(name for name in files if name.endswith(".jsonl")):
        with filesystem.open_input_stream(file, compression=None) as stream:
            lines[posixpath.relpath(file, inner)] = _parse(stream.read())
    return lines

"""What a run asks of a memory store, and the stores that there are."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from memray_eval.benchmarks.conversations.conversation import Session
from memray_eval.config.environment import required_key
from memray_eval.errors import ConfigError, OddReply, suggest
from memray_eval.extensions import OwnSource, find_own_object, split_reference
from memray_eval.types import Candidate, Memory

_PACKAGES = {"mem0": "mem0", "graphiti": "graphiti_core"}  # of stores in this process
Sources = Mapping[str, OwnSource]  # of the stores that are the user's code, by their names


class Entry(NamedTuple):
    """What a store holds, and by its `id` forgets. `session` is the session that it came from, and
    `date` its date, each "" where the store does not know."""

    id: str
    text: str
    session: str = ""
    date: str = ""


class Store(Protocol):
    """A memory in partitions, of which none knows what is in another. A store of your own is such a
    class in a file, made with the `options` of its `memory`, and with `folder`, a folder of the run
    (or its URL), if it takes that; it returns entries, mappings with their fields, or texts.

    It may have `answer(partition, question)`, which answers in a model's place; `tokens` and `usd`,
    what it has spent so far; and `concurrent = True` if several threads may call it at a time."""

    def open(self, partition: str) -> None:
        """Makes a partition, if it is not there."""

    def ingest(self, partition: str, session: Session) -> None:
        """Writes a session: its turns in their order."""

    def ready(self, partition: str) -> bool:
        """Whether all that was written can be found."""

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        """Up to `k` entries, the best first."""

    def entries(self, partition: str) -> Sequence[Any]:
        """All entries; none of a partition that is not there."""

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        """Deletes these entries; without ids the partition, if it is there."""


def read_entries(raw: Any) -> list[Entry]:
    """The entries that a store returned. Raises OddReply for what is none."""
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
    from memray_eval.stores.graphiti import GraphitiStore
    from memray_eval.stores.letta import LettaStore
    from memray_eval.stores.local import Bm25Store, EmbeddingStore
    from memray_eval.stores.mem0 import open_mem0
    from memray_eval.stores.zep import ZepStore

    return {
        "bm25": lambda memory, folder: Bm25Store(folder),
        "embedding": lambda memory, folder: EmbeddingStore(folder, **memory.options),
        "mem0": open_mem0,
        "graphiti": lambda memory, folder: GraphitiStore(folder, **memory.options),
        "zep": lambda memory, folder: ZepStore(memory),
        "letta": lambda memory, folder: LettaStore(memory),
    }


def is_own(memory: Memory) -> bool:
    """Whether the store is the user's code."""
    return split_reference(memory.store) is not None and ":" in memory.store


def check_store(memory: Memory) -> None:
    """Raises ConfigError for a name that is no store's."""
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
    """The sources of the candidates' stores that are the user's code. Raises ConfigError for a name
    that is no store's, code that cannot be imported, and a key that is not set."""
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

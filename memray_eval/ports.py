"""What the stages ask of the world outside. Real ones stand in judges/, models/ and benchmarks/;
tests inject their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from memray_eval.types import Candidate, Frozen, Message, Prompt, Response, Usage

FloatArray = NDArray[np.float64]
Vectors = Mapping[str, FloatArray]  # text -> its unit vector


class Verdict(Frozen):
    """What a judge returned: the filled-in judgment, who gave it, and what it cost, over `calls`
    that were answered."""

    judgment: BaseModel
    judge: str
    usage: Usage = Usage()
    cost_usd: float = 0.0
    latency_s: float = 0.0
    cached: bool = False
    calls: int = 1


class Judge(Protocol):
    """A model that fills in a judgment. Raises JudgeError (Refused -> abstained, all others ->
    error)."""

    name: str

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict: ...


class Embedder(Protocol):
    """Turns texts into unit vectors of shape (len(texts), dimensions). Raises EmbeddingError."""

    name: str

    async def embed(self, texts: Sequence[str]) -> FloatArray: ...


class Generator(Protocol):
    """Asks the model under test. A failed call is a Response with an error, never an exception."""

    async def generate(self, prompt: Prompt, candidate: Candidate) -> Response: ...


class Tokenizer(Protocol):
    """A model's own tokenizer."""

    @property
    def has_chat(self) -> bool:
        """Whether the model brings a chat template."""
        ...

    def count(self, text: str) -> int:
        """Tokens of the text alone, no special tokens added."""
        ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids as at a prompt's start, with the special tokens that the model expects there,
        or of a piece of text."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation, ending where the answer begins. Raises ConfigError without
        `has_chat`."""
        ...

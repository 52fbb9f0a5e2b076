"""The interfaces that stages use: implemented in judges/, models/ and benchmarks/."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from memray_eval.types import Candidate, Frozen, Message, Prompt, Response, Usage

FloatArray = NDArray[np.float64]
Vectors = Mapping[str, FloatArray]  # text -> its unit vector
# "UNIT METRIC" of the score that is being made. Calls of a batch are paid before their scores are
# made; by this each is told in one score, however often that is made again.
CURRENT_UNIT: ContextVar[str] = ContextVar("current_unit", default="")
# Who votes on it so far: the juror for whom each judge was asked. None: there is no jury.
VOTERS: ContextVar[dict[str, str] | None] = ContextVar("voters", default=None)


class Verdict(Frozen):
    """The reply of a judge: the filled-in judgment, who gave it, and its cost, over `calls` that
    were answered. `served_model` is the model that answered, as the server names it. `saved_usd` is
    what the provider's prompt cache took off the cost."""

    judgment: BaseModel
    judge: str
    served_model: str | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    latency_s: float = 0.0
    cached: bool = False
    calls: int = 1


def no_adaptation(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The fields of a row as they are: how a suite without published files of its own reads one."""
    return raw


class PublishedFile(NamedTuple):
    """A file of a published dataset: a list in JSON, a table, or a document that is one item; and
    the files `beside` it that its questions draw on."""

    path: str
    kind: Literal["json", "csv", "document"]
    beside: tuple[str, ...] = ()


class PublishedQuestion(NamedTuple):
    """A question from an item of a published file: its place in words, and its fields as a Sample
    has them; or, for a broken one, the fields that are wrong and how."""

    place: str
    fields: Mapping[str, Any]
    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PublishedFiles:
    """The layout of a benchmark's published files: one item may hold many questions. `find` gives
    the files of a dataset's path, None if it is read as any other. `questions` gives those of one
    item as samples' fields; it raises ValueError with the reason for none."""

    find: Callable[[str], Sequence[PublishedFile] | None]
    questions: Callable[[Any, str], Iterator[PublishedQuestion]]


class Judge(Protocol):
    """A model that fills in a judgment. Raises JudgeError (Refused: abstained; else error)."""

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
        """True if the model brings a chat template."""
        ...

    def count(self, text: str) -> int:
        """Tokens of the text alone, no special tokens added."""
        ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids as at a prompt's start, with special tokens, or of a piece of text."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def chat(self, messages: Sequence[Message], **template: Any) -> list[int]:
        """Token ids of a conversation up to the answer. Raises ConfigError without `has_chat`."""
        ...

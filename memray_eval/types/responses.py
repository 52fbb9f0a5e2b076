"""Candidate, the model under test; Prompt, what it is asked; Response, what it answered."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import Field, model_validator

from memray_eval.types.base import Frozen, Name, Temperature
from memray_eval.types.samples import Message

EXISTING: Literal["given"] = "given"  # the backend of responses that exist already

DEFAULT_MAX_TOKENS = 256


Stream = Literal["auto"] | bool  # whether a server is asked for streamed answers


class Sampling(Frozen):
    """How the model under test decodes. `max_tokens` None: the length that the suite has
    for the task, else DEFAULT_MAX_TOKENS."""

    temperature: Temperature = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0
    seed: int | None = 0
    stop: tuple[str, ...] = ()


Arm = Literal["full", "oracle", "none", "retrieved"]  # what of a conversation a prompt shows


class Retrieval(Frozen):
    """How passages of a conversation are found for a question: the `k` turns or sessions that rank
    highest by BM25 or by the cosine of embeddings. `model` is the embedding model: `local`, or
    `local:PATH`."""

    by: Literal["bm25", "embedding"] = "bm25"
    unit: Literal["turn", "session"] = "turn"
    k: Annotated[int, Field(gt=0)] = 20
    model: Annotated[str, Field(pattern=r"^local(:.+)?$")] = "local"


class Candidate(Frozen):
    """The model under test, with its sampling parameters and the prompt variant it is given.

    `backend` is `vllm` (an engine of this run) or `openai`: a server at `base_url` that speaks
    OpenAI's protocol, with its key, if it wants one, in the environment variable `api_key_env`;
    without base_url OpenAI itself, with OPENAI_API_KEY. `stream` says whether it is asked for
    streamed answers; `auto` takes whole ones where it does not stream. `code` is a user's function,
    `model` being SERVER/FUNCTION. `given` is for responses that exist already and are only judged.

    Where a suite cuts long prompts in the middle, it does so at `max_prompt_tokens` (default: what
    the engine's window leaves beside the answer), counted by the model's own tokenizer; for a model
    behind a server that is `tokenizer`, a hub name or a folder, and without one nothing is cut.

    Of a conversation, `context` says what a prompt shows: `full`, all of it; `oracle`, the sessions
    that hold the evidence; `none`; or `retrieved`, what the row says that a memory system returned,
    else what `retrieved` finds."""

    name: Name
    model: Name
    backend: Literal["vllm", "openai", "code", "given"] = "vllm"
    base_url: str | None = None
    api_key_env: str | None = None
    stream: Stream = "auto"
    tokenizer: str | None = None
    max_prompt_tokens: Annotated[int, Field(gt=0)] | None = None
    sampling: Sampling = Sampling()
    prompt: str = "default"
    context: Arm | None = None
    retrieved: Retrieval | None = None

    @property
    def arm(self) -> str:
        """What of a conversation it is shown, in words."""
        if self.context != "retrieved":
            return self.context or "full"
        how = self.retrieved or Retrieval()
        return f"retrieved: {how.k} {how.unit}s by {how.by}"

    @model_validator(mode="after")
    def _retrieves_where_asked(self) -> Candidate:
        if self.retrieved is not None and self.context not in (None, "retrieved"):
            raise ValueError(f"retrieved: goes with context: retrieved, not {self.context}")
        return self

    @property
    def is_served(self) -> bool:
        """Whether it is asked call by call: a server, or a user's function."""
        return self.backend in ("openai", "code")


class Passage(NamedTuple):
    """A turn in the text of a prompt, from character `start` to `end`, of the session of that name.
    `holds` numbers the pieces of the sample's evidence that it holds."""

    start: int
    end: int
    session: str
    holds: tuple[int, ...] = ()


class Prompt(Frozen):
    """What a candidate is asked about one sample: `messages` through its chat template, or, where
    not `is_chat`, their contents as plain text. `max_tokens` is the task's own output length and
    `stop` what ends its answers. A prompt longer than the model's window loses its middle where
    `is_cut`, and is refused otherwise. Where the last message shows a conversation, `passages` are
    its turns, and the cut takes out whole ones. `about` is noted in the record's metadata."""

    messages: tuple[Message, ...]
    is_chat: bool = True
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    is_cut: bool = False
    passages: tuple[Passage, ...] = ()
    about: dict[str, Any] = Field(default_factory=dict)

    def sampling(self, candidate: Candidate) -> Sampling:
        """How this prompt is decoded: the candidate's way, with the task's length and stops where
        it sets none."""
        own = candidate.sampling
        return own.model_copy(
            update={
                "max_tokens": own.max_tokens or self.max_tokens or DEFAULT_MAX_TOKENS,
                "stop": tuple(dict.fromkeys((*own.stop, *self.stop))),
            }
        )


_THOUGHT = re.compile(r"<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)

_END_OF_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


class ParsedOutput(NamedTuple):
    """A model's output split into its answer and its thinking, which stood in `blocks` blocks."""

    text: str
    thinking: str = ""
    blocks: int = 0


def split_thinking(output: str) -> ParsedOutput:
    """Takes <think> (or <thinking>) blocks out of an output. A block that is never closed goes to
    the end; a close without an opening belongs to a block that the chat template opened, so all
    before it is thinking."""
    if "<" not in output:
        return ParsedOutput(output)
    first_end = _END_OF_THOUGHT.search(output)
    if first_end and not re.search(r"<think(?:ing)?>", output[: first_end.start()], re.IGNORECASE):
        output = f"<think>{output}"
    thoughts = _THOUGHT.findall(output)
    if not thoughts:
        return ParsedOutput(output)
    return ParsedOutput(
        _THOUGHT.sub("", output).strip(),
        "\n".join(thought.strip() for thought in thoughts),
        len(thoughts),
    )


class Response(Frozen):
    """What the model answered. Tokens are the model's own; times are in seconds, None where they
    were not measured.

    `thinking` is what stood between <think> marks, which `text` no longer holds, in
    `thinking_blocks` blocks. `prompt_form` says whether it was asked through its chat template
    (`chat`) or with plain text (`plain`); `truncated_tokens` were cut out of the prompt's middle;
    `cached_tokens` of the prompt came from the engine's prefix cache. `ended_s` is when the answer
    was whole, in seconds since 1970: throughput is counted over a candidate's own requests."""

    text: str = ""
    thinking: str = ""
    thinking_blocks: int = 0
    error: str | None = None
    prompt_form: str | None = None
    truncated_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_s: float | None = None
    duration_s: float | None = None
    ended_s: float | None = None

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()


class TokenCounts(Protocol):
    """Tokens by kind, counted or estimated: see Usage."""

    @property
    def input_tokens(self) -> float: ...
    @property
    def output_tokens(self) -> float: ...
    @property
    def cached_input_tokens(self) -> float: ...
    @property
    def cache_write_tokens(self) -> float: ...


class Usage(Frozen):
    """Tokens that one judge call cost, over all its attempts, the same for every provider.

    `input_tokens` are all of the prompt's. Of them `cached_input_tokens` were read from the
    provider's prompt cache, and `cache_write_tokens` were written into it at a price of their own;
    a provider that bills no writes tells none."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0

    @classmethod
    def of(cls, spent: TokenCounts) -> Usage:
        """The tokens of whatever counts them by these names, such as a JudgeError."""
        return cls(**{name: round(getattr(spent, name)) for name in cls.model_fields})

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )

    def __sub__(self, other: Usage) -> Usage:
        """What is new since `other`, an earlier sum."""
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cached_input_tokens=self.cached_input_tokens - other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens - other.cache_write_tokens,
        )


FigureForm = Literal["score", "count", "average", "percent", "of_scale", "step", "bar"]

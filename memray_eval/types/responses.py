"""Candidate, the model under test; Prompt, what it is asked; Response, what it answered."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BeforeValidator, Field, model_validator

from memray_eval.errors import NotWhole
from memray_eval.types.base import Frozen, Name, Temperature
from memray_eval.types.samples import Message, Sample

EXISTING: Literal["given"] = "given"  # the backend of responses that exist already

DEFAULT_MAX_TOKENS = 256


Stream = Literal["auto"] | bool  # whether a server is asked for streamed answers


class Sampling(Frozen):
    """Decoding of the model under test. None is not sent: the server's or engine's default holds.
    `max_tokens` auto is the suite's length for the task, else DEFAULT_MAX_TOKENS."""

    temperature: Temperature | None = 0.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = 1.0
    """The share of probability that is drawn from."""
    max_tokens: Annotated[int, Field(gt=0)] | Literal["auto"] | None = "auto"
    """The longest answer; `auto` is the length that the suite has for the task."""
    repetition_penalty: Annotated[float, Field(gt=0.0, le=2.0)] | None = 1.0
    """Above 1 makes repetitions less likely."""
    seed: int | None = 0
    """The seed of the draws; null takes none."""
    stop: tuple[str, ...] | None = ()
    """Texts that end an answer."""


Arm = Literal["full", "oracle", "none", "retrieved"]  # what of a conversation a prompt shows


class Retrieval(Frozen):
    """The ranking of a conversation's passages for a question: BM25, or cosine of embeddings."""

    by: Literal["bm25", "embedding"] = "bm25"
    """`bm25`, or `embedding`."""
    unit: Literal["turn", "session"] = "turn"
    """The unit of ranking: a `turn`, or a `session`."""
    k: Annotated[int, Field(gt=0)] = 20
    """The number shown."""
    model: Annotated[str, Field(pattern=r"^local(:.+)?$")] = "local"
    """The embedding model: `local`, or `local:PATH`."""


class Memory(Frozen):
    """The store that is a candidate's memory: conversations are written to it, session by session,
    and the prompt shows what it returns for a question. The store's name alone is enough."""

    store: Name
    """`bm25`, `embedding` and `graphiti` (in this process), `mem0`, `zep`, `letta`, or
    `my_store.py:NAME`."""
    url: str | None = None
    """The address of its server; without one, the vendor's own (of mem0: its package, in this
    process)."""
    api_key_env: str | None = None
    """The environment variable that holds its key."""
    k: Annotated[int, Field(gt=0)] = 20
    """The entries that a search returns."""
    ready_s: Annotated[float, Field(gt=0)] = 120.0
    """The longest wait until written entries can be found."""
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """The longest wait for one of its replies."""
    tools: Annotated[int, Field(ge=0)] = 0
    """Rounds in which a server's model may call search_memory, save_memory and forget itself; 0:
    the question is searched for, and the prompt shows what was found."""
    answers: bool = False
    """Lets the store answer the question itself, if it can, in the model's place."""
    write_usd: Annotated[float, Field(ge=0)] | None = None
    """The cost of writing a session, in US dollars, if the store does not report it."""
    search_usd: Annotated[float, Field(ge=0)] | None = None
    """The cost of a search, likewise."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The store's settings: of your own, its arguments; of the mem0 package `config` and `infer`;
    of graphiti the `model` and `base_url` that extract facts."""

    @property
    def label(self) -> str:
        """The store's name, without its file."""
        return self.store.rpartition(":")[2]

    @property
    def name(self) -> str:
        """The same with its file's name alone."""
        return self.store.rpartition("/")[2]


Store = Annotated[
    Memory,
    BeforeValidator(
        lambda value: {"store": value} if isinstance(value, str) else value,
        json_schema_input_type=str | Memory,
    ),
]
# What a template names: of the sample or the environment (groups 1 and 2), or of the run (3)
TEMPLATE_NAME = re.compile(r"\{(sample|env)\.(\w+)\}|\{(run|candidate|epoch|partition)\}")


def check_template(key: str, text: str) -> None:
    """Raises ValueError for braces in a template of `user`, `session` or `headers` that no name is
    for, and for a variable of the environment anywhere but in `headers`."""
    rest = TEMPLATE_NAME.sub("", text)
    if "{" in rest or "}" in rest or ("{env." in text and key != "headers"):
        raise ValueError(
            f"{key}: {text!r} may name {{sample.FIELD}}, {{run}}, {{candidate}}, {{epoch}} and "
            "{partition} (RUN/SAMPLE/EPOCH); headers also {env.VARIABLE}"
        )


class Candidate(Frozen):
    """The model under test, with its sampling parameters and prompt variant. A server without a
    `base_url` is OpenAI; of the backend `code`, `model` is SERVER/FUNCTION. Prompts to a server are
    cut only with a `tokenizer`. `context: retrieved` shows what the row's memory system returned,
    else what `retrieved` finds."""

    name: Name
    """The candidate's name in every figure."""
    model: Name
    """A hub name, a folder, `embedded`, a server's model, or `my_model.py:FUNCTION`."""
    lora: str | None = None
    """The folder of a LoRA adapter of `model`; candidates of one model share its engines, with and
    without one. On a cluster every node has the folder."""
    backend: Literal["vllm", "openai", "code", "given"] = "vllm"
    """`vllm` (an engine of this run), `openai` (a server that speaks OpenAI's protocol), `code`
    (your function), or `given` (responses that exist already)."""
    base_url: str | None = None
    """The server's address; without one, OpenAI itself."""
    api_key_env: str | None = None
    """The environment variable that holds the server's key."""
    stream: Stream = "auto"
    """Asks for streamed answers, or not; `auto` takes whole ones from a server that does not
    stream. One that only streams is streamed in any case."""
    tokenizer: str | None = None
    """For a model behind a server, the hub name or folder of the tokenizer that long prompts are
    cut by."""
    max_prompt_tokens: Annotated[int, Field(gt=0)] | None = None
    """The most tokens of a prompt, cut in the middle; by default the window less the answer."""
    sampling: Sampling = Sampling()
    """The model's decoding. What is null is not sent, so the server's or engine's own default
    holds."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, such as `reasoning_effort` or `top_k`; of an engine, of
    vLLM's SamplingParams; `chat_template_kwargs` go to the chat template."""
    user: str | None = None
    """Whom a server, or a function that takes a Request, is asked for: a template over the sample,
    such as `{sample.user}` or `{run}-{sample.id}`; it is the request's `user`."""
    session: str | None = None
    """The session that it is asked in, likewise, such as `{partition}` (RUN/SAMPLE/EPOCH); it is
    the request's `session_id`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of each request to a server, likewise; what is secret comes as `{env.VARIABLE}`."""
    prompt: str = "default"
    """The prompt variant of the suite, or the path of a system prompt."""
    context: Arm | None = None
    """The part of a conversation that a prompt shows: `full`, `oracle` (the sessions that hold the
    evidence), `none`, or `retrieved`."""
    retrieved: Retrieval | None = None
    """The search for passages if context is `retrieved` and the row names none of its own."""
    memory: Store | None = None
    """The store that is its memory, in the place of a context: its name alone, or its keys."""
    retry_max_tokens: Annotated[int, Field(gt=0)] | None = None
    """The larger limit of a second request if the first used up its limit, or only thought, and
    gave no answer."""

    def for_epoch(self, epoch: int) -> Candidate:
        """As it is asked for a sample's answer of that number: its seed moves on by one each."""
        seed = self.sampling.seed
        if epoch == 1 or seed is None:
            return self
        sampling = self.sampling.model_copy(update={"seed": seed + epoch - 1})
        return self.model_copy(update={"sampling": sampling})

    @property
    def arm(self) -> str:
        """The part of a conversation that it sees, in words."""
        if self.memory is not None:
            return f"memory: {self.memory.label}"
        if self.context != "retrieved":
            return self.context or "full"
        how = self.retrieved or Retrieval()
        return f"retrieved: {how.k} {how.unit}s by {how.by}"

    def __hash__(self) -> int:
        return hash((self.name, self.model, self.sampling))

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """The arguments of its chat template, such as enable_thinking."""
        kwargs = self.extra.get("chat_template_kwargs")
        return kwargs if isinstance(kwargs, dict) else {}

    @model_validator(mode="after")
    def _goes_together(self) -> Candidate:
        if self.retrieved is not None and self.context not in (None, "retrieved"):
            raise ValueError(f"retrieved: goes with context: retrieved, not {self.context}")
        for key, text in (("user", self.user), ("session", self.session)):
            check_template(key, text or "")
        for text in self.headers.values():
            check_template("headers", text)
        if self.memory is not None and (self.context or self.retrieved):
            raise ValueError("memory: is a context of its own; leave context and retrieved out")
        return self

    def misfit(self) -> str:
        """The fault of settings that do not fit the backend, a named server's too; else ""."""
        if (self.user or self.session or self.headers) and not self.is_served:
            return "user, session and headers: go with a server or a function"
        if self.memory is not None and self.memory.tools and self.backend != "openai":
            return "memory.tools: go with a server, whose model calls them"
        if self.lora is not None and self.backend != "vllm":
            return "lora: goes with backend: vllm; a server names an adapter as a model"
        most = self.sampling.max_tokens
        has_limit = self.backend in ("vllm", "openai")
        is_above = not isinstance(most, int) or (self.retry_max_tokens or 0) > most
        if self.retry_max_tokens is not None and not (has_limit and is_above):
            return (
                "retry_max_tokens: goes with an engine or a server, above its sampling.max_tokens"
            )
        return ""

    @property
    def is_served(self) -> bool:
        """True if it is asked call by call: a server, or a user's function."""
        return self.backend in ("openai", "code")


class Passage(NamedTuple):
    """A turn in the text of a prompt, from character `start` to `end`, of the session of that name.
    `holds` numbers the pieces of the sample's evidence that it holds."""

    start: int
    end: int
    session: str
    holds: tuple[int, ...] = ()


class Request(Frozen):
    """The request to a candidate: a function that takes a `Request` gets it in place of the
    messages alone. The sample is without its context and its right answers; `user` and `session`
    are those of the candidate, filled in, and empty if it has none."""

    messages: tuple[Message, ...] = ()
    sample: Sample
    user: str = ""
    session: str = ""
    epoch: int = 1
    headers: dict[str, str] = Field(default_factory=dict)


class Prompt(Frozen):
    """The request to a candidate for one sample: `messages` through its chat template, or as plain
    text if not `is_chat`. `max_tokens` is the task's output length, `stop` ends its answers. A
    prompt longer than the window loses its middle (`is_cut`) or is refused; of a conversation the
    cut takes whole `passages`. `about` is noted in the record's metadata. `request` has the user
    and session; `tool_messages`, after the others, are calls of tools and what they returned, as
    OpenAI's protocol has them."""

    messages: tuple[Message, ...]
    is_chat: bool = True
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    is_cut: bool = False
    passages: tuple[Passage, ...] = ()
    about: dict[str, Any] = Field(default_factory=dict)
    request: Request | None = None
    tool_messages: tuple[dict[str, Any], ...] = ()

    def sampling(self, candidate: Candidate) -> dict[str, Any]:
        """This prompt's decoding, by the names of OpenAI and vLLM: the candidate's, with the task's
        length and stops if it sets none. What is not sent is left out."""
        own = candidate.sampling
        sent: dict[str, Any] = own.model_dump(exclude={"stop"}, exclude_none=True)
        if own.max_tokens == "auto":
            sent["max_tokens"] = self.answer_tokens(candidate)
        if own.stop is not None and (stops := dict.fromkeys((*own.stop, *self.stop))):
            sent["stop"] = list(stops)
        return sent

    def answer_tokens(self, candidate: Candidate) -> int:
        """The room for an answer: its limit, or the task's length if none is sent."""
        most = candidate.sampling.max_tokens
        return most if isinstance(most, int) else self.max_tokens or DEFAULT_MAX_TOKENS


# Why there is no answer, though nothing failed: the output limit was used up before one began; it
# thought and said nothing; it called a tool instead; a filter or the model itself refused; the
# content is null; or the text is empty.
NoAnswer = Literal[
    "limit", "thinking_only", "tool_call", "content_filter", "refusal", "null", "empty"
]
RETRIED: frozenset[NoAnswer | None] = frozenset({"limit", "thinking_only"})  # by a larger limit
# A finish_reason's meaning, by its letters alone: the answer is whole, or why there may be none
_CAUSE_OF_FINISH: dict[str, NoAnswer | None] = {
    **dict.fromkeys(
        ("", "stop", "stopped", "stopsequence", "stoptoken", "stopstring", "eos", "eostoken",
         "eosfound", "eot", "end", "endturn", "endofturn", "complete", "completed", "finished",
         "finish", "done", "normal", "natural", "success", "succeeded", "ok", "null", "none",
         "endoftext", "stopstr", "stopstringfound"),
        None,
    ),
    **dict.fromkeys(
        ("length", "maxlength", "modellength", "maxtokens", "maxnewtokens", "maxoutputtokens",
         "tokenlimit", "outputlimit", "limit", "modelcontextwindowexceeded", "errorlimit",
         "maxpredictedtokensreached", "contextlengthreached"),
        "limit",
    ),
    **dict.fromkeys(("toolcalls", "toolcall", "tooluse", "functioncall"), "tool_call"),
    "refusal": "refusal",
}  # fmt: skip
_FILTERS = re.compile(
    r"safety|recitation|blocklist|spii|prohibited|content(?:filter|policy)|filtered|responsibleai|"
    r"guardrail|sensitive|moderat|toxic|policyviol|riskcontrol|blocked|\Alanguage\Z"
)


def _letters_of(finish_reason: str) -> str:
    return re.sub(r"[^a-z]", "", finish_reason.lower()).removeprefix("finishreason")


def broken_off(finish_reason: str) -> str:
    """The error for a finish_reason that is not a known end of a whole answer, else ""."""
    if is_filtered(finish_reason) or _letters_of(finish_reason) in _CAUSE_OF_FINISH:
        return ""
    return f"the answer broke off (finish_reason {finish_reason[:40]})"


def is_cut_off(finish_reason: str) -> bool:
    """True if a limit of tokens ended an answer, in any provider's word."""
    return _CAUSE_OF_FINISH.get(_letters_of(finish_reason)) == "limit"


def is_filtered(finish_reason: str) -> bool:
    """True if a filter ended an answer, in any provider's word."""
    return _FILTERS.search(_letters_of(finish_reason)) is not None


class ToolCall(NamedTuple):
    """A call of a tool; `arguments` is JSON, if the model wrote any."""

    id: str
    name: str
    arguments: str


class Response(Frozen):
    """The answer of a model. Tokens are the model's own; times are in seconds, None if not
    measured.

    `thinking` was split off `text`, in `thinking_blocks` blocks; `raw` is the output before, "" if
    nothing was. `unknown_mark` begins `text` and looks like a mark of thinking. `served_model` is
    the server's name of the model. `prompt_form` is `chat` or `plain`; `truncated_tokens` were cut
    out of the prompt's middle; `cached_tokens` came from the engine's prefix cache. `no_answer` is
    why the text is blank though nothing failed, `refusal` what the model said in that field
    instead. With `raised_max_tokens` it was asked once more: tokens and duration are those of both.
    `ended_s` is in epoch seconds. `tool_calls` are not stored: their handler answers them."""

    text: str = ""
    thinking: str = ""
    thinking_blocks: int = 0
    raw: str = ""
    unknown_mark: str | None = None
    served_model: str | None = None
    no_answer: NoAnswer | None = None
    refusal: str = ""
    raised_max_tokens: int | None = None
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
    tool_calls: Annotated[tuple[ToolCall, ...], Field(exclude=True)] = ()

    def __contains__(self, part: object) -> bool:
        """Raises TypeError: `"sleep" in response` of a metric would be False for every answer."""
        raise TypeError("a response is no text; write `in response.text`")

    @property
    def lack(self) -> str | None:
        """Why it is no answer that the next turn of a session could follow; None if it is one."""
        if self.error is not None:
            return self.error
        return (self.no_answer or "empty") if self.is_empty else None

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()

    def with_cause(
        self,
        *,
        is_null: bool = False,
        calls_tool: bool = False,
        reasoning_tokens: int | None = None,
        max_tokens: int | None = None,
    ) -> Response:
        """The response, with the reason if it is not an answer: by its fields, if its content was
        null and a tool was called, and its thinking's tokens of the limit. One that broke off is an
        error; one that a filter cut off is not an answer, and its text stays in `raw`."""
        if self.error is not None or self.no_answer is not None:
            return self
        if broken := broken_off(self.finish_reason or ""):
            return self.model_copy(update={"error": f"{NotWhole.__name__}: {broken}"})
        reason = self.finish_reason or ""
        finish: NoAnswer | None = "content_filter" if is_filtered(reason) else None
        finish = finish or _CAUSE_OF_FINISH.get(_letters_of(reason))
        if not self.is_empty:
            if finish != "content_filter":
                return self
            kept = {"no_answer": finish, "text": "", "raw": self.raw or self.text}
            return self.model_copy(update=kept)
        spent = max(reasoning_tokens or 0, self.output_tokens or 0)
        cause: NoAnswer
        if self.refusal.strip():
            cause = "refusal"
        elif calls_tool:
            cause = "tool_call"
        elif finish is not None:
            cause = finish
        elif max_tokens is not None and spent >= max_tokens:
            cause = "limit"
        elif self.thinking.strip() or self.thinking_blocks:
            cause = "thinking_only"
        else:
            cause = "null" if is_null else "empty"
        return self.model_copy(update={"no_answer": cause})

    def asked_again(self, second: Response, max_tokens: int) -> Response:
        """The result after a second request with this limit, as the first gave no answer: the
        second answer, unless that failed, with the tokens and the time of both."""
        raised: dict[str, Any] = {"raised_max_tokens": max_tokens}
        if second.error is not None:
            return self.model_copy(update=raised)
        for name in ("prompt_tokens", "cached_tokens", "output_tokens", "duration_s"):
            parts = [getattr(response, name) for response in (self, second)]
            raised[name] = None if None in parts else sum(parts)
        return second.model_copy(update={**raised, "ttft_s": self.ttft_s})


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
    """The tokens of one judge call over all its attempts. Of the `input_tokens`
    `cached_input_tokens` were read from the provider's prompt cache, and `cache_write_tokens`
    written at another price (0 if not billed). The cost of `unpriced_calls` is not known and not
    counted."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    unpriced_calls: int = 0

    @classmethod
    def of(cls, spent: TokenCounts) -> Usage:
        """The tokens of whatever counts them by these names, such as a JudgeError."""
        return cls(**{name: round(getattr(spent, name, 0)) for name in cls.model_fields})

    def __add__(self, other: Usage) -> Usage:
        sums = {name: value + getattr(other, name) for name, value in self}
        return Usage.trusted(sums, {*sums})

    def __sub__(self, other: Usage) -> Usage:
        """The difference from `other`, an earlier sum."""
        news = {name: value - getattr(other, name) for name, value in self}
        return Usage.trusted(news, {*news})


FigureForm = Literal["score", "count", "average", "percent", "of_scale", "step", "bar"]


def not_asked(number: int, why: str) -> str:
    """The error of the turns of a session after the n-th, which has no answer to follow."""
    return f"not asked: turn [{number}] of its session has no answer ({why})"

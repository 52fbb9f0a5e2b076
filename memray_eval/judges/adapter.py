"""How a provider's requests are made, sent and read; a file a provider in providers/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import BaseModel

from memray_eval.config.environment import PROVIDERS, api_key, required_key, server_key
from memray_eval.config.sections import Provider
from memray_eval.errors import JudgeError
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.prompt_cache import PromptCache, SharedStart
from memray_eval.provider_http.parameters import Changes, changed_parameters
from memray_eval.provider_http.replies import Edge
from memray_eval.types import Usage

Request: TypeAlias = Mapping[str, Any]  # the part of a request that `prepare` made
Turns: TypeAlias = Sequence[Mapping[str, str]]


class Reply(NamedTuple):
    """A completion that was read: its text, its tokens, and how it ended. `is_counted`: the
    provider gave all of its tokens. `served_model` is the model that it names as its own.
    `first_token` has the log-probabilities of the likeliest first tokens; None: not given."""

    text: str
    usage: Usage
    ending: Literal["done", "refused", "truncated"]
    is_counted: bool = True
    served_model: str = ""
    first_token: Sequence[tuple[str, float]] | None = None


class ProviderAdapter(Protocol):
    """One provider's protocol. `assistant_role` is its name for the model's messages; `parameters`
    are those that shape the verdict, of which it can do without the `negotiable` ones.
    `schema_is_in_start`: it counts a schema beside the messages as a part of their start, so that
    it is in the prompt instead; None: its calls have no shared starts."""

    assistant_role: str
    parameters: Mapping[str, Any]
    negotiable: Mapping[str, Any]

    @property
    def schema_is_in_start(self) -> bool | None: ...

    def prepare(
        self, judgment: type[BaseModel], system: str, shared_first: bool = False
    ) -> dict[str, Any]:
        """The part of a request that all calls with this rubric and judgment have: model,
        parameters, schema. `shared_first`: they begin with what they share."""
        ...

    def adjust(self, prepared: dict[str, Any], changes: Changes) -> dict[str, Any]:
        """A prepared request with the parameters that the model takes."""
        ...

    async def send(
        self, prepared: Request, messages: Turns, start: SharedStart | None = None
    ) -> Any:
        """Sends the messages, system first; returns the completion. `start` is for the cache."""
        ...

    def read(self, completion: Any) -> Reply:
        """Reads a completion. Raises JudgeError: Unreadable if it is none."""
        ...

    def translate(self, error: BaseException) -> JudgeError | None:
        """An SDK's exception as a JudgeError without prompt or key; None: not the SDK's."""
        ...


class BatchableAdapter(ProviderAdapter, Protocol):
    """An adapter whose provider takes batches."""

    async def batch_request(
        self, prepared: Request, messages: Turns, start: SharedStart | None = None
    ) -> dict[str, Any]:
        """The body that `send` would send."""
        ...

    def refusal(self, status: int, body: bytes) -> JudgeError:
        """The error of a status and the provider's words."""
        ...


class BodyAdapter:
    """An adapter whose requests are one JSON body each, made by `body`; the names of `negotiable`
    parameters are those of the body."""

    assistant_role = "assistant"
    negotiable: Mapping[str, Any]

    @property
    def edge(self) -> Edge:
        raise NotImplementedError

    def body(
        self, prepared: Request, messages: Turns, start: SharedStart | None = None
    ) -> dict[str, Any]:
        """A request's whole body."""
        raise NotImplementedError

    def adjust(self, prepared: dict[str, Any], changes: Changes) -> dict[str, Any]:
        fixed = {name: value for name, value in prepared.items() if name not in self.negotiable}
        return fixed | changed_parameters(self.negotiable, changes)

    async def batch_request(
        self, prepared: Request, messages: Turns, start: SharedStart | None = None
    ) -> dict[str, Any]:
        return self.body(prepared, messages, start)

    def refusal(self, status: int, body: bytes) -> JudgeError:
        return self.edge.refusal(status, None, body)


@dataclass(frozen=True, kw_only=True)
class JudgeSpec:
    """Which model judges, where, and with what parameters. `api_key_env` None: the provider's usual
    variable, and none at a base_url of one's own. `environment_url` is the SDK's, if there is no
    `base_url`; `served` names what a server of the run's own serves. `identity` is what calls are
    remembered by, in place of name and address. `is_providers`: `base_url` is an address of the
    provider's."""

    name: str
    model: str
    base_url: str | None = None
    environment_url: str | None = None
    served: str = ""
    identity: str = ""
    is_providers: bool = False
    api_key_env: str | None = None
    timeout_s: float = 120.0
    max_output_tokens: int = 2048
    parameters: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = FREE
    cache: PromptCache = field(default_factory=PromptCache)

    @property
    def remembered_by(self) -> str:
        """The judge's part of the key of a paid call."""
        server = self.served or self.base_url or self.environment_url or ""
        return self.identity or f"{self.name} {server}".strip()


def judge_key(spec: JudgeSpec, provider: Provider) -> str:
    """The key that a judge is asked with: from `api_key_env`, else from the provider's usual
    variable, whose key goes to the server that the environment names beside it, if it is set.
    Raises ConfigError if a key is needed and not set."""
    variable = spec.api_key_env or PROVIDERS[provider].key_variable
    if spec.environment_url is not None:
        return api_key(variable) or "none"
    if spec.base_url is not None and provider == "openai":  # OpenAI's key goes to OpenAI only
        return server_key(spec.base_url, spec.api_key_env, f"judge {spec.name}")
    return required_key(variable, f"judge {spec.name}")

"""How a provider's requests are made, sent and read; a file a provider in providers/."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel

from memray_eval.config.environment import PROVIDERS, api_key, required_key, server_key
from memray_eval.config.sections import Provider
from memray_eval.errors import JudgeError
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.prompt_cache import PromptCache, SharedStart
from memray_eval.provider_http.parameters import Changes, changed_parameters
from memray_eval.provider_http.replies import Edge
from memray_eval.types import Usage

Request: TypeAlias = dict[str, Any]  # a whole one, or the part of it that `prepare` made
Turns: TypeAlias = Sequence[Mapping[str, str]]
Ending: TypeAlias = Literal["done", "refused", "truncated"]


class Reply(NamedTuple):
    """A completion that was read: its text, its tokens, and how it ended. `is_counted`: the
    provider gave all of its tokens. `served_model` is the model that it names as its own, and
    `thoughts` what stood in a field beside the text."""

    text: str
    usage: Usage
    ending: Ending
    is_counted: bool = True
    served_model: str = ""
    thoughts: str = ""


class ProviderAdapter(ABC):
    """One provider's protocol. `assistant_role` is its name for the model's messages; `parameters`
    are those that shape the verdict, of which it can do without the `negotiable` ones.
    `schema_is_in_start`: it counts a schema beside the messages as a part of their start, so that
    it is in the prompt instead; None: its calls have no shared starts. `forms`: those of FORMS in
    which it can ask for JSON, where a server may refuse some."""

    assistant_role = "assistant"
    schema_is_in_start: bool | None = None
    forms: Sequence[str] = ()
    parameters: Mapping[str, Any]
    negotiable: Mapping[str, Any]
    edge: Edge

    @abstractmethod
    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        """The part of a request that all calls with this rubric and judgment have: model,
        parameters, schema. `shared_first`: they begin with what they share."""

    def adjust(self, prepared: Request, changes: Changes) -> Request:
        """A prepared request with the parameters that the model takes."""
        fixed = {name: value for name, value in prepared.items() if name not in self.negotiable}
        return fixed | changed_parameters(self.negotiable, changes)

    @abstractmethod
    async def send(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Any:
        """Sends the messages, system first; returns the completion. `start` is for the cache."""

    @abstractmethod
    def read(self, completion: Any) -> Reply:
        """Reads a completion. Raises JudgeError: Unreadable if it is none."""

    @abstractmethod
    def translate(self, error: BaseException) -> JudgeError | None:
        """An SDK's exception as a JudgeError without prompt or key; None: not the SDK's."""

    async def body(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Request:
        """All that `send` sends, for a batch."""
        raise NotImplementedError(f"{type(self).__name__} takes no batches")


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

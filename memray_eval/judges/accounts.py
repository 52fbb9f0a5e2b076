"""How a judge is asked: JudgeAccount resolves its name by the job's config, the environment and
the judge table."""

from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from memray_eval.config.environment import (
    LOCAL_SERVERS,
    PROVIDERS,
    api_key,
    environment_url,
    host_of,
    is_installed,
    is_private_host,
    require_package,
    required_key,
    server_address,
    server_key,
)
from memray_eval.config.sections import EMBEDDED, JudgingConfig, NamedServer, Provider, RateLimits
from memray_eval.errors import ConfigError, nearest
from memray_eval.extensions import OwnObject
from memray_eval.judges.prices import FREE, JudgeTable, ModelEntry, Price
from memray_eval.judges.prompt_cache import PromptCache
from memray_eval.withdrawn import what_instead

THINKING_OUTPUT_TOKENS = 16_384  # of a judge that thinks first: its thinking counts, too
DEFAULT_OUTPUT_TOKENS = 2048
WRITE_1H = 2.0  # what Anthropic bills for writing its cache for an hour, in prices of other input


def is_embedded(judge: str) -> bool:
    return judge == EMBEDDED or judge.startswith(f"{EMBEDDED}:")


@dataclass(frozen=True)
class JudgeAccount:
    """A judge by its name, resolved. One that is no judge raises ConfigError at whatever asks for
    its provider, first of all `check`."""

    name: str
    config: JudgingConfig = field(repr=False)
    table: JudgeTable = field(repr=False)

    @property
    def is_embedded(self) -> bool:
        return is_embedded(self.name)

    @property
    def model(self) -> str:
        """What its server calls the model."""
        return self.name.partition("/")[2]

    @property
    def server(self) -> NamedServer | None:
        """The named server whose model it is; None for a provider's."""
        return self.config.servers.get(self.name.partition("/")[0])

    @cached_property
    def provider(self) -> Provider:
        """Whose protocol it speaks. Raises ConfigError for a name that is no judge."""
        provider, _, model = self.name.partition("/")
        if model and self.server is not None:
            return self.server.provider or "openai"
        if provider not in PROVIDERS or not model:
            known = list(dict.fromkeys([*PROVIDERS, *LOCAL_SERVERS, *self.config.servers]))
            of_ollama = "ollama" if ":" in self.name else None  # as it calls its models
            hint = nearest(provider, known) if model else of_ollama
            way_out = (
                f"did you mean {hint}/{model or self.name}?"
                if hint
                else f"with one of: {', '.join(known)}"
            )
            instead = f"write auto, rules, embedded, MODEL@URL or PROVIDER/MODEL, {way_out}"
            raise ConfigError(f"no judge {self.name!r}; {what_instead(self.name) or instead}")
        return provider

    @property
    def own_server(self) -> str | None:
        """The address that it is asked at, from the config or the environment, or the code that it
        is; None: the provider's own."""
        provider, server = self.provider, self.server
        if server is not None:
            own = server.url or server.code
            return environment_url(provider) if own is None and server.provider is not None else own
        return self.config.base_urls.get(provider) or environment_url(provider)

    @property
    def address(self) -> str:
        """Where it is asked, the provider's own server included."""
        return server_address(self.provider, self.own_server)

    @property
    def code(self) -> OwnObject | None:
        """The user's function that it is; None for one behind an address."""
        if self.server is None or self.server.source is None:
            return None
        return OwnObject(self.server.source, self.model)

    @property
    def model_name(self) -> str:
        """What its model is called, whichever account asks it: PROVIDER/MODEL if that is a
        provider's own, else as the judge."""
        if self.server is None or not self.server.provider:
            return self.name
        return f"{self.server.provider}/{self.model}"

    @property
    def key_variable(self) -> str | None:
        """The environment variable with its key; None for a named server that wants none."""
        provider, server = self.provider, self.server
        if server is None:
            return self.config.api_key_envs.get(provider, PROVIDERS[provider].key_variable)
        # OpenAI's key goes to OpenAI only
        is_theirs = server.provider is not None and (server.url is None or provider != "openai")
        return server.api_key_env or (PROVIDERS[provider].key_variable if is_theirs else None)

    @property
    def key(self) -> str:
        """What it is asked with: OpenAI's key goes to OpenAI only, or to the server that the
        environment names beside it. Raises ConfigError if a key is needed and not set."""
        provider, named = self.provider, self.server
        url, own = self.config.base_urls.get(provider), self.config.api_key_envs.get(provider)
        if named is not None:
            url, own = named.url, named.api_key_env
        variable = own or PROVIDERS[provider].key_variable
        if url is None and self.own_server is not None:
            return api_key(variable) or "none"
        if url is not None and provider == "openai":
            return server_key(url, own, f"judge {self.name}")
        return required_key(variable, f"judge {self.name}")

    @property
    def is_reachable(self) -> bool:
        """True if its SDK is installed and its key, as far as it wants one, is set."""
        sdk, variable, named = PROVIDERS[self.provider].extra, self.key_variable, self.server
        if sdk and not is_installed(sdk):
            return False
        if variable is not None and api_key(variable) is not None:
            return True
        # A named server says itself whether it wants a key
        return self.own_server is not None and (
            variable is None or named is None or (named.url is None and named.api_key_env is None)
        )

    def check(self) -> None:
        """Raises ConfigError for a name that is no judge, or whose key is not set."""
        if sdk := PROVIDERS[self.provider].extra:
            require_package(sdk)
        code = self.code
        if code is not None and not callable(code.load()):
            raise ConfigError(
                f"judge {self.name}: {code.attribute} of {code.source.place} is no function of "
                "messages and a judgment"
            )
        if not self.is_reachable and self.key_variable is not None:
            required_key(self.key_variable, f"judge {self.name}")

    @cached_property
    def entry(self) -> ModelEntry:
        """What the table knows of its model, by the account or by the provider."""
        if self.is_embedded:
            return ModelEntry()
        models = self.table.models
        return models.get(self.name) or models.get(self.model_name, ModelEntry())

    @property
    def limits(self) -> tuple[RateLimits, bool]:
        """Its limits before anything is learnt, and whether they are firm: what the config says is;
        the table's is not, and does not hold for a server of one's own."""
        named = self.server.limits if self.server is not None else None
        own = RateLimits() if self.is_embedded else self.config.limits.get(self.name, named)
        if own is not None:
            return own, True
        return (self.entry.limits if self.own_server is None else RateLimits()), False

    @cached_property
    def price(self) -> Price | None:
        """What its tokens cost today; see `price_on`."""
        return self.price_on(date.today())

    def price_on(self, day: date) -> Price | None:
        """What its tokens cost on a day, by the config, else by the table; None: unknown."""
        if self.is_embedded:
            return FREE
        server = self.server
        own = self.config.price.get(self.name) or (server.price if server is not None else None)
        if own is not None:
            write_1h_usd = WRITE_1H * own.input_usd if self.provider == "anthropic" else None
            return Price(**own.model_dump())._replace(cache_write_1h_usd=write_1h_usd)
        if server is not None and server.code is not None:
            return FREE
        return self.entry.price_on(day)

    @property
    def may_bill(self) -> bool:
        """True if its calls leave this machine and its own network: somebody may bill for them."""
        if self.server is not None and self.server.code is not None:
            return False
        return self.own_server is None or not is_private_host(host_of(self.own_server))

    @property
    def parameters(self) -> dict[str, Any]:
        """What it is asked with: the table's parameters, else temperature 0 (and seed 0 by OpenAI's
        protocol); over these the job's, of which null ones are not sent."""
        parameters = dict[str, Any](temperature=0)
        if "parameters" in self.entry.model_fields_set:
            parameters = dict(self.entry.parameters)
        elif self.provider == "openai":
            parameters["seed"] = 0
        own = self.config.parameters
        parameters |= {key: value for key, value in own.items() if "/" not in key}
        parameters |= own.get(self.name) or own.get(self.model_name) or {}
        return {key: value for key, value in parameters.items() if value is not None}

    @property
    def parameter_target(self) -> str:
        """What its refusals of parameters are kept by: its model at its address."""
        return f"{self.model} at {self.address}"

    @property
    def output_limit(self) -> int:
        """How many tokens a verdict may have: as configured, else by whether it thinks first."""
        if self.config.max_output_tokens is not None:
            return self.config.max_output_tokens
        return THINKING_OUTPUT_TOKENS if self.entry.thinks else DEFAULT_OUTPUT_TOKENS

    @property
    def cache(self) -> PromptCache:
        """What is known of its prompt cache, without the secret. What it takes only at a price is
        not put into it if that price is not known."""
        entry, price = self.entry, self.price
        needed = ("cached_input_usd", *["cache_write_usd"] * entry.cache_marks)
        is_known = price is not None and None not in [getattr(price, name) for name in needed]
        floor_tokens = entry.cache_floor_tokens if is_known else None
        return PromptCache(floor_tokens, is_marked=entry.cache_marks)

    @property
    def takes_batches(self) -> bool:
        """True if it may be asked through its provider's batch API, as far as is known."""
        if self.is_embedded or self.code is not None or self.provider == "google":
            return False
        return self.entry.takes_batches is not False

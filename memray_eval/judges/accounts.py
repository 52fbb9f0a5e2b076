"""How a judge is asked: its server, key, limits, price and parameters, by the job's config,
the environment and the judge table."""

from __future__ import annotations

from datetime import date
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
    server_address,
)
from memray_eval.config.sections import EMBEDDED, JudgingConfig, NamedServer, Provider, RateLimits
from memray_eval.errors import ConfigError, nearest
from memray_eval.extensions import OwnObject
from memray_eval.judges.model_table import JudgeTable, ModelEntry
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.prompt_cache import PromptCache
from memray_eval.withdrawn import what_instead

THINKING_OUTPUT_TOKENS = 16_384  # of a judge that thinks first: its thinking counts, too
DEFAULT_OUTPUT_TOKENS = 2048
WRITE_1H = 2.0  # what Anthropic bills for writing its cache for an hour, in prices of other input


def is_embedded(judge: str) -> bool:
    return judge == EMBEDDED or judge.startswith(f"{EMBEDDED}:")


def provider_of(name: str, config: JudgingConfig) -> Provider:
    """Whose protocol a judge speaks. Raises ConfigError for a name that is no judge."""
    provider, _, model = name.partition("/")
    if model and (server := config.servers.get(provider)) is not None:
        return server.provider or "openai"
    if provider not in PROVIDERS or not model:
        known = list(dict.fromkeys([*PROVIDERS, *LOCAL_SERVERS, *config.servers]))
        of_ollama = "ollama" if ":" in name else None  # as it calls its models
        hint = nearest(provider, known) if model else of_ollama
        way_out = (
            f"did you mean {hint}/{model or name}?" if hint else f"with one of: {', '.join(known)}"
        )
        instead = f"write auto, rules, embedded, MODEL@URL or PROVIDER/MODEL, {way_out}"
        raise ConfigError(f"no judge {name!r}; {what_instead(name) or instead}")
    return provider


def server_of(name: str, config: JudgingConfig) -> NamedServer | None:
    """The named server whose model a judge is; None for a provider's."""
    return config.servers.get(name.partition("/")[0])


def own_server(name: str, config: JudgingConfig) -> str | None:
    """The address of the server that a judge is asked at, from the config or the environment, or
    the code that it is; None: the provider's own."""
    provider, server = provider_of(name, config), server_of(name, config)
    if server is not None:
        own = server.url or server.code
        return environment_url(provider) if own is None and server.provider is not None else own
    return config.base_urls.get(provider) or environment_url(provider)


def code_of(name: str, config: JudgingConfig) -> OwnObject | None:
    """The user's function that a judge is; None for one behind an address."""
    server = server_of(name, config)
    if server is None or server.source is None:
        return None
    return OwnObject(server.source, name.partition("/")[2])


def model_name(name: str, config: JudgingConfig) -> str:
    """What a judge's model is called, whichever account asks it: PROVIDER/MODEL where that is a
    provider's own, else as the judge."""
    server, (_, _, model) = server_of(name, config), name.partition("/")
    return f"{server.provider}/{model}" if server is not None and server.provider else name


def key_variable(name: str, config: JudgingConfig) -> str | None:
    """The environment variable with a judge's key; None for a named server that wants none."""
    provider, server = provider_of(name, config), server_of(name, config)
    if server is None:
        return config.api_key_envs.get(provider, PROVIDERS[provider].key_variable)
    # OpenAI's key goes to OpenAI only
    is_theirs = server.provider is not None and (server.url is None or provider != "openai")
    return server.api_key_env or (PROVIDERS[provider].key_variable if is_theirs else None)


def is_reachable(name: str, config: JudgingConfig) -> bool:
    sdk = PROVIDERS[provider_of(name, config)].extra
    if sdk and not is_installed(sdk):
        return False
    variable = key_variable(name, config)
    if variable is not None and api_key(variable) is not None:
        return True
    # A named server says itself whether it wants a key
    named = server_of(name, config)
    return own_server(name, config) is not None and (
        variable is None or named is None or (named.url is None and named.api_key_env is None)
    )


def check_judge(name: str, config: JudgingConfig) -> None:
    """Raises ConfigError for a name that is no judge, or whose key is not set."""
    if sdk := PROVIDERS[provider_of(name, config)].extra:
        require_package(sdk)
    code = code_of(name, config)
    if code is not None and not callable(code.load()):
        raise ConfigError(
            f"judge {name}: {code.attribute} of {code.source.place} is no function of messages and "
            "a judgment"
        )
    if not is_reachable(name, config):
        variable = key_variable(name, config)
        raise ConfigError(
            f"judge {name} needs a key in the environment variable {variable}, which is not set"
        )


def entry_of(name: str, config: JudgingConfig, table: JudgeTable) -> ModelEntry:
    """What the table knows of a judge's model: of an account of a provider, what it knows of the
    provider's."""
    if name in table.models:
        return table.models[name]
    return table.models.get(model_name(name, config), ModelEntry())


def limits_of(name: str, config: JudgingConfig, table: JudgeTable) -> tuple[RateLimits, bool]:
    """A judge's limits before anything is learnt, and whether they are firm: what the config says
    is, the table's is not (and does not hold for a server of one's own). A local model's server has
    none."""
    if is_embedded(name):
        return RateLimits(), True
    if name in config.limits:
        return config.limits[name], True
    server = server_of(name, config)
    if server is not None and server.limits is not None:
        return server.limits, True
    is_theirs = own_server(name, config) is None
    return (entry_of(name, config, table).limits if is_theirs else RateLimits()), False


def price_of(
    name: str, config: JudgingConfig, table: JudgeTable, day: date | None = None
) -> Price | None:
    """What a judge's tokens cost today, or on a `day`, by the config, else by the table; None:
    unknown. The run's own code and embedded judge are free."""
    if is_embedded(name):
        return FREE
    server = server_of(name, config)
    own = config.price.get(name) or (server.price if server is not None else None)
    if own is not None:
        is_anthropic = provider_of(name, config) == "anthropic"
        write_1h_usd = WRITE_1H * own.input_usd if is_anthropic else None
        return Price(**own.model_dump())._replace(cache_write_1h_usd=write_1h_usd)
    if server is not None and server.code is not None:
        return FREE
    return entry_of(name, config, table).price_on(day or date.today())


def may_bill(name: str, config: JudgingConfig) -> bool:
    """Whether a judge is asked at an address where somebody may bill for it: not on this machine or
    its own network. Who brings a function knows what it costs."""
    named = server_of(name, config)
    if named is not None and named.code is not None:
        return False
    server = own_server(name, config)
    return server is None or not is_private_host(host_of(server))


def parameters_of(name: str, config: JudgingConfig, table: JudgeTable) -> dict[str, Any]:
    """What a judge is asked with: the table's parameters, else temperature 0 (and seed 0 by
    OpenAI's protocol); over these the job's, of which null ones are not sent."""
    entry, parameters = entry_of(name, config, table), dict[str, Any](temperature=0)
    if "parameters" in entry.model_fields_set:
        parameters = dict(entry.parameters)
    elif provider_of(name, config) == "openai":
        parameters["seed"] = 0
    own = config.parameters
    parameters |= {key: value for key, value in own.items() if "/" not in key}
    parameters |= own.get(name) or own.get(model_name(name, config)) or {}
    return {key: value for key, value in parameters.items() if value is not None}


def parameter_target(name: str, config: JudgingConfig) -> str:
    """What a judge's refusals of parameters are kept by: its model at its address."""
    address = server_address(provider_of(name, config), own_server(name, config))
    return f"{name.partition('/')[2]} at {address}"


def output_limit(name: str, config: JudgingConfig, table: JudgeTable) -> int:
    """How many tokens a verdict may have: as configured, else by whether the judge thinks first."""
    if config.max_output_tokens is not None:
        return config.max_output_tokens
    thinks = not is_embedded(name) and entry_of(name, config, table).thinks
    return THINKING_OUTPUT_TOKENS if thinks else DEFAULT_OUTPUT_TOKENS


def cache_of(name: str, config: JudgingConfig, table: JudgeTable) -> PromptCache:
    """What is known of a judge's prompt cache, without the secret. What it takes only at a price is
    not put into it where that price is not known."""
    entry = entry_of(name, config, table)
    price = None if is_embedded(name) else price_of(name, config, table)
    is_known = price is not None and price.cached_input_usd is not None
    if entry.cache_marks:
        is_known = is_known and price is not None and price.cache_write_usd is not None
    return PromptCache(
        floor_tokens=entry.cache_floor_tokens if is_known else None,
        is_marked=entry.cache_marks,
    )


def takes_batches(name: str, config: JudgingConfig, table: JudgeTable) -> bool:
    """Whether a judge may be asked through its provider's batch API, as far as is known."""
    if is_embedded(name) or code_of(name, config) is not None:
        return False
    if provider_of(name, config) == "google":  # not through its API
        return False
    return entry_of(name, config, table).takes_batches is not False

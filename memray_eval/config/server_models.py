"""Asks servers which models they have."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from memray_eval.config.environment import api_key
from memray_eval.config.servers import split_address
from memray_eval.errors import ConfigError, DataError, reason_of, suggest

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

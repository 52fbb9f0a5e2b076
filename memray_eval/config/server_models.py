"""Asks servers which models they have."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException

from memray_eval.config.servers import split_address
from memray_eval.errors import ConfigError, DataError, reason_of, suggest

ANSWER_S = 5.0


def models_at(url: str, key: str | None = None) -> list[str]:
    """The models of an OpenAI-compatible server, by its own list. Raises ConfigError that says what
    to do if it cannot be reached, DataError if it gives none."""
    request = urllib.request.Request(f"{url.rstrip('/')}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            return [str(entry["id"]) for entry in json.load(reply)["data"]]
    except urllib.error.HTTPError as error:
        raise DataError(
            f"{url} does not list its models (HTTP {error.code}); name one: MODEL@{url}; mostly an "
            "address ends in /v1, and a key goes into servers: {NAME: {url: URL, api_key_env: "
            "VARIABLE}}"
        ) from None
    except (OSError, HTTPException) as error:
        why = reason_of(getattr(error, "reason", error))
        raise ConfigError(
            f"{url} cannot be reached: {why}; start the server, or fix its address"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{url} does not list its models; name one: MODEL@{url}") from None


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

"""Asks servers which models they have."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException

from memray_eval.config.problems import suggest
from memray_eval.config.servers import split_address
from memray_eval.errors import ConfigError, reason_of

ANSWER_S = 5.0
_START = "start the server, or mend its address"


def models_at(url: str, key: str | None = None) -> list[str]:
    """The models of an OpenAI-compatible server, by its own list. Raises ConfigError that says what
    to do if it cannot be reached, or gives none."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{url.rstrip('/')}/models", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            entries = json.load(reply)["data"]
            return [str(entry["id"]) for entry in entries]
    except urllib.error.HTTPError as error:
        mend = "its address ends in /v1, mostly"
        if error.code in (401, 403):
            mend = "it wants a key: servers: {NAME: {url: URL, api_key_env: VARIABLE}}"
        raise ConfigError(f"{url} does not list its models (HTTP {error.code}); {mend}") from None
    except (OSError, HTTPException) as error:
        inner = getattr(error, "reason", error)
        why = reason_of(inner) if isinstance(inner, Exception) else inner
        raise ConfigError(f"{url} cannot be reached: {why}; {_START}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{url} does not list its models; name one: MODEL@{url}") from None


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
    if not models:
        raise ConfigError(f"{url} has no model yet; load one there, or name it: MODEL@{url}")
    raise ConfigError(
        f"{url} has {len(models)} models: {', '.join(models)}; choose one, such as "
        f"{models[0]}@{url}"
    )


def check_served(model: str, url: str, key: str | None = None) -> None:
    """Raises ConfigError if a server cannot be reached or lists other models."""
    if model not in (models := models_at(url, key)):
        raise ConfigError(f"{url} has no model {model!r}; {suggest(model, models)}")

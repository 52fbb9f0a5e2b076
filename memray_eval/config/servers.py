"""The named servers of a job, also of users' functions (my_judge.py:ask is my_judge/ask) and
addresses (gemma3@http://lab:8000/v1 is lab-8000/gemma3)."""

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
from typing import Any, TypeVar
from urllib.parse import urlsplit

from memray_eval.config.environment import LOCAL_SERVERS, api_key
from memray_eval.config.sections import EMBEDDED, EmbeddingConfig, NamedServer, refuse_twice
from memray_eval.errors import ConfigError, DataError, reason_of, suggest
from memray_eval.extensions import entry_points, split_reference
from memray_eval.types import Candidate

C = TypeVar("C", bound=Candidate)
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
    key, models = api_key(variable) if variable else None, list[str]()
    try:
        models = _listed(url, key)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            return
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        if isinstance(getattr(error, "reason", None), ConnectionRefusedError | socket.gaierror):
            raise _unreached(url, error) from None
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
    """The model ("" if none is named) and the server's address of MODEL@URL or URL, with /v1 if it
    has no path; None for another name."""
    if (match := _URL.fullmatch(name)) is None:
        return None
    url = match["url"].rstrip("/")
    return match["model"] or "", url if urlsplit(url).path else f"{url}/v1"


def name_candidate(model: str) -> str:
    """The name of a candidate of the command line, by its model."""
    named, url = split_address(model) or (model, "")
    return Path(named).name if named else _server_at(url)


def _server_at(url: str) -> str:
    """A server's name by its address, such as lab-8000 or at-127-0-0-1-8000."""
    name = re.sub(r"\W+", "-", urlsplit(url).netloc.rpartition("@")[2]).strip("-")
    return name if name[:1].isalpha() else f"at-{name}"


class ServerNames:
    """The servers of a job, which the names in it add to: MODEL@URL and a model of LOCAL_SERVERS is
    NAME/MODEL, a function FILE/FUNCTION. `choose` gives the model of a bare address. The methods
    raise ValueError, also if two servers would have one name."""

    def __init__(
        self, servers: Mapping[str, NamedServer], choose: Callable[[str], str] = str
    ) -> None:
        self.servers, self._choose = dict(servers), choose

    def model(self, name: str) -> str:
        """A model's name with that of its server."""
        name = self._choose(name)
        if (address := split_address(name)) is not None:
            server = _server_at(address[1])
            other = self.servers.setdefault(server, NamedServer(url=address[1])).url
            if other != address[1]:
                raise ValueError(f"{name}: there is a server {server!r} at {other}; name this one")
            return f"{server}/{address[0]}"
        server, slash, _ = name.partition("/")
        if slash and server in LOCAL_SERVERS:
            self.servers.setdefault(server, NamedServer(url=LOCAL_SERVERS[server]))
        return name

    def judges(self, named: Any) -> Any:
        """The same for a judge, which may be a function, a jury, or juries by metric."""
        if isinstance(named, dict):
            return {metric: self.judges(jury) for metric, jury in named.items()}
        if isinstance(named, tuple):
            return refuse_twice(tuple(map(self.judges, named)))
        return self._function(self.model(named)) if named else named

    def embedding(self, embedding: EmbeddingConfig) -> EmbeddingConfig:
        """The section with the address of its model's server."""
        model = self.model(embedding.model)
        server, own = self._find("embedding", model)
        if server is None or server.code is not None:
            return embedding.model_copy(update={"model": model})
        address = {"base_url": server.url, "api_key_env": server.api_key_env}
        return embedding.model_copy(update={"model": f"openai/{own}", **address})

    def candidate(self, candidate: C, suite: str) -> C:
        """The candidate with what its model's server says."""
        model = self.model(candidate.model)
        if model.startswith(f"{BASELINE}/") and BASELINE not in self.servers:
            self._add_baselines(candidate, suite)
        elif candidate.backend == "code" or ".py:" in model:
            model = self._function(model)
        server, own = self._find("candidates", model)
        keys: dict[str, Any] = {"model": model}
        if server is None:
            _check_colon(candidate.backend, model)
        elif server.code is not None:
            keys["backend"] = "code"
        elif (candidate.backend, candidate.base_url) != ("openai", server.url):  # else it has them
            named = server.model_fields_set & {"api_key_env", "stream"}
            of_server = server.model_dump(include=named)
            keys = {**of_server, "backend": "openai", "base_url": server.url, "model": own}
        return candidate.model_copy(update=keys)

    def _find(self, section: str, model: str) -> tuple[NamedServer | None, str]:
        """The server of a model NAME/MODEL, and what that calls it."""
        name, _, own = model.partition("/")
        server = self.servers.get(name) if own else None
        if server is not None and server.provider not in (None, "openai"):
            raise ValueError(
                f"{section}: {model!r}: the server {name} is an account of {server.provider}, "
                "whose models only judge; name an OpenAI-compatible server"
            )
        return server, own

    def _add_baselines(self, candidate: Candidate, suite: str) -> None:
        """Takes the suite's own candidates in, the functions of its baselines.py."""
        if candidate.backend != "code":
            name = candidate.model.partition("/")[2]
            raise ValueError(f"candidates: {candidate.model}: write it as {{baseline: {name}}}")
        if not (resources.files("memray_eval") / "benchmarks" / suite / "baselines.py").is_file():
            raise ValueError(f"candidates: suite {suite!r} has no baselines; memory has")
        code = f"memray_eval.benchmarks.{suite}.baselines"
        self.servers[BASELINE] = NamedServer(code=code)

    def _function(self, name: str) -> str:
        if name in WORDS or name.startswith(f"{EMBEDDED}:"):
            return name
        reference = split_reference(entry_points().get(name, name))
        if reference is None or not reference[1]:
            return name
        module, function = reference
        stem = Path(module).stem if module.endswith(".py") else module.replace(".", "_")
        server = re.sub(r"[^\w-]", "_", stem)
        if self.servers.setdefault(server, NamedServer(code=module)).code != module:
            raise ValueError(
                f"{name}: there is another server {server!r}; name this one: "
                f"servers: {{NAME: {{code: {module}}}}}, as NAME/{function}"
            )
        return f"{server}/{function}"


def _check_colon(backend: str, model: str) -> None:
    """Raises ValueError for an engine's model with a colon, as llama3:latest of a server has."""
    if ":" not in model or backend != "vllm" or _BUCKET.match(model) or os.path.exists(model):
        return
    raise ValueError(
        f"candidates: {model!r} has a colon, as only a server's model has: write "
        f"ollama/{model} or {model}@URL, or take the job `server`: "
        f"`memray-eval run server --model {model}`"
    )


def read_baseline(entry: Any) -> Any:
    """The keys of a candidate for {baseline: NAME}, a suite's own; any other entry as it is."""
    if not isinstance(entry, dict) or BASELINE not in entry:
        return entry
    if more := sorted(entry.keys() - {BASELINE, "name"}):
        raise ValueError(f"a baseline has no key {more[0]!r}; leave it out")
    name = str(entry[BASELINE])
    return {"name": entry.get("name", name), "model": f"{BASELINE}/{name}", "backend": "code"}


def is_baseline(candidate: Candidate) -> bool:
    """True for a suite's own candidate, which asks no model."""
    return candidate.backend == "code" and candidate.model.startswith(f"{BASELINE}/")

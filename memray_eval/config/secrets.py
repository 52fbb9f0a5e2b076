"""Is there a key in a job? What a job holds is shown by `ray job list` and the dashboard to whoever
reaches them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qsl

from memray_eval.config.environment import API_KEY_VARIABLES
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import AffectConfig, EmbeddingConfig, JudgingConfig
from memray_eval.errors import ConfigError
from memray_eval.storage.paths import ANONYMOUS
from memray_eval.types import Candidate

MIN_KEY_CHARS = 8  # shorter values of variables are words, ports, yes and no
_SECRET_WORDS = frozenset(
    "key keys apikey apikeys token tokens secret secrets password passwd passphrase "
    "credential".split()
)
_SECRET_WORDS |= {
    "credentials",
    "authorization",
    "sig",
    "signature",
}  # the last two of presigned URLs
_SHAPES = re.compile(
    r"\bsk-[\w-]{16,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}"
    r"|\bxox[abpr]-[\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY|\bBearer [\w.~+/-]{16,}"
)
_BY_METRIC = ("judge", "rubrics")  # mappings by a metric's name, whatever words are in it
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_USER = re.compile(
    rf"://(?!{ANONYMOUS}[^/?#\s@]*(?:[/?#\s]|$))[^/?#\s]*@"
)  # all but anonymous@ alone
_MARK = re.compile(
    r"[<\[].*[>\]]|\$\{?\w+\}?"
)  # a model's special token, or a reference to a variable


def refuse_keys(config: RunConfig, environ: Mapping[str, str]) -> None:
    """Raises ConfigError that names the config's key under which something looks like a secret, and
    never the secret: a field of such a name, a URL with a password, a text of a known shape, or the
    value of one of this machine's key variables."""
    held = held_keys(environ, variables_of(config))
    for where, value in _strings(config.model_dump(mode="json")):
        if _is_key(where, value) or _holds(value, held):
            raise ConfigError(
                f"{_shown(where)} looks like a key, and a config is written to the run's folder "
                f"and shown on a cluster's "
                "dashboard. Set the key as an environment variable where the run is (on a "
                "cluster's nodes by a Kubernetes "
                "secret, or docker's --env-file) and name the variable: api_key_env: MY_KEY, or "
                "judging.api_key_envs: {openai: "
                "MY_KEY}"
            )


def refuse_keys_in_file(name: str, data: bytes, held: Mapping[str, str], is_text: bool) -> None:
    """The same for a file that the job takes along: it must not hold the value of a key variable,
    nor, where it is text of the job's own (a prompt, a rubric, a judge table), a text of a key's
    shape."""
    if any(value.encode() in data for value in held.values()):
        raise ConfigError(
            f"{name} holds the value of a key variable of this machine; take it out before it is "
            f"sent"
        )
    if is_text and _has_key_shape(data.decode("utf-8", "replace")):
        raise ConfigError(
            f"{name} holds something that looks like a key; take it out before it is sent"
        )


def _has_key_shape(text: str) -> bool:
    return _SHAPES.search(text) is not None


def hide_keys(text: str, held: Mapping[str, str]) -> str:
    """The text with [key] for the values of these variables, for what has a key's shape, and for
    the user and password of a URL."""
    for value in held.values():
        text = text.replace(value, "[key]")
    return _USER.sub("://[key]@", _SHAPES.sub("[key]", text))


class NamesKeyVariables(Protocol):
    """A config, or what was made of it, whose parts name environment variables that hold keys."""

    @property
    def candidates(self) -> Sequence[Candidate]: ...
    @property
    def embedding(self) -> EmbeddingConfig: ...
    @property
    def affect(self) -> AffectConfig: ...
    @property
    def judging(self) -> JudgingConfig: ...


def variables_of(config: NamesKeyVariables) -> set[str]:
    """The environment variables that the config names as holding keys, and the providers' own."""
    one_each = [candidate.api_key_env for candidate in config.candidates]
    one_each += [config.embedding.api_key_env, config.affect.api_key_env]
    return {*API_KEY_VARIABLES, *config.judging.api_key_envs.values(), *filter(None, one_each)}


def held_keys(environ: Mapping[str, str], named: set[str]) -> dict[str, str]:
    """The variables, by name or because they are named so, whose values must not leave this
    machine."""
    return {
        name: value
        for name, value in environ.items()
        if len(value) >= MIN_KEY_CHARS and (name in named or _SECRET_WORDS & set(_words(name)))
    }


def _is_key(where: tuple[str, ...], value: str) -> bool:
    if _has_key_shape(value) or _has_password(value):
        return True
    if "api_key_env" in where or "api_key_envs" in where:
        return (
            _VARIABLE.fullmatch(value) is None
        )  # the name of a variable; a key itself is no such name
    name = next(
        (part for part in reversed(where) if not part.isdecimal()), ""
    )  # of a list, the list's
    is_named_so = where[0] not in _BY_METRIC and bool(_SECRET_WORDS & set(_words(name)))
    return bool(value) and is_named_so and _MARK.fullmatch(value) is None


def _holds(value: str, held: Mapping[str, str]) -> bool:
    return any(key in value for key in held.values())


def _has_password(value: str) -> bool:
    """Whether a URL with user information is in it, or it is one with a key among its parameters.
    Read by hand: urllib refuses some, such as one whose password has a bracket."""
    if "://" not in value:
        return False
    parameters = parse_qsl(value.partition("?")[2].replace("#", "&"))
    return _USER.search(value) is not None or any(
        _SECRET_WORDS & set(_words(name)) and text for name, text in parameters
    )


def _words(name: str) -> list[str]:
    """The words of an identifier: apiKey, api_key and api-key are {api, key}; passkey is one
    word."""
    return (
        re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
        .replace("-", "_")
        .replace(".", "_")
        .lower()
        .split("_")
    )


def _shown(where: tuple[str, ...]) -> str:
    """The dotted key, for a message; what has a key's shape in it is left out (a key may be written
    on the wrong side)."""
    return "the config's " + ".".join("..." if _has_key_shape(part) else part for part in where)


def _strings(node: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string of a config with its path; the keys of mappings too, as they may be anything."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*where, "..."), str(key)
            yield from _strings(value, (*where, str(key)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _strings(value, (*where, str(index)))
    elif isinstance(node, str):
        yield where, node

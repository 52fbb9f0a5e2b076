"""Refuses jobs that hold a key: `ray job list` and the dashboard show a job to everybody."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from memray_eval.config.environment import API_KEY_VARIABLES
from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.storage.paths import ANONYMOUS

MIN_KEY_CHARS = 8  # shorter values of variables are words, ports, yes and no
# The last two of presigned URLs
_SECRET_WORDS = frozenset(
    "key keys apikey apikeys token tokens secret secrets password passwd passphrase credential "
    "credentials authorization sig signature".split()
)
_SHAPES = re.compile(
    r"\bsk-[\w-]{16,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}"
    r"|\bxox[abpr]-[\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY|\bBearer [\w.~+/-]{16,}"
)
_BY_METRIC = ("judge", "rubrics")  # mappings by a metric's name, whatever words are in it
_WORD_END = re.compile(r"[-.]|(?<=[a-z0-9])(?=[A-Z])")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
# All but anonymous@ alone
_USER = re.compile(rf"://(?!{ANONYMOUS}[^/?#\s@]*(?:[/?#\s]|$))[^/?#\s]*@")
# A model's special token, a reference to a variable, or a word of the config's own
_MARK = re.compile(r"[<\[].*[>\]]|\$\{?\w+\}?|(?:\w+ )?\{[\w.]+\}|auto")


def refuse_keys(config: RunConfig, environ: Mapping[str, str]) -> None:
    """Raises ConfigError if something in the config looks like a secret: a field named like one, a
    URL with a password, a text of a known shape, or the value of one of this machine's key
    variables. The message names the config's key, never the secret."""
    held = held_keys(environ, variables_of(config))
    for where, value in _iterate_strings(config.model_dump(mode="json")):
        if _is_key(where, value) or any(key in value for key in held.values()):
            # A key may be on the wrong side of the colon: its path is not shown then.
            path = ".".join("..." if _SHAPES.search(part) else part for part in where)
            raise ConfigError(
                f"the config's {path} looks like a key, and a config is written to the run's "
                "folder and shown on a cluster's dashboard. Set the key as an environment "
                "variable where the run is (on a cluster's nodes by a Kubernetes secret, or "
                "docker's --env-file) and name the variable: api_key_env: MY_KEY, or "
                "judging.api_key_envs: {openai: MY_KEY}"
            )


def refuse_keys_in_file(name: str, data: bytes, held: Mapping[str, str], is_text: bool) -> None:
    """Raises ConfigError if a file that the job takes along holds the value of a key variable or,
    as the job's own text (a prompt, a rubric, a judge table), something of a key's shape."""
    what = ""
    if any(value.encode() in data for value in held.values()):
        what = "the value of a key variable of this machine"
    elif is_text and _SHAPES.search(data.decode("utf-8", "replace")):
        what = "something that looks like a key"
    if what:
        raise ConfigError(f"{name} holds {what}; take it out before it is sent")


def hide_keys(text: str, held: Mapping[str, str]) -> str:
    """The text with [key] for the values of these variables, for what has a key's shape, and for
    the user and password of a URL."""
    for value in held.values():
        text = text.replace(value, "[key]")
    return _USER.sub("://[key]@", _SHAPES.sub("[key]", text))


def variables_of(config: RunConfig) -> set[str]:
    """The environment variables that the config names as holding keys, and the providers' own."""
    strings = list(_iterate_strings(config.model_dump(mode="json")))
    named = [text for where, text in strings if {"api_key_env", "api_key_envs"} & {*where}]
    headers = " ".join(text for where, text in strings if "headers" in where)
    return {*API_KEY_VARIABLES, *named, *re.findall(r"\{env\.(\w+)\}", headers)}


def held_keys(environ: Mapping[str, str], named: set[str]) -> dict[str, str]:
    """The variables whose values must not leave this machine: those in `named`, and those whose
    names have a word such as key or token."""
    return {
        name: value
        for name, value in environ.items()
        if len(value) >= MIN_KEY_CHARS and (name in named or _names_a_secret(name))
    }


def _is_key(where: tuple[str, ...], value: str) -> bool:
    if _SHAPES.search(value) or _has_password(value):
        return True
    if "api_key_env" in where or "api_key_envs" in where:
        # The name of a variable; a key itself is no such name
        return _VARIABLE.fullmatch(value) is None
    # Of a list, the list's
    name = next((part for part in reversed(where) if not part.isdecimal()), "")
    is_named_so = where[0] not in _BY_METRIC and _names_a_secret(name)
    return bool(value) and is_named_so and _MARK.fullmatch(value) is None


def _has_password(value: str) -> bool:
    """True if a text holds a URL with user information, or is one with a key among its parameters.
    Parsed by hand: urllib refuses some, such as one whose password has a bracket."""
    if "://" not in value:
        return False
    parameters = parse_qsl(value.partition("?")[2].replace("#", "&"))
    return _USER.search(value) is not None or any(
        text and _names_a_secret(name) for name, text in parameters
    )


def _names_a_secret(name: str) -> bool:
    """True if an identifier has such a word: apiKey, api_key and api-key have key, passkey not."""
    return not _SECRET_WORDS.isdisjoint(_WORD_END.sub("_", name).lower().split("_"))


def _iterate_strings(
    node: Any, where: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string of a config with its path; the keys of mappings too, as they may be anything."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*where, "..."), str(key)
            yield from _iterate_strings(value, (*where, str(key)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _iterate_strings(value, (*where, str(index)))
    elif isinstance(node, str):
        yield where, node

"""The named servers of a job: those that users' functions make, and pools of several servers. A
judge or candidate `my_judge.py:ask` becomes my_judge/ask, so that no figure's name holds a path."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from memray_eval.config.sections import EMBEDDED, NamedServer
from memray_eval.errors import nearest
from memray_eval.extensions import entry_points, split_reference
from memray_eval.types import Candidate

BASELINE = "baseline"  # the server of a suite's own candidates without a model
WORDS = (EMBEDDED, "rules", "auto")  # what a judge may be called that is no model


def name_code(data: Mapping[str, Any]) -> dict[str, Any]:
    """A job's keys with the functions that it names as judges and candidates behind `servers`.
    Raises ValueError if two files would be servers of one name."""
    servers = dict(data["servers"]) if isinstance(data.get("servers"), dict) else {}
    named = dict(data)
    if "judge" in named:
        named["judge"] = _name_functions(named["judge"], servers)
    for section, key in (
        ("judging", "fallbacks"),
        ("affect", "judge"),
        ("simulated_user", "model"),
    ):
        if isinstance(named.get(section), dict) and named[section].get(key):
            judges = _name_functions(named[section][key], servers)
            named[section] = {**named[section], key: judges}
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
    # A server may call a model llama3:latest
    if isinstance(model, str) and (entry.get("backend") == "code" or ".py:" in model):
        return {**entry, "model": _name_functions(model, servers)}
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


def _name_functions(value: Any, servers: dict[str, Any]) -> Any:
    """A judge, a jury or judges by metric, their functions as those of servers, which are put
    beside the others."""
    if isinstance(value, Mapping):
        return {key: _name_functions(judge, servers) for key, judge in value.items()}
    if isinstance(value, list | tuple):
        return [_name_functions(judge, servers) for judge in value]
    if not isinstance(value, str) or value in WORDS or value.startswith(f"{EMBEDDED}:"):
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


def check_pools(servers: Mapping[str, NamedServer]) -> None:
    """Raises ValueError for a pool that is empty, or whose members are not different servers of
    this job that speak one protocol."""
    for name, server in servers.items():
        if server.pool is not None:
            _check_pool(name, server.pool, servers)


def _check_pool(pool: str, members: Sequence[str], servers: Mapping[str, NamedServer]) -> None:
    if not members:
        raise ValueError(f"{pool}: the pool is empty; name the servers that are in it")
    accounts: dict[tuple[str | None, ...], str] = {}
    for name in members:
        if name not in servers:
            single_servers = [other for other in servers if servers[other].pool is None]
            way_out = f"there are: {', '.join(single_servers) or 'none but pools'}"
            if (hint := nearest(name, single_servers)) is not None:
                way_out = f"did you mean {hint!r}?"
            raise ValueError(f"{pool}: no server {name!r}; {way_out}")
        server = servers[name]
        if server.pool is not None:
            raise ValueError(
                f"{pool}: {name} is a pool itself, and a pool holds servers; name those of {name}: "
                f"{', '.join(server.pool)}"
            )
        if server.code is not None:
            raise ValueError(f"{pool}: {name} is code, which has no account to share a pool with")
        first = servers[members[0]]
        if server.provider != first.provider:
            raise ValueError(
                f"{pool}: {members[0]} is {_describe_protocol(first)} and {name} is "
                f"{_describe_protocol(server)}; a pool serves one model by one protocol (for "
                "another model, name a jury or judging.fallbacks)"
            )
        if members.count(name) > 1:
            raise ValueError(f"{pool}: {name} is named twice; leave it out once")
        account = (server.url and server.url.rstrip("/"), server.api_key_env)
        if (other := accounts.setdefault(account, name)) != name:
            raise ValueError(
                f"{pool}: {other} and {name} are one account, by url and api_key_env, and have one "
                "limit; leave one of them out"
            )


def _describe_protocol(server: NamedServer) -> str:
    return "an OpenAI-compatible server" if server.provider is None else f"of {server.provider}"

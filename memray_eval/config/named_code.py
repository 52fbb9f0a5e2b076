"""Judges and candidates that are users' functions, written as `my_judge.py:ask`: each becomes the
function of a named server, my_judge/ask, so that no figure's name holds a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from memray_eval.config.sections import EMBEDDED
from memray_eval.extensions import entry_points, split_reference

BASELINE = "baseline"  # the server of a suite's own candidates without a model
WORDS = (EMBEDDED, "rules", "auto")  # what a judge may be called that is no model


def name_code(data: Mapping[str, Any]) -> dict[str, Any]:
    """A job's keys with the functions that it names as judges and candidates behind `servers`.
    Raises ValueError if two files would be servers of one name."""
    servers = dict(data["servers"]) if isinstance(data.get("servers"), dict) else {}
    named = dict(data)
    if "judge" in named:
        named["judge"] = _name_functions(named["judge"], servers)
    for section, key in (("judging", "fallbacks"), ("affect", "judge")):
        if isinstance(named.get(section), dict) and named[section].get(key):
            judges = _name_functions(named[section][key], servers)
            named[section] = {**named[section], key: judges}
    if isinstance(candidates := named.get("candidates"), list | tuple):
        suite = str(data.get("suite", ""))
        named["candidates"] = [_name_candidate(entry, suite, servers) for entry in candidates]
    return {**named, "servers": servers} if servers else named


def _name_candidate(entry: Any, suite: str, servers: dict[str, Any]) -> Any:
    if isinstance(entry, Mapping) and BASELINE in entry:
        if more := sorted(entry.keys() - {BASELINE, "name"}):
            raise ValueError(f"candidates: a baseline has no key {more[0]!r}; leave it out")
        module, name = f"memray_eval.benchmarks.{suite}.baselines", str(entry[BASELINE])
        if not (resources.files("memray_eval") / "benchmarks" / suite / "baselines.py").is_file():
            raise ValueError(f"candidates: suite {suite!r} has no baselines; memory has")
        servers[BASELINE] = {"code": module}
        return {"name": entry.get("name", name), "model": f"{BASELINE}/{name}", "backend": "code"}
    model = entry.get("model") if isinstance(entry, dict) else None
    # A server may call a model llama3:latest
    if isinstance(model, str) and (entry.get("backend") == "code" or ".py:" in model):
        return {**entry, "model": _name_functions(model, servers)}
    return entry


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

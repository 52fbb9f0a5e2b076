"""Judges and candidates that are users' functions, written as `my_judge.py:ask`: each becomes the
function of a named server, my_judge/ask, so that no figure's name holds a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memray_eval.config.sections import EMBEDDED
from memray_eval.extensions import entry_points, split_reference

WORDS = (EMBEDDED, "rules", "auto")  # what a judge may be called that is no model


def name_code(data: Mapping[str, Any]) -> dict[str, Any]:
    """A job's keys with the functions that it names as judges and candidates behind `servers`.
    Raises ValueError where two files would be servers of one name."""
    servers = dict(data["servers"]) if isinstance(data.get("servers"), dict) else {}

    def name(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: name(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [name(one) for one in value]
        if not isinstance(value, str) or value in WORDS or value.startswith(f"{EMBEDDED}:"):
            return value
        reference = split_reference(entry_points().get(value, value))
        if reference is None or not reference[1]:
            return value
        place, function = reference
        stem = Path(place).stem if place.endswith(".py") else place.replace(".", "_")
        server = re.sub(r"[^\w-]", "_", stem)
        known = servers.setdefault(server, {"code": place})
        if (known.get("code") if isinstance(known, dict) else known.code) != place:
            raise ValueError(
                f"{value}: there is another server {server!r}; name this one: "
                f"servers: {{NAME: {{code: {place}}}}}, as NAME/{function}"
            )
        return f"{server}/{function}"

    named = dict(data)
    if "judge" in named:
        named["judge"] = name(named["judge"])
    for section, key in (("judging", "fallbacks"), ("affect", "judge")):
        if isinstance(named.get(section), dict) and named[section].get(key):
            named[section] = {**named[section], key: name(named[section][key])}
    if isinstance(candidates := named.get("candidates"), list | tuple):
        named["candidates"] = [
            {**one, "model": name(one["model"])} if _names_code(one) else one for one in candidates
        ]
    return {**named, "servers": servers} if servers else named


def _names_code(candidate: Any) -> bool:
    """Whether a candidate's model is a function. A server may call a model llama3:latest."""
    if not isinstance(candidate, dict) or not isinstance(candidate.get("model"), str):
        return False
    return candidate.get("backend") == "code" or ".py:" in candidate["model"]

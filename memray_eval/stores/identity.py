"""For whom a candidate is asked: the templates of its `user`, `session`, `headers` and `extra`,
filled in for a sample and an epoch of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memray_eval.config.environment import required_key
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Prompt, Request, Sample

_NAME = re.compile(r"\{(sample|env)\.(\w+)\}|\{(run|candidate|epoch|partition)\}")


def partition_of(run: str, sample_id: str, epoch: int) -> str:
    """What a sample's answer of that number may write to, and nobody else: RUN/SAMPLE/EPOCH."""
    return f"{run}/{sample_id}/{epoch}"


def is_identified(candidate: Candidate) -> bool:
    """Whether what it is asked depends on for whom: a function's may, and what a tool returns."""
    has_tools = candidate.memory is not None and candidate.memory.tools > 0
    if candidate.user or candidate.session or candidate.headers or has_tools:
        return True
    return candidate.backend == "code" or _NAME.search(str(candidate.extra)) is not None


def identify(
    prompt: Prompt, candidate: Candidate, sample: Sample, epoch: int, run: str
) -> tuple[Prompt, Candidate]:
    """The prompt with its Request, and the candidate with its `extra` filled in. Raises ConfigError
    for a field that the sample lacks, or a variable that is not set."""
    values = {"run": run, "candidate": candidate.name, "epoch": str(epoch)}
    values["partition"] = partition_of(run, sample.id, epoch)

    def value(match: re.Match[str]) -> str:
        if match[3]:
            return values[match[3]]
        if match[1] == "env":
            return required_key(match[2], "a header")
        field = sample.metadata.get(match[2], getattr(sample, match[2], None))
        if not isinstance(field, str | int | float) or field == "":
            raise ConfigError(f"the sample has no {match[2]!r}, which {match[0]} names")
        return str(field)

    def fill(part: Any) -> Any:
        if isinstance(part, str):
            return _NAME.sub(value, part)
        if isinstance(part, Mapping):
            return {key: fill(inner) for key, inner in part.items()}
        return [fill(inner) for inner in part] if isinstance(part, list | tuple) else part

    request = Request(
        sample=sample.model_copy(update={"context": None, "answers": ()}),
        user=fill(candidate.user or ""),
        session=fill(candidate.session or ""),
        epoch=epoch,
        headers=fill(candidate.headers),
    )
    filled = candidate.model_copy(update={"extra": fill(candidate.extra)})
    return prompt.model_copy(update={"request": request}), filled


def check_identity(candidate: Candidate) -> None:
    """Raises ConfigError for a variable of the headers that is not set."""
    for name in re.findall(r"\{env\.(\w+)\}", " ".join(candidate.headers.values())):
        required_key(name, f"a header of candidate {candidate.name!r}")

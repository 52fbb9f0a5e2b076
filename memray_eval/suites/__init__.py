"""Every suite, found by its file: suites/<name>.py holds `SUITE`: how a sample becomes a prompt, and what scores it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Message, Sample


@dataclass(frozen=True, kw_only=True)
class Suite:
    """`prompt` builds the chat messages for a candidate; `metrics` are those that a run computes unless told otherwise;
    `prompts` names the prompt variants a candidate may ask for."""

    description: str
    metrics: tuple[str, ...]
    prompt: Callable[[Sample, Candidate], tuple[Message, ...]]
    prompts: tuple[str, ...] = ("default",)
    name: str = ""


@cache
def all_suites() -> dict[str, Suite]:
    found = {}
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        found[file.name] = replace(module.SUITE, name=file.name)
    return found


def get_suite(name: str) -> Suite:
    """The suite of that name. Raises ConfigError that lists the known ones."""
    if name not in all_suites():
        raise ConfigError(f"no suite {name!r}; there are: {', '.join(all_suites())}")
    return all_suites()[name]


def check_prompts(suite: Suite, candidates: tuple[Candidate, ...]) -> None:
    """Raises ConfigError if a candidate asks for a prompt variant that the suite lacks."""
    for candidate in candidates:
        if candidate.prompt not in suite.prompts:
            known = ", ".join(suite.prompts)
            raise ConfigError(
                f"candidate {candidate.name!r}: suite {suite.name!r} has no prompt {candidate.prompt!r}; it has: {known}"
            )

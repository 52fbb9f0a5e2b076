"""Every suite, found by its file: suites/<name>.py holds `SUITE`: how a sample becomes a prompt, and what scores it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Prompt, Sample


def as_it_is(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    return raw


@dataclass(frozen=True, kw_only=True)
class Suite:
    """`prompt` builds what a candidate is asked; `metrics` are those that a run computes unless told otherwise; `prompts`
    names the prompt variants a candidate may ask for.

    `adapt` turns a record in the benchmark's published format, read from the file at `path`, into the fields of a Sample,
    and leaves our own format as it is; it raises ValueError that says what such a record lacks. `tasks` are the suite's, in
    the order of its table. `has_contexts`: its samples carry long contexts, several of them the same one. `templated` makes
    the suite that asks with the benchmark's own templates, read from the folder or file that the user has.
    """

    description: str
    metrics: tuple[str, ...]
    prompt: Callable[[Sample, Candidate], Prompt]
    prompts: tuple[str, ...] = ("default",)
    adapt: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = as_it_is
    tasks: tuple[str, ...] = ()
    has_contexts: bool = False
    templated: Callable[[Suite, str], Suite] | None = None
    name: str = ""


@cache
def all_suites() -> dict[str, Suite]:
    found = {}
    for file in pkgutil.iter_modules(__path__):
        if file.ispkg:  # shared parts, no suite
            continue
        module = importlib.import_module(f"{__name__}.{file.name}")
        found[file.name] = replace(module.SUITE, name=file.name)
    return found


def get_suite(name: str, templates: str | None = None) -> Suite:
    """The suite of that name, asking with the benchmark's own `templates` where the user has them. Raises ConfigError that
    lists the known ones, or says what is wrong with the templates."""
    if name not in all_suites():
        raise ConfigError(f"no suite {name!r}; there are: {', '.join(all_suites())}")
    suite = all_suites()[name]
    if templates is None:
        return suite
    if suite.templated is None:
        raise ConfigError(f"templates: suite {name!r} takes none; leave the key out")
    return suite.templated(suite, templates)


def check_prompts(suite: Suite, candidates: tuple[Candidate, ...]) -> None:
    """Raises ConfigError if a candidate asks for a prompt variant that the suite lacks."""
    for candidate in candidates:
        if candidate.prompt not in suite.prompts:
            known = ", ".join(suite.prompts)
            raise ConfigError(
                f"candidate {candidate.name!r}: suite {suite.name!r} has no prompt {candidate.prompt!r}; it has: {known}"
            )

"""Describes what is wrong with a configuration."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import ValidationError

from memray_eval.types import Frozen

# Keys that jobs had, and what to do instead
WITHDRAWN = {
    "estimates": "no metric has an estimate that a job must ask for; leave the key out, and name "
    "a judge with `judge: PROVIDER/MODEL` for metrics that need one",
    "emotion_words": "the companion metrics have no rules; leave the key out, and name a judge "
    "with `judge: PROVIDER/MODEL`",
}


def describe(error: ValidationError, model: type[Frozen]) -> Iterable[str]:
    """One line for each problem: the dotted key, what is wrong, and the nearest known key if it
    looks misspelt."""
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        if where in WITHDRAWN:
            yield f"{where}: {WITHDRAWN[where]}"
        elif problem["type"] == "extra_forbidden":
            hint = nearest(str(problem["loc"][-1]), known_keys(model))
            yield f"{where}: no such key" + (f"; did you mean {hint!r}?" if hint else "")
        elif problem["type"] == "missing":
            yield f"{where}: missing"
        else:
            text = problem["msg"].removeprefix("Value error, ")
            yield f"{where}: {text}" if where else text


def known_keys(model: type[Frozen]) -> set[str]:
    """The field names of a config model and of all models nested in it."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        names.add(name)
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, Frozen) and inner is not model:
                names |= known_keys(inner)
    return names


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` that `word` most likely misspells, if any."""
    return next(iter(difflib.get_close_matches(word, sorted(words), n=1, cutoff=0.7)), None)

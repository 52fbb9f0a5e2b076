"""The reference of a job's keys: their JSON schema, and a page in Markdown."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memray_eval.config.problems import models_in
from memray_eval.config.schema import JobFile
from memray_eval.types import Frozen

_HEAD = """\
# The keys of a job

Made by `memray-eval schema --markdown`. `memray-eval schema > job.schema.json` writes the JSON
schema of the same, by which editors complete a job whose first line is
`# yaml-language-server: $schema=job.schema.json`. `--set KEY=VALUE` sets any of them.

| key | default | what |
|---|---|---|
"""


class Key(NamedTuple):
    """One key of a job: its dotted path, the model that has it, and its field there."""

    path: str
    owner: type[BaseModel]
    name: str
    field: FieldInfo

    @property
    def description(self) -> str:
        """The text below the field in its class."""
        texts = (_texts_below_fields(model).get(self.name) for model in self.owner.__mro__)
        return next((text for text in texts if text), "")


def job_keys(model: type[BaseModel] = JobFile, before: str = "") -> Iterator[Key]:
    """All keys of a job, those of a section after the section's own."""
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        yield Key(f"{before}{name}", model, name, field)
        for section in models_in(field.annotation):
            yield from job_keys(section, f"{before}{name}.")


def job_schema() -> dict[str, Any]:
    """The JSON schema of a job's YAML, with a description of every key."""
    schema = JobFile.model_json_schema()
    homes = {JobFile.__name__: schema, **schema.get("$defs", {})}
    for key in job_keys():
        homes[key.owner.__name__]["properties"][key.name]["description"] = key.description
    for owner in {key.owner for key in job_keys()}:
        for name, field in owner.model_fields.items():
            if field.exclude:  # it follows from another key
                del homes[owner.__name__]["properties"][name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Job"}


def job_reference() -> str:
    """The page of all keys, a row each."""
    rows = [
        f"| `{key.path}` | {_default_of(key.field)} | {key.description} |" for key in job_keys()
    ]
    return _HEAD + "\n".join(rows) + "\n"


@cache
def _texts_below_fields(model: type) -> dict[str, str]:
    """The string below each field of a class, in one line. Pydantic's `use_attribute_docstrings`
    reads them too, but at every import, which then takes a third longer."""
    if not issubclass(model, Frozen) or model is Frozen:
        return {}
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel) or default in ((), {}, PydanticUndefined):
        return ""
    return f"`{json.dumps(default)}`"

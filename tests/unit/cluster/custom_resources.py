"""KubeRay's custom resource definitions, and Kubernetes' own schemas, as validators: what the
Kubernetes API server would say to a manifest.

The definitions are KubeRay's own, unchanged (tests/data/kuberay-crds/README.md), their rules in CEL
left out; Kubernetes' are strict already (tests/data/kubernetes-schemas/README.md). A structural
schema says less than a JSON schema must, so `strict` adds what the API server does by itself:
unknown keys are refused (as `kubectl apply` does), an int-or-string is one of both, and an int32
has its bounds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from tests.conftest import REPOSITORY

CRDS = REPOSITORY / "tests" / "data" / "kuberay-crds"
KUBERNETES = REPOSITORY / "tests" / "data" / "kubernetes-schemas" / "v1.34.json.gz"
INT32 = {"minimum": -(2**31), "maximum": 2**31 - 1}
# KubeRay appends to it
NAMED = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 47},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def refusals(manifest: dict[str, Any]) -> list[str]:
    """Why the API server would refuse a RayCluster or a RayJob: one line a reason, with its path;
    none when it would not."""
    schema = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": ["RayCluster", "RayJob"]}},
    }
    if wrong_kind := [
        error.message for error in Draft202012Validator(schema).iter_errors(manifest)
    ]:
        return wrong_kind
    return [
        f"{error.json_path}: {error.message}"
        for error in _validator(manifest["kind"]).iter_errors(manifest)
    ]


def core_refusals(manifest: dict[str, Any]) -> list[str]:
    """The same for an object of Kubernetes' own kinds. Raises KeyError for a kind that
    tests/data/kubernetes-schemas lacks."""
    with gzip.open(KUBERNETES) as file:
        schemas = json.load(file)
    schema = schemas["kinds"][manifest["kind"]] | {"$defs": schemas["$defs"]}
    schema["required"] = [*schema.get("required", []), "apiVersion", "kind", "metadata"]
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(manifest)
    ]


@cache
def _validator(kind: str) -> Any:
    with gzip.open(CRDS / f"ray.io_{kind.lower()}s.yaml.gz") as file:
        definition = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    version = next(version for version in definition["spec"]["versions"] if version["name"] == "v1")
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema["properties"] |= {"apiVersion": {"const": "ray.io/v1"}, "metadata": NAMED}
    return extend(Draft202012Validator, {"x-kubernetes-list-map-keys": _distinct})(schema)


def strict(schema: Any) -> Any:
    """A structural schema as a JSON schema."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: strict(value) if key != "properties" else _strict_properties(value)
        for key, value in schema.items()
    }
    if "properties" in schema and "additionalProperties" not in schema:
        result["additionalProperties"] = bool(
            schema.get("x-kubernetes-preserve-unknown-fields", False)
        )
    if schema.get("x-kubernetes-int-or-string") is True:
        result["type"] = ["integer", "string"]
    if schema.get("format") == "int32":
        result = INT32 | result
    if schema.get("nullable") is True:
        result["type"] = [result["type"], "null"]
    return result


def _strict_properties(properties: dict[str, Any]) -> dict[str, Any]:
    """Below `properties` stand names, not keywords: one that is called `format` is no format."""
    return {name: strict(schema) for name, schema in properties.items()}


def _distinct(
    _: Any, keys: list[str], items: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    """A list that is a map: two items with the same keys are one too many."""
    defaults = {key: schema["items"]["properties"][key].get("default") for key in keys}
    seen = [
        tuple(item.get(key, defaults[key]) for key in keys)
        for item in items
        if isinstance(item, dict)
    ]
    if twice := {item for item in seen if seen.count(item) > 1}:
        yield ValidationError(f"twice in one list: {twice}")


def read(path: Path) -> dict[str, Any]:
    """The one document of a YAML file."""
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document

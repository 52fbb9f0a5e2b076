"""The manifests of cluster/kuberay as a team applies them, and the API server's schemas.

The definitions are KubeRay's own (tests/data/kuberay-crds), their rules in CEL left out, and
Kubernetes' (tests/data/kubernetes-schemas)."""

import gzip
import json
from functools import cache
from string import Template
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from tests.conftest import REPOSITORY

CLUSTER, DATA = REPOSITORY / "cluster", REPOSITORY / "tests" / "data"
MANIFESTS = ("access", "storage", "smoke", "rayjob", "raycluster", "podmonitor")
# What an administrator or a registry fills in
FILLED = {
    "IMAGE": "registry.example/memray-eval@sha256:" + "0" * 64,
    "OUT": "s3://memray-eval-runs/runs",
    "CACHE_CLASS": "shared",
}


def team_values(**changed: str) -> dict[str, str]:
    """team.env, filled in, with some values changed."""
    lines = (CLUSTER / "kuberay" / "team.env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line[0] != "#") | FILLED | changed


def documents(name: str, **changed: str) -> list[dict[str, Any]]:
    """A manifest with team.env's values, as envsubst puts them in. Raises KeyError for a name that
    team.env lacks."""
    text = (CLUSTER / "kuberay" / f"{name}.yaml").read_text("utf-8")
    return list(yaml.safe_load_all(Template(text).substitute(team_values(**changed))))


def refusals(resource: dict[str, Any]) -> list[str]:
    """Why the API server would refuse an object: one line a reason, with its path. Raises KeyError
    for a kind without a schema."""
    errors = Draft202012Validator(_schema(resource["kind"])).iter_errors(resource)
    return [f"{error.json_path}: {error.message}" for error in errors]


@cache
def _schema(kind: str) -> dict[str, Any]:
    with gzip.open(DATA / "kubernetes-schemas" / "v1.34.json.gz") as file:
        kubernetes = json.load(file)
    if kind not in {"RayJob", "RayCluster"}:
        return {"required": ["apiVersion"], "$defs": kubernetes["$defs"]} | kubernetes["kinds"][
            kind
        ]
    with gzip.open(DATA / "kuberay-crds" / f"ray.io_{kind.lower()}s.yaml.gz") as file:
        definition = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = [item for item in definition["spec"]["versions"] if item["name"] == "v1"]
    schema: dict[str, Any] = strict(version["schema"]["openAPIV3Schema"])
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema["properties"] |= {"apiVersion": {"const": "ray.io/v1"}, "metadata": {"type": "object"}}
    return schema


def strict(schema: Any) -> Any:
    """A structural schema as a JSON schema that, like the API server, refuses unknown keys, takes
    an int-or-string as both, and bounds an int32."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(value) for key, value in schema.items() if key != "properties"}
    if properties := schema.get("properties"):  # names, not keywords
        result["properties"] = {name: strict(value) for name, value in properties.items()}
        open_ended = schema.get("x-kubernetes-preserve-unknown-fields", False)
        result.setdefault("additionalProperties", open_ended)
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if schema.get("format") == "int32":
        result = {"minimum": -(2**31), "maximum": 2**31 - 1} | result
    if schema.get("nullable"):
        result["type"] = [result["type"], "null"]
    return result


def edited(resource: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one key set, or taken out if the value is None; a number steps into a list."""
    # Not deepcopy: what an anchor shares must come apart, or one edit changes every container
    resource = json.loads(json.dumps(resource))
    node: Any = resource
    *parents, last = path.split(".")
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return resource

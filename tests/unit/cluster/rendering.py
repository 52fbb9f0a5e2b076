"""The manifests of cluster/kuberay as a team applies them: team.env's values put in, as envsubst
does."""

from __future__ import annotations

import re
from string import Template
from typing import Any

import yaml

from tests.conftest import REPOSITORY

KUBERAY = REPOSITORY / "cluster" / "kuberay"
MANIFESTS = ("access", "storage", "smoke", "rayjob", "raycluster", "podmonitor")
# What an administrator or a registry fills in
FILLED = {
    "IMAGE": "registry.example/memray-eval@sha256:" + "0" * 64,
    "OUT": "s3://memray-eval-runs/runs",
    "CACHE_CLASS": "shared",
}


def team_values(**changed: str) -> dict[str, str]:
    """team.env, filled in, with some values changed."""
    lines = (KUBERAY / "team.env").read_text("utf-8").splitlines()
    values = dict(
        re.fullmatch(r"([A-Z_]+)=(.*)", line).groups() for line in lines if line[0] != "#"
    )  # type: ignore[union-attr]
    return values | FILLED | changed


def rendered(name: str, **changed: str) -> str:
    """A manifest's text. A name that team.env lacks is a KeyError."""
    return Template((KUBERAY / f"{name}.yaml").read_text("utf-8")).substitute(
        team_values(**changed)
    )


def documents(name: str, **changed: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(rendered(name, **changed)))


def document(name: str, kind: str, **changed: str) -> dict[str, Any]:
    """The one object of that kind in a manifest."""
    (match,) = [resource for resource in documents(name, **changed) if resource["kind"] == kind]
    return match

"""No file of cluster/ holds a key; what holds keys is named, never written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.unit.cluster.secret_values import in_manifest, in_text

FILES = sorted(path for path in (REPOSITORY / "cluster").rglob("*") if path.is_file())
MADE_UP = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z0"


def test_there_are_files_to_look_at() -> None:
    assert {
        "Dockerfile",
        "README.md",
        "rayjob.yaml",
        "aws.yaml",
        "gcp.yaml",
        "memray_eval.json",
    } <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_key_stands_in_it(file: Path) -> None:
    text = file.read_text("utf-8")
    assert in_text(text) == []
    if file.suffix in {".yaml", ".json"}:
        assert [
            secret for document in yaml.safe_load_all(text) for secret in in_manifest(document)
        ] == []


@pytest.mark.parametrize(
    "text",
    [
        f"sk-{MADE_UP}",
        f"key: sk-ant-api03-{MADE_UP}",
        f"AIza{MADE_UP}",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        f"hf_{MADE_UP}",
        f"ghp_{MADE_UP}",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "s3://user:password@host/x",
        f"export OPENAI_API_KEY={MADE_UP}",
        f"- --env OPENAI_API_KEY={MADE_UP}",
    ],
)
def test_a_key_in_a_text_is_found(text: str) -> None:
    assert in_text(f"first line\n{text}\n")


@pytest.mark.parametrize(
    "text",
    [
        "OPENAI_API_KEY=...",
        "RAY_AUTH_TOKEN=$(openssl rand -hex 32)",
        "ANTHROPIC_API_KEY=<your key>",
    ],
)
def test_a_place_for_a_key_is_none(text: str) -> None:
    assert in_text(text) == []


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Secret", "stringData": {"x": "y"}},
        {"env": [{"name": "OPENAI_API_KEY", "value": "x"}]},
        {"data": {"HF_TOKEN": "x"}},
        {"provider": {"gcp_credentials": "x"}},
    ],
)
def test_a_secret_by_value_is_found(document: dict[str, Any]) -> None:
    assert list(in_manifest(document))


def test_a_secret_by_reference_is_none() -> None:
    by_reference = {
        "name": "OPENAI_API_KEY",
        "valueFrom": {"secretKeyRef": {"name": "memray-eval-keys", "key": "x"}},
    }
    assert (
        list(
            in_manifest(
                {"env": [by_reference], "envFrom": [{"secretRef": {"name": "memray-eval-keys"}}]}
            )
        )
        == []
    )

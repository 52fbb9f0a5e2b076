"""Which proxies of the environment a job's calls go through."""

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.prepare.checks import proxied
from memray_eval.execution.prepare.resolve import resolve

JOB = {
    "suite": "chat",
    "dataset": "x.jsonl",
    "candidates": [
        {"name": "c", "model": "m", "backend": "openai", "base_url": "http://models.lan:8000/v1"}
    ],
    "metrics": ["empathy"],
    "judge": "anthropic/claude-sonnet-5",
}
NAMES = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, NO_PROXY"
JUDGE, PROXY = "api.anthropic.com", "http://proxy.lan:3128"


@pytest.mark.parametrize(
    ("variables", "ways"),
    [
        ({}, []),
        ({"HTTPS_PROXY": "http://user:secret@proxy.lan:3128"}, [(JUDGE, "proxy.lan:3128")]),
        ({"HTTP_PROXY": PROXY}, [("models.lan", "proxy.lan:3128")]),
        ({"ALL_PROXY": "proxy.lan:1080", "NO_PROXY": ".lan"}, [(JUDGE, "proxy.lan:1080")]),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, []),
    ],
)
def test_a_proxy_is_said_without_its_password(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], ways: list[tuple[str, str]]
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in {"ANTHROPIC_API_KEY": "k", **variables}.items():
        monkeypatch.setenv(name, value)
    assert proxied(resolve(RunConfig.model_validate(JOB))) == [
        f"Calls to {host} go through the proxy {proxy}, which the environment names ({NAMES})."
        for host, proxy in ways
    ]

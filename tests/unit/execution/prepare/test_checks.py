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


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, []),
        (
            {"HTTPS_PROXY": "http://user:secret@proxy.lan:3128"},
            [
                "Calls to api.anthropic.com go through the proxy proxy.lan:3128, which the "
                f"environment names ({NAMES})."
            ],
        ),
        (
            {"HTTP_PROXY": "http://proxy.lan:3128"},
            [
                "Calls to models.lan go through the proxy proxy.lan:3128, which the environment "
                f"names ({NAMES})."
            ],
        ),
        (
            {"ALL_PROXY": "proxy.lan:1080", "NO_PROXY": ".lan"},
            [
                "Calls to api.anthropic.com go through the proxy proxy.lan:1080, which the "
                f"environment names ({NAMES})."
            ],
        ),
        ({"HTTPS_PROXY": "http://proxy.lan:3128", "NO_PROXY": "*"}, []),
    ],
)
def test_a_proxy_is_said_without_its_password(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: list[str]
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in {"ANTHROPIC_API_KEY": "k", **variables}.items():
        monkeypatch.setenv(name, value)
    assert proxied(resolve(RunConfig.model_validate(JOB), False)) == said

"""With the providers' debug logs on, neither a prompt, a reply nor a key reaches a log."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.servers.provider import serving

ASK = """
import asyncio, logging, sys
from pydantic import BaseModel
from memray_eval.judges.adapter import JudgeSpec
from memray_eval.provider_http import closing_clients
from memray_eval.types import Message
from tests.fake_judges import judge_behind, unlimited
logging.basicConfig(level=logging.DEBUG)

class Rating(BaseModel):
    score: int

@closing_clients()
async def main():
    provider, url = sys.argv[1:]
    spec = JudgeSpec(name=f"{provider}/m", model="m", base_url=url, key="sk-test-secret")
    judge = judge_behind(provider, spec, unlimited())
    messages = (Message(role="system", content="rubric"), Message(role="user", content="PROMPT-OF-THE-USER"))
    print(await judge.judge(messages, Rating))

asyncio.run(main())
"""  # noqa: E501


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_debug_logs_hold_no_prompt_and_no_key(provider: str) -> None:
    with serving(lambda request: json.dumps({"score": 3})) as server:
        url = server.base_url if provider == "openai" else server.root
        debug = {"OPENAI_LOG": "debug", "ANTHROPIC_LOG": "debug", "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            [sys.executable, "-c", ASK, provider, url],
            env=os.environ | debug,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert "score=3" in done.stdout, done.stderr
    assert "PROMPT-OF-THE-USER" not in done.stderr
    assert "sk-test-secret" not in done.stderr

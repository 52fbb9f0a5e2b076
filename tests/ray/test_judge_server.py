"""The embedded judge's server dies: it is started again at the same address, calls wait for it, and
one that dies for good is told with the end of its log."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from memray_eval.config.sections import EngineConfig, JudgingConfig
from memray_eval.execution.ray.judge_server import RESTARTS, judge_server
from memray_eval.judges.judge_factory import Services, build_judges
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.router import JudgeAssignment
from memray_eval.types import Message

MESSAGES = (
    Message(role="system", content="The rubric."),
    Message(role="user", content="What is said?"),
)
# In vLLM's place: answers /health and judges, says which process it is, and dies as its folder says
SERVER = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

folder, host, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
(folder / "pids").open("a").write(f"{os.getpid()}\\n")
if (folder / "broken").exists():
    print("no kernel image is available", flush=True)
    sys.exit(7)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}")

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": json.dumps({"score": os.getpid()})}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        said = {"id": "c", "object": "chat.completion", "created": 0, "model": "judge"}
        self.answer(json.dumps(said | {"choices": [choice], "usage": usage}).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

ThreadingHTTPServer((host, port), Handler).serve_forever()
"""


class Rating(BaseModel):
    score: int


def server_command(model: str, engine: EngineConfig, host: str, port: int) -> list[str]:
    return [sys.executable, "-c", SERVER, model, host, str(port)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the server takes for its model."""
    return tmp_path


def pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def ask(url: str, n_calls: int) -> set[int]:
    """The processes that answered so many calls."""
    services = Services(
        limiter=Limiter(), member="a", say=lambda line: None, embedded_url=url, max_in_flight=4
    )
    ((judge,),) = build_judges(
        {"m": JudgeAssignment(metric="m", judge="embedded", why="")}, JudgingConfig(), services
    ).values()
    try:
        verdicts = await asyncio.gather(*(judge.judge(MESSAGES, Rating) for _ in range(n_calls)))
    finally:
        await judge._judges[0]._judge.aclose()  # type: ignore[attr-defined]
    return {verdict.judgment.score for verdict in verdicts}  # type: ignore[attr-defined]


def test_a_server_that_dies_is_started_again_and_calls_wait_for_it(folder: Path) -> None:
    lines, deaths = list[str](), list[str]()
    serving = judge_server(
        str(folder), EngineConfig(), "cpu", deaths.append, lines.append, server_command
    )
    with serving as url:
        assert url is not None
        assert asyncio.run(ask(url, 3)) == set(pids(folder))
        os.kill(pids(folder)[0], signal.SIGKILL)
        answered_by = asyncio.run(ask(url, 12))
        assert len(pids(folder)) == 2
        assert answered_by == {pids(folder)[1]}
    assert deaths == []
    (line,) = lines
    assert line.startswith("the server of the embedded judge ended with code -9; its log: ")
    assert line.endswith("it is started again (1 of 3)")
    for pid in pids(folder):
        assert not os.path.exists(f"/proc/{pid}")


def test_a_server_that_dies_again_and_again_is_told_with_the_end_of_its_log(folder: Path) -> None:
    deaths, is_dead = list[str](), threading.Event()

    def died(reason: str) -> None:
        deaths.append(reason)
        is_dead.set()

    lines = list[str]()
    serving = judge_server(str(folder), EngineConfig(), "cpu", died, lines.append, server_command)
    with serving:
        (folder / "broken").touch()
        os.kill(pids(folder)[0], signal.SIGKILL)
        assert is_dead.wait(60)
        time.sleep(1.0)
    assert len(pids(folder)) == 1 + RESTARTS
    assert len(lines) == RESTARTS
    (reason,) = deaths
    assert reason.startswith("the server of the embedded judge ended with code 7; its log: ")
    assert reason.endswith("\n  no kernel image is available")

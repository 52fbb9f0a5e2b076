"""`memray-eval view` over real HTTP: what it answers, and what it turns away."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from memray_eval.errors import ConfigError
from memray_eval.report.view import serving, viewing
from memray_eval.results.run_folder import RunFolder
from tests.runs import ATTACK, hostile_records, plain_records, write_run

STARTS_WITHIN_S = 120
Asked = tuple[int, dict[str, str], str]
Ask = Callable[..., Awaitable[Asked]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_run(
        tmp_path_factory.mktemp("view") / "run", [*plain_records(96), *hostile_records()], 100
    )


def asking(run: RunFolder, steps: Callable[[Ask], Awaitable[None]]) -> None:
    """Runs the steps against a server of the run; `ask(path, method=, headers=, **query)` is one
    request."""

    async def whole() -> None:
        with viewing(run) as view:
            async with serving(view) as url, aiohttp.ClientSession() as session:

                async def ask(
                    path: str,
                    method: str = "GET",
                    headers: dict[str, str] | None = None,
                    **query: str,
                ) -> Asked:
                    where = (
                        URL(url[:-1] + path, encoded=True)
                        if not query
                        else URL(url[:-1] + path).with_query(query)
                    )
                    async with session.request(method, where, headers=headers) as answer:
                        return answer.status, dict(answer.headers), await answer.text()

                await steps(ask)

    asyncio.run(whole())


def test_the_page_the_list_and_a_sample(run: RunFolder) -> None:
    async def steps(ask: Ask) -> None:
        status, headers, page = await ask("/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "memory-small-20261122" in page
        status, headers, text = await ask(
            "/data/units", metric="0", sort="m0-", size="5", candidate="1"
        )
        listed = json.loads(text)
        assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
        assert listed["n"] == 32
        assert listed["index"]["total"] == 100
        values = [
            dict((score[0], score[2:]) for score in row[8])[0][0] for _, row in listed["rows"]
        ]
        assert values == sorted(values, reverse=True)
        status, _, text = await ask("/data/unit", id=listed["rows"][0][0])
        assert status == 200
        assert "This is answer" in json.loads(text)["response"]
        status, _, text = await ask("/data/unit", id="nowhere")
        assert (status, "no unit 'nowhere'" in json.loads(text)["error"]) == (404, True)
        status, headers, text = await ask("/", method="HEAD")
        assert (status, text) == (200, "")
        assert int(headers["Content-Length"]) == len(page.encode())

    asking(run, steps)


def test_a_query_that_makes_no_sense_is_refused_and_its_field_named(run: RunFolder) -> None:
    async def steps(ask: Ask) -> None:
        for query in ({"sort": "m0+, (SELECT 1)"}, {"candidate": "1 OR 1=1"}, {"drop": "1"}):
            status, _, text = await ask("/data/units", **query)
            assert status == 400
            assert next(iter(query)) in json.loads(text)["error"]
        for text in ("'; DROP TABLE units; --", "_leep", "\x00"):
            status, _, answer = await ask("/data/units", text=text)
            assert (status, json.loads(answer)["n"]) == (200, 0), text
        assert (await ask("/data/units?text=%ED%A0%80"))[0] == 200

    asking(run, steps)


def test_no_text_of_the_run_ends_its_json(run: RunFolder) -> None:
    async def steps(ask: Ask) -> None:
        _, _, text = await ask("/data/units", text="a-attack")
        assert "<" not in text
        assert json.loads(text)["rows"][0][1][5].startswith(ATTACK[:100])

    asking(run, steps)


def test_a_part_that_breaks_is_an_answer_and_the_server_stays(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", plain_records(2000), 2000)
    broken, _ = sorted((tmp_path / "run" / "records").iterdir())

    async def steps(ask: Ask) -> None:
        units = [unit for unit, _ in json.loads((await ask("/data/units"))[2])["rows"]]
        broken.write_bytes(b"PAR1")
        status, _, text = await ask("/data/unit", id=units[0])
        assert status == 500
        assert json.loads(text)["error"].startswith(f"{broken.name} of the records cannot be read")
        assert (await ask("/data/units", text="this is"))[0] == 500
        page = json.loads((await ask("/data/units", fresh="1"))[2])
        assert page["n"] == 1000
        assert f"{broken.name} of the records cannot be read" in page["notice"]
        assert (await ask("/"))[0] == 200  # as it was: its figures are over all of the records
        (tmp_path / "run" / "summary.json").write_text("{}")
        status, _, text = await ask("/")
        assert (status, "is not a summary" in text) == (500, True)
        broken.unlink()
        (tmp_path / "run" / "summary.json").unlink()
        assert (await ask("/"))[0] == 200
        assert json.loads((await ask("/data/units"))[2])["notice"] == ""

    asking(run, steps)


def test_questions_at_once_are_each_answered(run: RunFolder) -> None:
    async def steps(ask: Ask) -> None:
        searches = [ask("/data/units", text=f"this is answer {n}.", sort="m1-") for n in range(40)]
        ends = await asyncio.gather(*searches, *(ask("/data/units", fresh="1") for _ in range(5)))
        assert [json.loads(text)["n"] for _, _, text in ends] == [1] * 40 + [100] * 5

    asking(run, steps)


def test_a_port_that_is_taken_is_said(run: RunFolder) -> None:
    async def start(port: int) -> None:
        with viewing(run) as view:
            async with serving(view, port):
                pytest.fail("it listens at a port that is taken")

    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="give another with --port"),
    ):
        asyncio.run(start(taken.getsockname()[1]))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "memray_eval", "view", *words]
    return subprocess.run(called, capture_output=True, text=True, timeout=STARTS_WITHIN_S)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    nothing = command(str(tmp_path / "none"))
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "has no manifest.json" in nothing.stderr
    run = write_run(tmp_path / "run", plain_records(3), 3)
    assert command(run.path, "--host", "0.0.0.0").returncode == 2
    next((tmp_path / "run" / "records").iterdir()).write_bytes(b"")
    broken = command(run.path)
    assert broken.returncode == 2
    assert "cannot be read" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_the_browser_is_opened_when_that_is_asked(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "browser").write_text(
        f"#!/bin/sh\necho $1 > {tmp_path}/told && mv {tmp_path}/told {tmp_path}/opened\n"
    )
    (tmp_path / "browser").chmod(0o755)
    called: list[Any] = [sys.executable, "-m", "memray_eval", "view", run.path, "--open"]
    environment = {**os.environ, "BROWSER": f"{tmp_path}/browser %s"}
    with subprocess.Popen(called, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        ends = time.monotonic() + STARTS_WITHIN_S
        while not (tmp_path / "opened").exists() and time.monotonic() < ends:
            time.sleep(0.05)
        process.terminate()
    assert (tmp_path / "opened").read_text().strip() == url


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_interrupted(run: RunFolder, number: signal.Signals) -> None:
    called: list[Any] = [sys.executable, "-m", "memray_eval", "view", run.path]
    with subprocess.Popen(
        called, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        # The end of the output, an empty line, where it did not start
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)

        async def ask() -> int:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status

        assert asyncio.run(ask()) == 200
        process.send_signal(number)
        _, errors = process.communicate(timeout=STARTS_WITHIN_S)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors

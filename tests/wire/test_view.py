"""`memray-eval view` over real HTTP: the list, its events, runs at their addresses, comparisons,
and what is turned away."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import aiohttp
import pytest
from yarl import URL

from memray_eval.errors import ConfigError
from memray_eval.report import run_view
from memray_eval.report.run_view import open_view
from memray_eval.report.runs_list import RunList
from memray_eval.report.view_server import serving, serving_runs
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from tests.build import run_command
from tests.runs import ATTACK, candidates, hostile_records, plain_records, record, write_run
from tests.servers.s3 import serving_s3
from tests.unit.report.test_view_runs import manifest, unfinished

WITHIN_S = 120
Asked = tuple[int, dict[str, str], str]
Ask = Callable[..., Awaitable[Asked]]


@asynccontextmanager
async def asking(folder: object) -> AsyncIterator[tuple[Ask, str]]:
    """A function that makes one request to a server of the folder's runs, and the server's URL."""
    async with serving_runs(RunList(str(folder))) as url, aiohttp.ClientSession() as session:

        async def ask(path: str, method: str = "GET", **headers: str) -> Asked:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            where = URL(url[:-1] + path, encoded=True)
            async with session.request(
                method, where, headers=sent, allow_redirects=False
            ) as answer:
                return answer.status, dict(answer.headers), await answer.text()

        yield ask, url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("runs")
    for name in ("run-a", "run-b"):
        run = write_run(work / "runs" / name, [*plain_records(96), *hostile_records()], 100)
        run.write_manifest(manifest("finished"))
    write_run(work / "runs" / "odd <b> & 'name'", plain_records(3), 3)
    bad = write_run(work / "runs" / "bad", plain_records(3), 3)
    Path(bad.path, "manifest.json").write_text(f'"{ATTACK}')
    write_run(work / "secret", plain_records(3), 3)
    return work / "runs"


async def test_the_list_names_every_run_and_ends_no_script(folder: Path) -> None:
    async with asking(folder) as (ask, _):
        status, headers, page = await ask("/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "connect-src 'self'" in page.replace("&#39;", "'")
        assert page.count("</script>") == 2
        rows = page.partition('id="rows">')[2].partition("</script>")[0]
        assert {row["id"]: row["status"] for row in json.loads(rows)} == {
            "run-a": "finished", "run-b": "finished", "odd <b> & 'name'": "finished",
            "bad": "damaged",
        }  # fmt: skip


async def test_a_run_has_its_page_and_its_samples_at_its_own_address(folder: Path) -> None:
    async with asking(folder) as (ask, _):
        status, headers, _ = await ask("/run/run-a")
        assert (status, headers["Location"]) == (302, "/run/run-a/")
        status, headers, page = await ask("/run/run-a/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert 'href="../../"' in page
        status, headers, text = await ask("/run/run-a/", "HEAD")
        assert (status, text, headers["Content-Length"]) == (200, "", str(len(page.encode())))
        at = "/run/run-a/data"
        status, headers, text = await ask(f"{at}/units?metric=0&sort=m0-&size=5&candidate=1")
        assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
        listed = json.loads(text)
        assert (listed["n"], len(listed["rows"]), listed["index"]["total"]) == (32, 5, 100)
        values = [{score[0]: score[2:] for score in row[8]}[0] for _, row in listed["rows"]]
        assert values == sorted(values, reverse=True)
        status, _, text = await ask(f"{at}/unit?id={listed['rows'][0][0]}")
        assert (status, "This is answer" in json.loads(text)["response"]) == (200, True)
        status, _, text = await ask(f"{at}/unit?id=nowhere")
        assert (status, "no unit 'nowhere'" in json.loads(text)["error"]) == (404, True)
        _, _, text = await ask(f"{at}/units?text=a-attack")  # no text of the run ends its JSON
        assert "<" not in text
        assert json.loads(text)["rows"][0][1][5].startswith(ATTACK[:100])
        odd = "/run/odd%20%3Cb%3E%20%26%20%27name%27"
        where = URL((await ask(odd))[1]["Location"], encoded=True)
        assert where.path == "/run/odd <b> & 'name'/"
        assert json.loads((await ask(f"{odd}/data/units"))[2])["n"] == 3


async def test_a_query_that_makes_no_sense_is_refused_and_its_field_named(folder: Path) -> None:
    async with asking(folder) as (ask, _):
        at = "/run/run-a/data/units?"
        for query in ("sort=m0%2B,%20(SELECT%201)", "candidate=1%20OR%201=1", "drop=1"):
            status, _, text = await ask(at + query)
            assert (status, query.partition("=")[0] in json.loads(text)["error"]) == (400, True)
        for words in ("';%20DROP%20TABLE%20units;%20--", "_leep", "%00"):
            status, _, answer = await ask(f"{at}text={words}")
            assert (status, json.loads(answer)["n"]) == (200, 0), words
        assert (await ask(f"{at}text=%ED%A0%80"))[0] == 200
        searches = [ask(f"{at}text=this%20is%20answer%20{n}.&sort=m1-") for n in range(40)]
        ends = await asyncio.gather(*searches, *(ask(f"{at}fresh=1") for _ in range(5)))
        assert [json.loads(text)["n"] for _, _, text in ends] == [1] * 40 + [100] * 5


ELSEWHERE = """..%2fsecret %2e%2e%2fsecret .. . %2fetc run-a%2f..%2f..%2fsecret ..%5csecret none %00
    run-a%00 %ff secret run-a%2frecords""".split()


async def test_no_id_leads_out_of_the_folder(folder: Path) -> None:
    async with asking(folder) as (ask, _):
        for name in ELSEWHERE:
            for rest in ("", "/", "/data/units", "/events"):
                status, _, text = await ask(f"/run/{name}{rest}")
                assert status == 404, (name, rest, text[:200])
                assert "This is answer" not in text
            status, _, text = await ask(f"/compare?run={name}&run=run-a")
            assert status == 404, name
        for path in ("/run/../secret/", "/run/", "/data/units", "/run/run-a/manifest.json",
                     "/run/run-a/data/", "/../../etc/passwd", "/..%2f..%2f..%2fetc/passwd",
                     "/data/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/run.yaml",
                     "/run/run-a/data/units/../../manifest.json", "/static/page.css",
                     "/run/run-a/data/unit?id=../../../../etc/passwd"):  # fmt: skip
            status, _, text = await ask(path)
            assert (status, "root:" in text) == (404, False), path


async def test_what_cannot_be_shown_is_a_page_that_says_why(folder: Path) -> None:
    async with asking(folder) as (ask, _):
        status, headers, page = await ask("/run/bad/")
        assert (status, "manifest.json is not JSON" in page) == (500, True)
        assert "<img" not in page
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        status, _, text = await ask("/run/bad/data/units")
        assert (status, "is not JSON" in json.loads(text)["error"]) == (500, True)
        compared = "run=run-b%3Asmall-t0.5&amp;run=run-a%3Asmall-t0.5"  # the other way round
        status, _, page = await ask("/compare?run=run-a:small-t0.5&run=run-b:small-t0.5")
        assert (status, f"compare?{compared}" in page) == (200, True)
        status, _, page = await ask("/compare?run=run-a:small-t0")
        assert (status, "pick two or more" in page) == (400, True)
        status, _, page = await ask("/compare?run=run-a:nobody&run=run-b")
        assert (status, "no candidate" in page) == (400, True)


OTHER_HOSTS = """evil.example evil.example:80 127.0.0.1.evil.example localhost.evil.example:1 [::1]
    0.0.0.0 x@127.0.0.1""".split()
SAFE = {
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


async def test_only_this_server_s_pages_may_ask_and_only_to_read(folder: Path) -> None:
    paths = ("/events", "/run/run-a/data/units", "/run/run-a/events")
    pages = ("/", "/run/run-a/", "/compare?run=run-a:small-t0&run=run-b:small-t0")
    async with asking(folder) as (ask, _):
        for site in ("cross-site", "same-site"):
            for path in paths:
                assert (await ask(path, Sec_Fetch_Site=site))[0] == 403, path
            for path in pages:  # a link that somebody follows
                assert (await ask(path, Sec_Fetch_Site=site))[0] == 200, path
        for host in ("localhost", "127.0.0.1:9", "localhost:65535"):  # a port may be forwarded
            assert (await ask("/run/run-a/data/units", Host=host))[0] == 200
        assert (await ask("/run/run-a/data/units", Sec_Fetch_Site="same-origin"))[0] == 200
        for path in (*paths, *pages):
            for host in OTHER_HOSTS:
                status, _, text = await ask(path, Host=host)
                assert (status, "rotating" in text) == (421, False), (path, host)
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
                assert (await ask(path, method))[0] == 405, path
            status, headers, text = await ask(path, "HEAD")
            assert (status, text) == (200, ""), path
            assert SAFE.items() <= headers.items()
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert not [name for name in headers if name.lower().startswith("access-control")]
        policy = (await ask("/run/run-a/data/units"))[1]["Content-Security-Policy"]
        assert "default-src 'none'" in policy


async def _events(url: str, path: str, n: int, then: Callable[[int], None]) -> list[Any]:
    """The first `n` events of a stream; `then` is called after each with how many there were."""
    events: list[Any] = []
    async with (
        aiohttp.ClientSession() as session,
        session.get(url[:-1] + path, timeout=aiohttp.ClientTimeout(WITHIN_S)) as answer,
    ):
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        async for line in answer.content:
            if line.startswith(b"data: "):
                events.append(json.loads(line.removeprefix(b"data: ")))
                then(len(events))
                if len(events) == n:
                    return events
    pytest.fail("the stream has ended")


async def test_the_list_hears_of_runs_that_come_change_and_go(tmp_path: Path) -> None:
    write_run(tmp_path / "one", plain_records(3), 3)
    write_run(tmp_path / "two", plain_records(3), 3)

    def change(n: int) -> None:
        if n == 1:
            write_run(tmp_path / "three", plain_records(3), 3)
        if n == 2:
            shutil.rmtree(tmp_path / "two")
        if n == 3:
            (tmp_path / "one" / "manifest.json").write_text("{")

    async with asking(tmp_path) as (_, url):
        first, came, gone, broke = await _events(url, "/events", 4, change)
        assert (first["all"], {row["id"] for row in first["rows"]}) == (True, {"one", "two"})
        assert "three" in {row["id"] for row in came["rows"]}
        assert gone["gone"] == ["two"]
        assert [(row["id"], row["status"]) for row in broke["rows"]] == [("one", "damaged")]


async def test_a_run_s_page_hears_how_far_it_is_and_that_it_ended(tmp_path: Path) -> None:
    run = unfinished(tmp_path / "run", "running", 3)
    summary = write_run(tmp_path / "other", plain_records(3), 3).read_summary()

    def change(n: int) -> None:
        if n == 1:
            run.write_part(to_table([record("late", "x", candidates()[0])]))

    async with asking(tmp_path) as (_, url):
        with run.held():
            *_, last = await _events(url, "/run/run/events", 2, change)
            while last.get("n_done") != 4:
                *_, last = await _events(url, "/run/run/events", 1, change)
            assert (last["status"], last["n_units"]) == ("running", 30)
            run.write_summary(summary, "")
            run.write_manifest(manifest("finished"))
        while last.get("status") != "finished":
            (last,) = await _events(url, "/run/run/events", 1, change)
        assert (last["status"], "is_so_far" in last) == ("finished", False)


async def test_nobody_looks_at_the_folder_while_nobody_listens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = MagicMock(side_effect=RunList._look)
    monkeypatch.setattr(RunList, "_look", lambda runs: look(runs))
    async with asking(folder) as (_, url):
        began = time.monotonic()
        streams = [_events(url, "/events", 1, lambda n: None) for _ in range(5)]
        await asyncio.gather(*streams)
        n = look.call_count
        assert n <= 2 + time.monotonic() - began  # five listeners, a look a second
        await asyncio.sleep(2.5)
        assert look.call_count == n


async def test_runs_in_the_cloud_are_listed_and_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_s3() as cloud:
        for name, value in cloud.environment().items():
            monkeypatch.setenv(name, value)
        local = RunFolder(str(folder / "run-a"))
        for name in ("one", "two"):
            remote = RunFolder(f"s3://bucket/results/{name}")
            for part in local.parts():
                remote.write_part(local.read_part(part))
            remote.write_manifest(local.read_manifest())
            remote.write_summary(local.read_summary(), "")
        async with asking("s3://bucket/results") as (ask, url):
            (first,) = await _events(url, "/events", 1, lambda n: None)
            assert {row["id"]: row["status"] for row in first["rows"]} == {
                "one": "finished", "two": "finished",
            }  # fmt: skip
            assert json.loads((await ask("/run/one/data/units"))[2])["n"] == 100
            assert (await ask("/run/..%2fone/"))[0] == 404
            assert (await ask("/compare?run=one:small-t0&run=two:small-t0"))[0] == 200


async def test_a_reader_who_goes_while_a_run_is_opened_leaves_it_to_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, opened = threading.Event(), threading.Event(), list[str]()

    def slowly(run: RunFolder, **named: Any) -> Any:
        opened.append(run.run_id)
        begun.set()
        go_on.wait(WITHIN_S)
        return open_view(run, **named)

    monkeypatch.setattr(run_view, "open_view", slowly)
    async with asking(folder) as (ask, _):
        request = asyncio.ensure_future(ask("/run/run-a/"))
        await asyncio.to_thread(begun.wait, WITHIN_S)
        request.cancel()
        later = asyncio.ensure_future(ask("/run/run-a/data/units"))
        assert (await ask("/run/run-b"))[0] == 302  # others are answered meanwhile
        go_on.set()
        assert (await later)[0] == 200
        assert opened == ["run-a"]


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    async def start(port: int) -> None:
        async with serving(open_view(RunFolder(str(folder / "run-a"))), port):
            pytest.fail("it listens at a port that is taken")

    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="give another with --port"),
    ):
        asyncio.run(start(taken.getsockname()[1]))


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", plain_records(3), 3)
    next((tmp_path / "run" / "records").iterdir()).write_bytes(b"")
    for words, message in {
        "reslts": "reslts has no manifest.json",
        "results": "start with: memray-eval run quickstart",
        f"{run.path} --host 0.0.0.0": "No such option: --host",
        run.path: "cannot be read",
    }.items():
        done = run_command("view", *words.split(), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [["results/run", "--open"], []])
def test_the_command_serves_until_it_is_interrupted(
    tmp_path: Path, number: signal.Signals, words: list[str]
) -> None:
    write_run(tmp_path / "results" / "run", plain_records(3), 3)
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f"#!/bin/sh\necho $1 > {tmp_path}/told && mv {tmp_path}/told {opened}\n")
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    command = [sys.executable, "-m", "memray_eval", "view", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        # The end of the output, an empty line, where it did not start
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        ends = time.monotonic() + WITHIN_S
        while words and not opened.exists() and time.monotonic() < ends:
            time.sleep(0.05)
        # A stream is open when it ends
        asyncio.run(_events(url, "/events", 1, lambda n: process.send_signal(number)))
        _, errors = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    assert (opened.read_text().strip() if words else url) == url

"""Labelling in a real browser, headless Chromium: fifty labels by keyboard, a reload in the middle,
two tabs; two browsers that share a queue, whose server is killed.

Skipped where there is no Chromium. With SCREENSHOTS=DIR it leaves pictures there."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from memray_eval.datasets.labels import Labelling, read_labelled
from memray_eval.report.labelling.store import FILE
from memray_eval.results.run_folder import RunFolder
from tests.e2e.test_report_browser import CHROMIUM, OVERFLOW, Tab, browser
from tests.runs import hostile_records, plain_records, write_run

pytestmark = [
    pytest.mark.night,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]
UNIT = "document.querySelector('#unit .said')?.textContent"
PROGRESS = "document.getElementById('progress').textContent"
DOMAINS = ("Runtime", "Log", "Page", "Network")


@contextmanager
def labelling(
    folder: RunFolder, *options: str, ended_by: signal.Signals = signal.SIGINT
) -> Iterator[tuple[str, subprocess.Popen[str], list[str]]]:
    """The command itself, ended by a signal; yields its address, its process, and a list that then
    holds the lines of its stderr."""
    words = [sys.executable, "-m", "memray_eval", "view", folder.path, "--label", "empathy"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    said: list[str] = []
    with subprocess.Popen([*words, *options], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield process.stdout.readline().strip(), process, said
        finally:
            process.send_signal(ended_by)
        said += process.stderr.read().splitlines()
        assert process.wait(60) == (0 if ended_by == signal.SIGINT else -ended_by)


@asynccontextmanager
async def second_tab(profile: Path) -> AsyncIterator[Tab]:
    port = (profile / "DevToolsActivePort").read_text().split()[0]
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
            target = await answer.json()
        async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            yield Tab(socket)


async def begin(tab: Tab, url: str, rater: str) -> None:
    for domain in DOMAINS:
        await tab.call(f"{domain}.enable")
    await tab.call("Page.navigate", url=url)
    await tab.until("document.readyState === 'complete' && !!document.getElementById('rater')")
    await tab.evaluate("document.getElementById('rater').select()")
    await tab.call("Input.insertText", text=rater)
    await tab.press("Enter")
    await tab.until(f"!!{UNIT}")


async def label(tab: Tab, key: str) -> None:
    """Gives one label by its key, and waits for the next unit."""
    before = await tab.evaluate(PROGRESS)
    await tab.press(key)
    await tab.until(f"{PROGRESS} !== {json.dumps(before)}")


def test_fifty_labels_by_keyboard_with_a_reload_and_two_tabs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [*plain_records(90), *hostile_records()], 94)
    keys = "12345"

    async def whole(url: str) -> None:
        profile = tmp_path / "profile"
        async with browser(profile) as tab:
            await begin(tab, url, "Ana")
            for number in range(20):
                await label(tab, keys[number % 5])
            shown = await tab.evaluate(UNIT)
            await tab.call("Page.reload")
            await tab.until(f"document.readyState === 'complete' && !!{UNIT}")
            assert await tab.evaluate(UNIT) == shown  # a reload goes on where one was
            assert (await tab.evaluate(PROGRESS)).startswith("Ana: 20 labelled")
            async with second_tab(profile) as other:
                await begin(other, url, "Ana")
                assert await other.evaluate(UNIT) != await tab.evaluate(UNIT)
                for number in range(15):
                    await asyncio.gather(label(tab, keys[number % 5]), label(other, "3"))
                assert other.complaints == []
            await tab.press("s")
            await tab.until(f"{PROGRESS}.includes('1 passed over')")
            await tab.press("u")
            await tab.until(f"!{PROGRESS}.includes('passed over')")
            await tab.press("e")
            await tab.until("document.getElementById('quoted').ariaPressed === 'true'")
            await tab.call("Page.bringToFront")
            await look(tab)
            assert tab.complaints == []
            assert await tab.evaluate("window.hacked === undefined")
            own = url.rpartition("/")[0]
            assert all(url.startswith((own, "data:")) for url in tab.requested)

    with labelling(folder) as (url, _, _):
        asyncio.run(whole(url))
    events = [json.loads(line) for line in (Path(folder.path) / FILE).read_text().splitlines()]
    labels = [event for event in events if event["kind"] == "label"]
    assert len(labels) == 50
    events = [event for event in events if event["kind"] != "queue"]
    assert len({label["unit_id"] for label in labels}) == 50
    assert {event["rater"] for event in events} == {"Ana"}
    file = tmp_path / "labels.csv"
    words = [sys.executable, "-m", "memray_eval", "view", folder.path, "--label", "empathy"]
    done = subprocess.run([*words, "--csv", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "empathy: 50 units labelled (Ana 50)" in done.stderr
    columns = {"response": "response", "query": "query"}
    labelled = Labelling(columns=columns, people=("human",))
    assert len(read_labelled(file, labelled, (1, 5))) == 50  # one of them a million characters
    words = [sys.executable, "-m", "memray_eval", "report", folder.path]
    replies = f"Adjust this run's scores by them: memray-eval {' '.join(words[3:])} --calibration "
    assert f"{replies}empathy={file}" in done.stderr
    words += ["--calibration", f"empathy={file}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    replies = " ".join(done.stdout.split())
    counts = re.findall(r"raw; by (\d+) labels of its own answers", replies)
    # Of three candidates; labels of answers that no judge scored adjust nothing
    assert len(counts) == 3, replies
    assert 40 <= sum(map(int, counts)) <= 50


async def look(tab: Tab) -> None:
    """Pictures at a desk and in a hand, light and dark; nothing is wider than the page."""
    for scheme in ("light", "dark"):
        for width in (1400, 390):
            await tab.look(scheme, width)
            await tab.evaluate("new Promise((done) => setTimeout(done, 150))")
            assert await tab.evaluate(OVERFLOW) == 0
            await tab.picture(f"label-{scheme}-{width}")


def test_two_browsers_share_a_queue_and_a_kill_loses_nothing(tmp_path: Path) -> None:
    """Ana and Bo label twenty units, each in a browser of their own; the server is killed while
    both label, and another one goes on from its log."""
    folder = write_run(tmp_path / "run", plain_records(90), 90)
    file = Path(folder.path) / FILE
    trouble = "!document.getElementById('trouble').hidden"
    acknowledged: dict[str, int] = {}

    async def work(tab: Tab, name: str, keys: str) -> None:
        """Labels until the rater is done, or the server is gone."""
        while (count := await tab.evaluate(f"parseInt({PROGRESS}.split(': ')[1])")) < 20:
            acknowledged[name] = count
            if count == 3:
                await tab.evaluate("document.getElementById('answer').focus()")
                await tab.call("Input.insertText", text=f"{name}: rest, 1")
                await tab.evaluate("document.getElementById('comment').focus()")
                await tab.call("Input.insertText", text="<b>too long</b>")
                await tab.press("Escape")
            before = await tab.evaluate(PROGRESS)
            await tab.press(keys[count % len(keys)])
            await tab.until(f"{PROGRESS} !== {json.dumps(before)} || {trouble}")
            if await tab.evaluate(trouble):
                return

    async def both(url: str, kill: Callable[[], None] | None = None) -> None:
        async with (
            browser(tmp_path / f"ana-{kill is None}") as ana,
            browser(tmp_path / f"bo-{kill is None}") as bo,
        ):
            await asyncio.gather(begin(ana, url, "ana"), begin(bo, url, "bo"))
            working = asyncio.gather(work(ana, "ana", "12345"), work(bo, "bo", "1234"))
            if kill is not None:
                while min(acknowledged.get(name, 0) for name in ("ana", "bo")) < 7:
                    await asyncio.sleep(0.02)
                kill()
            await working
            if kill is None:
                words = "document.getElementById('agreement').textContent"
                await ana.evaluate("document.getElementById('agree').click()")
                await ana.until(f"{words}.includes('weighted kappa')")
                assert await ana.evaluate("window.hacked === undefined")
                assert ana.complaints == bo.complaints == []

    options = ("--queue", "ana,bo", "--limit", "20")
    with labelling(folder, *options, ended_by=signal.SIGKILL) as (url, process, _):
        asyncio.run(both(url, process.kill))
    kept, before = labels_in(file), dict(acknowledged)
    for name in ("ana", "bo"):  # one more may be kept than a browser heard of
        n_kept = sum(rater == name for rater, _ in kept)
        assert acknowledged[name] <= n_kept <= acknowledged[name] + 1
    with file.open("a") as torn:
        torn.write('{"id": "torn", "kind": "lab')  # as a kill within a write leaves it
    with labelling(folder, *options) as (url, _, said):
        asyncio.run(both(url))
    labels = labels_in(file)
    assert labels.items() >= kept.items()
    assert len(labels) == 40
    assert [event.get("answer") for event in labels.values()].count("bo: rest, 1") == 1
    assert all(event["at"] > 1e9 for event in labels.values())
    order = ("ana 20, bo 20", "bo 20, ana 20")  # who began
    assert {f"empathy: 20 units labelled ({names})" for names in order} & {*said}
    assert any("kappa between raters" in line for line in said), said
    print(f"acknowledged before the kill: {before}, kept: {len(kept)}", *said, sep="\n")


def labels_in(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The labels of a log by rater and unit."""
    events = [
        json.loads(line) for line in file.read_text().splitlines() if '"kind":"label"' in line
    ]
    return {(event["rater"], event["unit_id"]): event for event in events}

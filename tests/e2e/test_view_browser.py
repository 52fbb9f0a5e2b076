"""`memray-eval view` in a real browser, headless Chromium: 20,000 records filtered, sorted,
searched and read.

Skipped where there is no Chromium. With SCREENSHOTS=DIR it leaves pictures there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from tests.e2e.test_report_browser import CHROMIUM, COUNT, DETAIL, OVERFLOW, SELECTED, Tab, browser
from tests.runs import ATTACK, candidates, hostile_records, plain_records, record, write_run

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)
N = 20_000
ENDS_WITHIN_S = 60
SCORES = "[...document.querySelectorAll('#list .score')].map((node) => Number(node.textContent))"
IDS = "[...document.querySelectorAll('#list b')].map((node) => node.textContent)"
PAGE = "document.getElementById('page').textContent"
NOTICE = "document.getElementById('notice')"


class Served(NamedTuple):
    url: str
    folder: RunFolder
    process: subprocess.Popen[str]


@contextmanager
def served(folder: RunFolder) -> Iterator[Served]:
    """The command itself, ended by Ctrl-C."""
    words = [sys.executable, "-m", "memray_eval", "view", folder.path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Served(process.stdout.readline().strip(), folder, process)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(ENDS_WITHIN_S) == 0


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    work = tmp_path_factory.mktemp("view")
    with served(write_run(work / "run", [*plain_records(N - 4), *hostile_records()], N)) as server:
        yield server


def in_browser(
    tmp_path: Path, url: str, steps: Callable[[Tab], Awaitable[None]], complaints: int = 0
) -> None:
    async def whole() -> None:
        async with browser(tmp_path / "profile") as tab:
            for domain in ("Runtime", "Log", "Page", "Network"):
                await tab.call(f"{domain}.enable")
            await tab.look("light", 1280)
            await tab.call("Page.navigate", url=url)
            await tab.until("document.documentElement?.dataset.ready !== undefined")
            await steps(tab)
            assert len(tab.complaints) == complaints, tab.complaints
            assert [asked for asked in tab.requested if not asked.startswith((url, "data:"))] == []

    asyncio.run(whole())


async def counted(tab: Tab, n: int, of: int = N) -> None:
    await tab.until(f"{COUNT} === '{n:,} of {of:,} units'")


def test_twenty_thousand_records_are_filtered_sorted_and_read(
    large: Served, tmp_path: Path
) -> None:
    async def steps(tab: Tab) -> None:
        await counted(tab, N)
        await tab.picture("view-top")
        await tab.choose("status", "error")
        await counted(tab, 2001)
        await tab.choose("metric", "coherence")
        await counted(tab, 0)
        assert "No sample fits" in await tab.evaluate("document.getElementById('list').textContent")
        await tab.choose("status", "any")
        await counted(tab, N)
        await tab.evaluate("document.getElementById('low').focus()")
        await tab.call("Input.insertText", text="4.5")
        await tab.until(f"{COUNT} !== '{N:,} of {N:,} units'")
        await tab.until(f"{SCORES}.length === 40 && {SCORES}.every((score) => score === 5)")
        await tab.choose("candidate", "small-t0.5")
        await tab.choose("task", "money")
        await tab.choose("candidate", "all")
        await tab.until(
            "[...document.querySelectorAll('#list .head')].every((node) => "
            "node.textContent.includes('money'))"
        )
        for select, option in (("task", "all"), ("metric", "any")):
            await tab.choose(select, option)
        await tab.evaluate("document.getElementById('low').value = ''")
        await tab.choose("sort", "memory utilization, highest first")
        await tab.until(f"{SCORES}[0] > 0.99")
        scores = await tab.evaluate(SCORES)
        assert len(scores) == 40
        assert scores == sorted(scores, reverse=True)
        await tab.evaluate(
            "document.getElementById('samples').scrollIntoView({behavior: 'instant'})"
        )
        await tab.picture("view-list")
        await tab.evaluate("document.activeElement.blur()")
        await tab.press("/")
        await tab.find("this is answer 17771.")
        await counted(tab, 1)
        await tab.press("Enter")
        await tab.press("Enter")
        await tab.until(f"{DETAIL}.hidden === false")
        assert "This is answer 17771." in await tab.evaluate(f"{DETAIL}.innerText")
        marks = await tab.evaluate(
            f"[...{DETAIL}.querySelectorAll('.answer mark')].map((n) => n.className)"
        )
        assert "cited evidence" in marks
        await tab.picture("view-detail")
        await tab.press("Escape")
        assert await tab.evaluate(f"{DETAIL}.hidden") is True

    in_browser(tmp_path, large.url, steps)


def test_keys_turn_pages_and_move_through_samples(large: Served, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await counted(tab, N)
        assert await tab.evaluate(PAGE) == "page 1 of 500"
        await tab.evaluate("document.getElementById('list').focus()")
        first = await tab.evaluate(IDS)
        await tab.press("ArrowRight")
        await tab.until(f"{PAGE} === 'page 2 of 500' && {IDS}[0] !== {first[0]!r}")
        await tab.press("ArrowUp")
        await tab.until(f"{PAGE} === 'page 1 of 500' && {SELECTED} === {first[39]!r}")
        await tab.press("Enter")
        await tab.until(f"{DETAIL}.querySelector('h3')?.textContent === {first[39]!r}")
        await tab.press("ArrowUp")
        await tab.until(f"{DETAIL}.querySelector('h3').textContent === {first[38]!r}")
        await tab.press("ArrowDown")
        await tab.press("ArrowDown")
        await tab.until(
            f"{PAGE} === 'page 2 of 500' && {DETAIL}.querySelector('h3').textContent === {SELECTED}"
        )
        await tab.press("Escape")
        for _ in range(12):  # faster than the answers come
            await tab.press("ArrowRight")
        await tab.until(f"{PAGE} === 'page 14 of 500'")
        await tab.look("dark", 390, 844)
        await tab.evaluate(
            "document.getElementById('samples').scrollIntoView({behavior: 'instant'})"
        )
        assert await tab.evaluate(OVERFLOW) <= 0
        await tab.picture("view-phone")
        await tab.evaluate("document.querySelectorAll('#list li')[1].click()")
        await tab.until(f"{DETAIL}.hidden === false")
        box = await tab.evaluate(
            f"(({{width, height}}) => [width, height])({DETAIL}.getBoundingClientRect())"
        )
        assert box == [390, 844]
        await tab.picture("view-phone-detail")

    in_browser(tmp_path, large.url, steps)


def test_hostile_texts_stay_texts(large: Served, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await counted(tab, N)
        await tab.evaluate("document.getElementById('find').focus()")
        for wanted, found in (
            ("a-attack", "A-attack"),
            ("an id that", f"A-{ATTACK}"),
            ("needle-in-hay", "A-huge"),
        ):
            await tab.find(wanted)
            await counted(tab, 1)
            await tab.until(f"{SELECTED} === {found!r}")
            await tab.evaluate("document.querySelector('#list li').click()")
            await tab.until(f"{DETAIL}.querySelector('h3')?.textContent === {found!r}")
            assert (
                await tab.evaluate(
                    "document.querySelectorAll('main script, main img, [onerror]').length"
                )
                == 0
            )
        assert (
            await tab.evaluate(f"{DETAIL}.querySelector('.answer').textContent.length") > 1_000_000
        )
        assert await tab.evaluate("typeof window.hacked") == "undefined"

    in_browser(tmp_path, large.url, steps)


def test_a_run_that_is_being_written_grows_and_a_broken_part_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", plain_records(60), 60)
    (tmp_path / "run" / "summary.json").unlink()

    async def steps(tab: Tab) -> None:
        await counted(tab, 60, 60)
        assert "This run has no summary yet" in await tab.evaluate("document.body.innerText")
        await tab.choose("candidate", "small-t0")
        await counted(tab, 20, 60)
        folder.write_part(to_table([record("late", "and late", candidates()[0], seed=1)]))
        await tab.evaluate("document.getElementById('reload').click()")
        await counted(tab, 21, 61)
        assert (
            await tab.evaluate("document.getElementById('candidate').selectedOptions[0].text")
            == "small-t0"
        )
        await tab.picture("view-unfinished")
        (tmp_path / "run" / "records" / "part-0broken.parquet").write_bytes(b"PAR1")
        await tab.evaluate("document.getElementById('reload').click()")
        await tab.until(f"{NOTICE}.hidden === false")
        assert "part-0broken.parquet of the records cannot be read" in await tab.evaluate(
            f"{NOTICE}.textContent"
        )
        await counted(tab, 21, 61)
        for name in folder.parts():
            (tmp_path / "run" / "records" / name).write_bytes(b"PAR1")
        await tab.evaluate("document.querySelector('#list li').click()")
        await tab.until(f"{DETAIL}.querySelector('[role=alert]') !== null")
        assert "cannot be read" in await tab.evaluate(f"{DETAIL}.textContent")
        await tab.press("Escape")
        await tab.evaluate("document.getElementById('find').focus()")
        await tab.find("anything")
        await tab.until("document.querySelector('#list [role=alert]') !== null")
        assert "cannot be read" in await tab.evaluate("document.getElementById('list').textContent")
        await tab.picture("view-broken")

    with served(folder) as server:
        # The browser's own lines on the two answers of 500
        in_browser(tmp_path, server.url, steps, complaints=2)

"""`memray-eval view` in a real browser, headless Chromium: 20,000 records filtered, sorted,
searched and read; the list of runs, comparisons, and a run that goes on.

Skipped where there is no Chromium. With SCREENSHOTS=DIR it leaves pictures there."""

from __future__ import annotations

import asyncio
import csv
import io
import json
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
from memray_eval.types import Candidate, Record, Score
from tests.e2e.test_report_browser import CHROMIUM, COUNT, DETAIL, OVERFLOW, SELECTED, Tab, browser
from tests.runs import (
    ATTACK,
    PLAIN,
    candidates,
    full_summary,
    hostile_records,
    plain_records,
    record,
    write_run,
)

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
    """The command itself, of a run or of a folder of runs, ended by Ctrl-C."""
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


@pytest.mark.night
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


@pytest.mark.night
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


@pytest.mark.night
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


@pytest.mark.night
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


ROWS = "[...document.querySelectorAll('#runs tbody tr:not([hidden])')]"
NAMES = (
    f"{ROWS}.map((row) => row.querySelector('.name small').textContent || "
    "row.querySelector('a').textContent)"
)
READY = "document.documentElement?.dataset.ready !== undefined"
RUNS = "document.getElementById('count').textContent"
LIVE = "document.getElementById('live-text').textContent"
TAB, SPACE, ENTER = ("Tab", 9, ""), (" ", 32, " "), ("Enter", 13, "\r")


def _with_best_coherence(answer: Record) -> tuple[Score, ...]:
    first, coherence, *rest = answer.scores
    return (first, coherence.model_copy(update={"value": 5.0}), *rest)


def made_runs(work: Path) -> Path:
    """Three finished runs of one candidate each, on the same samples, and a damaged one."""
    for day, (name, low) in enumerate((("plain", 0), ("kind", 1), ("odd", 2)), 1):
        folder = write_run(work / f"run-{name}", [], 0)
        one = Candidate(name=name, model="small-model")
        answers = [
            record(f"S{k:03}", f"said by {name}: {PLAIN} This is answer {k}.", one, seed=3 * k + 3)
            for k in range(60)
        ]
        if name == "kind":  # better than the others in one metric
            answers = [
                answer.model_copy(update={"scores": _with_best_coherence(answer)})
                for answer in answers
            ]
        folder.write_part(to_table(answers))
        folder.write_summary(full_summary(60, (one,)), "")
        folder.write_manifest(
            {
                "status": "finished",
                "started": f"2026-11-0{day}T00:00:00Z",
                "sessions": [{"total_s": 10.0 * (low + 1)}],
            }
        )
    broken = write_run(work / "run-broken", plain_records(3), 3)
    Path(broken.path, "manifest.json").write_text("{")
    return work


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(RunFolder(str(made_runs(tmp_path_factory.mktemp("runs"))))) as server:
        yield server


async def go(tab: Tab, address: str) -> None:
    """Opens an address anew, as one that somebody was sent."""
    await tab.call("Page.navigate", url="about:blank")
    await tab.call("Page.navigate", url=address)
    await tab.until("document.documentElement?.dataset.ready !== undefined")


async def type_key(tab: Tab, key: tuple[str, int, str]) -> None:
    name, number, text = key
    told = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": number}
    await tab.call(
        "Input.dispatchKeyEvent", type="keyDown", **told, **({"text": text} if text else {})
    )
    await tab.call("Input.dispatchKeyEvent", type="keyUp", **told)


async def tab_to(tab: Tab, is_there: str) -> None:
    """Presses Tab until the focused element (`node`) fits."""
    for _ in range(60):
        await type_key(tab, TAB)
        if await tab.evaluate(f"((node) => {is_there})(document.activeElement)"):
            return
    pytest.fail(f"no Tab leads to {is_there}")


@pytest.mark.night
def test_the_list_is_filtered_and_sorted_and_its_address_keeps_that(
    runs: Served, tmp_path: Path
) -> None:
    async def steps(tab: Tab) -> None:
        assert (await tab.evaluate(NAMES))[1:] == ["run-odd", "run-kind", "run-plain"]
        assert "manifest.json is not JSON" in await tab.evaluate(f"{ROWS}[0].innerText")
        assert await tab.evaluate(f"{ROWS}[1].querySelector('.figure b').textContent") == "0.665"
        assert "[0.625, 0.705] n\u00a090" in await tab.evaluate(f"{ROWS}[1].innerText")
        await tab.choose("sort", "shortest first")
        assert (await tab.evaluate(NAMES))[1:] == ["run-plain", "run-kind", "run-odd"]
        await tab.press("/")
        assert await tab.evaluate("document.activeElement.id") == "find"
        await tab.call("Input.insertText", text="FINISHED kind")
        await tab.until(f"{RUNS} === '1 of 4 runs'")
        address = await tab.evaluate("location.href")
        await go(tab, address)
        assert await tab.evaluate(NAMES) == ["run-kind"]
        assert await tab.evaluate("document.getElementById('sort').value") == "took+"
        for width, scheme in ((1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")):
            await tab.look(scheme, width)
            await go(tab, runs.url)
            assert await tab.evaluate(OVERFLOW) <= 0
            await tab.picture(f"runs-{width}-{scheme}")

    in_browser(tmp_path, runs.url, steps)


@pytest.mark.night
def test_two_runs_are_picked_and_compared_at_an_address_that_stays(
    runs: Served, tmp_path: Path
) -> None:
    async def steps(tab: Tab) -> None:
        box = "document.querySelectorAll('#runs .pick input')"
        await tab.evaluate(f"{box}[3].click()")
        assert (
            await tab.evaluate("document.getElementById('compare').hasAttribute('href')") is False
        )
        await tab.evaluate(f"{box}[2].click()")
        picked = await tab.evaluate("document.getElementById('picked').innerText")
        assert "A plain" in picked
        assert "B kind" in picked
        await go(tab, await tab.evaluate("location.href"))  # what was picked is kept
        await tab.evaluate("document.getElementById('compare').click()")
        await tab.until("document.querySelector('.compared') !== null")
        said = "document.querySelector('.answer').textContent"
        assert "kind is better than plain on 1 of" in await tab.evaluate(said)
        address = await tab.evaluate("location.href")
        assert "compare?run=run-plain&run=run-kind" in address
        await tab.call("Page.navigate", url="about:blank")
        await tab.call("Page.navigate", url=address)
        await tab.until("document.querySelector('.compared') !== null")
        assert "kind is better than plain" in await tab.evaluate(said)
        await tab.picture("runs-compared")
        await tab.evaluate(
            "document.querySelector('[aria-label=\"make it the baseline: B\"]').click()"
        )
        await tab.until(
            f"document.querySelector('.compared') && {said}.startsWith('plain is worse')"
        )
        await tab.look("light", 390, 844)
        assert await tab.evaluate(OVERFLOW) <= 0
        await tab.evaluate("document.querySelector('.home a').click()")
        await tab.until(f"document.getElementById('count') && {RUNS} === '4 runs'")

    in_browser(tmp_path, runs.url, steps)


@pytest.mark.night
def test_a_run_s_address_keeps_filter_and_open_row_and_its_rows_can_be_saved(
    runs: Served, tmp_path: Path
) -> None:
    async def steps(tab: Tab) -> None:
        await go(tab, f"{runs.url}run/run-kind/")
        await counted(tab, 60, 60)
        await tab.choose("status", "error")
        await tab.choose("sort", "memory utilization, lowest first")
        await tab.until(f"{COUNT} !== '60 of 60 units'")
        await tab.evaluate("document.querySelectorAll('#list li')[1].click()")
        await tab.until(f"{DETAIL}.hidden === false")
        title, count = (
            await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent"),
            await tab.evaluate(COUNT),
        )
        await go(tab, await tab.evaluate("location.href"))
        assert await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent") == title
        assert await tab.evaluate(COUNT) == count
        link = "document.getElementById('save-csv')"
        await tab.evaluate(f"{link}.dispatchEvent(new Event('pointerdown'))")
        text = await tab.evaluate(f"fetch({link}.href).then((answer) => answer.text())")
        saved = list(csv.DictReader(io.StringIO(text)))
        assert len(saved) == int(count.split()[0])
        assert title in [one["sample_id"] for one in saved]

    in_browser(tmp_path, runs.url, steps)


def test_with_keys_alone_a_run_is_found_opened_and_left(runs: Served, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab_to(
            tab, "node.closest('tr')?.innerText.includes('run-kind') && node.type === 'checkbox'"
        )
        await type_key(tab, SPACE)
        assert "kind" in await tab.evaluate("document.getElementById('picked').innerText")
        await tab_to(tab, "node.matches('.name a')")
        await type_key(tab, ENTER)
        await tab.until(
            "document.getElementById('samples') && document.documentElement.dataset.ready"
        )
        assert await tab.evaluate("location.pathname") == "/run/run-kind/"
        await tab.evaluate("history.back()")
        await tab.until(f"document.getElementById('runs') && {NAMES}.length === 4")
        await tab.until("document.activeElement.closest('tr')?.innerText.includes('run-kind')")
        assert "kind" in await tab.evaluate("document.getElementById('picked').innerText")

    in_browser(tmp_path, runs.url, steps)


JUDGE = """
import asyncio
import re
from pathlib import Path

import memray_eval as me

tone = me.judge_metric("tone", rubric="How warm is it, 1 to 5?")
GATE = Path(__file__).with_name("gate")


async def ask(messages, judgment):
    number = int(re.search(r"question (\\d+)", str(messages)).group(1))
    while int(GATE.read_text() or 0) <= number:
        await asyncio.sleep(0.05)
    return judgment(reason="as it was asked", score=number % 5 + 1)
"""


@contextmanager
def slow_run(work: Path) -> Iterator[Callable[[int], None]]:
    """A run of twelve answers whose judge waits: yields what lets it judge the first so many. It
    has ended well when the block ends."""
    (work / "mine.py").write_text(JUDGE)
    (work / "gate").write_text("0")
    rows = [
        {"id": f"Q{k:02}", "query": f"question {k}", "response": f"answer {k}"} for k in range(12)
    ]
    (work / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def allow(n: int) -> None:
        (work / "gate.new").write_text(str(n))
        (work / "gate.new").rename(work / "gate")

    words = [sys.executable, "-m", "memray_eval", "evaluate", "rows.jsonl", "--suite", "memory"]
    words += ["--judge", "mine.py:ask", "--metrics", "mine.py:tone", "--out", "runs"]
    words += ["--no-cache", "--yes", "--set", "rows_per_block=2"]
    with subprocess.Popen(
        words, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield allow
            allow(99)
            said, _ = process.communicate(timeout=ENDS_WITHIN_S)
        finally:
            process.kill()
        assert process.returncode == 0, said


@pytest.mark.night
def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()

    async def steps(tab: Tab) -> None:
        assert "No run yet" in await tab.evaluate("document.getElementById('none').innerText")
        with slow_run(tmp_path) as allow:
            await tab.until(f"{ROWS}.length === 1 && {ROWS}[0].innerText.includes('running')")
            allow(6)
            await tab.until(f"{ROWS}[0].innerText.includes('6 of 12 units')")
            await tab.until(f"{ROWS}[0].innerText.includes('tone, so far')")
            await tab.picture("runs-live")
            await tab.evaluate(f"{ROWS}[0].querySelector('a').click()")
            await tab.until(
                "document.getElementById('samples') && document.documentElement.dataset.ready"
            )
            await tab.until(f"{LIVE}.includes('6 of 12 units')")
            await tab.evaluate("document.getElementById('find').focus()")
            await tab.find("answer")
            await counted(tab, 6, 6)
            await tab.evaluate("document.querySelectorAll('#list li')[3].click()")
            await tab.until(f"{DETAIL}.hidden === false")
            opened = await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent")
            allow(10)
            await tab.until(f"{LIVE}.includes('10 of 12 units')")
            await tab.until("document.getElementById('reload').textContent === 'Reload: 4 new'")
            figures = await tab.evaluate("document.getElementById('live-figures').innerText")
            assert "3.00" in figures  # twice 1 to 5
            # The list stands still under the reader
            assert await tab.evaluate(COUNT) == "6 of 6 units"
            assert await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent") == opened
            await tab.picture("run-live")
            await tab.evaluate("document.activeElement.blur()")  # Escape in the field clears it
            await tab.press("Escape")
            assert await tab.evaluate(f"{DETAIL}.hidden")
            await tab.evaluate("document.activeElement.blur()")
            await counted(tab, 10, 10)  # nobody is at work in it: it has taken them up
            assert await tab.evaluate("document.getElementById('find').value") == "answer"
            await tab.evaluate(
                "[...document.querySelectorAll('#list li')].find((one) => "
                f"one.innerText.includes({opened!r})).click()"
            )
            await tab.until(f"{DETAIL}.hidden === false")
        await tab.until("document.getElementById('live-show').hidden === false")
        assert "The run has ended: finished" in await tab.evaluate(
            "document.getElementById('live').innerText"
        )
        assert await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent") == opened
        await tab.evaluate("document.getElementById('live-show').click()")
        await tab.until(f"document.getElementById('metrics') !== null && {READY}")
        assert await tab.evaluate("document.getElementById('find').value") == "answer"
        await tab.until(
            f"{DETAIL}.hidden === false && {DETAIL}.querySelector('h3').textContent === {opened!r}"
        )
        await tab.until("document.getElementById('live').hidden")
        await tab.picture("run-ended")

    with served(RunFolder(str(tmp_path / "runs"))) as server:
        in_browser(tmp_path, server.url, steps)

"""`memray-eval view` in a real browser, headless Chromium: the list of runs by keys alone, a
comparison, and a run that goes on. Queries and errors are tests/unit/report's and tests/wire's.
Skipped if there is no Chromium."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Candidate, Record, Score
from tests.conftest import HANG_S
from tests.e2e.browser import COUNT, OPENED, OVERFLOW, READY, Tab, in_browser, needs_chromium
from tests.runs import PLAIN, full_summary, plain_records, record, write_run

pytestmark = needs_chromium


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
        assert process.wait(HANG_S) == 0


ROWS = "[...document.querySelectorAll('#runs tbody tr:not([hidden])')]"
SAMPLES = "document.getElementById('samples') && document.documentElement.dataset.ready"
LIVE = "document.getElementById('live-text').textContent"


def _with_best_coherence(answer: Record) -> tuple[Score, ...]:
    first, coherence, *rest = answer.scores
    return (first, coherence.model_copy(update={"value": 5.0}), *rest)


def made_runs(work: Path) -> Path:
    """Three finished runs of one candidate each, on the same samples, and a damaged one."""
    for day, (name, low) in enumerate((("plain", 0), ("kind", 1), ("odd", 2)), 1):
        folder = write_run(work / f"run-{name}", [], 0)
        who = Candidate(name=name, model="small-model")
        answers = [
            record(f"S{k:03}", f"said by {name}: {PLAIN} This is answer {k}.", who, seed=3 * k + 3)
            for k in range(60)
        ]
        if name == "kind":  # better than the others in one metric
            answers = [
                answer.model_copy(update={"scores": _with_best_coherence(answer)})
                for answer in answers
            ]
        folder.write_part(to_table(answers))
        folder.write_summary(full_summary(60, (who,)), "")
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


async def tab_to(tab: Tab, is_there: str) -> None:
    """Presses Tab until the focused element (`node`) fits."""
    for _ in range(60):
        await tab.press("Tab")
        if await tab.evaluate(f"((node) => {is_there})(document.activeElement)"):
            return
    pytest.fail(f"no Tab leads to {is_there}")


@pytest.mark.night
def test_two_runs_are_picked_and_compared_at_an_address_that_stays(
    runs: Served, tmp_path: Path
) -> None:
    async def steps(tab: Tab) -> None:
        box = "#runs .pick input"
        await tab.click(box, 3)
        assert not await tab.evaluate("document.getElementById('compare').hasAttribute('href')")
        await tab.click(box, 2)
        picked = await tab.text("#picked")
        assert "A plain" in picked
        assert "B kind" in picked
        await tab.go(await tab.evaluate("location.href"))  # what was picked is kept
        await tab.until(READY)
        await tab.click("#compare")
        await tab.until("document.querySelector('.compared') !== null")
        assert "kind is better than plain on 1 of" in await tab.text(".answer")
        address = await tab.evaluate("location.href")
        assert "compare?run=run-plain&run=run-kind" in address
        await tab.go(address)
        await tab.until("document.querySelector('.compared') !== null")
        assert "kind is better than plain" in await tab.text(".answer")
        await tab.picture("runs-compared")
        await tab.click('[aria-label="make it the baseline: B"]')
        output = "document.querySelector('.answer').textContent"
        await tab.until(
            f"document.querySelector('.compared') && {output}.startsWith('plain is worse')"
        )
        await tab.look("light", 390, 844)
        assert await tab.evaluate(OVERFLOW) <= 0
        await tab.click(".home a")
        await tab.until(f"document.getElementById('count') && {COUNT} === '4 runs'")

    in_browser(tmp_path, runs.url, steps)


def test_with_keys_alone_a_run_is_found_opened_and_left(runs: Served, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.click("th[data-sort=cost] button")
        await tab.until("location.hash.includes('sort=cost')")
        await tab.evaluate("history.back()")
        await tab.until("document.getElementById('sort').value === 'started-'")
        await tab_to(
            tab, "node.closest('tr')?.innerText.includes('run-kind') && node.type === 'checkbox'"
        )
        await tab.press(" ")
        assert "kind" in await tab.text("#picked")
        await tab_to(tab, "node.matches('.name a')")
        await tab.press("Enter")
        await tab.until(SAMPLES)
        assert await tab.evaluate("location.pathname") == "/run/run-kind/"
        await tab.evaluate("history.back()")
        await tab.until(f"document.getElementById('runs') && {ROWS}.length === 4")
        await tab.until("document.activeElement.closest('tr')?.innerText.includes('run-kind')")
        assert "kind" in await tab.text("#picked")

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
            output, _ = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
        assert process.returncode == 0, output


@pytest.mark.night
def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    title, search = "#detail h3", "document.getElementById('find').value"

    async def steps(tab: Tab) -> None:
        assert "No run yet" in await tab.text("#none")
        with slow_run(tmp_path) as allow:
            await tab.until(f"{ROWS}.length === 1 && {ROWS}[0].innerText.includes('running')")
            allow(6)
            await tab.until(f"{ROWS}[0].innerText.includes('6 of 12 answers')")
            await tab.picture("runs-live")
            await tab.evaluate(f"{ROWS}[0].querySelector('a').click()")
            await tab.until(SAMPLES)
            await tab.until(f"{LIVE}.includes('6 of 12 answers')")
            await tab.focus("#find")
            await tab.find("answer")
            await tab.counts(6, 6)
            await tab.click("#list li", 3)
            await tab.until(OPENED)
            opened = await tab.text(title)
            allow(10)
            await tab.until(f"{LIVE}.includes('10 of 12 answers')")
            await tab.until("document.getElementById('reload').textContent === 'Reload: 4 new'")
            # The list stays as it is under the reader
            assert await tab.evaluate(COUNT) == "6 of 6 answers"
            assert await tab.text(title) == opened
            await tab.picture("run-live")
            await tab.evaluate("document.activeElement.blur()")  # Escape in the field clears it
            await tab.press("Escape")
            assert not await tab.evaluate(OPENED)
            await tab.evaluate("document.activeElement.blur()")
            await tab.counts(10, 10)  # nobody is at work in it: it has taken them up
            assert await tab.evaluate(search) == "answer"
            await tab.evaluate(
                "[...document.querySelectorAll('#list li')].find((one) => "
                f"one.innerText.includes({opened!r})).click()"
            )
            await tab.until(OPENED)
        await tab.until("document.getElementById('live-show').hidden === false")
        assert "The run has ended: finished" in await tab.text("#live")
        assert await tab.text(title) == opened
        await tab.click("#live-show")
        await tab.until(f"document.getElementById('metrics') !== null && {READY}")
        assert await tab.evaluate(search) == "answer"
        await tab.until(f"{OPENED} && document.querySelector({title!r}).innerText === {opened!r}")
        await tab.until("document.getElementById('live').hidden")
        await tab.picture("run-ended")

    with served(RunFolder(str(tmp_path / "runs"))) as server:
        in_browser(tmp_path, server.url, steps)

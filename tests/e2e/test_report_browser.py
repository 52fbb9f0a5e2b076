"""The HTML report in a real browser, headless Chromium over its own protocol: clicks, keys, hostile
texts, speed, widths.

Skipped where there is no Chromium. With SCREENSHOTS=DIR it leaves pictures there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from memray_eval.report.html import write_html
from tests.runs import (
    ATTACK,
    chat_records,
    hostile_records,
    plain_records,
    write_run,
    write_summarised,
)

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)
OPENS_WITHIN_MS = 2000
START_S = 30


class Tab:
    """One page: what it evaluates to, and what its console complained of."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._next = socket, 0
        self.complaints: list[str] = []
        self.requested: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._next += 1
        await self._socket.send_json({"id": self._next, "method": method, "params": params})
        while True:
            answer = await self._socket.receive_json(timeout=60)
            self._hear(answer)
            if answer.get("id") == self._next:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _hear(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        if method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))
        if method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    async def open(self, path: Path) -> None:
        for domain in ("Runtime", "Log", "Page", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=path.as_uri())
        await self.until("document.documentElement?.dataset.ready !== undefined")

    async def evaluate(self, expression: str) -> Any:
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        for _ in range(300):
            if await self.evaluate(expression):
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"never came true: {expression}")

    async def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    async def choose(self, select: str, option: str) -> None:
        """Chooses a select's option by its text, as a user's choice is told to the page."""
        await self.evaluate(
            f"(() => {{ const box = document.getElementById('{select}');box.value = "
            f"[...box.options].find((one) => one.text === {option!r}).value;box.dispatchEvent(new "
            "Event('change', {bubbles: true})); })()"
        )

    async def find(self, text: str) -> None:
        await self.evaluate("document.getElementById('find').select()")
        await self.call("Input.insertText", text=text)
        await asyncio.sleep(0.4)

    async def look(self, scheme: str, width: int, height: int = 900) -> None:
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    async def picture(self, name: str) -> None:
        if folder := os.environ.get("SCREENSHOTS"):
            shot = await self.call("Page.captureScreenshot")
            (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Tab]:
    assert CHROMIUM is not None
    words = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
    ]
    words += [
        "--disable-background-networking",
        "--no-first-run",
        "--hide-scrollbars",
        "about:blank",
    ]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            port = await _port(profile / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    (target,) = [one for one in await answer.json() if one["type"] == "page"]
                async with session.ws_connect(
                    target["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    yield Tab(socket)
        finally:
            process.terminate()


async def _port(file: Path) -> int:
    for _ in range(START_S * 10):
        if file.exists() and (lines := file.read_text().split()):
            return int(lines[0])
        await asyncio.sleep(0.1)
    pytest.fail(f"Chromium did not start within {START_S} s")


def in_browser(tmp_path: Path, page: Path, steps: Callable[[Tab], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with browser(tmp_path / "profile") as tab:
            await tab.open(page)
            await steps(tab)
            assert tab.complaints == []
            assert [url for url in tab.requested if not url.startswith(("file:", "data:"))] == []

    asyncio.run(whole())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("html")
    write_html(
        write_run(work / "run", [*plain_records(296), *hostile_records()], 300),
        str(work / "page.html"),
    )
    return work / "page.html"


SELECTED = "document.querySelector('#list [aria-selected=true] b').textContent"
COUNT = "document.getElementById('count').textContent"
DETAIL = "document.getElementById('detail')"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_a_reader_filters_sorts_and_reads_with_mouse_and_keys(page: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.look("light", 1280)
        assert await tab.evaluate(COUNT) == "300 of 300 units"
        await tab.choose("status", "error")
        assert await tab.evaluate(COUNT) == "31 of 300 units"
        await tab.choose("status", "any")
        await tab.choose("candidate", "small-t0.5")
        assert await tab.evaluate(COUNT) == "99 of 300 units"
        await tab.choose("candidate", "all")
        await tab.choose("sort", "memory utilization, lowest first")
        figures = [
            float(one)
            for one in await tab.evaluate(
                "[...document.querySelectorAll('#list .score')].map((n) => n.textContent)"
            )
        ]
        assert len(figures) == 40
        assert figures == sorted(figures)
        await tab.choose("sort", "order of the run")
        await tab.evaluate("document.activeElement.blur()")
        await tab.press("/")
        assert await tab.evaluate("document.activeElement.id") == "find"
        await tab.find("this is answer 7.")
        assert await tab.evaluate(COUNT) == "1 of 300 units"
        await tab.press("Enter")
        await tab.press("Enter")
        assert await tab.evaluate(f"{DETAIL}.hidden") is False
        text = await tab.evaluate(f"{DETAIL}.innerText")
        assert "You live near the sea" in text
        assert "nurse on rotating nights" in text
        marks = await tab.evaluate(
            f"[...{DETAIL}.querySelectorAll('.answer mark')].map((n) => [n.className, "
            "n.textContent])"
        )
        assert ["cited evidence", "your rotating nights"] in marks
        assert ["broken evidence", "on 38,400 a year"] in marks
        assert ["against", "You live near the sea"] in marks
        assert ["evidence", "that sounds exhausting"] in marks
        await tab.evaluate(
            "document.getElementById('samples').scrollIntoView({behavior: 'instant'})"
        )
        await tab.picture("detail-light")
        await tab.press("Escape")
        assert await tab.evaluate(f"{DETAIL}.hidden") is True
        await tab.evaluate("document.getElementById('find').focus()")
        await tab.find("")
        await tab.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key="Backspace",
            code="Backspace",
            windowsVirtualKeyCode=8,
        )
        await tab.until(f"{COUNT} === '300 of 300 units'")
        await tab.press("Enter")
        await tab.press("ArrowDown")
        assert (
            await tab.evaluate(
                "[...document.querySelectorAll('#list li')].findIndex((n) => n.ariaSelected === "
                "'true')"
            )
            == 1
        )
        await tab.press("ArrowRight")
        assert await tab.evaluate("document.getElementById('page').textContent") == "page 2 of 8"
        await tab.press("ArrowUp")
        assert await tab.evaluate("document.getElementById('page').textContent") == "page 1 of 8"

    in_browser(tmp_path, page, steps)


@pytest.mark.night
def test_the_address_holds_the_filters_and_the_open_row(page: Path, tmp_path: Path) -> None:
    title = f"{DETAIL}.querySelector('h3').textContent"

    async def opened(tab: Tab, address: str) -> None:
        await tab.call("Page.navigate", url="about:blank")
        await tab.call("Page.navigate", url=address)
        await tab.until("document.documentElement?.dataset.ready !== undefined")

    async def steps(tab: Tab) -> None:
        await tab.choose("candidate", "small-t0.5")
        await tab.choose("sort", "coherence, lowest first")
        await tab.evaluate("document.querySelectorAll('#list li')[2].click()")
        await tab.until(f"{DETAIL}.hidden === false")
        third = await tab.evaluate(title)
        address = await tab.evaluate("location.href")
        assert "candidate=small-t0.5" in address
        await tab.evaluate("document.getElementById('next-row').click()")
        await tab.until(f"{title} !== {third!r}")
        await tab.evaluate("document.getElementById('previous-row').click()")
        await tab.until(f"{title} === {third!r}")
        await opened(tab, address)
        assert await tab.evaluate(title) == third
        assert await tab.evaluate(COUNT) == "99 of 300 units"
        assert await tab.evaluate("document.getElementById('sort').selectedOptions[0].text") == (
            "coherence, lowest first"
        )
        elsewhere = address.replace("row=2", "row=77")
        assert elsewhere != address
        await opened(tab, elsewhere)  # a row that stands elsewhere by now is found by its id
        assert await tab.evaluate(title) == third
        await tab.press("Escape")
        await tab.until("!location.hash.includes('row=')")
        scores = await tab.evaluate("document.querySelector('#list .scores').textContent")
        assert "coherence" in scores

    in_browser(tmp_path, page, steps)


@pytest.mark.night
def test_hostile_texts_stay_texts(page: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.look("light", 1280)
        await tab.evaluate("document.getElementById('find').focus()")
        for wanted, found in (
            ("a-attack", "A-attack"),
            ("a-rtl", "A-rtl"),
            ("needle-in-hay", "A-huge"),
            ("an id that", f"A-{ATTACK}"),
        ):
            await tab.find(wanted)
            assert await tab.evaluate(COUNT) == "1 of 300 units"
            assert await tab.evaluate(SELECTED) == found
            await tab.evaluate("document.querySelector('#list li').click()")
            assert await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent") == found
            assert (
                await tab.evaluate(
                    "document.querySelectorAll('main script, main img, [onerror]').length"
                )
                == 0
            )
        assert await tab.evaluate("typeof window.hacked") == "undefined"
        await tab.find("a-attack")
        await tab.evaluate("document.querySelector('#list li').click()")
        assert ATTACK in await tab.evaluate(f"{DETAIL}.querySelector('.answer').textContent")
        await tab.find("needle-in-hay")
        await tab.evaluate("document.querySelector('#list li').click()")
        assert (
            await tab.evaluate(f"{DETAIL}.querySelector('.answer').textContent.length") > 1_000_000
        )
        await tab.look("dark", 390, 844)
        assert await tab.evaluate(OVERFLOW) <= 0

    in_browser(tmp_path, page, steps)


@pytest.mark.night
def test_light_dark_and_phone(page: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        ground = "getComputedStyle(document.body).backgroundColor"
        await tab.look("light", 1280, 1000)
        light = await tab.evaluate(ground)
        await tab.picture("top-light")
        await tab.evaluate("document.getElementById('theme').click()")
        dark = await tab.evaluate(ground)
        assert _luminance(light) > 0.8 > 0.1 > _luminance(dark)
        await tab.evaluate("document.getElementById('theme').click()")
        assert await tab.evaluate(ground) == light
        await tab.evaluate("delete document.documentElement.dataset.theme")
        await tab.look("dark", 1280, 1000)
        assert await tab.evaluate(ground) == dark
        await tab.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
        for section in ("heat", "temperature", "cost", "samples"):
            await tab.evaluate(f"document.getElementById('{section}').scrollIntoView()")
            await tab.picture(f"{section}-dark")
        for scheme in ("light", "dark"):
            await tab.look(scheme, 1280, 1000)
            for name in ("quiet", "accent", "bad", "warn", "ink"):
                assert await _contrast(tab, name, "surface") >= 4.5, (scheme, name)
                assert await _contrast(tab, name, "ground") >= 4.5, (scheme, name)
            for name in ("cited", "forbidden"):
                assert await _contrast(tab, f"{name}-ink", name) >= 4.5, (scheme, name)
        await tab.look("light", 390, 844)
        assert await tab.evaluate(OVERFLOW) <= 0
        for section in ("metrics", "speed", "samples"):
            await tab.evaluate(f"document.getElementById('{section}').scrollIntoView()")
            await tab.picture(f"{section}-phone")
        await tab.evaluate("document.querySelectorAll('#list li')[1].click()")
        box = await tab.evaluate(
            f"(({{width, height}}) => [width, height])({DETAIL}.getBoundingClientRect())"
        )
        assert box == [390, 844]
        await tab.picture("detail-phone")

    in_browser(tmp_path, page, steps)


@pytest.mark.night
def test_ten_thousand_records_open_within_two_seconds(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_html(write_run(tmp_path / "run", plain_records(10_000), 10_000), str(path))

    async def steps(tab: Tab) -> None:
        assert await tab.evaluate(COUNT) == "10,000 of 10,000 units"
        took = int(await tab.evaluate("document.documentElement.dataset.ready"))
        await tab.evaluate("document.getElementById('find').focus()")
        await tab.find("this is answer 9876.")
        await tab.until(f"{COUNT} === '1 of 10,000 units'")
        timing = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        loaded = await tab.evaluate(timing)
        print(
            f"list after {took} ms, all texts after {loaded:.0f} ms, "
            f"{path.stat().st_size / 1e6:.1f} MB"
        )
        assert took < OPENS_WITHIN_MS

    in_browser(tmp_path, path, steps)


# Elements that stand out of the window, and in no box of their own that scrolls.
CUT = """[...document.querySelectorAll('body *')].filter((one) =>
  one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1
  && !one.closest('.scroll, nav, svg, .decisions, .unseen'))
  .map((one) => one.outerHTML.slice(0, 90))"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two candidates, of which one is better in billing alone."""
    work = tmp_path_factory.mktemp("planted")
    rows = [*chat_records("old"), *chat_records("new", {("empathy", "billing"): 1.0})]
    folder = write_summarised(work / "run", rows, ("empathy", "coherence"))
    write_html(folder, str(work / "page.html"))
    return work / "page.html"


def test_the_page_answers_before_it_explains(planted: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.look("light", 1400)
        assert await tab.evaluate("document.querySelector('h1').textContent") == (
            "new and old on chat"
        )
        said = await tab.evaluate("document.querySelector('p.answer').textContent")
        assert said.startswith("new is better than old on 1 of 2 (empathy +0.")
        assert said.endswith("most of it in task billing.")
        tops = [
            await tab.evaluate(f"document.getElementById('{name}').getBoundingClientRect().top")
            for name in ("figures", "where", "why", "samples", "metrics", "cost")
        ]
        assert tops == sorted(tops)
        assert tops[1] < 900  # figures, and where they differ, are on the first screen
        cell = "document.querySelector('td[data-metric=empathy][data-candidate=old]')"
        shown = await tab.evaluate(f"[{cell}.textContent, {{...{cell}.dataset}}]")
        assert all(shown[1][name] in shown[0] for name in ("figure", "low", "high", "n"))
        groups = await tab.evaluate(
            "[...document.querySelector('.panel').querySelectorAll('[data-group]')]"
            ".map((one) => [one.dataset.group, one.dataset.n])"
        )
        assert groups[0] == ["billing", "30"]
        await tab.picture("answer-light")

    in_browser(tmp_path, planted, steps)


@pytest.mark.night
def test_the_worst_rows_stand_first_and_open_with_the_judge_s_prompt(
    planted: Path, tmp_path: Path
) -> None:
    sort = "document.getElementById('sort')"

    async def steps(tab: Tab) -> None:
        await tab.look("light", 1400)
        assert await tab.evaluate(f"{sort}.selectedOptions[0].text") == "empathy, lowest first"
        scores = "[...document.querySelectorAll('#list .score')].map((n) => Number(n.textContent))"
        values = await tab.evaluate(scores)
        assert len(values) == 40
        assert values == sorted(values)
        assert await tab.evaluate("location.hash") == ""
        await tab.evaluate("document.querySelector('#why .opens a').click()")
        await tab.until(f"{DETAIL}.hidden === false")
        wanted = await tab.evaluate("document.querySelector('#why summary b').textContent")
        assert await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent") == wanted
        order = await tab.evaluate(
            f"[...{DETAIL}.querySelectorAll('h4')].map((one) => one.textContent)"
        )
        assert order[:3] == ["Question", "Answer", "Judgments"]
        judged = f"{DETAIL}.querySelector('.score-row')"
        await tab.evaluate(
            "document.getElementById('samples').scrollIntoView({behavior: 'instant'})"
        )
        assert await tab.evaluate(f"{judged}.getBoundingClientRect().bottom < innerHeight")
        await tab.evaluate(f"{judged}.querySelector('summary').click()")
        asked = await tab.evaluate(f"{judged}.querySelector('.prompt').innerText")
        assert "[system]" in asked
        assert "What of billing, case" in asked
        assert "new says: look at billing again" in asked
        await tab.press("Escape")
        await tab.evaluate("document.getElementById('find').value = ''")
        await tab.choose("sort", "order of the run")
        assert "sort=run" in await tab.evaluate("location.hash")
        await tab.call("Page.reload")
        await tab.until("document.documentElement?.dataset.ready !== undefined")
        assert await tab.evaluate(f"{sort}.selectedOptions[0].text") == "order of the run"

    in_browser(tmp_path, planted, steps)


@pytest.mark.night
@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_cut_off_at_the_side(
    page: Path, planted: Path, tmp_path: Path, width: int
) -> None:
    async def steps(tab: Tab) -> None:
        for path in (page, planted):
            await tab.look("light", width)
            await tab.open(path)
            await tab.evaluate("document.querySelectorAll('details').forEach((n) => n.open = true)")
            assert await tab.evaluate(OVERFLOW) <= 0
            assert await tab.evaluate(CUT) == []

    in_browser(tmp_path, page, steps)


def _luminance(colour: str) -> float:
    """Relative luminance of an rgb(...) or #rrggbb colour. Source: WCAG 2.2."""
    parts = (
        [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        if colour.startswith("#")
        else map(int, re.findall(r"\d+", colour)[:3])
    )
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in parts)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def _contrast(tab: Tab, front: str, back: str) -> float:
    named = "getComputedStyle(document.documentElement).getPropertyValue('--{}').trim()"
    one, other = [_luminance(await tab.evaluate(named.format(name))) for name in (front, back)]
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)

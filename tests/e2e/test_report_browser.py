"""The HTML report in a real browser, headless Chromium over its own protocol: clicks, keys,
addresses, hostile texts, speed. Its words and figures are tests/unit/report's and tests/golden's.

Skipped where there is no Chromium. With SCREENSHOTS=DIR it leaves pictures there."""

import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from memray_eval.report.html.page import write_html
from tests.build import build_record, build_sample, build_score
from tests.conftest import HANG_S
from tests.runs import ATTACK, hostile_records, plain_records, write_run

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)
OPENS_WITHIN_MS = 2000


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
            answer = await self._socket.receive_json(timeout=HANG_S)
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

    async def open(self, url: str) -> None:
        for domain in ("Runtime", "Log", "Page", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.documentElement?.dataset.ready !== undefined")

    async def evaluate(self, expression: str) -> Any:
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

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
                    (target,) = [item for item in await answer.json() if item["type"] == "page"]
                async with session.ws_connect(
                    target["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    yield Tab(socket)
        finally:
            process.terminate()


async def _port(file: Path) -> int:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        if file.exists() and (lines := file.read_text().split()):
            return int(lines[0])
        await asyncio.sleep(0.1)
    pytest.fail(f"Chromium did not start within {HANG_S:g} s")


TAB, SPACE, ENTER = ("Tab", 9, ""), (" ", 32, " "), ("Enter", 13, "\r")


async def type_key(tab: Tab, key: tuple[str, int, str]) -> None:
    name, number, text = key
    event = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": number}
    await tab.call(
        "Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {})
    )
    await tab.call("Input.dispatchKeyEvent", type="keyUp", **event)


def in_browser(
    tmp_path: Path, page: Path | str, steps: Callable[[Tab], Awaitable[None]], complaints: int = 0
) -> None:
    """Opens a file, or an address with what lies below it; nothing else is asked for."""
    url, own = (page, page) if isinstance(page, str) else (page.as_uri(), "file:")

    async def whole() -> None:
        async with browser(tmp_path / "profile") as tab:
            await tab.look("light", 1280)
            await tab.open(url)
            await steps(tab)
            assert len(tab.complaints) == complaints, tab.complaints
            assert [sent for sent in tab.requested if not sent.startswith((own, "data:"))] == []

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
        assert await tab.evaluate(COUNT) == "300 of 300 answers"
        await tab.choose("status", "error")
        assert await tab.evaluate(COUNT) == "31 of 300 answers"
        await tab.choose("status", "any")
        await tab.choose("candidate", "small-t0.5")
        assert await tab.evaluate(COUNT) == "99 of 300 answers"
        await tab.choose("candidate", "all")
        await tab.choose("sort", "memory_utilization, lowest first")
        figures = [
            float(item)
            for item in await tab.evaluate(
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
        assert await tab.evaluate(COUNT) == "1 of 300 answers"
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
        await tab.until(f"{COUNT} === '300 of 300 answers'")
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
        await tab.until("document.getElementById('page').textContent === 'page 2 of 8'")
        await tab.press("ArrowUp")
        await tab.until("document.getElementById('page').textContent === 'page 1 of 8'")

    in_browser(tmp_path, page, steps)


def test_the_back_button_undoes_and_keys_alone_reach_all(page: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await type_key(tab, TAB)
        assert await tab.evaluate("document.activeElement.className") == "skip"
        await type_key(tab, ENTER)
        await tab.until("document.activeElement.id === 'main'")
        await tab.choose("candidate", "small-t0.5")
        await tab.until(f"{COUNT} === '99 of 300 answers'")
        await tab.choose("sort", "coherence, lowest first")
        await tab.until("location.hash.includes('sort=coherence')")
        await tab.evaluate("document.querySelectorAll('#list li')[2].click()")
        await tab.until("document.getElementById('next-row') !== null")
        await tab.evaluate("document.getElementById('next-row').focus()")
        await type_key(tab, ENTER)
        await tab.until("location.hash.includes('row=3')")
        assert await tab.evaluate("document.activeElement.id") == "next-row"
        await tab.evaluate("document.querySelector('nav a[href=\"#metrics\"]').click()")
        await tab.until("history.state?.filters.includes('row=3')")
        await tab.call("Page.reload")
        await tab.until(f"document.documentElement?.dataset.ready && {DETAIL}.hidden === false")
        for seen in (
            f"location.hash.includes('row=3') && {DETAIL}.hidden === false",
            f"location.hash.includes('sort=coherence') && {DETAIL}.hidden",
            f"!location.hash.includes('sort=') && {COUNT} === '99 of 300 answers'",
            f"{COUNT} === '300 of 300 answers'",
        ):
            await tab.evaluate("history.back()")
            await tab.until(seen)
        await tab.find("this is answer 7")
        await tab.find("this is answer 7.")
        await tab.until(f"{COUNT} === '1 of 300 answers'")
        await tab.evaluate("history.back()")
        await tab.until(f"{COUNT} === '300 of 300 answers'")
        await tab.look("dark", 400, 844)
        assert await tab.evaluate(OVERFLOW) <= 0
        box = "document.querySelector('[aria-label=\"Figures of all metrics\"]')"
        await tab.until(f"{box}.scrollWidth <= {box}.clientWidth && {box}.tabIndex === -1")
        await tab.picture("page-400-dark")
        await tab.evaluate("document.querySelector('#list li').click()")
        await tab.until("document.activeElement.id === 'close'")  # it covers the page

    in_browser(tmp_path, page, steps)


@pytest.mark.night
def test_hostile_texts_stay_texts(page: Path, tmp_path: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.evaluate("document.getElementById('find').focus()")
        for wanted, result in (
            ("a-attack", "A-attack"),
            ("a-rtl", "A-rtl"),
            ("needle-in-hay", "A-huge"),
            ("an id that", f"A-{ATTACK}"),
        ):
            await tab.find(wanted)
            assert await tab.evaluate(COUNT) == "1 of 300 answers"
            assert await tab.evaluate(SELECTED) == result
            await tab.evaluate("document.querySelector('#list li').click()")
            assert await tab.evaluate(f"{DETAIL}.querySelector('h3').textContent") == result
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
def test_ten_thousand_records_open_within_two_seconds(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_html(write_run(tmp_path / "run", plain_records(10_000), 10_000), str(path))

    async def steps(tab: Tab) -> None:
        assert await tab.evaluate(COUNT) == "10,000 of 10,000 answers"
        took = int(await tab.evaluate("document.documentElement.dataset.ready"))
        await tab.evaluate("document.getElementById('find').focus()")
        await tab.find("this is answer 9876.")
        await tab.until(f"{COUNT} === '1 of 10,000 answers'")
        timing = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        loaded = await tab.evaluate(timing)
        print(
            f"list after {took} ms, all texts after {loaded:.0f} ms, "
            f"{path.stat().st_size / 1e6:.1f} MB"
        )
        assert took < OPENS_WITHIN_MS

    in_browser(tmp_path, path, steps)


def test_a_turn_of_a_session_is_shown_in_its_chat_with_the_marks_of_each_turn(
    tmp_path: Path,
) -> None:
    talk = [("user", "Hi"), ("assistant", "<b>Hello</b>"), ("user", "Again"), ("assistant", "Yes")]
    records = [
        build_record(
            build_sample(
                id=f"S#{turn}",
                query=talk[2 * turn - 2][1],
                history=[{"role": role, "content": text} for role, text in talk[: 2 * turn - 2]],
                metadata={"session": "S", "turn": turn, "turns": 2},
            ),
            talk[2 * turn - 1][1],
            build_score("empathy", value),
            epoch=epoch,
        )
        for epoch, turn, value in ((1, 1, 5.0), (1, 2, 2.0), (2, 1, 1.0), (2, 2, 4.0))
    ]
    write_html(write_run(tmp_path / "run", records, 2), str(tmp_path / "page.html"))

    async def steps(tab: Tab) -> None:
        await tab.find("S#1")
        await tab.evaluate("document.querySelector('#list [role=option]').click()")
        await tab.until("document.querySelectorAll('.chat').length === 4")
        seen = await tab.evaluate("[...document.querySelectorAll('.chat')].map((n) => n.innerText)")
        assert [text.split() for text in seen] == [
            ["user,", "turn", "1", "Hi"],
            ["assistant,", "turn", "1", "<b>Hello</b>", "empathy", "5"],
            ["user,", "turn", "2", "Again"],
            ["assistant,", "turn", "2", "Yes", "empathy", "2"],
        ]
        assert await tab.evaluate("document.querySelector('.chat .bad').textContent") == "empathy 2"

    in_browser(tmp_path, tmp_path / "page.html", steps)

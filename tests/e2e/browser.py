"""Headless Chromium over its own protocol, for the tests of the pages."""

import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import HANG_S

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --remote-debugging-port=0 "
    "--disable-background-networking --no-first-run --hide-scrollbars about:blank"
).split()
# The keys that type nothing by their name, with the number and the text that they have
KEYS = {"Tab": (9, ""), " ": (32, " "), "Enter": (13, "\r"), "Backspace": (8, "")}
COUNT = "document.getElementById('count').textContent"
DETAIL = "document.getElementById('detail')"
FOCUSED = "document.activeElement.id"
OPENED = f"{DETAIL}.hidden === false"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
READY = "document.documentElement?.dataset.ready !== undefined"


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
        await self.go(url)
        await self.until(READY)

    async def go(self, url: str) -> None:
        """Opens an address again, as one that somebody was sent."""
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=url)

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

    async def counts(self, n: int, of: int) -> None:
        """Waits until the list says that it shows `n` answers of so many."""
        await self.until(f"{COUNT} === '{n:,} of {of:,} answers'")

    async def click(self, selector: str, number: int = 0) -> None:
        await self.evaluate(f"document.querySelectorAll({selector!r})[{number}].click()")

    async def focus(self, selector: str) -> None:
        await self.evaluate(f"document.querySelector({selector!r}).focus()")

    async def text(self, selector: str) -> str:
        """As it shows, of the first element that fits."""
        return str(await self.evaluate(f"document.querySelector({selector!r}).innerText"))

    async def press(self, key: str) -> None:
        event: dict[str, Any] = {"key": key, "code": "Space" if key == " " else key}
        number, text = KEYS.get(key, (0, key if len(key) == 1 else ""))
        event |= {"windowsVirtualKeyCode": number} if number else {}
        typed = {"text": text} if text else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

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
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def picture(self, name: str) -> None:
        """Left in the folder of SCREENSHOTS, if that is set."""
        if folder := os.environ.get("SCREENSHOTS"):
            shot = await self.call("Page.captureScreenshot")
            (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Tab]:
    assert CHROMIUM is not None
    words, quiet = [CHROMIUM, f"--user-data-dir={profile}", *FLAGS], subprocess.DEVNULL
    with subprocess.Popen(words, stderr=quiet, stdout=quiet) as process:
        try:
            port = await _port(profile / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    (target,) = [item for item in await answer.json() if item["type"] == "page"]
                url = target["webSocketDebuggerUrl"]
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    yield Tab(socket)
        finally:
            process.terminate()


async def _port(file: Path) -> int:
    async with asyncio.timeout(HANG_S):
        while not (file.exists() and file.read_text()):
            await asyncio.sleep(0.1)
    return int(file.read_text().split()[0])


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
            sent = [url for url in tab.requested if not url.startswith((own, "data:", "about:"))]
            assert sent == []

    asyncio.run(whole())

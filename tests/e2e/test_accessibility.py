"""The pages of a run, of a comparison, and of `memray-eval view` under axe-core, an accessibility
checker: no finding that it calls serious or critical, light and dark, on a screen and on a phone,
with everything opened.

axe-core is the one of package-lock.json, which npm fetches once. Skipped without Chromium, or
without both axe-core and npm: tests/README.md says how to get them."""

import os
import subprocess
from pathlib import Path
from shutil import which

import pytest

from memray_eval.report.html.page import write_html
from memray_eval.results.run_folder import RunFolder
from tests.build import run_command
from tests.conftest import REPOSITORY
from tests.e2e.browser import OPENED, OVERFLOW, Tab, in_browser, needs_chromium
from tests.e2e.test_view_browser import made_runs, served
from tests.runs import chat_records, write_summarised
from tests.unit.report.test_view_runs import unfinished

HERE = REPOSITORY / "tests/e2e"
AXE = Path(os.environ.get("AXE_CORE") or HERE / "node_modules/axe-core/axe.min.js")
pytestmark = [
    pytest.mark.night,
    needs_chromium,
    pytest.mark.skipif(
        not AXE.exists() and which("npm") is None, reason="no axe-core and no npm here"
    ),
]
METRICS = ("empathy", "coherence")
LOOKS = (("light", 1400), ("dark", 1400), ("light", 390), ("dark", 390))
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
# The page hears of its new size in the next frame
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
FINDINGS = """axe.run().then((found) => found.violations
  .filter((one) => ['serious', 'critical'].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(' ')).slice(0, 5)}`))"""


async def check(tab: Tab) -> None:
    if not AXE.exists():
        subprocess.run(("npm", "ci", "--no-audit", "--no-fund"), cwd=HERE, check=True)
    await tab.evaluate(f"{AXE.read_text('utf-8')}; 1")
    for scheme, width in LOOKS:
        await tab.look(scheme, width)
        await tab.evaluate(DRAWN)
        assert await tab.evaluate(OVERFLOW) <= 0, (scheme, width)
        assert await tab.evaluate(FINDINGS) == [], (scheme, width)


@pytest.mark.parametrize("page", ["run", "comparison"])
def test_a_page_has_no_serious_finding(tmp_path: Path, page: str) -> None:
    sides = [[*chat_records("old")], [*chat_records("new", {("empathy", "billing"): 1.0})]]
    path = tmp_path / "page.html"
    if page == "run":
        write_html(write_summarised(tmp_path / "run", [*sides[0], *sides[1]], METRICS), str(path))
    else:
        for name, rows in zip("ab", sides, strict=True):
            write_summarised(tmp_path / name, rows, METRICS)
        assert run_command("compare", "a", "b", "--html", str(path), cwd=tmp_path).returncode == 0

    async def steps(tab: Tab) -> None:
        await check(tab)
        await tab.evaluate(OPEN_ALL)
        if page == "run":
            await tab.click("#list li", 1)
            await tab.until(OPENED)
            await tab.evaluate(OPEN_ALL)
        await check(tab)

    in_browser(tmp_path, path, steps)


VIEWED = {
    "the list": "#runs?pick=run-plain&pick=run-kind",
    "a run that was killed": "run/run-killed/",
    "a comparison": "compare?run=run-plain&run=run-kind",
    "a damaged run": "run/run-broken/",
}


@pytest.mark.parametrize("page", VIEWED)
def test_no_page_of_the_viewer_has_a_serious_finding(tmp_path: Path, page: str) -> None:
    work = made_runs(tmp_path / "runs")
    unfinished(work / "run-killed", "running", 12)

    async def steps(tab: Tab) -> None:
        await tab.call("Page.navigate", url=f"{url}{VIEWED[page]}")
        await tab.until(
            f"document.readyState === 'complete' && location.href.endsWith({VIEWED[page]!r})"
        )
        if page == "a run that was killed":
            await tab.until("!document.getElementById('live').hidden")
        await check(tab)

    with served(RunFolder(str(work))) as server:
        url = server.url
        # The browser's own line on the answer of 500
        in_browser(tmp_path, url, steps, complaints=int(page == "a damaged run"))

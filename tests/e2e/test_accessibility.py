"""The page of a run and of a comparison under axe-core, an accessibility checker: no finding that
it calls serious or critical, light and dark, on a screen and on a phone, with everything opened.

axe-core is the one of package-lock.json, which npm fetches once. Skipped without Chromium, or
without both axe-core and npm: tests/README.md says how to get them."""

import os
import subprocess
from pathlib import Path
from shutil import which

import pytest

from memray_eval.cli import main
from memray_eval.report.html.page import write_html
from tests.conftest import REPOSITORY
from tests.e2e.test_report_browser import CHROMIUM, DETAIL, OVERFLOW, Tab, in_browser
from tests.runs import chat_records, write_summarised

HERE = REPOSITORY / "tests/e2e"
AXE = Path(os.environ.get("AXE_CORE") or HERE / "node_modules/axe-core/axe.min.js")
pytestmark = [
    pytest.mark.night,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
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


def test_a_run_s_page_has_no_serious_finding(tmp_path: Path) -> None:
    rows = [*chat_records("old"), *chat_records("new", {("empathy", "billing"): 1.0})]
    path = tmp_path / "page.html"
    write_html(write_summarised(tmp_path / "run", rows, METRICS), str(path))

    async def steps(tab: Tab) -> None:
        await check(tab)
        await tab.evaluate(OPEN_ALL)
        await tab.evaluate("document.querySelectorAll('#list li')[1].click()")
        await tab.until(f"{DETAIL}.hidden === false")
        await tab.evaluate(OPEN_ALL)
        await check(tab)

    in_browser(tmp_path, path, steps)


def test_a_comparison_s_page_has_no_serious_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        write_summarised(tmp_path / "before", chat_records("old"), METRICS),
        write_summarised(
            tmp_path / "after", chat_records("new", {("empathy", "billing"): 1.0}), METRICS
        ),
    ]
    path = tmp_path / "comparison.html"
    words = ["memray-eval", "compare", *(run.path for run in runs), "--html", str(path)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code

    async def steps(tab: Tab) -> None:
        await check(tab)
        await tab.evaluate(OPEN_ALL)
        await check(tab)

    in_browser(tmp_path, path, steps)

"""What `memray-eval view` serves of a folder under axe-core, as test_accessibility.py holds the
pages to it: the list of runs, a run that has not finished, a comparison, and what cannot be
shown."""

from pathlib import Path

import pytest

from memray_eval.results.run_folder import RunFolder
from tests.e2e.test_accessibility import check, pytestmark  # noqa: F401 (what it skips without)
from tests.e2e.test_report_browser import Tab, in_browser
from tests.e2e.test_view_browser import made_runs, served
from tests.unit.report.test_view_runs import unfinished

PLACES = {
    "the list": "#runs?pick=run-plain&pick=run-kind",
    "a run that was killed": "run/run-killed/",
    "a comparison": "compare?run=run-plain&run=run-kind",
    "a damaged run": "run/run-broken/",
}


@pytest.mark.parametrize("page", PLACES)
def test_no_page_of_the_viewer_has_a_serious_finding(tmp_path: Path, page: str) -> None:
    work = made_runs(tmp_path / "runs")
    unfinished(work / "run-killed", "running", 12)

    async def steps(tab: Tab) -> None:
        await tab.call("Page.navigate", url=f"{url}{PLACES[page]}")
        await tab.until(
            f"document.readyState === 'complete' && location.href.endsWith({PLACES[page]!r})"
        )
        if page == "a run that was killed":
            await tab.until("!document.getElementById('live').hidden")
        await check(tab)

    with served(RunFolder(str(work))) as server:
        url = server.url
        # The browser's own line on the answer of 500
        in_browser(tmp_path, url, steps, complaints=int(page == "a damaged run"))
